"""What a run will cost on a fleet that is not there yet, from what was measured on one machine."""
