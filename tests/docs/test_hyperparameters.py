"""The reference page: every hyper-parameter of every algorithm and stage is on it, with the default it really has."""

import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from edgefl.learn.algorithms import registry
from edgefl.learn.privacy import Objective, Output
from edgefl.learn.training.local import LocalTraining

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "hyperparameters.md").read_text()
SHARED = {field.name: field.default for field in fields(LocalTraining)}
FIVE = ["fedgc", "gradma", "flashback", "upcycled", "fedreg"]


def own(kind: type[Any]) -> dict[str, Any]:
    """The fields of a class with their defaults, without those that all device halves share as they are."""
    every = {f.name: f.default for f in fields(kind) if f.name != "name"}
    assert MISSING not in every.values()
    return {name: value for name, value in every.items() if name not in SHARED or value != SHARED[name]}


def written(value: Any) -> str:
    """A default as the page has it."""
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"`{value}`"
    return f"{value:.0e}".replace("e-0", "e-") if 0 < value < 0.01 else f"{value:g}"


def rows(text: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| `")
    ]


def section(title: str) -> str:
    return re.split(r"^#+ ", PAGE.split(f"{title}\n", 1)[1], flags=re.MULTILINE)[0]


def words(cell: str) -> list[str]:
    return [word.strip() for word in cell.split(",")]


def test_what_all_share_is_on_the_page():
    told = {row[0].strip("`"): row[1] for row in rows(section("## What all device halves share"))}
    assert told == {name: written(value) for name, value in SHARED.items()}


@pytest.mark.parametrize("name", FIVE)
def test_every_field_of_the_five_is_on_the_page_with_its_default(name: str):
    told = {row[0].strip("`"): row[1] for row in rows(section(f"### `{name}`"))}
    truth = {key: written(value) for key, value in own(registry.algorithm_registry()[name]).items()}
    assert {key: told.get(key) for key in truth} == truth
    assert set(told) <= {field.name for field in fields(registry.algorithm_registry()[name])}


def test_every_field_of_the_baselines_is_on_the_page_with_its_default():
    told = {(row[0].strip("`"), row[1].strip("`")): row[2] for row in rows(section("## Baselines"))}
    names = sorted(set(registry.ALGORITHMS) - {*FIVE})
    truth = {(n, key): written(value) for n in names for key, value in own(registry.algorithm_registry()[n]).items()}
    assert told == truth


def test_every_field_of_every_stage_is_on_the_page_with_its_default():
    told = {
        (stage.strip("`"), name.strip("`")): default
        for row in rows(section("## Stages"))
        for stage in words(row[0])
        for name, default in zip(words(row[1]), words(row[2].split(" (")[0]), strict=True)
    }
    missing = [
        (name, field.name)
        for name in registry.STAGES
        for field in fields(registry.stage_registry()[name])
        if field.name != "name" and (name, field.name) not in told
    ]
    assert not missing
    for (stage, key), default in told.items():
        if stage != "finetune":
            assert default == written(own_stage(stage)[key]), (stage, key)


def own_stage(name: str) -> dict[str, Any]:
    return {field.name: field.default for field in fields(registry.stage_registry()[name])}


def test_the_papers_own_defaults():
    defaults = {name: registry.algorithm({"name": name}) for name in FIVE}
    assert 5 <= defaults["fedgc"].batches <= 50
    assert defaults["gradma"].batches == 5
    assert (defaults["upcycled"].lr, defaults["upcycled"].momentum, defaults["upcycled"].epochs) == (0.05, 0.5, 20)
    assert defaults["fedreg"].epochs == 20
    assert defaults["flashback"].epochs == 5


@pytest.mark.parametrize("mechanism", [Output, Objective])
def test_every_key_of_a_private_mechanism_is_explained(mechanism: type[Any]):
    page = (ROOT / "docs" / "privacy.md").read_text()
    assert all(re.search(rf"`{field.name}\b|^{field.name} =", page, re.MULTILINE) for field in fields(mechanism))


DIFFERENCES = {
    "BatchNorm statistics": "never enter products",
    "Flashback, counts": 'counts = "raw"',
    "MOON": "no projection head",
    "SCAFFOLD, FedDyn, MimeLite": "the originals' mean is uniform",
    "MIFA": "starts with rows of zeros",
    "FedDF": "a tenth of the published steps",
    "FedGC": "sends the model, not only gradients",
    "GradMA": "its authors' program differs",
    "FedReg": "clones its inputs",
    "FedCurv": "takes a device's own share out of the sums",
    "Upcycled-FL": "applies its push at the coordinator",
    "FedAdam, FedYogi, FedAdagrad": "the mean is weighted by samples unless told otherwise",
    "FedAsync": "the hinge, is not implemented",
    "FedBuff": "weighs answers by samples unless told otherwise",
    "FedBN": "keeps all norm layers",
    "Ditto": "starts at the first model the device receives",
    "pFedMe": "begins theta at the received model",
    "Power-of-choice": "samples count for at most five times the median",
    "Oort": "takes the best instead of drawing among the best",
    "LoRA": "The product of the means is not the mean of the products",
    "Caps": "guards.bounds = false",
}


@pytest.mark.parametrize("method", DIFFERENCES)
def test_where_a_method_differs_from_its_paper_the_page_says_so(method: str):
    points = [
        " ".join(point.split()).replace("`", "")
        for point in section("## Where we differ from the papers").split("\n- ")
    ]
    (point,) = (one for one in points if f"**{method}**" in one or f"**{method}.**" in one)
    assert DIFFERENCES[method] in point
