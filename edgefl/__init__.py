"""Federated learning for real edge devices. Importing this package never imports torch."""

import os

__version__ = "0.1.0"

# From 1.29 on, onnxruntime tells its maker about every model and session unless this is set before it is imported:
# graph and weight hashes, file names, an identifier of the device. Nothing leaves our devices unasked.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
