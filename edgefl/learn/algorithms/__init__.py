"""One file per paper; registry.py finds them by name."""
