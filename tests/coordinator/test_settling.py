"""An unfinished run is gone on with as long as nothing has changed that its model depends on."""

from pathlib import Path
from typing import Any

import pytest

from coordinator.journal import NAME, Journal
from coordinator.start import settle
from edgefl.config import RunFile
from edgefl.config_reader import parse
from edgefl.errors import ConfigError


def a_run(**more: Any) -> RunFile:
    return parse(RunFile, {"rounds": {"cohort": 2}, **more}, "test", environment={})


def begun(folder: Path) -> Path:
    """A folder in which a run was interrupted."""
    folder.mkdir()
    book = Journal(folder / NAME)
    book.set(run=a_run().model_dump_json())
    book.close()
    return folder


@pytest.mark.parametrize(
    "change", [{"run": {"forgetting": True}}, {"run": {"folder": "elsewhere"}}, {"guards": {"strikes": 9}}]
)
def test_what_the_model_does_not_depend_on_may_change(change: dict[str, Any], tmp_path: Path):
    folder = begun(tmp_path / "run")
    settle(folder, a_run(**change), fresh=False)
    assert (folder / NAME).exists()


def test_what_it_depends_on_may_not_and_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"run\.seed was 0, is 1.*or --fresh"):
        settle(begun(tmp_path / "run"), a_run(run={"seed": 1}), fresh=False)
