"""Who may import whom, and how things are named. The imports keep a device free of torch, and decisions free of I/O."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted(
    path for package in ("edgefl", "coordinator", "device_agent", "gateway") for path in (ROOT / package).rglob("*.py")
)


def name(path):
    return path.relative_to(ROOT).as_posix()


def imported(tree):
    """Every module that a piece of code imports, dotted: `from a import b` counts as a.b."""
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules |= {f"{node.module}.{alias.name}" for alias in node.names}
    return modules


@cache
def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def at_once(path):
    """What importing the file imports: not what stands inside functions, nor under TYPE_CHECKING."""
    tree = parsed(path)
    modules = set()
    pending = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            pending += node.orelse
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules |= imported(node)
        pending += ast.iter_child_nodes(node)
    return modules


@cache
def ever(path):
    return imported(parsed(path))


def top(modules):
    return {module.partition(".")[0] for module in modules}


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_nothing_on_the_way_to_a_running_fleet_imports_torch():
    modules = (
        "edgefl, edgefl.config.reader, edgefl.run.job, edgefl.simulation.rehearsal, edgefl.cli.app, coordinator.rounds,"
    )
    modules += "coordinator.service, coordinator.start, device_agent.session, device_agent.service, device_agent.start"
    heavy = {"torch", "torchvision", "onnx", "quadprog", "scipy", "sklearn"}
    assert python(f"import sys, {modules}\nprint(sorted({heavy!r} & set(sys.modules)))") == "[]"


def test_an_agent_imports_where_there_is_no_torch():
    blocked = ["torch", "torchvision", "onnx", "quadprog", "scipy", "sklearn"]
    python(
        f"import sys\nsys.modules.update(dict.fromkeys({blocked!r}))\nimport device_agent.service, device_agent.start"
    )


MACHINES = ["coordinator/rounds.py", "device_agent/session.py", "device_agent/vocabulary.py", "gateway/relay.py"]


@pytest.mark.parametrize("path", MACHINES)
def test_state_machines_import_the_standard_library_and_seeds_only(path):
    ours = {module for module in ever(ROOT / path) if module.partition(".")[0] not in sys.stdlib_module_names}
    selections = {
        "edgefl.selection.base.Candidate",
        "edgefl.selection.base.drawn",
        "edgefl.selection.registry.selection",
    }
    schedule = {"edgefl.schedule.Purpose", "edgefl.schedule.Schedule"}
    assert ours <= {"device_agent.vocabulary", "edgefl.seeds", "edgefl.records.replace", *schedule, *selections}  # pure


@pytest.mark.parametrize("name", ["buffered", "modes"])
def test_so_does_the_one_that_waits_for_nobody_beside_the_one_that_waits(name):
    ours = {m for m in ever(ROOT / f"coordinator/{name}.py") if m.partition(".")[0] not in sys.stdlib_module_names}
    assert all(m.startswith(("coordinator.rounds", "coordinator.buffered")) for m in ours - CANDIDATE)


CANDIDATE = {"edgefl.selection.base.Candidate"}
PURE = ["core", "state", "devices", "round_actions", "vocabulary", "conduct", "roster"]


@pytest.mark.parametrize("name", PURE)
def test_what_is_decided_is_decided_without_anything_large_or_outside(name):
    """Ids, numbers and facts: no tensors, no messages, nothing that could be waited for."""
    allowed = {f"coordinator.{one}" for one in (*PURE, "rounds", "buffered", "modes")} | {
        "edgefl.events",
        "edgefl.protocol.reconnect.spread",
        "edgefl.records",
    }
    ours = {module for module in ever(ROOT / "coordinator" / f"{name}.py") if top({module}) - sys.stdlib_module_names}
    assert not [module for module in ours if not any((module + ".").startswith(one + ".") for one in allowed)]


@pytest.mark.parametrize("path", ["coordinator/service.py", "coordinator/hearing.py", "coordinator/artifacts.py"])
def test_a_shell_is_handed_its_clock_and_its_threads(path):
    assert not top(ever(ROOT / path)) & {"time", "threading", "queue", "concurrent", "asyncio", "socket"}


@pytest.mark.parametrize("path", [*MACHINES, "coordinator/core.py"])
def test_state_machines_know_neither_clock_nor_network_nor_disk(path):
    outside = {"time", "datetime", "socket", "os", "io", "pathlib", "random", "threading", "asyncio", "subprocess"}
    assert not top(ever(ROOT / path)) & outside


@pytest.mark.parametrize(
    "part", ["service", "outbox", "model_cache", "birth", "states", "spool", "privacy_ledger", "trust"]
)
def test_an_agent_is_handed_its_clock_its_threads_and_its_disk(part):
    outside = {"time", "threading", "queue", "concurrent", "asyncio", "os", "pathlib"}
    assert not top(ever(ROOT / "device_agent" / f"{part}.py")) & outside


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_the_core_knows_no_service_and_the_services_do_not_know_each_other(path):
    package, second = [*path.relative_to(ROOT).parts, ""][:2]
    strangers = {"coordinator", "device_agent", "gateway"} - {package}
    fleets = second == "chaos" or name(path).startswith("edgefl/simulation/emulat")  # both in one process
    fleets = fleets or name(path) == "edgefl/simulation/run_folder.py"  # which writes what a coordinator writes
    fleets = fleets or package == "gateway"  # which is both
    if second != "cli" and not fleets:
        assert not top(ever(path)) & strangers


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_whole_fleets_stand_above_the_services_and_only_commands_and_the_choice_of_a_driver_stand_above_them(path):
    fleets = ("edgefl/chaos/", "edgefl/simulation/emulat")
    if not name(path).startswith((*fleets, "edgefl/cli/", "edgefl/simulation/drivers.py")):  # it is asked for by name
        assert not [one for one in ever(path) if (one.replace(".", "/") + "/").startswith(fleets)]


def test_our_processes_find_our_packages_wherever_they_are_started():
    """`python -m edgefl` would look into the user's folder first: `edgefl.system.processes.python` does not."""
    assert [name(path) for path in SOURCES if re.search(r'"-m",\s*f?"edgefl', path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_keys_that_prove_nothing_are_for_simulated_fleets_only(path):
    if "edgefl.protocol.simulated_keys" in ever(path):
        assert (
            name(path).startswith(("edgefl/simulation/", "edgefl/chaos/")) or name(path) == "edgefl/bench/unsigned.py"
        )
    if "edgefl.bench.unsigned" in ever(path):
        assert name(path).startswith("edgefl/cli/bench_")


def test_no_command_that_runs_a_fleet_knows_a_key_that_proves_nothing():
    modules = "coordinator.start, coordinator.threaded, device_agent.start, edgefl.cli.coordinator, edgefl.cli.agent"
    seen = (
        "print('edgefl.protocol.simulated_keys' in sys.modules, len(sys.modules['edgefl.protocol.signing'].SIMULATED))"
    )
    assert python(f"import sys, {modules}, edgefl.protocol.signing\n{seen}") == "False 0"


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_torch_has_one_door(path):
    if not name(path).startswith("edgefl/models/"):
        assert not top(ever(path)) & {"torch", "torchvision"}


@pytest.mark.parametrize("path", sorted((ROOT / "edgefl" / "algorithms").glob("*.py")), ids=name)
def test_an_algorithm_is_numpy_as_far_as_importing_goes(path):
    heavy = {"torch", "torchvision", "onnx", "onnxruntime", "quadprog", "scipy", "sklearn"}
    assert not top(at_once(path)) & heavy
    assert "quadprog" not in top(ever(path))


def test_the_solver_is_imported_only_where_it_is_needed():
    assert "quadprog" not in top(at_once(ROOT / "edgefl" / "training" / "projection.py"))


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_what_is_asked_of_an_algorithm_or_a_stage_is_declared(path):
    """By a Protocol: a word in quotes nobody can look up."""
    declared = {"lr", "batch", "epochs", "batches", "mu", "privacy", "price", "individual", "free_rounds"}
    declared |= {"makes_free_rounds", "without_devices", "uses_previous", "cohort_rounds"}
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"getattr", "hasattr"}:
            assert not {ast.unparse(argument).strip("'") for argument in node.args[1:]} & declared


def room(module):
    """The part of edgefl that a module belongs to: its package, or a module of the root by itself."""
    return ".".join(module.split(".")[:2])


def rooms():
    """Which room needs which others to be imported."""
    needed = {}
    for path in (ROOT / "edgefl").rglob("*.py"):
        here = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        others = {room(module) for module in at_once(path) if module.startswith("edgefl.")}
        needed.setdefault(room(here), set()).update(others - {room(here), "edgefl.__version__", "edgefl.__file__"})
    return needed


def circles(needed):
    """What is left when rooms that need nobody, or only such rooms, are taken away again and again."""
    left = dict(needed)
    while free := {name for name, others in left.items() if not others & left.keys()}:
        left = {name: others for name, others in left.items() if name not in free}
    return left


def test_no_room_of_edgefl_needs_itself_by_way_of_others():
    needed = rooms()
    assert {"edgefl.algorithms", "edgefl.privacy", "edgefl.protocol"} <= needed.keys()
    assert circles(needed) == {}


def test_a_circle_would_be_seen():
    assert set(circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()})) == {"a", "b", "c", "d"}


def named(tree):
    """Every name that a piece of code gives to something it holds: locals, parameters, captures, attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(name, ctx=ast.Store()) | ast.arg(name) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.ExceptHandler(name=str(name)):
                yield name


HOW_IT_CAME = {"found", "made", "said", "wanted"}  # no reader learns from these what the thing is
SCRIPTS = sorted(path for folder in ("scripts", "deploy", "docs") for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES + SCRIPTS, ids=name)
def test_a_name_tells_what_the_thing_is_and_not_how_it_came(path):
    assert not HOW_IT_CAME.intersection(named(parsed(path)))


@pytest.mark.parametrize(
    "line",
    [
        *(
            "found = 1",
            "for made in x: 0",
            "def f(wanted): 0",
            "class A:\n    said: int",
            "self.found = 1",
            "(made := 1)",
        ),
        *("match x:\n    case A() as said: 0", "with x as wanted: 0", "[found for found in x]", "lambda made: 0"),
    ],
)
def test_such_a_name_would_be_seen(line):
    assert HOW_IT_CAME.intersection(named(ast.parse(line)))
