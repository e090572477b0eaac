"""`edgefl.simulate`: your own model, data and algorithm, and what comes back."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from pydantic.dataclasses import dataclass
from torch import nn
from torch.nn import functional

import edgefl
from edgefl.base.errors import ConfigError
from edgefl.base.events import Done, Fact, Joined, Round
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.learn import session_objects
from edgefl.learn.aggregation import Mean
from edgefl.learn.algorithms.fedprox import FedProx
from edgefl.learn.contract import STRICT
from edgefl.learn.losses import cross_entropy
from edgefl.learn.training.local import LocalTraining
from edgefl.sim.drivers import play

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 5)).astype(np.float32)
Y = (X.sum(axis=1) > 0).astype(np.int64)


class Net(nn.Module):
    """Has defaults for both of its parameters, which mean something else than shape and outputs."""

    def __init__(self, hidden: int = 6, outputs: int = 2) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, hidden), nn.Linear(hidden, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(x)))


def simulate(**more: Any) -> edgefl.History:
    return edgefl.simulate(**{"model": "softmax", "data": (X, Y), "fleet": 4, "rounds": 2} | more)


def sha(history: edgefl.History) -> str:
    assert history.done is not None
    return history.done.model_sha256


# ---- the same run as a run file's ----------------------------------------------------------------------------------


def test_it_is_the_run_that_a_run_file_describes() -> None:
    told: list[Done] = []
    table = {"task": {"model": "softmax", "partition": {"kind": "iid", "devices": 4}}, "run": {"rounds": 2, "seed": 3}}
    table["algorithm"] = {"name": "fedprox", "mu": 0.2}
    play(parse(RunFile, table, "test"), None, lambda fact: told.append(fact) if isinstance(fact, Done) else None)
    history = edgefl.simulate("softmax", "digits", algorithm="fedprox:mu=0.2", fleet=4, rounds=2, seed=3)
    assert sha(history) == told[0].model_sha256


def test_a_run_file_may_be_where_it_begins(tmp_path: Any) -> None:
    path = tmp_path / "run.toml"
    path.write_text('[run]\nname = "mine"\nrounds = 9\n[task]\nmodel = "softmax"\npartition = { devices = 3 }\n')
    history = edgefl.simulate(run_file=path, rounds=1)
    assert (history.name, len(history.rounds), history.run["task"]["partition"]["devices"]) == ("mine", 1, 3)


# ---- models --------------------------------------------------------------------------------------------------------


def test_an_object_gives_its_weights_and_is_left_as_it_is() -> None:
    net = Net()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    start: list[Any] = []
    history = simulate(model=net, rounds=1, callbacks=[lambda _, run: start.append(run.weights()) if not start else 0])
    assert all(np.array_equal(start[0][name], tensor) for name, tensor in before.items())
    assert all(torch.equal(net.state_dict()[name], tensor) for name, tensor in before.items())
    assert not np.array_equal(history.weights["first.weight"], before["first.weight"])
    net.load_state_dict(history.state_dict())  # it takes what comes back


@pytest.mark.parametrize("model", [Net, lambda: Net(3), lambda shape, outputs: nn.Linear(shape[0], outputs)])
def test_a_class_or_a_function_makes_the_network(model: Any) -> None:
    assert simulate(model=model, rounds=1).accuracy is not None


@pytest.mark.parametrize("backend", ["onnx", "torch"])
def test_an_object_trains_in_several_threads_to_the_same_bits(backend: Any) -> None:
    net = Net()
    assert sha(simulate(model=net, backend=backend)) == sha(simulate(model=net, backend=backend, workers=2))


@pytest.mark.parametrize("engine", ["processes", "ray"])
def test_what_only_this_process_has_is_refused_where_others_train(engine: str) -> None:
    with pytest.raises(ConfigError, match=f"compute.engine = '{engine}' .* do not find Net: put it into a module"):
        simulate(model=Net(), backend="torch", settings={"compute.engine": engine}, workers=2)


def test_names_end_with_the_run() -> None:
    simulate(model=Net(), rounds=1)
    with pytest.raises(ConfigError):
        simulate(model=Net(), settings={"wire.codec": "nothing"})
    assert not {name for name in vars(session_objects) if name.startswith(("Net", "data"))}


# ---- algorithms and losses -----------------------------------------------------------------------------------------


def own_algorithm() -> Any:
    """As in a notebook: a class that no other module can import."""

    @dataclass(frozen=True, config=STRICT, kw_only=True)
    class Halve:
        name: Literal["halve"] = "halve"

        def apply(self, draft: Any, state: Any, site: Any) -> Any:
            return replace(draft, step=draft.step / 2), state

    @dataclass(frozen=True, config=STRICT, kw_only=True)
    class Careful(LocalTraining):
        name: Literal["careful"] = "careful"
        factor: float = 1.0

        def stages(self) -> Any:
            return Mean(), Halve()

    return Careful


@pytest.mark.parametrize("fleet", [4, edgefl.Fleet(profiles={"pi4": 4})])
def test_an_algorithm_of_your_own_may_be_an_object_or_its_class(fleet: Any) -> None:
    kind = own_algorithm()
    given = simulate(algorithm=kind(lr=0.2), fleet=fleet)
    assert sha(given) != sha(simulate(algorithm="fedavg:lr=0.2"))
    assert sha(simulate(algorithm=kind)) == sha(simulate(algorithm=kind(lr=0.1)))
    assert given.run["algorithm"]["lr"] == 0.2


def test_every_way_to_say_an_algorithm_says_the_same() -> None:
    ways: list[Any] = [FedProx(mu=0.3, lr=0.05), {"name": "fedprox", "mu": 0.3, "lr": 0.05}, "fedprox:mu=0.3:lr=0.05"]
    assert len({sha(simulate(algorithm=way)) for way in ways}) == 1


def test_a_loss_may_be_a_function() -> None:
    def gentle(z: Any, y: Any) -> Any:
        loss, dz = cross_entropy(z, y)
        return loss / 2, dz / 2

    assert sha(simulate(loss=gentle)) != sha(simulate())


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
def test_a_network_may_keep_what_weight_norm_computed() -> None:
    net = nn.utils.weight_norm(nn.Linear(5, 2))
    before = net.weight_g.clone()
    history = simulate(model=net)
    assert torch.equal(net.weight_g, before)
    net.load_state_dict(history.state_dict())
    assert not torch.equal(net.weight_g, before)


def test_losses_of_torch_are_known_by_what_they_compute() -> None:
    plain = sha(simulate(loss="cross_entropy"))
    known: list[Any] = [functional.cross_entropy, nn.CrossEntropyLoss, nn.CrossEntropyLoss(reduction="mean")]
    assert {sha(simulate(loss=one)) for one in known} == {plain}


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        (nn.CrossEntropyLoss(label_smoothing=0.1), r"CrossEntropyLoss\(label_smoothing=...\) has no equal here"),
        (partial(functional.cross_entropy, reduction="sum"), r"cross_entropy\(reduction=...\) has no equal here"),
        (nn.CrossEntropyLoss(weight=torch.ones(2)), "classes are weighed by settings=.'task.class_weights'"),
        (nn.BCELoss(), "leave the Sigmoid out of the model and give BCEWithLogitsLoss"),
        (functional.huber_loss, "loss = huber_loss: of torch only cross_entropy, mse_loss, binary_cross"),
        (Net(), "loss = Net: of torch only"),
    ],
)
def test_a_loss_of_torch_that_has_no_equal_is_refused_in_one_line(loss: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        simulate(loss=loss)
    assert "\n" not in str(refused.value)


def test_real_labels_are_learnt_by_the_squared_error() -> None:
    history = simulate(data=(X, X.sum(axis=1)), rounds=5)
    assert history.accuracy is None
    assert history.curve("r2")[-1] > history.curve("r2")[0]


# ---- callbacks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fleet", [4, edgefl.Fleet(profiles={"pi4": 4})])
def test_a_callback_sees_events_and_weights_notes_and_stops(fleet: Any) -> None:
    def watch(event: Any, run: edgefl.Running) -> None:
        if isinstance(event, Round):
            run.log(norm=float(np.linalg.norm(run.weights()["1.weight"])))
            if event.round == 2:
                run.stop("far enough")

    events: list[Any] = []
    history = simulate(fleet=fleet, rounds=9, callbacks=[watch, events.append])
    assert history.done is not None
    assert (len(history.rounds), history.done.stopped) == (2, "far enough")
    assert history.records()[1]["norm"] == pytest.approx(float(np.linalg.norm(history.weights["1.weight"])))
    assert sha(history) == sha(simulate(fleet=fleet, rounds=2))
    assert {type(one).__name__ for one in events} >= {"Evaluating", "Joined", "Asked", "Answered", "Closed", "Done"}


class TwoInputs(nn.Module):
    """Takes real numbers and token numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.last = nn.Embedding(4, 3), nn.Linear(8, 2)

    def forward(self, numbers: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        return self.last(torch.cat([numbers, self.words(words).mean(dim=1)], dim=1))


@pytest.mark.parametrize("backend", ["onnx", "torch"])
def test_several_inputs_go_to_the_network_in_their_order_or_by_name(backend: Any) -> None:
    words = np.stack([Y, 1 - Y + 2], axis=1)
    torch.manual_seed(0)
    network = TwoInputs()
    ways = [
        ((X, words), Y),
        ({"words": words, "numbers": X}, Y),
        [((torch.from_numpy(x), torch.from_numpy(w)), y) for x, w, y in zip(X, words, Y, strict=True)],
    ]
    given = {"model": network, "algorithm": "fedavg:lr=0.5", "rounds": 5, "backend": backend}
    histories = [simulate(data=data, **given) for data in ways]
    assert len({tuple(history.curve("loss")) for history in histories}) == 1
    assert (histories[0].accuracy or 0) > 0.9
    network.load_state_dict(histories[0].state_dict())
    with torch.no_grad():
        right = network(torch.from_numpy(X), torch.from_numpy(words)).argmax(dim=1).numpy() == Y
    assert right.mean() > 0.9


def test_a_kind_of_task_has_its_own_loss_and_figures() -> None:
    marks = np.stack([Y, X[:, 0] > 0], axis=1).astype(np.int64)
    history = simulate(model=lambda: nn.Linear(5, 2), data=(X, marks), kind="multilabel", algorithm="fedavg:lr=0.5")
    assert history.run["task"]["loss"] == "binary_cross_entropy"
    assert 0 < (history.rounds[-1].scores or {})["f1"] <= 1


def test_devices_are_the_clients_in_their_order() -> None:
    joined: list[Any] = []
    parts = {"eve": slice(0, 60), "anna": slice(60, 90), "ben": slice(90, 120)}
    data = {name: (X[rows], Y[rows]) for name, rows in parts.items()}
    history = simulate(data=data, fleet=None, callbacks=[lambda e: joined.append(e) if isinstance(e, Joined) else 0])
    assert history.clients == {"device-00": "eve", "device-01": "anna", "device-02": "ben"}
    assert {history.clients[one.device]: one.samples for one in joined} == {"eve": 48, "anna": 24, "ben": 24}


# ---- mistakes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"model": 5}, "model = int: give an nn.Module"),
        ({"data": 5}, r"data = int: give \(x, y\)"),
        ({"data": {}}, "data has no clients"),
        ({"data": (X, Y[:5])}, "120 samples but 5 labels"),
        ({"data": "digits", "test": (X, Y)}, "brings its own test part"),
        ({"algorithm": "fedavgg"}, "did you mean 'fedavg'"),
        ({"algorithm": Net()}, "algorithm = Net: give a name, a table, or a frozen dataclass"),
        ({"fleet": {"device": 3}}, "unknown key 'device'; did you mean 'devices'"),
        ({"fleet": "ten"}, "fleet = 'ten': give a number"),
        ({"settings": {"wire.codecc": "int8"}}, "unknown key 'wire.codecc'"),
        ({"callbacks": [3]}, "callbacks: int cannot be called"),
        ({"loss": 3}, "loss = int: give a name, or a function"),
    ],
)
def test_a_mistake_is_one_line(given: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as mistake:
        simulate(**given)
    assert "\n" not in str(mistake.value)


@pytest.mark.parametrize("algorithm", ["fedper", "fedrep:head_epochs=1", "fedbn", "ditto", "pfedme"])
def test_a_simulation_gives_every_devices_own_model_the_same_in_a_loop_and_emulated(algorithm: str) -> None:
    """The clients label alike samples differently, so one model cannot be right for all of them."""
    model = nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
    clients = {"plain": (X, Y), "turned": (X + np.float32(0.1), 1 - Y)}
    run: dict[str, Any] = {"algorithm": algorithm, "rounds": 8, "settings": {"algorithm.batch": 8}}
    history = edgefl.simulate(model, clients, **run)
    emulated = edgefl.simulate(model, clients, fleet=edgefl.Fleet(profiles={"pi4": 2}), **run)
    better = 0.0
    for number, (x, y) in enumerate(clients.values()):
        device = f"device-0{number}"
        own, again = history.own_model(device), emulated.own_model(device)
        assert own.keys() == history.weights.keys()
        assert all((own[name] == again[name]).all() for name in own)
        better += score(model, own, x, y) - score(model, history.weights, x, y)
    assert better > 0.05


STOPS = {"the loop": 4, "an emulated fleet": edgefl.Fleet(profiles={"pi4": 4})}


@pytest.mark.parametrize("fleet", STOPS)
def test_a_run_that_a_callback_stops_leaves_the_devices_own_models_too(fleet: str) -> None:
    def stops(event: Fact, run: edgefl.Running) -> None:
        if isinstance(event, Round) and event.round == 2:
            run.stop("seen enough")

    history = simulate(algorithm="ditto", rounds=9, fleet=STOPS[fleet], callbacks=[stops])
    assert history.done is not None
    assert history.done.stopped == "seen enough"
    assert sorted(history.own_models) == [f"device-0{i}" for i in range(4)]
    own = history.own_model("device-00")
    assert any((own[name] != history.weights[name]).any() for name in own)


@pytest.mark.parametrize("fleet", STOPS)
def test_a_run_that_diverges_leaves_the_devices_own_models_of_its_last_finite_state(fleet: str) -> None:
    x = np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32)
    steep: dict[str, Any] = {"algorithm": "ditto:lr=9", "rounds": 30, "settings": {"algorithm.batch": 100}}
    history = edgefl.simulate("softmax", (x, x.sum(axis=1)), fleet=STOPS[fleet], backend="torch", **steep)
    assert history.done is not None
    assert history.done.stopped == "diverged"
    assert history.own_models
    for own in history.own_models.values():
        assert all(np.isfinite(array).all() for array in own.values())
        assert any((own[name] != history.weights[name]).any() for name in own)


