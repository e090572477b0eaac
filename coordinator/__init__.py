"""The server half of the runtime."""
