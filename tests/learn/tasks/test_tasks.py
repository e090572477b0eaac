"""Tasks that are neither one class nor some real numbers: rows, losses, figures, and what is refused in one line."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from edgefl.base.errors import ConfigError, RemoteError, WireError
from edgefl.base.events import Round
from edgefl.job.config.reader import load, parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.learn import losses
from edgefl.learn.contract import Counts, Seen
from edgefl.learn.data.custom import dataset
from edgefl.learn.data.dataset import Dataset
from edgefl.learn.evaluation import counts, fleet, metrics, wording
from edgefl.learn.evaluation.figures import chief, figures
from edgefl.learn.loss_check import check_gradient
from edgefl.learn.tasks import fields
from edgefl.learn.tasks.autoencoder import auroc
from edgefl.learn.tasks.fields import Field
from edgefl.learn.tasks.form import Form, read
from edgefl.learn.tasks.kinds import KINDS, checked, formed
from edgefl.learn.training.divergence import likely_cause, unscaled
from edgefl.system import user_code

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
RNG = np.random.default_rng(0)


def shaped(kind: str, samples: int = 6, seed: int = 0) -> tuple[Dataset, Any]:
    """Some data of a kind of task, and outputs for them in rows."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, 4)).astype(np.float32)
    tokens = rng.integers(0, 5, (samples, 4))
    given: dict[str, Any] = {
        "segmentation": (x, rng.integers(-1, 3, (samples, 2, 2))),
        "multilabel": (x, rng.integers(0, 2, (samples, 3))),
        "next_token": (tokens, rng.integers(-1, 5, (samples, 4))),
        "autoencoder": (x, rng.integers(0, 2, samples)),
        "heads": (x, {"sort": rng.integers(0, 3, samples), "size": rng.normal(size=(samples, 2)).astype(np.float32)}),
    }
    raw = dataset(*given[kind], None, kind)
    classes = {"segmentation": 3, "next_token": 5}.get(kind)
    outputs = {"sort": (3,)} if kind == "heads" else None
    data = formed(raw, KINDS[kind].form((raw, raw), classes, outputs, kind), kind)
    return data, rng.normal(size=(samples, fields.width(data.form.outputs))).astype(np.float32)


class Told:
    """A model whose outputs are known: the samples are their numbers."""

    def __init__(self, z: Any) -> None:
        self.z = z

    def logits(self, _w: Any, x: Any) -> Any:
        return self.z[x[:, 0].astype(int)]


@settings(max_examples=20, deadline=None)
@given(shapes=st.lists(st.lists(st.integers(1, 3), max_size=3), min_size=1, max_size=4), samples=st.integers(0, 3))
def test_arrays_by_name_are_the_same_after_being_a_row(shapes: list[list[int]], samples: int) -> None:
    parts = tuple(Field(f"a{i}", tuple(shape), whole=i % 2 == 1) for i, shape in enumerate(shapes))
    arrays = {
        p.name: RNG.integers(0, 2**24, (samples, *p.shape)).astype(np.int64 if p.whole else np.float32) for p in parts
    }
    back = fields.unpack(parts, fields.pack(parts, arrays))
    assert all(
        np.array_equal(back[p.name], arrays[p.name]) and back[p.name].dtype == arrays[p.name].dtype for p in parts
    )
    assert fields.read(fields.described(parts)) == parts


def test_losses_of_places_and_of_marks_are_those_of_torch() -> None:
    z, y = RNG.normal(size=(3, 4, 2, 5)), RNG.integers(-1, 4, (3, 2, 5))
    marks = RNG.integers(0, 2, (3, 4))
    sequence, tokens = RNG.normal(size=(3, 6, 4)), RNG.integers(-1, 4, (3, 6))
    t = lambda a: torch.tensor(a, requires_grad=a.dtype.kind == "f")  # noqa: E731 - a word for the rows below
    rows = [
        (losses.cross_entropy, z, y, lambda a: functional.cross_entropy(a, t(y), ignore_index=-1)),
        (losses.binary_cross_entropy, z[:, :, 0, 0], marks,
         lambda a: functional.binary_cross_entropy_with_logits(a, torch.tensor(marks, dtype=torch.float64))),
        (losses.token_cross_entropy, sequence, tokens,
         lambda a: functional.cross_entropy(a.transpose(1, 2), t(tokens), ignore_index=-1)),
    ]  # fmt: skip
    for ours, logits, labels, theirs in rows:
        leaf = t(np.ascontiguousarray(logits))
        theirs(leaf).backward()
        value, dz = ours(logits, labels)
        assert value == pytest.approx(theirs(leaf).item())
        assert leaf.grad is not None
        assert np.allclose(dz, leaf.grad.numpy())
        assert ours(logits.astype(np.float32), labels)[1].dtype == np.float32


