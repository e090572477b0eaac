"""The device half of the runtime."""
