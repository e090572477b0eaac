"""Learning: algorithms, selection, training, privacy, tasks, evaluation, data and models."""