def right(z: Any, y: Any) -> Any:
    gap = z - y.reshape(z.shape)
    return float((gap**2).mean()), 2 * gap / gap.size


def wrong(z: Any, y: Any) -> Any:
    value, dz = right(z, y)
    dz[:, 1] *= 2
    return value, dz


def test_a_loss_of_the_users_must_give_its_own_gradient() -> None:
    y = RNG.normal(size=(7, 2))
    check_gradient("mine:right", right, y, 2)
    check_gradient("mine:right", lambda z, y: right(z.astype(np.float32), y.astype(np.float32)), y, 2)
    with pytest.raises(ConfigError, match=r"'mine:wrong': its gradient for output\[1\] of sample \d is .* changes by"):
        check_gradient("mine:wrong", wrong, y, 2)
    with pytest.raises(ConfigError, match=r"its gradient for size\[0\] of sample"):
        check_gradient("mine:wrong", wrong, y, 2, (Field("sort", (1,)), Field("size", (1,))))
    with pytest.raises(ConfigError, match="has shape"):
        check_gradient("mine:short", lambda z, _: (0.0, z[:, :1]), y, 2)
    with pytest.raises(ConfigError, match="returns the batch mean and its gradient"):
        check_gradient("mine:none", lambda z, _: float(z.sum()), y, 2)
    with pytest.raises(ConfigError, match="not finite"):
        check_gradient("mine:nan", lambda z, _: (float("nan"), z), y, 2)


def test_a_run_with_a_wrong_gradient_is_refused_before_it_begins(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "my_wrong_loss.py").write_text(
        "def loss(z, y):\n    gap = z[:, 0] - y\n    return float((gap * gap).mean()), (gap / len(gap))[:, None]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    np.savez(tmp_path / "plane.npz", x=RNG.normal(size=(20, 3)), y=RNG.normal(size=20))
    task = {"data": f"npz:{tmp_path / 'plane.npz'}", "model": "softmax", "loss": "my_wrong_loss:loss", "targets": 1}
    user_code.allow(task["loss"])
    run = parse(RunFile, {"task": {**task, "partition": {"devices": 2}}}, "test", environment={})
    with pytest.raises(ConfigError, match=r"task.loss = 'my_wrong_loss:loss': its gradient for output\[0\]"):
        jobs.prepare(run)


def test_figures_by_hand() -> None:
    def scores(kind: str, form: Form, z: Any, y: Any) -> Any:
        return KINDS[kind].scores(form, KINDS[kind].count(form, np.float32(z), np.float32(y)), len(y))

    form = Form("segmentation", (), (Field("", (3,), whole=True),), (Field("", (2, 3)),))
    # Taken for 0, 0, 1 where 0, 1, 1 is true: IoU 1/2 and 1/2. A label below 0 counts nowhere.
    assert scores("segmentation", form, [[1, 1, 0, 0, 0, 1]], [[0, 1, 1]]) == {"mean_iou": 0.5, "pixel_accuracy": 2 / 3}
    assert scores("segmentation", form, [[1, 1, 0, 0, 0, 1]], [[0, -1, 1]]) == {"mean_iou": 1.0, "pixel_accuracy": 1.0}
    form = Form("multilabel", (), (Field("", (2,), whole=True),), (Field("", (2,)),))
    told = scores("multilabel", form, [[1, -1], [1, 1]], [[1, 0], [0, 1]])  # F1 2/3 and 1
    assert told == {"f1": pytest.approx(5 / 6), "exact_match": 0.5}
    form = Form("next_token", (), (Field("", (2,), whole=True),), (Field("", (2, 4)),))
    assert scores("next_token", form, np.zeros((3, 8)), np.zeros((3, 2))) == {
        "perplexity": pytest.approx(4),
        "token_accuracy": 1.0,
    }
    form = shaped("autoencoder")[0].form
    told = scores("autoencoder", form, [[0.5] * 4, [3] * 4], [[0, 0, 0, 0, 0], [0, 0, 0, 0, 1]])
    assert told == {"reconstruction_error": pytest.approx(np.sqrt((0.25 + 9) / 2)), "auroc": 1.0}
    assert scores("autoencoder", form, np.zeros((2, 4)), np.zeros((2, 5)))["auroc"] is None, "no anomaly is marked"


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=12))
def test_auroc_is_the_share_of_pairs_in_the_right_order(marked: list[tuple[int, bool]]) -> None:
    ordinary, odd = (np.bincount([s for s, mark in marked if mark is which], minlength=4) for which in (False, True))
    pairs = [(a > o) + (a == o) / 2 for a, mark in marked if mark for o, other in marked if not other]
    assert auroc(ordinary, odd) == (pytest.approx(np.mean(pairs)) if pairs else None)


