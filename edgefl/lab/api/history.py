"""What a run leaves to its caller: its rounds as records, its curves, and its model."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefl.base.errors import ConfigError, nearest
from edgefl.base.events import DIVERGED, Done, Evaluated, Fact, Round, as_record
from edgefl.base.vector import Array
from edgefl.learn.evaluation import counters
from edgefl.learn.evaluation.figures import judged_by
from edgefl.learn.evaluation.judged_rounds import judged_rounds
from edgefl.learn.models.user_networks import StateDict, state_dict
from edgefl.learn.session_objects import shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What a curve may be drawn over, and which numbers of the rounds are summed up for it.
OVER = {
    "round": (),
    "bytes": ("bytes_up", "bytes_down"),
    "seconds": ("seconds",),
    "virtual_seconds": ("virtual_seconds",),
    "cpu": ("cpu_seconds",),
}
UNTOLD = {
    "virtual_seconds": "the run had no virtual clock; give its fleet profiles",
    "cpu": "only simulations record CPU time, real fleets do not",
}


@dataclass(frozen=True, slots=True, repr=False)
class History:
    """A run that has been played.

    >>> import edgefl
    >>> history = edgefl.simulate("softmax", "digits", fleet=4, rounds=2)
    >>> [record["round"] for record in history.records()]
    [1, 2]
    >>> history.accuracy == history.curve("accuracy")[-1]
    True
    >>> sorted(history.weights)
    ['1.bias', '1.weight']
    >>> history  # doctest: +ELLIPSIS
    <History of 'run', fedavg: 2 rounds, accuracy 0...>
    """

    run: Mapping[str, Any]  # its run file, as tables
    facts: Sequence[Fact]  # rounds, evaluations by devices, and the end
    weights: Mapping[str, Array]  # the last model under the names of its state dict; empty if it was not kept
    clients: Mapping[str, str] = field(default_factory=dict)  # whose data each device had, where the data said it
    logged: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)  # what callbacks noted, by round
    own_models: Mapping[str, Mapping[str, Array]] = field(default_factory=dict)  # of the devices, where they have any

    @property
    def name(self) -> str:
        """What the run is called."""
        return str(self.run.get("run", {}).get("name", "run"))

    def __repr__(self) -> str:
        measure, records = self.measure, self.records()
        value = next((record[measure] for record in reversed(records) if record.get(measure) is not None), None)
        last = "" if value is None else f", {measure} {value:.3f}"
        algorithm = self.run.get("algorithm", {}).get("name", "unknown")
        diverged = ", diverged" if self.done and self.done.stopped == DIVERGED else ""
        return f"<History of '{self.name}', {shown(algorithm)}: {len(records)} rounds{last}{diverged}>"

    @property
    def rounds(self) -> list[Round]:
        """Every round with the figures of its model, from the coordinator or from devices."""
        return judged_rounds(self.facts)

    @property
    def done(self) -> Done | None:
        """The end: best round, traffic, times, hash of the model; None if it was not reached.

        `done.stopped` is "diverged" where learning left the finite numbers, and `done.why` says where and why.
        """
        return next((fact for fact in reversed(self.facts) if isinstance(fact, Done)), None)

    @property
    def accuracy(self) -> float | None:
        """Of the last model that was judged; None for a regression."""
        return self._last("accuracy")

    @property
    def loss(self) -> float | None:
        """Of the last model that was judged."""
        return self._last("loss")

    @property
    def measure(self) -> str:
        """What its models are judged by: "accuracy", "loss" of real targets, or "mean_iou" and its like."""
        ends: list[Round | Done] = [*([self.done] if self.done else []), *self.rounds]
        return judged_by(next((fact.scores for fact in reversed(ends) if fact.scores), {}))

    def records(self) -> list[dict[str, Any]]:
        """One record for each round: everything that is one number or word, what was counted, what callbacks noted.

        `bounded` is how many answers `[guards]` scaled down, `evaluation/bounded` how many devices it counted for fewer
        samples than they evaluated on, `stages/memory/shrunk` what a stage counted, `updates/corrected` what devices
        did, summed.
        """
        judged = [fact for fact in self.facts if isinstance(fact, Evaluated)]
        more = {fact.round: {"evaluation/bounded": fact.bounded} for fact in judged}
        return [_flat(fact) | more.get(fact.round, {}) | dict(self.logged.get(fact.round, {})) for fact in self.rounds]

    def to_frame(self) -> Any:  # Any: a pandas.DataFrame, if pandas is there
        """The records as a `pandas.DataFrame`."""
        return frame(self.records(), columns=_flat(Round(0)))

    def curve(self, what: str = "accuracy") -> list[float | None]:
        """One number of every round; None where it was not looked at."""
        records = self.records()
        if not records:  # it diverged in its first round
            return []
        known = sorted({key for record in records for key, value in record.items() if isinstance(value, Real)})
        if what not in known:
            raise ConfigError(f"no curve '{what}'; {nearest(what, known)}")
        return [record.get(what) for record in records]

    def over(self, axis: str = "round") -> list[float]:
        """Where each round lies: its number, or what had been sent, waited or worked until its end."""
        if axis not in OVER:
            raise ConfigError(f"over = '{axis}' is not known; {nearest(axis, OVER)}")
        rounds = self.rounds
        if axis in UNTOLD and any(getattr(fact, key) is None for fact in rounds for key in OVER[axis]):
            raise ConfigError(f"over = '{axis}': {UNTOLD[axis]}")
        total, places = 0.0, list[float]()
        for fact in rounds:
            total += sum(getattr(fact, key) or 0 for key in OVER[axis])
            places.append(total if OVER[axis] else fact.round)
        return places

    def state_dict(self) -> StateDict:
        """The model as torch tensors, as `load_state_dict` of your module takes it."""
        if not self.weights:
            raise ConfigError(f"the model of '{self.name}' was not kept; play it with edgefl.simulate")
        return state_dict(self.weights)

    def own_model(self, device: str) -> Mapping[str, Array]:
        """The device's own model after a run of FedPer, Ditto and their like, as `weights` has the shared one.

        It is what the device would use now: the last shared model with its private part, or a whole one of its own.

        >>> import edgefl
        >>> history = edgefl.simulate("softmax", "digits", algorithm="ditto", fleet=2, rounds=1)
        >>> bool((history.own_model("device-00")["1.bias"] != history.weights["1.bias"]).any())
        True
        """
        if not self.own_models:
            raise ConfigError(
                f"'{self.name}' has no models of the devices' own: simulations keep them, of fedper, fedrep, fedbn,"
                " ditto and pfedme, if all together fit into compute.state_mb"
            )
        if device not in self.own_models:
            raise ConfigError(f"no device '{device}'; {nearest(device, self.own_models)}")
        return self.own_models[device]

    def plot(self, file: str | Path | None = None, *, what: str | None = None, over: str = "round") -> "Figure":
        """A figure of one curve, of what it is judged by unless said; with `file`, written there as well."""
        from edgefl.lab.api.figure import curves, written  # noqa: PLC0415 - brings matplotlib

        figure = curves({self.name: [self]}, what=what, over=over)
        return written(figure, file)

    def save(self, folder: str | Path) -> Path:
        """Write it into a folder: metrics.jsonl, and all models as safetensors; `edgefl.load` reads them."""
        from edgefl.lab.api.folder import save  # noqa: PLC0415 - with this file in a circle

        return save(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path) -> "History":
        """What `save`, or a coordinator, left in this folder."""
        from edgefl.lab.api.folder import load  # noqa: PLC0415 - as above

        return load(folder)

    def _last(self, what: str) -> float | None:
        values = [value for fact in self.rounds if (value := getattr(fact, what)) is not None]
        if not values and self.done:  # it diverged in its first round: the model that it began with
            return getattr(self.done, what, None)
        return values[-1] if values else None


def frame(records: Sequence[Mapping[str, Any]], columns: Iterable[str] = ()) -> Any:  # Any: a pandas.DataFrame
    """Return records as a table of pandas, if it is there; one without records has these columns."""
    try:
        from pandas import DataFrame  # noqa: PLC0415 - who asks for it has it
    except ModuleNotFoundError:
        raise ConfigError("this needs pandas: pip install pandas, or take records()") from None
    return DataFrame.from_records(records, columns=None if records else list(columns))


def _flat(fact: Round) -> dict[str, Any]:
    """What pandas can put into cells; every figure of the model stands under its own name."""
    told = as_record(fact)
    del told["event"]
    told |= fact.scores
    told |= counters.named(fact)
    return {key: value for key, value in told.items() if value is None or isinstance(value, Real | str)}
