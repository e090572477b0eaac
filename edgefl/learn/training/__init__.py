"""Training: the descent that all device halves share, training on public data, projections."""
