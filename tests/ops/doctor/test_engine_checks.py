"""onnxruntime and torch are tried in a process of their own: one that dies takes nobody with it."""

import json
import os
import platform
import subprocess
import sys
from importlib.metadata import requires
from importlib.resources import files

import numpy as np
import pytest

from edgefl.learn.models.build import build
from edgefl.learn.models.onnx.bundle import unpack
from edgefl.learn.models.onnx_backend import OnnxModel
from edgefl.ops.doctor.engines import PINS, engine
from edgefl.ops.doctor.probe import BUNDLE, CLASSES, NETWORK, SAMPLE

DIES = "import os, signal\nos.kill(os.getpid(), signal.SIGILL)\n"
NO_CUDA = "raise OSError('libcudart.so.12: cannot open shared object file: No such file or directory')\n"
NOT_THERE = {"sitecustomize.py": "import sys\nsys.modules['torch'] = None\n"}
PIN = PINS.get(("torch", platform.machine())) or PINS["torch", ""]


@pytest.fixture
def world(tmp_path):
    """The environment of a process that finds these files before everything that is installed."""

    def make(texts):
        for name, text in texts.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        return {**os.environ, "PYTHONPATH": str(tmp_path)}

    return make


def test_onnxruntime_makes_a_training_step_here():
    finding = engine("onnxruntime", needed=True)
    assert (finding.level, finding.text.endswith("a training step works")) == ("ok", True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (DIES, ["SIGILL", "Illegal instruction"]),
        (NO_CUDA, ["OSError: libcudart.so.12: cannot open shared object file"]),
    ],
    ids=["illegal instruction", "no CUDA library"],
)
def test_a_torch_that_does_not_import_is_told_with_its_pin(world, text, words):
    environment = world({"torch/__init__.py": text})
    needed, not_needed = [engine("torch", needed=n, environment=environment) for n in (True, False)]
    assert (needed.level, not_needed.level) == ("wrong", "warning")
    assert all(word in needed.text for word in words)
    assert needed.remedy == f"pip install '{PIN}'"
    assert "a device does not need it" in not_needed.text
    assert "a device does not need it" not in needed.text


def test_a_torch_that_is_not_there_is_missed_only_where_it_is_needed(world):
    environment = world(NOT_THERE)
    assert engine("torch", needed=True, environment=environment).remedy == f"pip install '{PIN}'"
    finding = engine("torch", needed=False, environment=environment)
    assert (finding.level, finding.text) == ("ok", "not installed; a device does not need it")


def test_an_onnxruntime_that_dies_is_wrong_and_named(world):
    finding = engine("onnxruntime", needed=True, environment=world({"onnxruntime/__init__.py": DIES}))
    assert finding.level == "wrong"
    assert "SIGILL" in finding.text
    assert "onnxruntime>=1.23.2" in finding.remedy


def test_the_doctor_survives_and_says_so_with_its_exit_code(world, tmp_path):
    environment = world({"torch/__init__.py": DIES})
    command = [sys.executable, "-m", "edgefl", "doctor", "--json", "--torch"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    findings = {line["what"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 1
    assert done.stderr == ""
    assert findings["torch"]["level"] == "wrong"
    assert "SIGILL" in findings["torch"]["text"]
    assert findings["onnxruntime"]["level"] == "ok"
    assert "Mosquitto" in findings  # it went on to the end


def test_the_pins_are_those_of_the_package():
    requirements = [line.partition(";")[0].strip() for line in requires("edgefl") or () if "torch" in line]
    assert any(set(line.removeprefix("torch").split(",")) == {">=2.13", "<2.14"} for line in requirements)
    assert PINS["torch", ""] == "torch>=2.13,<2.14"


def test_the_bundle_of_the_probe_is_what_torch_computes():
    model = OnnxModel(unpack((files("edgefl.ops.doctor") / BUNDLE).read_bytes()))
    reference, w = build(NETWORK, SAMPLE, CLASSES, seed=0)
    assert model.layout == reference.layout
    x = np.random.default_rng(3).normal(size=(5, *SAMPLE)).astype(np.float32)
    (z, pullback), (expected, back) = model.vjp(w, x), reference.vjp(w, x)
    np.testing.assert_allclose(z, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(pullback(z), back(expected), rtol=1e-4, atol=1e-5)
