"""Who may import whom, and how things are named. The imports keep a device free of torch, and decisions free of I/O."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest
from setuptools import find_packages

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from edgefl.learn.contract import Traits

ROOT = Path(__file__).parent.parent
PACKAGES = ("edgefl", "coordinator", "device_agent", "gateway")  # what is installed
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TOOLS = sorted((ROOT / "tools").rglob("*.py"))


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


def test_no_two_files_of_tests_have_the_same_name():
    """Folders of tests are no packages: of two, pytest would take the one for the other."""
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py"]
    assert sorted(names) == sorted(set(names))


RUNNING_A_FLEET = [
    *("edgefl", "edgefl.job.config.reader", "edgefl.job.run.job", "edgefl.sim.rehearsal", "edgefl.cli.app"),
    *("coordinator.decide.rounds", "coordinator.shell.service", "coordinator.start"),
    *("device_agent.decide.session", "device_agent.shell.service", "device_agent.start"),
]


def test_nothing_on_the_way_to_a_running_fleet_imports_torch():
    heavy = {"torch", "torchvision", "onnx", "quadprog", "scipy", "sklearn"}
    assert python(f"import sys, {', '.join(RUNNING_A_FLEET)}\nprint(sorted({heavy!r} & set(sys.modules)))") == "[]"


def test_an_agent_imports_where_there_is_no_torch():
    blocked = ["torch", "torchvision", "onnx", "quadprog", "scipy", "sklearn"]
    agent = "import device_agent.shell.service, device_agent.start"
    python(f"import sys\nsys.modules.update(dict.fromkeys({blocked!r}))\n{agent}")


DECISIONS = [*sorted(ROOT.glob("*/decide/[a-z]*.py")), ROOT / "gateway" / "relay.py"]
PURE = {  # what decisions may import beside each other
    *("edgefl.base.device_labels", "edgefl.base.where"),  # which devices are asked
    *("edgefl.base.errors", "edgefl.base.events", "edgefl.base.records", "edgefl.base.schedule", "edgefl.base.vitals"),
    *("edgefl.learn.selection.base", "edgefl.learn.selection.registry"),  # the same draw from the same candidates
    "edgefl.wire.reconnect",  # backoff; its clock is an argument
    *("edgefl.job.config.conditions", "edgefl.job.config.remote"),  # tables of the agent file, as values
}
OUTSIDE = {
    *("time", "datetime", "socket", "os", "io", "pathlib", "random", "threading", "asyncio", "subprocess"),
    *("queue", "concurrent", "logging"),
}


def impure(path):
    """Return what a decision must not import: clocks, threads, disks, networks, and packages of others."""
    modules = ever(path) - {"datetime.time"}  # a time of day is a value
    packages = {name(folder).replace("/", ".") for folder in ROOT.glob("*/decide")}
    needed = {one for one in ours(modules) if one not in packages and one.rpartition(".")[0] not in packages}
    foreign = top(modules) - sys.stdlib_module_names - {*PACKAGES, "tools"}
    return (needed - PURE) | foreign | (top(modules) & OUTSIDE)


@pytest.mark.parametrize("path", DECISIONS, ids=name)
def test_what_is_decided_is_decided_without_anything_large_or_outside(path):
    """Ids, numbers and facts: no tensors, no messages, nothing that could be waited for."""
    assert impure(path) == set()


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("device_agent/durable/replay.py", "edgefl.system.disk"),
        ("device_agent/shell/order.py", "threading"),
        ("coordinator/durable/staleness.py", "edgefl.learn.contract"),
        ("edgefl/base/vector.py", "numpy"),
    ],
)
def test_what_is_not_pure_would_be_seen(path, module):
    assert module in impure(ROOT / path)


@pytest.mark.parametrize(
    "path", ["coordinator/shell/service.py", "coordinator/shell/inbound.py", "coordinator/shell/artifacts.py"]
)
def test_a_shell_is_handed_its_clock_and_its_threads(path):
    assert not top(ever(ROOT / path)) & {"time", "threading", "queue", "concurrent", "asyncio", "socket"}


@pytest.mark.parametrize("path", sorted((ROOT / "device_agent" / "durable").glob("[a-z]*.py")), ids=name)
def test_what_an_agent_keeps_is_handed_its_clock_its_threads_and_its_disk(path):
    assert not top(ever(path)) & {"time", "threading", "queue", "concurrent", "asyncio", "os"}


@pytest.mark.parametrize("part", ["service", "outbox", "model_cache"])
def test_an_agent_is_handed_its_clock_its_threads_and_its_disk(part):
    outside = {"time", "threading", "queue", "concurrent", "asyncio", "os", "pathlib"}
    assert not top(ever(ROOT / "device_agent" / "shell" / f"{part}.py")) & outside


FLOORS = [
    {"edgefl.base"},
    {"edgefl.system"},
    {"edgefl.learn"},
    {"edgefl.wire"},
    {"edgefl.fleet"},
    {"edgefl.job"},
    {"edgefl.delivery"},
    {"edgefl.watch"},
    {"coordinator", "device_agent"},
    {"gateway"},
    {"edgefl.sim"},
    {"edgefl.lab"},
    {"edgefl", "edgefl.errors", "edgefl.events", "edgefl.plugins"},  # its public face: what `import edgefl` gives
    {"edgefl.ops"},
    {"edgefl.cli"},
    {"edgefl.__main__"},
    {"tools"},
]
INSIDE_A_SERVICE = ["decide", "durable", "shell", "box", ""]  # floors of their own, up to the modules that start it
FLOOR = {package: number for number, packages in enumerate(FLOORS) for package in packages}
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in SOURCES + TOOLS
}
PUBLIC = {"edgefl.errors", "edgefl.events", "edgefl.plugins"}


def package(module):
    """Return the package that has a floor: `edgefl.learn` for `edgefl.learn.models.zoo`."""
    first, _, rest = module.partition(".")
    second = f"{first}.{rest.partition('.')[0]}"
    return first if first != "edgefl" or not rest or second in PUBLIC else second


def inside(module):
    """The floor of a module inside of its service."""
    second = module.split(".")[1] if module.count(".") > 1 else ""
    return INSIDE_A_SERVICE.index(second) if second in INSIDE_A_SERVICE else 0


def ours(targets):
    """The modules of ours that imported names belong to."""
    owners = {target if target in MODULES else target.rpartition(".")[0] for target in targets}
    return {owner for owner in owners if owner.partition(".")[0] in {"edgefl", "tools", *SERVICES}}


SERVICES = ("coordinator", "device_agent", "gateway")


def is_allowed(module, target):
    here, there = package(module), package(target)
    if here != there:
        return FLOOR.get(there, len(FLOORS)) < FLOOR.get(here, -1)
    return here not in SERVICES or inside(target) <= inside(module)


def upward(module, targets):
    """Every import, wherever it stands, that does not lead to the own floor or a lower one."""
    return [f"{module} imports {target}" for target in sorted(ours(targets)) if not is_allowed(module, target)]


def test_a_floor_imports_from_lower_floors_only():
    """All imports count: at the top, inside of functions, and for types alone."""
    assert [line for module, path in MODULES.items() for line in upward(module, ever(path))] == []


def test_what_is_installed_knows_no_tools():
    """Nor the tests: what only developers need is in no wheel."""
    assert [name(path) for path in SOURCES if top(ever(path)) & {"tools", "tests"}] == []
    installed = find_packages(str(ROOT), include=PROJECT["tool"]["setuptools"]["packages"]["find"]["include"])
    assert top(installed) == set(PACKAGES)
    assert top(installed) | {"tools"} == {folder.parent.name for folder in ROOT.glob("*/__init__.py")}


@pytest.mark.parametrize(
    ("module", "target"),
    [
        ("edgefl.base.vector", "edgefl.system.disk"),
        ("coordinator.decide.core", "coordinator.durable.journal"),
        ("coordinator.shell.service", "device_agent.decide.session"),
        ("edgefl.watch.view", "coordinator.start"),
        ("edgefl.another.part", "edgefl.base.vector"),
        ("edgefl.ops.bench.scale.measure", "tools.bench.transport"),
        ("edgefl.__main__", "tools.chaos.command"),
    ],
)
def test_an_import_upwards_would_be_seen(module, target):
    assert upward(module, {target}) == [f"{module} imports {target}"]


def test_our_processes_find_our_packages_wherever_they_are_started():
    """`python -m edgefl` would look into the user's folder first: `edgefl.system.processes.python` does not."""
    by_name = re.compile(r'"-m",\s*f?"(edgefl|tools)')
    assert [name(path) for path in SOURCES + TOOLS if by_name.search(path.read_text(encoding="utf-8"))] == []


