"""Nothing in production code turns bytes or words into code: no pickle, no eval, no shell."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted(
    path for package in ("edgefl", "coordinator", "device_agent", "gateway") for path in (ROOT / package).rglob("*.py")
)

MODULES = {  # whoever imports one can be made to run what he reads
    *("pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "code", "runpy"),
    *("yaml", "multiprocessing", "concurrent.futures.ProcessPoolExecutor", "concurrent.futures.process"),
    *("asyncio.create_subprocess_shell", "pty", "commands"),
}
NAMES = {
    *("eval", "exec", "compile", "__import__"),
    *("torch.load", "torch.jit.load", "torch.hub.load", "torch.package.PackageImporter"),
    *("numpy.lib.format.read_array", "pandas.read_pickle"),
    *("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"),
}
HARMLESS = {
    "allow_pickle": "False",
    "shell": "False",
    "weights_only": "True",
}  # arguments, and the one value they may have

# Processes of one program, started by it, talking over pipes that nobody else has: what is unpickled is its own.
ALLOWED = {
    "edgefl/lab/comparison/process_pool.py": {"multiprocessing"},  # orders and outcomes of `edgefl compare`
    "edgefl/sim/engine_processes.py": {
        "multiprocessing",
        "concurrent.futures.ProcessPoolExecutor",
    },
    "edgefl/system/main_guard.py": {"multiprocessing"},  # a process that is given nothing, and does nothing
}


def dangers(code):
    """What in this code is on one of the lists, by its full name whatever it is called there."""
    tree = ast.parse(code)
    full, imported, used = {"np": "numpy"}, set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            full |= {alias.asname: alias.name for alias in node.names if alias.asname}
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            full |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            imported |= {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):  # not calls alone: a name can be handed on
            first, dot, rest = ast.unparse(node).partition(".")
            used.add(full.get(first, first) + dot + rest)
    listed = (imported | used) & NAMES
    listed |= {module for name in imported for module in MODULES if f"{name}.".startswith(f"{module}.")}
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in HARMLESS and ast.unparse(node.value) != HARMLESS[node.arg]:
            listed.add(node.arg)
    return listed


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_production_code_runs_what_it_reads(path):
    allowed = ALLOWED.get(path.relative_to(ROOT).as_posix(), set())
    assert dangers(path.read_text(encoding="utf-8")) == allowed


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import pickle", {"pickle"}),
        ("from joblib import load", {"joblib"}),
        ("import torch as t\nmodel = t.load(path)", {"torch.load"}),
        ("from torch import load as read\nread(path)", {"torch.load"}),
        ("readers = [eval]", {"eval"}),
        ("import os\nos.system(line)", {"os.system"}),
        ("from os import popen as run\nrun(line)", {"os.popen"}),
        ("import numpy as np\nnp.load(path, allow_pickle=asked)", {"allow_pickle"}),
        ("subprocess.run(line, shell=True)", {"shell"}),
        ("import yaml\nyaml.load(text)", {"yaml"}),
        ("import_module('pickle').loads(data)", {"pickle"}),
        ("from multiprocessing.pool import Pool", {"multiprocessing"}),
        ("from concurrent.futures import ThreadPoolExecutor", set()),
        ("module.eval()\nre.compile(pattern)\nnp.load(path, allow_pickle=False)", set()),
    ],
)
def test_it_would_be_seen(code, found):
    assert dangers(code) == found
