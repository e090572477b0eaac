"""How the cost of a round grows with the fleet, the cohort and the model, over a real broker."""
