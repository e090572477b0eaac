"""Training in a box: whatever a graph or an algorithm does there costs a task, and never the agent."""

import ast
import json
import signal
import struct
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import boxed
import psutil
import pytest

from edgefl.job.config.toml_text import table as section
from edgefl.system import landlock, seccomp
from edgefl.system.confinement import allow_mapping
from edgefl.wire.broker import Broker

ROOT = Path(__file__).parents[2]
CRASHES = {
    "segfault": "box.crashed: the process that trained ended with SIGSEGV",
    "abort": "box.crashed: the process that trained ended with SIGABRT",
    "exit": "box.crashed: the process that trained ended with exit code 7",
    "eat": "box.memory: training needs more memory than compute.memory_mb = 256",
    "kill": "box.crashed: the process that trained ended with SIGKILL",
}
FORBIDDEN = ["socket", "passwd", "key", "write", "remove", "exec", "fork", "signal", "signal of a file", "environment"]
FORBIDDEN += ["look into the agent", "memory of the agent", "files of the agent", "lead elsewhere", "lift its limits"]
FORBIDDEN += ["limits of the agent", "grow downwards", "huge pages", "write later", "pieces of the stack"]
LIES = ["steps below zero", "pace of no number", "numbers of no file", "words of no characters", "another message"]
LIES += ["another round", "no message", "a header without end", "garbage", "lists in lists", "a body without end"]
FILES = [
    "passwd",
    "key",
    "environment",
    "memory of the agent",
    "files of the agent",
]  # whose reading only Landlock forbids

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel is not Linux")


