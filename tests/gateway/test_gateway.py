"""A site's devices answer as one: the same model as without the gateway, whatever happens to it."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiers import SITE, Tiers, loop, run_file, tiered, until

from edgefl.base.errors import Interrupted

FEDAVG = {"name": "fedavg"}
ALL = {"cohort": 4, "quorum": 4}
ROUNDING = 1e-6


def gap(a: np.ndarray, b: np.ndarray) -> float:
    """How far apart two models are, for the length of one."""
    return float(np.linalg.norm(a.astype(np.float64) - b) / np.linalg.norm(b))


@pytest.mark.parametrize(
    ("algorithm", "more"),
    [
        (FEDAVG, {}),
        ({"name": "fedavgm"}, {}),
        ({"name": "upcycled", "even": "server"}, {}),
        ({"name": "mimelite"}, {}),
        ({"name": "fedprox"}, {"guards": {"weight_cap": "off", "norm_cap": "off", "extra_cap": "off"}}),
    ],
    ids=lambda value: value.get("name", ""),
)
def test_the_model_is_the_same_as_without_a_gateway_but_for_rounding(
    algorithm: dict[str, Any], more: dict[str, Any], tmp_path: Path
) -> None:
    run = run_file(algorithm, rounds=ALL, **more)
    tiers = Tiers(tiered(run, **more), tmp_path)
    state = tiers.play()
    assert gap(state.params, loop(run).params) < ROUNDING
    assert tiers.exits.pop("gateway") == (0, "stopped")
    assert set(tiers.exits.values()) == {(0, "job 'fleet' has finished")}, tiers.exits
    assert {fact["devices"] for fact in tiers.facts if fact["event"] == "round"} <= {4, 0}, "0: a free round"
    assert not list((tmp_path / "gateway" / "site").iterdir()), "nothing is kept of a run that is over"


def test_answers_that_are_sealed_at_both_tiers_add_up_to_the_same(tmp_path: Path) -> None:
    run = run_file(FEDAVG, rounds=ALL, wire={"seal": True})
    assert gap(Tiers(tiered(run), tmp_path, seal=True).play().params, loop(run).params) < ROUNDING


def test_what_devices_saw_of_the_model_adds_up_to_the_same_counts(tmp_path: Path) -> None:
    """Rounds that train and evaluate, and the last one, which only evaluates."""
    told: list[Any] = []
    run = run_file(FEDAVG, rounds=ALL, evaluation={"on": "devices"})
    tiers = Tiers(tiered(run), tmp_path)
    state, alone = tiers.play(), loop(run)
    assert state.judged is not None
    assert alone.judged is not None
    told = [(one.samples, one.devices, one.confusion) for one in (state.judged, alone.judged)]
    assert told[0] == told[1]
    assert state.judged.loss == pytest.approx(alone.judged.loss, rel=1e-5)


def test_a_lossy_codec_is_used_once_more_and_what_it_leaves_out_is_sent_later(tmp_path: Path) -> None:
    run = run_file(FEDAVG, rounds=ALL, wire={"codec": "int8"})
    assert gap(Tiers(tiered(run), tmp_path).play().params, loop(run).params) < 0.02


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    run = run_file(FEDAVG, rounds=ALL, run={"rounds": 2})
    return Tiers(tiered(run), tmp_path_factory.mktemp("undisturbed")).play().sha256()


@pytest.mark.parametrize("message", [1, 3, 6, 9, 12])
def test_a_gateway_that_is_killed_goes_on_and_the_model_is_the_same_to_the_bit(
    message: int, tmp_path: Path, undisturbed: str
) -> None:
    run = run_file(FEDAVG, rounds=ALL, run={"rounds": 2})
    tiers = Tiers(tiered(run), tmp_path)
    assert tiers.play(dies_at=message).sha256() == undisturbed
    assert tiers.gateways == 2, "it was killed, and came back"
    trained = [fact for fact in tiers.facts if fact["event"] == "answered" and fact["verdict"] == "accepted"]
    assert len(trained) == 2 * 2, "each counted once in each round"


def test_a_coordinator_that_does_not_wait_takes_its_gateway_along_to_the_next_round(tmp_path: Path) -> None:
    """A device of the site is missing: rounds close without the gateway, whose site follows when it can."""
    run = run_file(FEDAVG, rounds=ALL, run={"rounds": 1000})
    tiers = Tiers(tiered(run, rounds={"quorum": 1, "deadline": 0.3}), tmp_path)
    tiers.start_devices(("device-00", *SITE[:-1]))
    tiers.start(tiers.gateway(), "gateway")
    coordinator = tiers.coordinator()
    running = tiers.thread(lambda: _interrupted(coordinator), "coordinator")
    until(lambda: sum(fact["event"] == "round" and fact["devices"] == 1 for fact in tiers.facts) >= 2)
    tiers.start_devices(SITE[-1:])
    until(lambda: any(fact["event"] == "round" and fact["devices"] == 4 for fact in tiers.facts))
    coordinator.stop()
    running.join(60)
    assert not running.is_alive()
    tiers.host.stop()


def _interrupted(coordinator: Any) -> None:
    with pytest.raises(Interrupted):
        coordinator.run()


@pytest.mark.parametrize(
    ("algorithm", "most", "says"),
    [
        ({"name": "fedgc"}, 3, "aggregation 'sgc' needs every device's own answer"),
        ({"name": "scaffold"}, 3, "aggregation 'variates' needs every device's own answer"),
        (FEDAVG, 2, "speaks for 3 devices, and the run has guards.speaks_for = 2: raise it"),
    ],
)
def test_a_run_that_a_gateway_is_not_enough_for_says_so_in_one_line(
    algorithm: dict[str, Any], most: int, says: str, tmp_path: Path
) -> None:
    run = tiered(run_file(algorithm, rounds=ALL), guards={"speaks_for": most})
    tiers = Tiers(run, tmp_path)
    tiers.start(tiers.gateway(), "gateway")
    coordinator = tiers.coordinator()
    running = threading.Thread(target=_interrupted, args=(coordinator,))
    running.start()
    until(lambda: any(fact["event"] == "refused" for fact in tiers.facts))
    coordinator.stop()
    running.join(60)
    tiers.host.stop()
    tiers.join()
    [told] = {fact["reason"] for fact in tiers.facts if fact["event"] == "refused"}
    assert says in told
    assert "gw-north" in told
    assert "\n" not in told
