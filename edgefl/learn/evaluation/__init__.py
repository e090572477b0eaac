"""What a model is worth: metrics, forgetting, what algorithms counted, and how it is said."""
