"""Aggregation in which no single device matters: one file for each stage."""
