"""What an operator uses beside a run: doctor and benchmarks of their own machines."""
