"""What a seed means: a fleet, the runs on it, and everything that goes wrong. All is drawn before the play begins.

Each seed draws first which kinds of faults there are at all, then how many: seeds in which only disks fail, or only
lines, find what a mixture of everything hides.
"""

from dataclasses import dataclass
from random import Random
from typing import Any, Literal, TypeAlias, get_args

from edgefl.job.config.schema import RunFile
from edgefl.learn.algorithms.registry import ALGORITHMS
from edgefl.system.hardware.line import Line
from edgefl.wire.chunks import AROUND, CHUNK, HEAD, TOGETHER

Kind: TypeAlias = Literal[
    "kill", "power", "torn", "stop", "rot", "cut", "silence", "storm", "lost", "broker", "full", "clock", "twin",
    "noise",
]  # fmt: skip
Lie: TypeAlias = Literal["torn", "not a number", "huge", "round", "run", "name", "model", "stale", "counts"]

KINDS: tuple[Kind, ...] = get_args(Kind)
LOST = (  # what a broker may lose, though it said that it has it
    "presence", "will", "state", "manifest", "model", "assignment", "piece", "answer", "receipt", "missing", "refusal",
    "holding", "absent", "declined", "busy",
)  # fmt: skip
LIES: tuple[Lie, ...] = ("torn", "not a number", "huge", "round", "run", "name", "model", "stale")
SAMPLES = 8  # more for each device of a fleet that is asked what its data are like: some have enough to say it
MOST_FAULTS = 10
LONG = 400.0  # virtual seconds that a machine may be away for, in which the others must get on
CHEAP: dict[str, dict[str, Any]] = {  # where an algorithm's own defaults would take long
    "fedgc": {"batches": 2},
    "gradma": {"batches": 2},
    "fedreg": {"pseudo_steps": 1},
    "feddf": {"steps": 2},
    "flashback": {"max_epochs": 1},
    "fedrep": {"head_epochs": 1, "private": ["b"]},
    "fedper": {"private": ["b"]},  # of the two tensors there are
    "fedbn": {"private": ["b"]},
}
NEWER = ("fedadam", "fedyogi", "fedadagrad", "fedasync", "fedper", "fedrep", "fedbn", "ditto", "pfedme")
AGAIN = 0.3  # the share of runs that have one of these instead: a stream of its own, so that seeds stay what they are
BUFFERED = 0.2  # the share of runs whose rounds wait for no device
PER_ROUND = 7.0  # virtual seconds in which faults may come, for each round


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong, and for how long; `amount` is what its kind makes of it."""

    at: float
    kind: Kind
    whom: str = ""  # a device or a run; empty: the broker, or all lines
    seconds: float = 0.0
    amount: float = 0.0
    what: str = ""  # the kind of messages, where some are lost

    def __str__(self) -> str:
        whom = f" {self.whom}" if self.whom else ""
        lasts = f" for {self.seconds:.1f} s" if self.seconds else ""
        what = f" {self.what}" if self.what else ""
        return f"{self.kind}{what}{whom}{lasts}" + (f" ({self.amount:g})" if self.amount else "")


@dataclass(frozen=True, slots=True)
class ScenarioDevice:
    """A device of the fleet."""

    name: str
    samples: int
    pace: float  # seconds per step
    line: Line
    lie: Lie | None = None  # what it sends instead of its answers, until all is mended


@dataclass(frozen=True, slots=True)
class Weather:
    """What happens to messages while there is a storm: the chance of each."""

    delayed: float = 0.0
    broken: float = 0.0
    doubled: float = 0.0
    lost: float = 0.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """One play."""

    seed: int
    members: tuple[ScenarioDevice, ...]
    runs: tuple[RunFile, ...]
    faults: tuple[Fault, ...]
    weather: Weather
    preparing: float  # seconds that a coordinator's slow work takes
    merging: float
    piece: int  # bytes of a chunk of a frame

    @property
    def small_rounds(self) -> int:
        """Rounds that share a segment of the journal, and of which only the last one's model must be saved."""
        return Random(f"{self.seed}/segments").choice((1, 2, 8))

    @property
    def largest(self) -> int:
        """Bytes of a packet that the broker takes: for one piece, or for several."""
        return Random(f"{self.seed}/packets").choice(TOGETHER) * self.piece + HEAD + AROUND

    @property
    def healed(self) -> float:
        """When everything that was broken is mended again."""
        return max((fault.at + fault.seconds for fault in self.faults), default=0.0) + 1.0

    def exact(self, run: RunFile) -> bool:
        """Return whether every round of this run needs the answers of all devices."""
        everybody = run.rounds.quorum == run.rounds.cohort == len(self.members)
        return everybody and run.rounds.over_select == 1.0 and not run.buffered


