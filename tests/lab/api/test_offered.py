"""What `import edgefl` offers: light, listed, documented, with examples that run."""

import doctest
import inspect
import subprocess
import sys
from importlib import import_module

import pytest

import edgefl

OBJECTS = [name for name in edgefl.__all__ if name not in {"errors", "events"}]
ALIASES = {"edgefl.errors": "edgefl.base.errors", "edgefl.events": "edgefl.base.events"}
MODULES = sorted({*ALIASES, *ALIASES.values(), *(getattr(edgefl, name).__module__ for name in OBJECTS)})


def test_importing_brings_nothing_but_the_standard_library() -> None:
    code = "import sys; before = set(sys.modules); import edgefl; print(*set(sys.modules) - before)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    tops = {name.partition(".")[0] for name in run.stdout.split()} - {"edgefl"}
    assert not {top for top in tops if top not in sys.stdlib_module_names}


def test_simulate_itself_waits_with_torch_until_a_network_is_made() -> None:
    code = "import sys, edgefl; edgefl.simulate, edgefl.compare, edgefl.load; print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


@pytest.mark.parametrize("name", OBJECTS)
def test_everything_offered_is_listed_typed_and_documented(name: str) -> None:
    thing = getattr(edgefl, name)
    assert name in dir(edgefl)
    assert name in (edgefl.__doc__ or "")
    assert inspect.getdoc(thing)
    called = thing if inspect.isfunction(thing) else thing.__init__
    parameters = [one for word, one in inspect.signature(called).parameters.items() if word != "self"]
    assert all(one.annotation is not inspect.Parameter.empty for one in parameters)


def test_what_is_not_offered_is_said_as_python_says_it() -> None:
    with pytest.raises(AttributeError, match="module 'edgefl' has no attribute 'simulat'"):
        edgefl.simulat  # noqa: B018


@pytest.mark.parametrize("alias", ALIASES)
def test_a_public_name_offers_what_the_module_behind_it_lists(alias: str) -> None:
    offered, module = import_module(alias), import_module(ALIASES[alias])
    assert offered.__all__ == [name for name in vars(offered) if not name.startswith("__")]
    assert all(getattr(offered, name) is getattr(module, name) for name in module.__all__)


@pytest.mark.parametrize("module", MODULES)
def test_examples_of_docstrings_run(module: str) -> None:
    assert doctest.testmod(import_module(module)).failed == 0


@pytest.mark.parametrize("name", edgefl.__all__)
def test_everything_offered_has_an_example(name: str) -> None:
    assert ">>> import edgefl" in (inspect.getdoc(getattr(edgefl, name)) or "")
