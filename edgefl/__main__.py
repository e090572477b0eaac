"""`python -m edgefl` is `edgefl`."""

from edgefl.cli.door import main

main()
