"""The shelf of algorithms."""
