"""What keeps an agent small and safe: one algorithm in memory, and no output that onnxruntime could take back."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from edgefl.learn.models.build import build_module
from edgefl.learn.models.onnx.bundle import pack
from edgefl.learn.models.onnx_backend import OnnxModel
from edgefl.learn.models.onnx_export import export

ASKED = """
import sys
import device_agent.start
from edgefl.learn.algorithms import registry
def loaded():
    return {name.rpartition(".")[2] for name in sys.modules if name.startswith("edgefl.learn.algorithms.")}
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
    loaded = "import sys, device_agent.start; print(*(name for name in sys.modules if '.' in name))"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert "edgefl.job.config.agent_file" in done.stdout.split()
    assert not {
        "device_agent.shell.diagnosis",
        "device_agent.shell.examination",
        "device_agent.decide.questions",
    } & set(done.stdout.split()), "most agents are never asked how they are"
    assert not {"edgefl.job.config.schema", "edgefl.system.hardware.profiles", "edgefl.learn.robustness"} & set(
        done.stdout.split()
    )


SLIM = """
import sys
from edgefl.system.slim_imports import slim
slim()
import device_agent.start
from edgefl.job.config.agent_file import AgentFile
AgentFile.model_validate({"agent": {"id": "a"}, "data": {"source": "digits"}})
print(*({"email", "http.client", "urllib.request", "importlib.metadata"} & set(sys.modules)))
import urllib.request
print(*urllib.request.Request("http://localhost/").get_method(), sys.modules["urllib.request"].__file__ is not None)
"""


def test_an_agent_has_neither_mail_nor_http_in_memory_until_somebody_uses_them() -> None:
    done = subprocess.run([sys.executable, "-c", SLIM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    before, after = done.stdout.splitlines()
    assert before.split() == ["urllib.request"]  # in name only
    assert after == "G E T True"


BOXED = """
import sys
from edgefl.system.slim_imports import slim
slim()
import device_agent.box.fork_server
print(*sys.modules)
"""


def test_what_a_box_is_forked_from_has_neither_the_network_nor_keys_nor_what_reads_data() -> None:
    done = subprocess.run([sys.executable, "-c", BOXED], capture_output=True, text=True, check=True)
    ours = {"device_agent.shell.service", "edgefl.learn.data.source", "edgefl.wire.mqtt", "edgefl.system.store"}
    theirs = {"cryptography", "numpy.ma", "onnxruntime", "paho", "safetensors", "ssl", "zipfile"}
    assert not (ours | theirs) & set(done.stdout.split())


READ = """
import sys
from pathlib import Path
from edgefl.system.slim_imports import slim
slim()
import device_agent.start
from edgefl.job.config.agent_file import LocalData
samples = device_agent.start.samples_of(LocalData(source=sys.argv[1]))
print(len(samples.data), "numpy.ma" in sys.modules)
"""


def test_an_agent_reads_its_samples_without_masked_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x=np.ones((50, 4), np.float32), y=np.arange(50) % 3)
    command = [sys.executable, "-c", READ, f"npz:{tmp_path / 'own.npz'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["40", "False"]


SUMMED = """
import sys
from pathlib import Path
from edgefl.system.slim_imports import slim
slim()
import device_agent.start
from device_agent.durable.counted_rows import SUMMED, CountedRows
from edgefl.job.config.agent_file import LocalData
from edgefl.system.disk import FolderDisk
for count in (50, 55):
    samples = device_agent.start.samples_of(LocalData(source=f"npz:{sys.argv[1]}/{count}.npz"))
    samples.sum_over(CountedRows(FolderDisk(Path(sys.argv[1])), SUMMED).left_out)
    print(len(samples.left_out), "numpy.ma" in sys.modules)
"""


def test_an_agent_chooses_the_rows_of_its_sums_without_masked_arrays(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(55, 4)).astype(np.float32)
    for count in (50, 55):
        np.savez(tmp_path / f"{count}.npz", x=x[:count], y=np.arange(count) % 3)
    command = [sys.executable, "-c", SUMMED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["0 False", "4 False"]  # 44 are trained on, the 40 from before and 4 new ones


GRAPHS = """
import sys
import numpy as np
from pathlib import Path
from edgefl.learn.models.onnx.bundle import unpack
from edgefl.learn.models.onnx_backend import OnnxModel
from edgefl.system.resident_memory import one_heap
one_heap()
model = OnnxModel(unpack(Path(sys.argv[1]).read_bytes()), frugal=sys.argv[2] == "frugal")
w = np.random.default_rng(0).standard_normal(model.layout.size, np.float32) * np.float32(0.05)
x = np.ones((64, 1, 28, 28), np.float32)
sums = [float(np.abs(z).sum()) for z in (model.logits(w, x), model.vjp(w, x)[1](model.vjp(w, x)[0]))]
lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
print(next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")), *sums)
"""


def test_graphs_that_run_in_turn_share_their_memory_and_compute_the_same(tmp_path: Path) -> None:
    graphs = tmp_path / "graphs"
    graphs.write_bytes(pack(export(build_module("lenet5", (1, 28, 28), 10, seed=0), (1, 28, 28))))

    def run(how: str) -> list[str]:
        command = [sys.executable, "-c", GRAPHS, str(graphs), how]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    (shared, *sums), (apart, *same) = run("frugal"), run("not")
    assert sums == same
    assert int(shared) < int(apart) - 1024


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
