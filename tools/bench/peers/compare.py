"""All sides, one load after another, in turns."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from edgefl.ops.bench.own_broker import started_broker
from edgefl.wire.address import Address
from edgefl.wire.broker import free_port
from tools.bench.peers.flower import Interpreter
from tools.bench.peers.loads import LOADS, Load
from tools.bench.peers.side import PeerSide, Programs, TurnCost
from tools.processes import python

HERE = Path(__file__).parent
HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class PeerBench:
    """What to measure."""

    devices: int = 10
    turns: int = 5
    loads: tuple[Load, ...] = LOADS


@dataclass(frozen=True, slots=True)
class Row:
    """What one side needed for one load; without turns it says why there are none."""

    load: str
    side: str
    turns: tuple[TurnCost, ...] = ()
    why_not: str = ""

    @property
    def typical(self) -> TurnCost:
        """The medians over all turns."""
        memory = [turn.client_mb for turn in self.turns if turn.client_mb is not None]
        wall, cpu = (median(times) for times in zip(*((turn.wall, turn.cpu) for turn in self.turns), strict=True))
        return TurnCost(wall, cpu, median(memory) if memory else None)


def compare(plan: PeerBench, flower: Interpreter, folder: Path, say: Callable[[str], None]) -> Iterator[Row]:
    """The rows of each load as soon as they are known: ours at float32 and int8, Flower's, and the two floors."""
    for trains in dict.fromkeys(load.trains for load in plan.loads):
        say(f"starting {plan.devices} {'training' if trains else 'answering'} clients of each side")
        with ExitStack() as until_done:
            place = folder / ("trains" if trains else "answers")
            place.mkdir()
            sides = _sides(plan, flower, place, until_done, trains=trains)
            for load in (load for load in plan.loads if load.trains == trains):
                yield from _turns(plan, load, sides, say)
                yield from _missing(load, flower)


def _sides(
    plan: PeerBench, flower: Interpreter, folder: Path, until_done: ExitStack, *, trains: bool
) -> list[tuple[str, PeerSide, str]]:
    """Return name, processes and codec of each side that takes turns."""
    address, served_by = until_done.enter_context(started_broker("mosquitto"))

    def opened(programs: Programs, place: str) -> PeerSide:
        return PeerSide(programs, plan.devices, folder / place, until_done)

    (folder / "state").mkdir()
    us = opened(replace(_ours(address, plan.devices, folder / "state", trains=trains), others=(served_by,)), "ours")
    sides = [("edgefl", us, "float32"), ("edgefl, int8", us, "int8")]
    if flower.flwr and (flower.torch or not trains):
        sides.append(("Flower", opened(_flower(flower, plan.devices, trains=trains), "flower"), "float32"))
    if flower.grpc:
        sides.append(("bare gRPC", opened(_bare_grpc(flower, plan.devices), "grpc"), "float32"))
    paho = replace(_bare_paho(address, plan.devices), others=(served_by,))
    return [*sides, ("bare paho", opened(paho, "paho"), "float32")]


def _missing(load: Load, flower: Interpreter) -> Iterator[Row]:
    if not flower.flwr:
        yield Row(load.name, "Flower", why_not="flwr is not installed")
    elif load.trains and not flower.torch:
        yield Row(load.name, "Flower", why_not="its Python has no torch to train with")
    if not flower.grpc:
        yield Row(load.name, "bare gRPC", why_not="grpcio is not installed")


def _turns(
    plan: PeerBench, load: Load, sides: Sequence[tuple[str, PeerSide, str]], say: Callable[[str], None]
) -> Iterator[Row]:
    turns: dict[str, list[TurnCost]] = {name: [] for name, _, _ in sides}
    for number in range(plan.turns):
        for name, side, codec in sides:
            say(f"{load.name} turn {number + 1} of {plan.turns}: {name}")
            turns[name].append(side.play(load, codec))
    for name, taken in turns.items():
        yield Row(load.name, name, tuple(taken))


def _ours(address: Address, clients: int, folder: Path, *, trains: bool) -> Programs:
    """The real coordinator and the real agents, with all that they keep in this folder."""
    coordinator = "tools.bench.training_coordinator" if trains else "edgefl.ops.bench.scale.coordinator"
    agent = "tools.bench.training_agent" if trains else "tools.bench.agent"
    at = str(address)
    return Programs(
        "edgefl",
        lambda line: python(coordinator, at, str(line), str(clients), str(folder)),
        lambda i: python(agent, at, f"device-{i:02d}", str(folder), *([str(i)] if trains else [])),
    )


def _flower(flower: Interpreter, clients: int, *, trains: bool) -> Programs:
    port, program = str(free_port(HOST, 0)), _alone(flower.python, "flower_loop.py")
    return Programs(
        "Flower",
        lambda line: [*program, "server", port, str(line), str(clients)],
        lambda i: [*program, "client", port, *([str(i)] if trains else [])],
    )


def _bare_grpc(flower: Interpreter, clients: int) -> Programs:
    port, program = str(free_port(HOST, 0)), _alone(flower.python, "bare_grpc.py")
    return Programs(
        "bare gRPC",
        lambda line: [*program, "server", port, str(line), str(clients)],
        lambda _: [*program, "client", port],
    )


def _bare_paho(address: Address, clients: int) -> Programs:
    program = python("tools.bench.paho_baseline", str(address))
    return Programs(
        "bare paho",
        lambda line: [*program, "bare-server", str(line), str(clients)],
        lambda i: [*program, f"bare-{i:02d}"],
    )


def _alone(python: str, script: str) -> list[str]:
    """A file of this folder in another interpreter, which shall see nothing of ours besides."""
    return [python, "-I", str(HERE / script)]