@pytest.mark.parametrize("kind", KINDS)
def test_counts_of_devices_add_up_to_those_of_all_samples(kind: str) -> None:
    data, z = shaped(kind, 12)
    numbered = Dataset(np.arange(12)[:, None].astype(np.float32), data.y, 0, form=data.form)
    loss = data.form.loss(losses.LOSSES[KINDS[kind].loss])
    parts = [numbered.take(np.arange(a, b)) for a, b in ((0, 5), (5, 7), (7, 12))]
    seen = {f"d{i}": Seen(counts.count(Told(z), np.zeros(0), part, loss)) for i, part in enumerate(parts)}
    for one in seen.values():
        counts.check(one, 0, fields.width(data.form.labels), data.form)
        arrays = counts.arrays(one.received)
        assert counts.numbers(0, 1, data.form) == sum(array.size for array in arrays.values())
        assert np.array_equal(counts.read(arrays).sums, one.received.sums)
    told = fleet.evaluated(seen, classes=0, form=data.form, per_device=True)
    whole = metrics.evaluate(Told(z), np.zeros(0), numbered, loss)
    found, expected = told["scores"], dict(whole.scores)
    if kind in {"segmentation", "next_token"}:  # there a batch's mean is over places, of which some have no label
        expected["loss"] = found["loss"]
    assert found == pytest.approx(expected, rel=1e-4)
    assert list(found) == list(whole.scores), "what it is judged by first"
    first = chief(found)
    assert first is not None
    assert told["per_device"]["d0"].get(first.name) is not None
    assert first.title in wording.scores(Round(1, found))


@pytest.mark.parametrize("kind", KINDS)
def test_counts_that_nobody_can_have_counted_are_refused(kind: str) -> None:
    data, z = shaped(kind)
    sums = KINDS[kind].count(data.form, z, data.y)
    good, bad = Counts(np.array([[len(data)]]), 1.0, sums), Counts(np.array([[len(data)]]), 1.0, sums - 1000)
    counts.check(Seen(good, good), 0, 1, data.form)
    for other in (bad, Counts(good.table, 1.0, sums[:, :-1]), Counts(good.table, 1.0, np.full_like(sums, np.nan))):
        with pytest.raises(WireError, match=r"no 6 samples|a table|a sum"):
            counts.check(Seen(other), 0, 1, data.form)


@pytest.mark.parametrize("kind", KINDS)
def test_a_form_travels_and_only_a_sound_one_is_taken(kind: str) -> None:
    form = shaped(kind)[0].form
    assert checked(read(form.described())) == form
    for lacking in (Form(kind), Form(kind, (), form.labels, ()), Form(kind, (), form.labels * 2, form.outputs)):
        with pytest.raises(RemoteError, match=r"a task|name an array twice"):
            checked(lacking)
    with pytest.raises(RemoteError, match="too long"):
        checked(Form("", (Field("x", (2**20, 2**20)),)))


