"""One file per paper; shelf.py finds them by name."""
