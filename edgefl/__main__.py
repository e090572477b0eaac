"""`python -m edgefl` is `edgefl`."""

from edgefl.cli.entry import main

main()
