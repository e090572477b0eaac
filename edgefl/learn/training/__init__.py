"""Training: the walk all device halves share, training on public data, projections."""
