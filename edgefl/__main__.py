"""`python -m edgefl` is `edgefl`."""

from edgefl.cli.app import main

main()