def test_a_transport_is_chosen_in_one_place():
    makes_one = {name(path) for path in SOURCES + TOOLS if "edgefl.wire.mqtt.MqttTransport" in ever(path)}
    assert makes_one == {"edgefl/wire/opening.py"}


def test_keys_that_prove_nothing_are_for_simulated_fleets_only():
    knows = {name(path) for path in SOURCES if "edgefl.wire.simulated_keys" in ever(path)}
    assert {path for path in knows if not path.startswith("edgefl/sim/")} == set()


def test_no_command_that_runs_a_fleet_knows_a_key_that_proves_nothing():
    modules = (
        "coordinator.start, coordinator.shell.threaded, device_agent.start, edgefl.cli.coordinator, edgefl.cli.agent"
    )
    seen = "print('edgefl.wire.simulated_keys' in sys.modules, len(sys.modules['edgefl.wire.signing'].SIMULATED))"
    assert python(f"import sys, {modules}, edgefl.wire.signing\n{seen}") == "False 0"


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_torch_has_one_door(path):
    if not name(path).startswith("edgefl/learn/models/"):
        assert not top(ever(path)) & {"torch", "torchvision"}


@pytest.mark.parametrize("path", sorted((ROOT / "edgefl" / "learn" / "algorithms").glob("*.py")), ids=name)
def test_an_algorithm_is_numpy_as_far_as_importing_goes(path):
    heavy = {"torch", "torchvision", "onnx", "onnxruntime", "quadprog", "scipy", "sklearn"}
    assert not top(at_once(path)) & heavy
    assert "quadprog" not in top(ever(path))


