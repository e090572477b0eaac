"""What whoever knows torch and not edgefl gets wrong in the first hour: one line that says what to do."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import edgefl
from edgefl.base.errors import ConfigError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4)).astype(np.float32)
Y = np.arange(60) % 3
MARKS = np.eye(3, dtype=np.int64)[Y]
TENSORS = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
PAIR = (X, Y)


def linear(outputs: int = 3) -> nn.Module:
    return nn.Linear(4, outputs)


class Pair(nn.Module):
    """Gives two things, where one is learnt."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.last(x), x


class Squeezed(nn.Linear):
    """One number for each sample, without its axis."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).squeeze(1)


class ListOfInputs(nn.Module):
    """Takes its inputs as one list."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 3)

    def forward(self, parts: list[torch.Tensor]) -> torch.Tensor:
        return self.last(parts[0] + parts[1])


def play(model: Any = None, data: Any = PAIR, **more: Any) -> edgefl.History:
    given = {"fleet": 3, "rounds": 1, "progress": False} | more
    return edgefl.simulate(linear() if model is None else model, data, **given)


CLIENTS = {"a": PAIR, "b": (X[:0], Y[:0])}
MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "fewer outputs than classes": (
        lambda: play(linear(2)),
        r"gives \(2, 2\), expected \(2, 3\); .* classes 0 to 2; if",
    ),
    "a logit for two classes": (lambda: play(linear(1), (X, Y % 2)), r"a single logit give task.kind = 'multilabel'"),
    "classes as floats": (lambda: play(data=(X, Y.astype("f"))), "labels are a real number .* classes are integers 0"),
    "classes in a column": (lambda: play(data=(X, Y[:, None])), r"integers 0, 1, 2, ... in an array of shape \(n,\)"),
    "one-hot classes": (lambda: play(data=(X, MARKS)), r"give y.argmax\(axis=1\) if each sample has one class, kind="),
    "names of classes": (lambda: play(data=(X, np.array(list("abc"))[Y])), r"y holds texts, .* np.unique\(y, return_"),
    "objects as samples": (lambda: play(data=(X.astype(object), Y)), "x holds objects such as .*, expected numbers"),
    "masks of more classes": (
        lambda: play(nn.Conv2d(1, 3, 1), (X.reshape(60, 1, 2, 2), (X > 0).reshape(60, 2, 2)), kind="segmentation"),
        r"gives \[3, 2, 2\] for a sample, the task needs \[2, 2, 2\]; if there are more classes .* task.classes says",
    ),
    "a squeezed output": (lambda: play(Squeezed(4, 1), (X, X[:, 0])), "leave the squeeze or the flatten out"),
    "two outputs": (lambda: play(Pair()), r"model Pair gives a tuple; return one tensor \(its logits\), or several"),
    "inputs as a list": (lambda: play(ListOfInputs(), ((X, X), Y)), r"on inputs input_1 \[4\], input_2 \[4\] fails: "),
    "a wrapped model": (lambda: play(nn.DataParallel(linear())), "DataParallel wraps another module, .* model.module"),
    "a model of no numbers": (lambda: play(linear().to("meta")), "weights on the device 'meta', which are no numbers"),
    "a model without data": (lambda: edgefl.simulate(linear()), r"give data too: \(x, y\), clients as"),
    "model and data swapped": (lambda: edgefl.simulate(PAIR, linear()), "this is a model; it comes first"),
    "a data loader": (lambda: play(data=DataLoader(TENSORS)), "devices make batches themselves; give its .dataset"),
    "a list of clients": (lambda: play(data=[PAIR] * 3), r"if each is a client's, give dict\(enumerate\(data\)\)"),
    "a list of data sets": (lambda: play(data=[TENSORS] * 2), r"if each is a client's, give dict\(enumerate\(data\)\)"),
    "a client without samples": (lambda: play(data=CLIENTS, fleet=None), r"data\['b'\] has no samples; leave this"),
    "too few groups": (lambda: play(data=(*PAIR, Y[:5]), fleet=None), r"group of shape \(5,\) for 60 samples"),
    "no devices": (lambda: play(fleet=0), "fleet: devices = 0; give at least 1"),
    "a misspelt argument": (lambda: play(rouds=3), "edgefl.simulate has no argument 'rouds'; did you mean 'rounds'?"),
    "a rate as an argument": (lambda: play(lr=0.1), "it belongs to the algorithm: algorithm='fedavg:lr=0.1'"),
    "a misspelt argument of compare": (
        lambda: edgefl.compare("softmax", "digits", algorithms=["fedavg"], rouds=3),  # type: ignore[call-arg]
        "edgefl.compare has no argument 'rouds'",
    ),
    "a misspelt argument of sweep": (
        lambda: edgefl.sweep("softmax", "digits", algorithms=["fedavg"], rouds=3),  # type: ignore[call-arg]
        "edgefl.sweep has no argument 'rouds'",
    ),
    "a misspelt argument of Run": (
        lambda: edgefl.Run("softmax", "digits", rouds=3),  # type: ignore[call-arg]
        "edgefl.Run has no argument 'rouds'",
    ),
    "no seeds": (
        lambda: edgefl.compare("softmax", "digits", algorithms=["fedavg"], seeds=0),
        "seeds = 0: give how many",
    ),
    "a grid of one number": (
        lambda: edgefl.sweep("softmax", "digits", algorithms=["fedavg"], grid={"lr": 0.1}),  # type: ignore[dict-item]
        r"grid: lr = 0.1: give a list of values",
    ),
    "marks that are numbers": (lambda: play(loss=nn.BCEWithLogitsLoss()), r"y of shape \(n, labels\) with 0 and 1"),
    "a loss of another kind": (
        lambda: play(loss="binary_cross_entropy", kind="plain"),
        "task.loss = 'binary_cross_entropy' is for task.kind = 'multilabel'; set that, or another loss",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_that_says_what_to_do(mistake: str) -> None:
    make, words = MISTAKES[mistake]
    with pytest.raises(ConfigError, match=words) as error:
        make()
    assert "\n" not in str(error.value)
    assert "edgefl.learn.session_objects" not in str(error.value)


def test_a_frame_of_pandas_needs_to_know_its_label() -> None:
    pandas = pytest.importorskip("pandas", reason="pip install pandas")
    frame = pandas.DataFrame(X).assign(label=Y)
    with pytest.raises(ConfigError, match=r"DataFrame: say which column is the label: \(frame.drop\("):
        play(data=frame)
    assert play(data=(frame.drop(columns="label"), frame["label"])).accuracy is not None


def test_more_outputs_than_labels_show_are_classes_if_the_run_says_so() -> None:
    with pytest.raises(ConfigError, match=r"if there are more, task.classes says how many"):
        play(linear(5))
    assert play(linear(5), settings={"task.classes": 5}).weights["weight"].shape == (5, 4)


def test_torchs_loss_of_marks_is_a_task_of_several_labels() -> None:
    assert play(data=(X, MARKS.astype(np.float32)), loss=nn.BCEWithLogitsLoss()).measure == "f1"
    assert play(linear(1), (X, (X[:, :1] > 0).astype(np.float32)), loss="binary_cross_entropy").measure == "f1"


def test_rows_of_zeros_and_ones_are_real_numbers_if_the_loss_says_so() -> None:
    assert play(data=(X, MARKS.astype(np.float32)), loss="squared_error").measure == "loss"


def test_settings_of_the_algorithm_alone_are_those_of_fedavg() -> None:
    run = play(settings={"algorithm.lr": 0.25, "algorithm.optimiser": "adam"}).run
    assert (run["algorithm"]["name"], run["algorithm"]["lr"]) == ("fedavg", 0.25)


def test_one_callback_and_one_augmentation_need_no_list() -> None:
    told: list[Any] = []
    play(callbacks=told.append, settings={"task.augment": "noise=0.1"})
    assert any(isinstance(fact, edgefl.base.events.Done) for fact in told)


def test_steps_of_a_series_may_have_labels_each() -> None:
    items = [(X[i : i + 5], Y[i : i + 5]) for i in range(30)]  # as long as each other, like a client's samples
    history = play(nn.Sequential(nn.Flatten(), nn.Linear(20, 15), nn.Unflatten(1, (3, 5))), items, kind="segmentation")
    assert history.measure == "mean_iou"
