"""Training back-ends and the networks they run."""
