"""What is decided is carried out here: messages, models, background work."""
