"""A graph can only do what the layout says: hostile bundles against a real agent, which declines them and stays."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import hostile
import pytest
from with_tools import with_tools


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """All bundles, in one process that is not ours: some of them wrote past the end of an array once."""
    command = [sys.executable, hostile.__file__, str(tmp_path_factory.mktemp("hostile"))]
    done = subprocess.run(command, env=with_tools(), capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"the process ended with {done.returncode} after {[line['bundle'] for line in lines]}"
    return {line["bundle"]: line for line in lines}


@pytest.mark.parametrize("name", hostile.BUNDLES)
def test_a_hostile_bundle_is_declined_by_its_code_and_the_agent_stays(
    name: str, outcomes: dict[str, dict[str, Any]]
) -> None:
    code = hostile.BUNDLES[name][0]
    outcome = outcomes[name]
    assert bool(outcome["reasons"]) == bool(code)
    assert all(reason.startswith(f"{code}: ") for reason in outcome["reasons"])
    assert outcome["left"] == [0, "job 'fleet' has finished"]


def test_the_honest_bundle_is_trained_on(tmp_path: Path) -> None:
    assert hostile.played(hostile.honest(), tmp_path) == ([], (0, "job 'fleet' has finished"))
