"""What a run learns where it is neither one class nor some real numbers: how rows are read, and what they are worth."""
