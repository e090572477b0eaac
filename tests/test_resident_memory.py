"""What a process on a small device gives back, it can do without."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from edgefl.models.build import build_module
from edgefl.models.onnx_backend import OnnxModel
from edgefl.models.onnx_export import export
from edgefl.system.resident_memory import release_code

ARENAS = """
import ctypes, sys
from threading import Thread
from edgefl.system.resident_memory import one_heap
if sys.argv[1] == "one":
    one_heap()
malloc = ctypes.CDLL(None).malloc
malloc.restype = ctypes.c_void_p
heap = next(line.split("-") for line in open("/proc/self/maps") if line.rstrip().endswith("[heap]"))
found = []
thread = Thread(target=lambda: found.append(malloc(100)))
thread.start()
thread.join()
start, end = int(heap[0], 16), int(heap[1].split()[0], 16)
print(start <= found[0] < end + (64 << 20))
"""

MESSAGES = """
import resource, sys
import numpy as np
from edgefl.system.resident_memory import one_heap
one_heap(kept=int(sys.argv[1]) << 20)
def message():
    return len(b"".join([np.full(480 << 10, 7, np.uint8).data for _ in range(9)]))
message()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
sum(message() for _ in range(10))
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

ANSWERS = """
import resource, sys
import numpy as np
from contextlib import nullcontext
from edgefl.system.resident_memory import freed_kept
def answers():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    held = [np.ones(4 << 20, np.uint8) for _ in range(24)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
np.empty(31 << 20, np.uint8)  # as a model does: pieces of this size come from the heap
with freed_kept(1 << 30) if sys.argv[1] == "kept" else nullcontext():
    answers()
    print(answers())
print(answers())
"""

MANIFEST = """
from pathlib import Path
from edgefl.protocol.messages import Graphs, Manifest
def taken():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))
Graphs.model_rebuild()  # what the first one takes, whichever it is
before = taken()
Manifest.model_rebuild()
print(taken() - before)
"""


def resident(library: str) -> int:
    """Bytes of a library's code that this process has in memory."""
    total, ours = 0, False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            ours = words[1] == "r-xp" and library in words[-1]
        elif ours and words[0] == "Rss:":
            total += int(words[1]) << 10
    return total


def test_code_that_is_let_go_of_comes_back_when_it_runs_and_computes_the_same() -> None:
    model = OnnxModel(export(build_module("mlp", (1, 8, 8), 4, seed=0), (1, 8, 8)))
    rng = np.random.default_rng(0)
    w, x = rng.standard_normal(model.layout.size, np.float32), rng.standard_normal((3, 1, 8, 8), np.float32)
    before = model.logits(w, x)
    held = resident("onnxruntime")
    assert release_code() > held
    released = resident("onnxruntime")
    assert held > 4 * released
    assert np.array_equal(model.logits(w, x), before)
    assert resident("onnxruntime") > released


def test_a_frugal_model_has_let_go_of_what_only_loading_needed() -> None:
    bundle = export(build_module("mlp", (1, 8, 8), 4, seed=0), (1, 8, 8))
    x = np.zeros((3, 1, 8, 8), np.float32)
    held = []
    for frugal in (False, True):
        model = OnnxModel(bundle, frugal=frugal)
        model.logits(np.zeros(model.layout.size, np.float32), x)
        held.append(resident("onnxruntime"))
    assert held[1] < 0.7 * held[0]


def test_a_thread_takes_its_memory_from_the_heap_that_all_share() -> None:
    def shared(how: str) -> str:
        done = subprocess.run([sys.executable, "-c", ARENAS, how], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert (shared("one"), shared("many")) == ("True", "False")


def test_the_memory_of_a_message_does_for_the_next_one() -> None:
    def faults(kept: str) -> int:
        done = subprocess.run([sys.executable, "-c", MESSAGES, kept], capture_output=True, text=True, check=True)
        return int(done.stdout)

    assert 10 * faults("64") < faults("0")


def test_to_read_a_manifest_takes_less_than_a_megabyte() -> None:
    done = subprocess.run([sys.executable, "-c", MANIFEST], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1024  # the automaton of one pattern took 2200, in the agent and in its box


def test_what_a_simulated_round_frees_does_for_the_next_one_until_the_simulation_ends() -> None:
    def faults(how: str) -> list[int]:
        done = subprocess.run([sys.executable, "-c", ANSWERS, how], capture_output=True, text=True, check=True)
        return [int(count) for count in done.stdout.split()]

    (kept, after), (anew, _) = faults("kept"), faults("not")
    assert 10 * kept < anew
    assert 10 * kept < after
