"""The same job without a network: a plain loop."""
