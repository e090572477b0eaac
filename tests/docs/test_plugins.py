"""`edgefl.plugins` has all that authors need, and the guides and examples import nothing else of edgefl."""

import ast
import inspect
import json
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from dataclasses import fields

import pytest
from guides import PAGES, ROOT, blocks

from edgefl import plugins

NEED_TORCH = {"lora", "merged"}
STABLE = {"edgefl", "edgefl.plugins", "edgefl.errors", "edgefl.events"}
NOTEBOOKS = [ROOT / "docs" / "notebooks" / name for name in ("first_steps.ipynb", "own_algorithm.ipynb")]


def programs() -> Iterator[tuple[str, str]]:
    """Return the name and the Python source of every example that readers copy."""
    for page in PAGES:
        yield from ((page.name, block) for block in blocks(page, "python"))
    for example in sorted((ROOT / "docs" / "examples").glob("*.py")):
        yield example.name, example.read_text(encoding="utf-8")
    for notebook in NOTEBOOKS:
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                yield notebook.name, "".join(line for line in cell["source"] if not line.startswith(("%", "!")))


def imported(code: str) -> set[str]:
    """Return the modules of edgefl that a program imports from."""
    nodes = list(ast.walk(ast.parse(code)))
    modules = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return {module for module in modules if module.partition(".")[0] == "edgefl"}


def test_guides_and_examples_import_from_stable_modules_only() -> None:
    strays = {(where, module) for where, code in programs() for module in imported(code) - STABLE}
    assert strays == set()


def test_the_guides_of_authors_do_import_from_plugins() -> None:
    users = {where for where, code in programs() if "edgefl.plugins" in imported(code)}
    assert users >= {"extending.md", "algorithms.md", "models.md", "two_inputs_loss.py", "own_algorithm.ipynb"}


def test_an_import_from_an_inner_module_would_be_seen() -> None:
    assert imported("from edgefl.learn.losses import cross_entropy") - STABLE


def test_contracts_that_a_page_names_are_there() -> None:
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    names = {part.partition("`")[0] for part in text.split("`edgefl.plugins.")[1:]}
    assert names
    assert names <= set(plugins.__all__)


def test_the_page_lists_every_trait_with_its_default() -> None:
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (?:both|algorithm|stage) \| `(.*?)` \|", text, re.MULTILINE)
    plain = plugins.Traits()
    assert rows == [(field.name, repr(getattr(plain, field.name)).replace("'", '"')) for field in fields(plain)]


@pytest.mark.parametrize("name", plugins.__all__)
def test_every_type_in_a_signature_is_there_too(name: str) -> None:
    if name in NEED_TORCH:
        pytest.importorskip("torch")
    offered = {id(getattr(plugins, other)) for other in plugins.__all__ if other not in NEED_TORCH}
    missing = {kind.__qualname__ for kind in mentioned(getattr(plugins, name)) if id(kind) not in offered}
    assert missing == set()


def mentioned(thing: object) -> Iterator[type]:
    """Return the classes of edgefl that the annotations of a function, or of a class and its methods, name."""
    called = [thing] if inspect.isclass(thing) or inspect.isfunction(thing) else []
    if inspect.isclass(thing):
        public = [value for word, value in vars(thing).items() if not word.startswith("_")]
        getters = [value.fget for value in public if isinstance(value, property)]
        called += [value for value in (*public, *getters) if inspect.isfunction(value)]
    for one in called:
        if one.__module__.startswith("edgefl"):
            for hint in typing.get_type_hints(one).values():
                yield from classes(hint)


def classes(hint: object) -> Iterator[type]:
    if isinstance(hint, type) and hint.__module__.startswith("edgefl"):
        yield hint
    for argument in hint if isinstance(hint, list) else typing.get_args(hint):
        yield from classes(argument)


def test_importing_it_brings_no_torch() -> None:
    heavy = {"torch", "torchvision", "onnx", "onnxruntime", "quadprog", "scipy", "sklearn"}
    code = f"import sys, edgefl.plugins; print(sorted({heavy!r} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_what_is_not_there_is_said_as_python_says_it() -> None:
    with pytest.raises(AttributeError, match=r"module 'edgefl\.plugins' has no attribute 'Meen'"):
        plugins.Meen  # noqa: B018
