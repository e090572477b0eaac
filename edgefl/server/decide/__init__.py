"""Pure decisions of the server: which runs work, which wait, what is kept."""
