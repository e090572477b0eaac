"""What a process on a small device gives back, it can do without."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgefl.learn.models import onnx_backend
from edgefl.learn.models.build import build_module
from edgefl.learn.models.onnx_backend import OnnxModel
from edgefl.learn.models.onnx_export import export
from edgefl.system.resident_memory import release_code

pytestmark = pytest.mark.skipif("CS_GNU_LIBC_VERSION" not in os.confstr_names, reason="asks glibc and Linux for memory")

# Pages of one size on every machine: where the kernel gives out large ones by itself, there are fewer faults to count.
SMALL_PAGES = """
import ctypes
PR_SET_THP_DISABLE = 41
ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)
"""

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

MESSAGES = f"""{SMALL_PAGES}
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

ANSWERS = f"""{SMALL_PAGES}
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
import sys
from pathlib import Path
from typing import Annotated
from pydantic import BaseModel, Field
from edgefl.wire.messages import Graphs, Manifest
def taken():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))
Graphs.model_rebuild()  # what the first one takes, whichever it is
before = taken()
if sys.argv[1] == "manifest":
    Manifest.model_rebuild()
else:
    class Counting(BaseModel):
        key: Annotated[str, Field(pattern=r"^[^\\p{Cc}\\p{Cf}\\p{Zl}\\p{Zp}]{0,200}$")]
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


def test_a_frugal_model_lets_go_before_and_after_it_loads_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """How much that is differs by machine: kernels map more or less of a file around the page that is needed."""
    bundle = export(build_module("mlp", (1, 8, 8), 4, seed=0), (1, 8, 8))
    load, did = onnx_backend.loaded, list[str]()

    def loaded(*given: object, **more: object) -> object:
        did.append("load")
        return load(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(onnx_backend, "loaded", loaded)
    monkeypatch.setattr(onnx_backend, "release_code", lambda: did.append("let go"))
    for frugal in (False, True):
        model = OnnxModel(bundle, frugal=frugal)
        model.logits(np.zeros(model.layout.size, np.float32), np.zeros((3, 1, 8, 8), np.float32))
    assert did == ["load", "let go", "load", "let go"]


def test_a_thread_takes_its_memory_from_the_heap_that_all_share() -> None:
    def shared(how: str) -> str:
        plain = {key: value for key, value in os.environ.items() if not key.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
        command = [sys.executable, "-c", ARENAS, how]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=plain)
        return done.stdout.strip()

    assert (shared("one"), shared("many")) == ("True", "False")


def test_the_memory_of_a_message_does_for_the_next_one() -> None:
    def faults(kept: str) -> int:
        done = subprocess.run([sys.executable, "-c", MESSAGES, kept], capture_output=True, text=True, check=True)
        return int(done.stdout)

    assert 10 * faults("64") < faults("0")


def test_to_read_a_manifest_takes_less_than_one_pattern_that_counts_characters() -> None:
    def kilobytes(which: str) -> int:
        done = subprocess.run([sys.executable, "-c", MANIFEST, which], capture_output=True, text=True, check=True)
        return int(done.stdout)

    assert 4 * kilobytes("manifest") < kilobytes("pattern")  # its automaton would be in the agent and in its box


def test_what_a_simulated_round_frees_does_for_the_next_one_until_the_simulation_ends() -> None:
    def faults(how: str) -> list[int]:
        done = subprocess.run([sys.executable, "-c", ANSWERS, how], capture_output=True, text=True, check=True)
        return [int(count) for count in done.stdout.split()]

    (kept, after), (anew, _) = faults("kept"), faults("not")
    assert 10 * kept < anew
    assert 10 * kept < after