def test_the_solver_is_imported_only_where_it_is_needed():
    assert "quadprog" not in top(at_once(ROOT / "edgefl" / "learn" / "training" / "projection.py"))


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_what_is_asked_of_an_algorithm_or_a_stage_is_declared(path):
    """By a Protocol: a word in quotes nobody can look up."""
    declared = {"lr", "batch", "epochs", "batches", "mu", "privacy", "price", "traits"}
    declared |= {field.name for field in fields(Traits)}
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"getattr", "hasattr"}:
            assert not {ast.unparse(argument).strip("'") for argument in node.args[1:]} & declared


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


@pytest.mark.parametrize("path", SOURCES + SCRIPTS + TOOLS, ids=name)
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


PUBLIC_TWICE = {"Interrupted": {"edgefl/base/errors.py", "edgefl/base/events.py"}}  # raised, and told: users know both


def classes(trees):
    """Return where each class name is defined: every place, also inside of functions and other classes."""
    places = defaultdict(list)
    for where, tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(where)
    return places


def test_a_class_name_is_used_once():
    """A name that is looked up leads to one class; `Interrupted` is an error and a fact, both public."""
    places = classes((name(path), parsed(path)) for path in SOURCES + TOOLS)
    assert {word: set(where) for word, where in places.items() if len(where) > 1} == PUBLIC_TWICE


def test_a_class_name_that_is_used_twice_would_be_seen():
    trees = ast.parse("class A: 0"), ast.parse("def f():\n    class A: 0")
    assert classes(enumerate(trees)) == {"A": [0, 1]}
