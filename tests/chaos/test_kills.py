"""Real processes and a real broker, killed for good: the run ends with the same model, and every promise is kept."""

from pathlib import Path

import pytest
from fleet import Fleet

pytestmark = pytest.mark.broker

KILL_AT = [3, 9, 13, 20]  # while devices join, in the middle of a round, right before a checkpoint, at a later receipt


@pytest.mark.parametrize("index", KILL_AT)
def test_a_coordinator_killed_at_a_write_goes_on_and_ends_with_the_same_model(index: int, tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        fleet.all_agents()
        life = fleet.coordinator(f"kill:{index}")
        assert life.finished() is None, "it should have been killed"
        ended = fleet.until_done(fleet.coordinator())
        fleet.check(ended, f"kill:{index}")