def draw(seed: int) -> Scenario:
    """The scenario of a seed, the same for ever."""
    fleet = Random(f"{seed}/fleet")
    count = fleet.choice((2, 3, 3, 4, 4, 5))
    liars = fleet.choice((0, 0, 0, 1)) if count > 2 else 0
    more = SAMPLES if _describes(seed) else 0
    lines = (Line(), Line(0.02), Line(0.2, 20_000.0, 50_000.0))
    members = tuple(
        ScenarioDevice(
            f"d{number}",
            fleet.randint(3, 9) + more,
            fleet.choice((0.2, 0.8, 2.5)),
            fleet.choice(lines),
            _lie(seed, fleet.choice(LIES)) if number <= liars else None,
        )
        for number in range(1, count + 1)
    )
    names = ("alpha", "beta") if Random(f"{seed}/runs").random() < 0.25 else ("alpha",)
    runs = tuple(_run(seed, name, count) for name in names)
    faults = _faults(seed, members, runs)
    weather = Random(f"{seed}/weather")
    delayed, broken = weather.choice((0.0, 0.1, 0.4)), weather.choice((0.0, 0.1, 0.4))
    chances = Weather(delayed, broken, weather.choice((0.0, 0.0, 0.2)), weather.choice((0.0, 0.0, 0.05, 0.2)))
    slow = Random(f"{seed}/work")
    pieces = Random(f"{seed}/pieces").choice((CHUNK, CHUNK, 150))  # small ones are lost, doubled and asked for again
    return Scenario(seed, members, runs, faults, chances, slow.choice((0.0, 1.0)), slow.choice((0.0, 0.3, 2.0)), pieces)


def _lie(seed: int, usual: Lie) -> Lie:
    """What a liar lies about: what it did, or what it saw."""
    return "counts" if Random(f"{seed}/counts").random() < 0.3 else usual


def _describes(seed: int) -> bool:
    """Whether runs of this seed ask what their fleet's data are like, unless they are private."""
    return Random(f"{seed}/described").random() < 0.3


def _evaluation(seed: int, name: str) -> dict[str, Any]:
    """Who judges the model, and whether that may end the run."""
    rng = Random(f"{seed}/evaluation/{name}")
    on = rng.choice(("coordinator", "coordinator", "devices", "devices", "both"))
    every, patience, least = rng.choice((1, 1, 2)), rng.choice((None, None, 1)), rng.choice((1, 1, 2, 3))
    about = {"every": every, "patience": patience, "least": least, "per_device": rng.random() < 0.5}
    return {"on": on, "held_back": 0.34, "beside_privacy": True, **about}


def _run(seed: int, name: str, count: int) -> RunFile:
    rng = Random(f"{seed}/run/{name}")
    rounds: dict[str, Any] = {"deadline": rng.choice((10.0, 20.0, 40.0))}
    if rng.random() < 0.5:
        rounds |= {"cohort": count, "quorum": count, "start_with": rng.choice((None, count))}
    else:
        cohort = rng.randint(1, count)
        quorum = rng.randint(1, cohort)
        rounds |= {"cohort": cohort, "quorum": quorum, "over_select": rng.choice((1.0, 1.0, 1.5))}
        rounds["late"] = rng.choice(("drop", "discount", "memory"))
    algorithm, privacy = _algorithm(rng)
    if privacy:
        rounds["late"] = "drop"
    elif (newer := Random(f"{seed}/newer/{name}")).random() < AGAIN:
        algorithm = _cheap(newer.choice(NEWER))
    if Random(f"{seed}/pace/{name}").random() < BUFFERED:
        rounds, algorithm = _impatient(seed, name, rounds, algorithm, "fedprox" if privacy else "")
    evaluation = _evaluation(seed, name)
    data = "none" if evaluation["on"] == "devices" else "digits"  # whose place softmax.py takes
    statistics = {"normalise": "fleet", "class_weights": "balanced"} if _describes(seed) and not privacy else {}
    task = {"data": data, "sample": [3], "classes": 3, "backend": "torch", "model": "softmax", **statistics}
    table: dict[str, Any] = {
        "run": {"name": name, "rounds": rng.randint(2, 4), "seed": seed},
        "task": task,
        "evaluation": evaluation,
        "algorithm": algorithm,
        "privacy": privacy,
        "rounds": rounds,
        "selection": _selection(seed, name, rng.choice(("uniform", "uniform", "fresh")), private=bool(privacy)),
        "wire": {
            **_wire(rng),
            "enclose_kb": Random(f"{seed}/enclosed/{name}").choice((0, 64)),
            "seal": Random(f"{seed}/seal/{name}").random() < 0.3,
        },
        "guards": {"strikes": 3, "quarantine_seconds": 20.0},
    }
    return RunFile.model_validate({key: value for key, value in table.items() if value is not None})


