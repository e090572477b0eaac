"""What the server keeps on disk."""
