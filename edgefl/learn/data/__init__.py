"""Datasets: where they come from and how they are divided among devices."""
