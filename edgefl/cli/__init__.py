"""The command line: one module per group of commands, wired in app.py."""
