"""What keeps an agent small and safe: one algorithm in memory, and no output that onnxruntime could take back."""

import subprocess
import sys

import numpy as np

from edgefl.models.build import build_module
from edgefl.models.onnx_backend import OnnxModel
from edgefl.models.onnx_export import export

ASKED = """
import sys
import device_agent.start
from edgefl.algorithms import registry
def loaded():
    return {name.rpartition(".")[2] for name in sys.modules if name.startswith("edgefl.algorithms.")}
before = loaded()
registry.algorithm({"name": "fedprox"})
print(*sorted(before), "|", *sorted(loaded() - before))
"""


def test_an_agent_imports_the_algorithm_it_is_asked_for_and_no_other() -> None:
    done = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    before, after = done.stdout.split("|")
    assert set(before.split()) == {"registry"}
    assert "fedprox" in after.split()
    assert not {"flashback", "gradma", "fedgc", "moon"} & set(after.split())


def test_an_agent_does_without_what_may_stand_in_a_run_file() -> None:
    loaded = "import sys, device_agent.start; print(*(name for name in sys.modules if name.startswith('edgefl.')))"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert "edgefl.config.agent_file" in done.stdout.split()
    assert not {"edgefl.config.schema", "edgefl.hardware.profiles", "edgefl.robustness"} & set(done.stdout.split())


def test_what_a_pass_hands_out_is_memory_of_ours() -> None:
    model = OnnxModel(export(build_module("lenet5", (1, 28, 28), 10, seed=0), (1, 28, 28)))
    rng = np.random.default_rng(0)
    w = rng.standard_normal(model.layout.size, np.float32) * np.float32(0.05)
    x = rng.standard_normal((2, 3, 1, 28, 28), np.float32)
    z, pullback = model.vjp(w, x[0])
    first, seen = z.copy(), pullback(z)
    later = [model.vjp(w, x[1])[0] for _ in range(3)]
    assert all(array.flags.owndata for array in (z, *later, seen))
    assert np.array_equal(z, first)
    assert np.array_equal(pullback(z), seen)  # what it kept is still what the first pass wrote
    assert not np.array_equal(z, later[0])
