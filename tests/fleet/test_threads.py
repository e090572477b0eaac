"""The same model, bit for bit, in whatever thread the work is done and however many threads OpenMP may have."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fleets import prepared
from thread_hashes import ALGORITHMS, the_run
from with_tools import with_tools

from edgefl.learn.training.projection import inner
from edgefl.system import blas

HERE = Path(__file__).parent
OPENMP = (None, "1", "2", "8")  # OMP_NUM_THREADS; None: as many as the machine has cores

# Not torch.get_num_threads: in a new thread it first passes on what was set in another, and so answers the question
# before the work asks it.
THREADS_INSIDE = """
import threading
import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from edgefl.learn.models.torch_backend import TorchModel, initial_params

openmp = ThreadpoolController().select(filepath=[
    library["filepath"] for library in ThreadpoolController().info()
    if library["user_api"] == "openmp" and "torch" in library["filepath"]
])
seen = {}

class Net(torch.nn.Linear):
    def forward(self, x):
        seen[step] = openmp.info()[0]["num_threads"]
        return super().forward(x)

class Watched(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        seen["pullback"] = openmp.info()[0]["num_threads"]
        return gradient

net = torch.nn.Sequential(Net(3, 2), torch.nn.Identity())
net[1].forward = Watched.apply
model, w, x = TorchModel(net, threads=THREADS), initial_params(net), np.ones((4, 3), np.float32)

def in_a_new_thread(name, work):
    global step
    step = name
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

in_a_new_thread("logits", lambda: model.logits(w, x))
in_a_new_thread("input gradient", lambda: model.input_gradient(w, x, np.ones((4, 2), np.float32)))
pulled = []
in_a_new_thread("vjp", lambda: pulled.append(model.vjp(w, x)[1]))
in_a_new_thread("", lambda: pulled[0](np.ones((4, 2), np.float32)))
print(sorted(set(seen.values())), sorted(seen))
"""


def environment(openmp: str | None) -> dict[str, str]:
    """This process's, with so many threads for OpenMP; they sleep while they wait, for there may be more than cores."""
    rest = {key: value for key, value in with_tools().items() if not key.endswith("_NUM_THREADS")}
    return {**rest, "OMP_WAIT_POLICY": "passive", **({} if openmp is None else {"OMP_NUM_THREADS": openmp})}


def test_every_way_to_play_a_run_gives_the_same_model_with_any_number_of_openmp_threads(tmp_path: Path) -> None:
    job, _ = prepared(the_run(ALGORITHMS[0], "onnx", threads=1))
    assert job.graphs is not None
    (tmp_path / "graphs").write_bytes(job.graphs)
    command = [sys.executable, str(HERE / "thread_hashes.py"), str(tmp_path / "graphs")]
    running = {
        openmp: subprocess.Popen(command, env=environment(openmp), stdout=subprocess.PIPE, text=True)
        for openmp in OPENMP
    }
    answers = {openmp: process.communicate()[0] for openmp, process in running.items()}
    assert all(process.returncode == 0 for process in running.values())
    tables = {openmp: json.loads(answer) for openmp, answer in answers.items()}
    for run in tables[None]:
        models = {(openmp, way): model for openmp, table in tables.items() for way, model in table[run].items()}
        assert len(set(models.values())) == 1, f"{run}: {models}"


@pytest.mark.parametrize("threads", [1, 3])
def test_torch_computes_in_any_thread_with_the_number_of_threads_it_was_given(threads: int) -> None:
    code = THREADS_INSIDE.replace("THREADS)", f"{threads})")
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment("8"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("] ")[0] + "]" == f"[{threads}]", done.stdout
    assert all(step in done.stdout for step in ("input gradient", "logits", "pullback", "vjp"))


def test_gram_matrices_do_not_depend_on_the_number_of_blas_threads() -> None:
    controller = pytest.importorskip("threadpoolctl").ThreadpoolController().select(user_api="blas")
    rows = np.random.default_rng(0).standard_normal((201, 2000)).astype(np.float32)
    tables = []
    for threads in (1, 2, 8):
        with controller.limit(limits=threads), blas.one_thread():
            tables.append(inner(rows).tobytes())
    assert len(set(tables)) == 1


def test_whoever_leaves_last_gives_numpy_its_threads_back() -> None:
    pytest.importorskip("threadpoolctl")

    def threads() -> set[int]:
        return {model_cache["num_threads"] for model_cache in blas.libraries().info()}

    with blas.libraries().limit(limits=2):
        outer, other = blas.one_thread(), blas.one_thread()
        outer.__enter__()
        other.__enter__()
        outer.__exit__(None, None, None)  # the two overlap, as the work of two threads does
        assert threads() == {1}
        other.__exit__(None, None, None)
        assert threads() == {2}


def test_the_command_line_gives_numpy_one_thread_before_it_is_imported() -> None:
    code = (
        "import sys\nfrom edgefl.cli.entry import main\nassert 'numpy' not in sys.modules\n"
        "sys.argv = ['edgefl', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "import numpy\nfrom threadpoolctl import threadpool_info\n"
        "print([library['num_threads'] for library in threadpool_info() if library['user_api'] == 'blas'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment("8"), capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[1]"
