"""What a run file means, and what a worker does with it."""
