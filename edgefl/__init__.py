"""Federated learning for real edge devices. Importing this package never imports torch."""

__version__ = "0.1.0"
