"""What survives a restart: journal, checkpoints, and where a run begins again."""