def played(folder: Path, *acts: str) -> dict[str, dict[str, Any]]:
    command = [sys.executable, boxed.__file__, str(folder), *acts]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return {line["act"]: line for line in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """All acts, one after the other, in the boxes of one agent."""
    return played(tmp_path_factory.mktemp("box"), "nothing", *CRASHES, *FORBIDDEN, *LIES, "cancel")


def test_training_in_a_box_gives_the_same_bits(outcomes: dict[str, dict[str, Any]]) -> None:
    assert outcomes["nothing"]["trained"]
    assert all(line["same_bits"] for line in outcomes.values())


@pytest.mark.parametrize("act", CRASHES)
def test_what_ends_the_box_costs_a_task_and_the_next_one_is_trained(
    act: str, outcomes: dict[str, dict[str, Any]]
) -> None:
    line = outcomes[act]
    assert line["told"].startswith(CRASHES[act])
    assert not line["mistake"]
    assert line["trained"], line["why"]
    assert not line["same_box"]
    assert line["agent"] == outcomes["nothing"]["agent"]


@linux
@pytest.mark.parametrize("act", FORBIDDEN)
def test_a_box_has_no_files_no_network_and_no_programs(act: str, outcomes: dict[str, dict[str, Any]]) -> None:
    if act in FILES and not landlock.version():
        pytest.skip("this kernel has no Landlock")
    line = outcomes[act]
    if "without" in line["said"] and act not in FILES:
        pytest.skip(f"this kernel gives {line['said']}")
    assert line["told"].startswith("PermissionError.")
    assert line["told"].endswith(": the device's own log says more")
    assert line["trained"], line["why"]


@pytest.mark.parametrize("act", LIES)
def test_what_a_box_says_is_an_answer_to_its_task_or_costs_the_task(
    act: str, outcomes: dict[str, dict[str, Any]]
) -> None:
    line = outcomes[act]
    assert (line["told"] or "").startswith("box.malformed: "), "the agent would sign it, or end with it"
    assert line["trained"], line["why"]
    assert not line["same_box"]


def test_what_hangs_in_native_code_ends_when_its_task_is_superseded(outcomes: dict[str, dict[str, Any]]) -> None:
    line = outcomes["cancel"]
    assert line["trained"], line["why"]
    assert not line["same_box"]


@pytest.mark.night
@pytest.mark.parametrize("act", ["burn", "steps without end", "a byte now and then"])
def test_what_never_ends_is_ended_after_its_time(act: str, tmp_path: Path) -> None:
    line = played(tmp_path, act)[act]
    assert line["told"].startswith("box.time: training did not end within 10 s")
    assert line["trained"], line["why"]


CONFINED = """
import ctypes, resource, sys
from edgefl.system import seccomp
from edgefl.system.confinement import confine
seccomp.close = lambda _: False  # a kernel without it
print(confine(256 << 20))
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
for flag in (0, 0x100):  # 0x100: MAP_GROWSDOWN, which RLIMIT_DATA does not count
    place = libc.mmap(None, ctypes.c_size_t(int(sys.argv[1]) << 20), 3, 0x22 | flag, -1, ctypes.c_long(0))
    print(flag, place != ctypes.c_void_p(-1).value)
print(resource.getrlimit(resource.RLIMIT_STACK)[1] >> 20)
"""


@linux
def test_where_calls_are_not_filtered_the_address_space_still_is_limited() -> None:
    told = {}
    for size in (100, 1536):
        done = subprocess.run(
            [sys.executable, "-c", CONFINED, str(size)], capture_output=True, text=True, check=True, timeout=60
        )
        told[size] = done.stdout.splitlines()[1:]
    assert told == {100: ["0 True", "256 True", "8"], 1536: ["0 False", "256 False", "8"]}


LENT = """
import ctypes
from edgefl.system.confinement import confine
confine(16 << 20)
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
for _ in range(2):
    place = libc.mmap(None, ctypes.c_size_t(1 << 30), 1, 0x22, -1, ctypes.c_long(0))  # only to be read
    print(place != ctypes.c_void_p(-1).value, flush=True)
    input()
"""


@linux
def test_samples_that_are_lent_to_a_box_do_not_count_as_its_own() -> None:
    child = subprocess.Popen([sys.executable, "-c", LENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with child:
        assert child.stdin
        assert child.stdout
        told = [child.stdout.readline()]
        allow_mapping(child.pid, 1 << 30)
        child.stdin.write("\n")
        child.stdin.flush()
        told.append(child.stdout.readline())
        child.communicate("\n", timeout=60)
    assert told == ["False\n", "True\n"]


# ---- whole agents ------------------------------------------------------------------------------------------------


class Fleet:
    """Two agents and a coordinator, as an operator starts them; the algorithm is a villain on the first one."""

    def __init__(self, broker: Broker, folder: Path, act: str) -> None:
        partition = {"kind": "dirichlet", "omega": 0.5, "devices": 2}
        tables: dict[str, dict[str, Any]] = {
            "run": {"name": "boxed", "rounds": 3, "seed": 3, "folder": str(folder / "runs")},
            "task": {"data": "synthetic", "model": "softmax", "partition": partition},
            "algorithm": {"name": boxed.NAME},
            "rounds": {"cohort": 2, "quorum": 1, "deadline": 60.0, "start_with": 2},
            "broker": {"url": str(broker.address), "identity": str(folder / "identity.key")},
        }
        (folder / "villain.py").write_text(boxed.VILLAIN)
        (folder / "run.toml").write_text("\n".join(section(name, table) for name, table in tables.items()))
        self.folder, self.agents = folder, list[subprocess.Popen[bytes]]()
        for part, acts in enumerate((act, "nothing")):
            home = folder / f"device-0{part}"
            home.mkdir()
            first = f'task.round == 1 and ACTS["{acts}"]()'
            (home / "villain.py").write_text(boxed.VILLAIN.replace("ACTS[self.act]()", first))
            me = {"id": home.name, "broker": str(broker.address), "folder": str(folder / "state")}
            data = {"source": "synthetic", "partition": partition, "part": part, "seed": 3}
            about = {"agent": me, "data": data, "compute": {"factories": [boxed.NAME]}}
            (home / "agent.toml").write_text("\n".join(section(name, table) for name, table in about.items()))
            self.agents.append(self.start("agent", home / "agent.toml", "--once"))
        self.coordinator = self.start("coordinator", folder / "run.toml", "--json", "--no-rehearse")

    def start(self, who: str, file: Path, *more: str) -> subprocess.Popen[bytes]:
        with (file.parent / f"{who}.log").open("wb") as log:
            command = [sys.executable, "-m", "edgefl", who, "start", str(file), *more]
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def end(self) -> None:
        for process in (self.coordinator, *self.agents):
            process.kill()
            process.wait()


def test_an_agent_survives_its_box_and_trains_the_next_round(mosquitto: Broker, tmp_path: Path) -> None:
    fleet = Fleet(mosquitto, tmp_path, "segfault")
    try:
        codes = [process.wait(180) for process in (fleet.coordinator, *fleet.agents)]
    finally:
        fleet.end()
    log = (tmp_path / "coordinator.log").read_text()
    assert codes == [0, 0, 0], log
    told = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    declined = [event for event in told if event["event"] == "declined"]
    assert [(event["device"], event["round"]) for event in declined] == [("device-00", 1)]
    assert declined[0]["reason"].startswith("box.crashed: the process that trained ended with SIGSEGV")
    answered = {event["round"] for event in told if event["event"] == "answered" and event["device"] == "device-00"}
    assert {2, 3} <= answered


@linux
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_no_box_stays_behind_when_its_agent_ends(number: signal.Signals, mosquitto: Broker, tmp_path: Path) -> None:
    fleet = Fleet(mosquitto, tmp_path, "hang")
    try:
        agent, children = psutil.Process(fleet.agents[0].pid), list[psutil.Process]()
        for _ in range(1200):
            children, log = agent.children(recursive=True), (tmp_path / "device-00" / "agent.log").read_text()
            if len(children) == 2 and "asked" in log:
                break
            time.sleep(0.1)
        assert (len(children), "asked" in log) == (2, True), "the fork server, and a box that hangs"
        maps = Path(f"/proc/{agent.pid}/maps").read_text()
        fleet.agents[0].send_signal(number)
        fleet.agents[0].wait(60)
        _, alive = psutil.wait_procs(children, timeout=60)
    finally:
        fleet.end()
    assert not alive
    assert "onnxruntime" not in maps, "graphs are none of the agent's business"


# ---- how it is made ----------------------------------------------------------------------------------------------


def test_nothing_that_agent_and_box_say_to_each_other_can_run_code() -> None:
    for path in [*(ROOT / "device_agent").rglob("*.py"), ROOT / "edgefl/system/shared_memory.py"]:
        names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
        words = {word for node in ast.walk(ast.parse(path.read_text())) for word in _imports(node)}
        assert not {"pickle", "marshal", "multiprocessing", "shelve", "dill"} & words, path
        assert not {"eval", "exec"} & names, path


def _imports(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    return {(node.module or "").partition(".")[0]} if isinstance(node, ast.ImportFrom) else set()


@pytest.mark.parametrize(
    ("machine", "header"),
    [
        ("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        ("aarch64", "/usr/include/asm-generic/unistd.h"),
    ],
)
def test_the_table_has_the_numbers_of_the_kernel(machine: str, header: str) -> None:
    if not Path(header).exists():
        pytest.skip(f"{header} is not installed")
    lines = [line.split() for line in Path(header).read_text().splitlines() if line.startswith("#define __NR")]
    plain = [line for line in lines if len(line) == 3 and line[2].isdigit()]
    numbers = {line[1].replace("__NR3264_", "").replace("__NR_", ""): line[2] for line in plain}
    names = {"newfstatat": "fstatat"} if machine == "aarch64" else {}
    for name, number, _ in seccomp.calls(machine):
        assert numbers[names.get(name, name)] == str(number), name


def test_the_table_opens_nothing_to_the_outside() -> None:
    for machine in seccomp.MACHINES:
        names = {name for name, _, _ in seccomp.calls(machine)}
        assert not names & {
            "socket",
            "connect",
            "bind",
            "execve",
            "fork",
            "vfork",
            "ptrace",
            "kill",
            "setrlimit",
            "ioctl",
        }
        assert {name for name, _, looked in seccomp.calls(machine) if looked} >= {"clone", "openat", "mmap", "tgkill"}


def verdict(
    machine: str, name: str, *arguments: int, threads: int = 1, number: int = 0, arch: int | None = None
) -> bool:
    """Return whether the filter of this machine lets a call through: the kernel's small machine, played."""
    numbers = {call: place for call, place, _ in seccomp.calls(machine)}
    seen = struct.pack(
        "<IIQ6Q",
        number + numbers[name],
        arch or seccomp.MACHINES[machine][1],
        0,
        *arguments,
        *[0] * (6 - len(arguments)),
    )
    steps = list(struct.iter_unpack("<HBBI", seccomp.program(machine, seccomp.Caller(7, threads))))
    at = value = 0
    while True:
        what, yes, no, operand = steps[at]
        match what:
            case seccomp.LOAD:
                value, went = struct.unpack_from("<I", seen, operand)[0], 0
            case seccomp.RETURN:
                return bool(operand == seccomp.ALLOW)
            case _:
                holds = {
                    seccomp.EQUAL: value == operand,
                    seccomp.AT_LEAST: value >= operand,
                    seccomp.ANY_BIT: value & operand,
                }
                went = yes if holds[what] else no
        at += 1 + went


OWN, READ, WRITE = 0x22, 1, 3  # private memory without a file; what may be done with it


@pytest.mark.parametrize("machine", seccomp.MACHINES)
def test_only_memory_that_is_counted_can_be_had(machine: str) -> None:
    """On machines that are not at hand too, by their tables."""
    can = partial(verdict, machine)
    assert can("mmap", 0, 4096, WRITE, OWN)
    for uncounted in (0x100, 0x40000, 0x100 | 0x40000, 0x40000 | 30 << 26, 0x100 | 0x20000):
        assert not can("mmap", 0, 4096, WRITE, OWN | uncounted), f"flags {uncounted:#x}"
    assert not can("mmap", 0, 4096, WRITE, 0x21), "shared, without a file"
    assert not can("mmap", 0, 4096, WRITE, 0x23), "the same, validated"
    assert can("mmap", 0, 4096, READ, 0x01), "samples that are lent"
    assert not can("mmap", 0, 4096, WRITE, OWN, number=0x40000000), "a call of the x32 kind"
    for arch in (0x40000003, 0x40000028):  # i386, arm: their mmap2 has other numbers
        assert not can("mmap", 0, 4096, WRITE, OWN, arch=arch)
    assert can("mprotect", 0, 4096, READ)
    assert not can("mprotect", 0, 4096, WRITE), "what was mapped to be read stays so"
    assert can("mprotect", 0, 4096, WRITE, threads=2), "the stack of a thread"
    assert "mremap" not in {name for name, _, _ in seccomp.calls(machine)}
