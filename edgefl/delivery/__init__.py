"""The trained model as a file of its own: written, described, opened and judged."""
