"""What is known of a run, from its facts alone: for the page, `edgefl status`, the live view and the report."""
