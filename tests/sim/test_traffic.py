"""What each algorithm sends, in units of the model, per participating device and round."""

from typing import Any

import pytest
from facts import in_json

from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.learn.algorithms.registry import algorithm_registry
from edgefl.sim.loop import simulate

ROUNDS, DEVICES = 4, 3
# down, up: the table of the specification; a device that took part in the last round need not look back again
TABLE: dict[str, tuple[float, float]] = {
    "fedavg": (1, 1),
    "fedprox": (1, 1),
    "fedavgm": (1, 1),
    "scaffold": (2, 2),
    "fedcurv": (3, 2),
    "mifa": (1, 1),
    "mifam": (1, 1),
    "fedntd": (1, 1),
    "feddf": (1, 1),
    "moon": (1, 1),
    "feddyn": (1, 1),
    "mimelite": (2, 2),
    "fedmlb": (1, 1),
    "fedreg": (1, 1),
    "upcycled": (0.5, 0.5),  # a pair of rounds moves one model each way
    "flashback": (1, 1),
    "fedgc": (1, 1),
    "gradma": (1, 1),
    "fedadam": (1, 1),
    "fedyogi": (1, 1),
    "fedadagrad": (1, 1),
    "fedasync": (1, 1),
    "fedper": (1, 1),
    "fedrep": (1, 1),
    "fedbn": (1, 1),
    "ditto": (1, 1),
    "pfedme": (1, 1),
}


def measured(algorithm: dict[str, Any]) -> tuple[float, float]:
    """Bytes down and up in units of the model, over all rounds."""
    torch = algorithm["name"] in {"moon", "fedmlb"}
    run = parse(
        RunFile,
        {
            "run": {"name": "t", "rounds": ROUNDS, "seed": 1},
            "task": {
                "data": "synthetic",
                "model": "mlp",
                "backend": "torch" if torch else "onnx",
                "public": 0.1,
                "partition": {"kind": "iid", "devices": DEVICES},
            },
            "algorithm": {"batches": 1, **algorithm},
        },
        "test",
        environment={},
    )
    job, held = jobs.prepare(run)
    told: list[dict[str, Any]] = []
    simulate(job, dict(zip(jobs.device_names(DEVICES), held.devices, strict=True)), in_json(told.append))
    unit = 4 * job.model.layout.size * DEVICES * ROUNDS
    return told[-1]["bytes_down"] / unit, told[-1]["bytes_up"] / unit


@pytest.mark.parametrize("name", sorted(algorithm_registry()))
def test_an_algorithm_sends_what_its_paper_says(name: str) -> None:
    down, up = measured({"name": name} | ({"private": ["*.bias"]} if name == "fedbn" else {}))
    # Headers and label counts are all there is besides the vectors.
    assert down == pytest.approx(TABLE[name][0], rel=0.01)
    assert up == pytest.approx(TABLE[name][1], rel=0.01)
    assert down >= TABLE[name][0]
    assert up >= TABLE[name][1]


def test_upcycled_with_even_steps_on_the_device_sends_in_every_round() -> None:
    assert measured({"name": "upcycled", "even": "device"}) == pytest.approx((1, 1), rel=0.01)


def test_upcycled_with_even_steps_on_the_server_moves_half_of_what_fedprox_moves() -> None:
    upcycled, fedprox = measured({"name": "upcycled"}), measured({"name": "fedprox"})
    assert upcycled == pytest.approx((fedprox[0] / 2, fedprox[1] / 2), rel=0.001)