@pytest.mark.parametrize(
    ("kind", "x", "y", "message"),
    [
        ("segmentation", np.ones((4, 2)), np.zeros(4, int), r"give y of shape \(n, height, width\)"),
        ("multilabel", np.ones((4, 2)), np.full((4, 2), 3), "are no marks"),
        ("multilabel", np.ones((4, 2)), np.zeros(4, int), "are no several labels"),
        ("next_token", np.ones((4, 2)), np.zeros((4, 2), int), "are no sequences"),
        ("next_token", np.ones((4, 2), int), np.zeros((4, 3), int), "what follows each of 2 tokens"),
        ("autoencoder", np.ones((4, 2), int), np.zeros(4, int), "learns samples of real numbers"),
        ("autoencoder", np.ones((4, 2)), np.zeros((4, 2)), "has several labels"),
        ("heads", np.ones((4, 2)), np.zeros(4, int), "takes labels by name"),
        ("segmentation", np.ones((4, 2)), {"a": np.zeros(4)}, "has labels by name"),
    ],
)
def test_data_that_are_not_of_the_kind_are_refused(kind: str, x: Any, y: Any, message: str) -> None:
    raw = dataset(x, y, None, "mine")
    with pytest.raises(ConfigError, match=message):
        formed(raw, KINDS[kind].form((raw, raw), None, None, "mine"), "mine")


def test_arrays_that_cannot_be_rows_are_refused() -> None:
    for x, message in (
        ({"a": np.ones((2, 1)), "b": np.ones((3, 1))}, "the same n"),
        ({"a b": np.ones((2, 1))}, "an argument of the network"),
        ({"a": np.full((2, 1), 2**24)}, "below 16777216"),
    ):
        with pytest.raises(ConfigError, match=message):
            dataset(x, np.zeros(2), None, "mine")


def test_token_numbers_among_the_inputs_are_no_unscaled_features() -> None:
    data = dataset({"a": np.ones((4, 1)), "ids": np.full((4, 2), 5000)}, np.arange(4) % 2, None, "mine")
    assert unscaled(data) is None
    assert "step size" in likely_cause(data, 0.1)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"kind": "segmentation", "data": "none", "sample": [1, 8, 8], "classes": 2}, "reads its shapes off samples"),
        ({"kind": "multilabel", "targets": 3}, "task.targets is for plain tasks"),
        ({"kind": "autoencoder", "normalise": "fleet"}, "samples are also the labels, which would stay in raw units"),
        ({"kind": "next_token", "normalise": "fleet"}, "token numbers have no mean"),
        ({"kind": "segmentation", "classes": 2, "class_weights": "balanced"}, "samples of .* have no one class"),
        ({"outputs": {"a": [1]}}, "task.outputs are those of task.kind = 'heads'"),
    ],
)
def test_keys_that_mean_nothing_to_a_kind_are_refused(task: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(RunFile, {"task": {"partition": {"devices": 2}, **task}}, "test", environment={})


def test_labels_of_any_shape_need_a_kind(tmp_path: Path) -> None:
    np.savez(tmp_path / "masks.npz", x=np.ones((8, 1, 2, 2)), y=np.zeros((8, 2, 2), int))
    task = {"data": f"npz:{tmp_path / 'masks.npz'}", "model": "softmax", "partition": {"devices": 2}}
    with pytest.raises(ConfigError, match="neither a class nor real targets; set task"):
        jobs.prepare(parse(RunFile, {"task": task}, "test", environment={}))


def test_several_inputs_come_from_a_file_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", **{"x.a": np.ones((8, 2)), "x.ids": np.ones((8, 3), int), "y": np.arange(8) % 2})
    run = parse(
        RunFile, {"task": {"data": f"npz:{tmp_path / 'two.npz'}", "partition": {"devices": 2}}}, "t", environment={}
    )
    held = jobs.split(run)
    assert held.test.form == Form(inputs=(Field("a", (2,)), Field("ids", (3,), whole=True)))
    assert (held.test.x.shape[1:], held.test.classes) == ((5,), 2)


@pytest.mark.parametrize("name", ["fedntd", "flashback", "fedmlb", "fedreg", "feddf"])
def test_an_algorithm_of_classes_refuses_other_tasks_in_one_line(name: str) -> None:
    from edgefl.sim.rehearsal import rehearse

    sets = [f"algorithm.name={name}", "task.public=0.2", *(["task.backend=torch"] if name == "fedmlb" else [])]
    run = load(RunFile, EXAMPLES / "multilabel.toml", sets)
    with pytest.raises(ConfigError) as refused:
        rehearse(run)
    assert "class" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "Error" not in str(refused.value)


def test_figures_are_shown_by_one_definition() -> None:
    shown = [(one.title, one.shown) for one in figures({"mean_iou": 0.5, "size.rmse": 0.25, "auroc": None})]
    assert shown == [("mean IoU", "50.0%"), ("size RMSE", "0.25"), ("AUROC", "-")]
