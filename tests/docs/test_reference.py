"""docs/reference.md is what the models say, and they say something of every key."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from edgefl.job.config.agent_file import AgentFile
from edgefl.job.config.schema import RunFile

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Small(BaseModel):
    """A table."""

    plain: int = 3  # said beside it
    # Said above it,
    # in two lines.
    bounded: Annotated[float, Field(gt=0, le=1)] | Literal["off"] = "off"
    silent: str | None = None


def test_the_page_is_current() -> None:
    """In a process of its own: other tests add algorithms to this one."""
    command = [sys.executable, str(ROOT / "scripts" / "reference.py"), "--check"]
    assert subprocess.run(command, check=False, cwd=ROOT).returncode == 0, "make reference"


@pytest.mark.parametrize("file", [RunFile, AgentFile])
def test_every_key_is_explained_beside_its_field(reference: ModuleType, file: type[BaseModel]) -> None:
    silent = [f"{where}.{key.name}" for where, key in reference.every_key(file) if not (key.comment or key.inner)]
    assert not silent


def test_a_key_has_its_type_default_and_comment(reference: ModuleType) -> None:
    assert [tuple(key)[:4] for key in reference.keys(Small)] == [
        ("plain", "whole number", "`3`", "said beside it"),
        ("bounded", 'number above 0, at most 1 or `"off"`', '`"off"`', "Said above it, in two lines."),
        ("silent", "text", "none", ""),
    ]
