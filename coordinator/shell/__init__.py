"""Carry out what `coordinator.decide` decides: messages, models, background work."""
