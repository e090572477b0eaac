"""The files an operator writes: what may stand in them, how they are read, where a value came from."""