def _selection(seed: int, name: str, first: str, *, private: bool) -> dict[str, Any]:
    """The first one, or one of those that came later: a stream of their own, too."""
    rng = Random(f"{seed}/selection/{name}")
    quiet, asking = ("samples", "fastest", "deadline"), ("power_of_choice", "oort")
    return {"name": rng.choice(quiet if private else quiet + asking) if rng.random() < AGAIN else first}


def _impatient(
    seed: int, name: str, rounds: dict[str, Any], algorithm: dict[str, Any], private: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same in rounds that wait for no device, of an algorithm that can; of a private run the one that is."""
    rng = Random(f"{seed}/impatient/{name}")
    kept = {key: value for key, value in rounds.items() if key in {"deadline", "start_with"}}
    sizes = {"concurrency": rounds["cohort"], "buffer": rounds["quorum"]}
    able = algorithm["name"] in {"fedavg", "fedprox", "fedavgm", "fedntd", "fedreg", *NEWER}
    plain = (
        algorithm
        if able
        else {"name": private or rng.choice(("fedavg", "fedavgm")), "epochs": 1, "batch": 4, "lr": 0.1}
    )
    return {"mode": "buffered", "staleness": rng.choice((0, 1, 2, 20)), **kept, **sizes}, plain


def _algorithm(rng: Random) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Any there is, at its cheapest, plain FedAvg and the private ones a little more often."""
    first = [name for name in ALGORITHMS if name not in NEWER]
    name = rng.choice((*first, "fedavg", "private", "private"))
    privacy = {"mechanism": "output", "clip": 5.0, "sigma": 0.01, "noise": "seeded"} if name == "private" else None
    if privacy:
        name = rng.choice(("fedprox", "upcycled"))
    return _cheap(name), privacy


def _cheap(name: str) -> dict[str, Any]:
    return {"name": name, "epochs": 1, "batch": 4, "lr": 0.1, **CHEAP.get(name, {})}


def _wire(rng: Random) -> dict[str, Any]:
    """A codec for both ways, or one for each."""
    wire: dict[str, Any] = {"codec": rng.choice(("float32", "float32", "float16"))}
    up = rng.choice((None, None, {"codec": "int8"}, {"codec": "topk", "share": 0.3}))
    down = rng.choice((None, None, {"codec": "float16"}, {"codec": "int8"}))
    return wire | {way: table for way, table in (("up", up), ("down", down)) if table}


def _faults(seed: int, members: tuple[ScenarioDevice, ...], runs: tuple[RunFile, ...]) -> tuple[Fault, ...]:
    rng = Random(f"{seed}/faults")
    kinds = [kind for kind in KINDS if rng.random() < 0.4]
    if not kinds or rng.random() < 0.04:
        return ()
    span = PER_ROUND * max(run.run.rounds for run in runs)
    devices, coordinators = [member.name for member in members], [run.run.name for run in runs]
    faults = []
    for _ in range(rng.randint(1, MOST_FAULTS)):
        kind = rng.choice(kinds)
        whom = rng.choice(coordinators) if rng.random() < 0.45 else rng.choice(devices)
        if kind in ("twin", "noise"):
            whom = rng.choice(devices)
        elif kind == "rot":
            whom = rng.choice(coordinators)
        faults.append(_fault(rng, kind, whom, rng.uniform(0.0, span)))
    if rng.random() < 0.25:
        away: Kind = rng.choice(("kill", "cut", "silence", "full"))
        faults.append(Fault(rng.uniform(0.0, span), away, rng.choice((*devices, *coordinators)), LONG))
    return tuple(sorted(faults, key=lambda fault: (fault.at, fault.kind, fault.whom)))


def _fault(rng: Random, kind: Kind, whom: str, at: float) -> Fault:  # noqa: PLR0911  one kind, one line
    seconds = rng.choice((0.5, 3.0, 10.0, 40.0))
    match kind:
        case "torn":  # the power fails at one of the next steps of the disk
            return Fault(at, kind, whom, seconds, rng.randint(0, 14))
        case "broker":
            return Fault(at, kind, "", rng.choice((0.0, 2.0, 15.0)))
        case "lost":  # the next few messages of a kind, on the line of one machine
            return Fault(at, kind, whom, seconds, rng.choice((1, 1, 2, 3)), rng.choice(LOST))
        case "storm":
            return Fault(at, kind, "", rng.choice((5.0, 20.0)))
        case "clock":
            return Fault(at, kind, whom, 0.0, rng.choice((-86_400.0, -5.0, 30.0, 1e7)))
        case "twin" | "noise":
            return Fault(at, kind, whom, rng.choice((5.0, 20.0)))
        case _:
            return Fault(at, kind, whom, seconds)
