"""Nothing leaves a device unasked, not through the libraries that it uses either."""

import os
import subprocess
import sys

HIDING = ("CI", "ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS", "XDG_CACHE_HOME")  # would hide what is looked for
TRY = "import edgefl.learn.models.onnx_backend, onnxruntime, os; print(os.environ['ORT_DISABLE_TELEMETRY'])"


def test_the_engine_neither_reports_to_its_maker_nor_names_the_device(tmp_path):
    bare = {name: value for name, value in os.environ.items() if name not in HIDING and "CI" not in name.split("_")}
    done = subprocess.run(
        [sys.executable, "-c", TRY], env={**bare, "HOME": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "1"
    assert not list(tmp_path.rglob("*")), "onnxruntime wrote its identifier of this device"
