"""What a server answers over HTTP: its API, its page, and figures for Prometheus."""