def test_own_models_are_saved_and_loaded_and_those_of_an_earlier_run_are_not(tmp_path: Path) -> None:
    history = simulate(algorithm="ditto", folder=tmp_path / "run")
    for folder in (tmp_path / "run", history.save(tmp_path / "saved")):
        again = edgefl.load(folder)
        assert sorted(again.own_models) == sorted(history.own_models)
        assert all(
            (again.own_model(device)[name] == array).all()
            for device, own in history.own_models.items()
            for name, array in own.items()
        )
    simulate(algorithm="fedavg", folder=tmp_path / "run")
    simulate(algorithm="ditto", fleet=2).save(tmp_path / "saved")
    assert not edgefl.load(tmp_path / "run").own_models
    assert sorted(edgefl.load(tmp_path / "saved").own_models) == ["device-00", "device-01"]


def score(model: nn.Module, weights: Any, x: Any, y: Any) -> float:
    model.load_state_dict({name: torch.tensor(array) for name, array in weights.items()})
    with torch.no_grad():
        return float((model.eval()(torch.tensor(x)).argmax(1).numpy() == y).mean())


def test_models_of_the_devices_own_that_are_not_there_are_asked_for_in_vain(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigError, match="has no models of the devices' own"):
        simulate().own_model("device-00")
    with pytest.raises(ConfigError, match=r"compute\.state_mb"):
        simulate(algorithm="ditto", settings={"compute.state_mb": 0}).own_model("device-00")
    assert caplog.text.count("the devices' own models are not kept: all 4 take") == 1
    with pytest.raises(ConfigError, match="no device 'device-9'; did you mean 'device-0"):
        simulate(algorithm="ditto").own_model("device-9")


def test_a_personalised_method_whose_own_models_nobody_judges_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    simulate(algorithm="ditto")
    assert [line for line in caplog.messages if "set evaluation.on = 'devices'" in line]
    caplog.clear()
    simulate(algorithm="ditto", settings={"evaluation.on": "devices", "evaluation.least": 1})
    assert not [line for line in caplog.messages if "evaluation.on" in line]
