"""Numbers that are none, or hardly any, wherever a device may put one: refused when they are read, or of no effect."""

import math
import struct
from typing import Any

import numpy as np
import pytest
from tiny import site

from edgefl.base.errors import RemoteError, WireError
from edgefl.job.run.work import unpack_answer
from edgefl.job.transforms.transform import VectorForm
from edgefl.learn.aggregation import Mean, merge
from edgefl.learn.algorithms import registry
from edgefl.learn.contract import Update
from edgefl.wire import frames, tensors
from edgefl.wire.codecs import codec
from edgefl.wire.messages import TO_COORDINATOR, Answer, Presence, WireVitals, Working, peek, read_json

NAN, INF, LARGEST, LEAST = math.nan, math.inf, 3.4028e38, 1e-45
ANSWER = Answer(
    job="j", run_id="r", round=1, device="d", model="m", weight=1.0, steps=1, seconds_per_step=0.1, tensors=()
)
WORKING = Working(job="j", round=1, steps=1, vitals=WireVitals(load=1.0))
NO_COUNT = [NAN, INF, -INF, -1, 0.5, 2**64 - 1, "1e9", "x", None, [1]]


@pytest.mark.parametrize("value", [NAN, INF, -INF, -1.0, 0.0, LEAST, 1e38, "x", None, [1.0]], ids=repr)
def test_a_weight_is_a_number_that_can_be_weighed_with(value: Any) -> None:
    refused(ANSWER.model_dump() | {"weight": value})


@pytest.mark.parametrize("value", [NAN, INF, -INF, -1e-9, 1e38, "x", None], ids=repr)
def test_a_pace_is_a_number_of_seconds(value: Any) -> None:
    refused(ANSWER.model_dump() | {"seconds_per_step": value})


@pytest.mark.parametrize("value", NO_COUNT, ids=repr)
@pytest.mark.parametrize("name", ["steps", "round", "devices"])
def test_a_count_is_a_whole_number_within_its_bounds(name: str, value: Any) -> None:
    refused(ANSWER.model_dump() | {name: value})


@pytest.mark.parametrize(
    "vitals",
    [
        {"temperature": NAN},
        {"temperature": 1e38},
        {"load": INF},
        {"load": -1.0},
        {"battery": NAN},
        {"battery": 2.0},
        {"memory_free": -1},
        {"disk_total": 2**63},
    ],
    ids=str,
)
def test_vitals_are_those_of_a_machine(vitals: dict[str, Any]) -> None:
    refused(WORKING.model_dump() | {"vitals": vitals})
    plain = Presence(online=True, installation="i", birth=1).model_dump_json()[:-1]
    words = ",".join(f'"{key}":{_json(value)}' for key, value in vitals.items())
    with pytest.raises(WireError):
        read_json(Presence, f'{plain},"vitals":{{{words}}}}}'.encode())


def _json(value: float) -> str:
    return {"nan": "NaN", "inf": "Infinity"}.get(str(value), str(value))


def refused(header: dict[str, Any]) -> None:
    with pytest.raises(WireError) as caught:
        peek(TO_COORDINATOR, frames.pack(header, ()))
    assert caught.value.code == "wire.malformed"


@pytest.mark.parametrize("poison", [NAN, INF, -INF], ids=repr)
@pytest.mark.parametrize("name", ["float32", "float16", "int8", "topk"])
def test_no_byte_of_a_payload_puts_a_number_into_a_model_that_is_none(name: str, poison: float) -> None:
    """Wherever in it: scales, numbers, places. Codecs may read something else, and never warn of it."""
    coded, size = codec(name, "up"), 300
    vector = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    described, parts, _ = tensors.encode({"delta": vector}, coded)
    body, refusals = b"".join(bytes(part) for part in parts), 0
    kind = "<e" if name == "float16" else "<f"
    for at in range(0, len(body) - 3, 2):
        changed = body[:at] + struct.pack(kind, poison) + body[at + struct.calcsize(kind) :]
        answer = ANSWER.model_copy(update={"tensors": described})
        try:
            update = unpack_answer(answer, memoryview(changed), VectorForm(size), coded)
        except RemoteError:
            refusals += 1
        else:
            assert np.isfinite(update.delta).all(), at
    assert refusals, "some place was hit"


@pytest.mark.parametrize("weight", [1e-9, 1.0, 1e12])
@pytest.mark.parametrize(
    "numbers",
    [[LARGEST] * 5, [LARGEST, -LARGEST] * 2 + [LARGEST], [LARGEST, 0, 0, 0, 0], [LEAST] * 5, [-0.0] * 5, [2e19] * 5],
    ids=str,
)
@pytest.mark.parametrize("name", ["median", "trimmed_mean", "krum", "multi_krum", "geometric_median", "norm_clip"])
def test_numbers_at_the_edge_of_what_there_is_move_no_robust_stage(
    name: str, numbers: list[float], weight: float
) -> None:
    """Squares of them are infinite in single precision, and distances of infinities are none."""
    rng = np.random.default_rng(0)
    honest = {f"d{i}": Update((1 + 0.1 * rng.standard_normal(5)).astype(np.float32), 100.0, 5) for i in range(9)}
    liar = Update(np.array(numbers, np.float32), weight, 2**40)
    stages = (registry.stage({"name": name}), *((Mean(),) if name == "norm_clip" else ()))
    step = merge(
        1, np.zeros(5, np.float32), honest | {"liar": liar}, stages=stages, states={}, site=site(statistics=True)
    )[0]
    np.testing.assert_allclose(step, np.ones(5), atol=0.5)
