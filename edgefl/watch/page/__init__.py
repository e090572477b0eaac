"""The page: a run as a browser shows it, served beside the coordinator, or from a run's folder."""
