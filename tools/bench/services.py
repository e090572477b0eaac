"""Our side of the transport bench: the real coordinator in this process, real agents in theirs."""

import threading
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import numpy as np

from coordinator.durable import identity
from coordinator.durable.answer_store import HELD
from coordinator.shell.device_keys import DeviceKeys
from coordinator.shell.setup import Security
from coordinator.shell.threaded import Threaded
from device_agent import enrol
from edgefl.base.errors import RunError
from edgefl.base.events import Fact, Round
from edgefl.fleet.members import MembersFile
from edgefl.ops.bench.empty_jobs import still_job
from edgefl.ops.bench.noop import register
from edgefl.ops.bench.secured import SecuredFleet
from edgefl.system.processes import Child
from edgefl.system.resident_memory import one_heap
from edgefl.wire.address import Address
from edgefl.wire.opening import open_transport
from edgefl.wire.signing import Signer
from edgefl.wire.transport import Transport
from tools.bench import unsigned
from tools.bench.transport import Play
from tools.processes import python


class Services:
    """The coordinator and its agents, as the bench wants them."""

    def __init__(self, signer: Signer | None = None, device_keys: DeviceKeys | None = None) -> None:
        self.signer = signer or Signer.new()  # one for all jobs: the agents trust the first they meet
        self.device_keys, self.numbers = device_keys, count(1)

    def command(self, address: Address, name: str, folder: Path) -> list[str]:
        """How to start the agent of this name."""
        return python("tools.bench.agent", str(address), name, str(folder))

    def connect(self, address: Address, name: str) -> Transport:
        """The coordinator of the job of this name, at the agents' broker."""
        return open_transport(address, name, suffix=False)

    def play(self, address: Address, agents: Sequence[Child], *, seal: bool) -> Play:
        """Coordinate them from this process, one job after another."""
        one_heap(2 * HELD)
        register()

        def rounds(params: int, rounds: int, mark: Callable[[], None]) -> None:
            name = f"bench-{next(self.numbers)}"
            job = still_job(name, params, rounds, len(agents))

            def tell(fact: Fact) -> None:
                if isinstance(fact, Round):
                    mark()

            serving = Threaded(
                job.run,
                self.connect(address, name),
                lambda: job,
                tell=tell,
                security=Security(self.signer, self.device_keys, seal=seal),
            )
            done = threading.Event()
            threading.Thread(target=_watch, args=(agents, serving, done), daemon=True).start()
            try:
                run_state = serving.run()
            except KeyboardInterrupt:
                lost = next((agent for agent in agents if agent.gone.is_set()), None)
                if lost is None:
                    raise
                raise RunError(f"an agent of the bench ended: {lost.last_words()}") from None
            finally:
                done.set()
            if not np.allclose(run_state.params, rounds, rtol=1e-4):  # shares like 1/10 are rounded
                raise RunError(f"after {rounds} rounds every parameter should be {rounds}: an answer was lost")

        return rounds


class Unsigned(Services):
    """The same without signatures."""

    def command(self, address: Address, name: str, folder: Path) -> list[str]:
        unsigned.signer(name, address)
        self.signer = unsigned.signer(unsigned.COORDINATOR, address)
        return [*super().command(address, name, folder), "unsigned"]


class Secured(Services):
    """The same as members of a secured fleet: TLS 1.3, a certificate for each client, and an ACL."""

    def __init__(self, secured: SecuredFleet) -> None:
        self.fleet, self.kits = secured.fleet, secured.kits
        folder = self.fleet.folder
        super().__init__(identity.opened(folder.signing_key), DeviceKeys(members=MembersFile(folder.members)))

    def command(self, address: Address, name: str, folder: Path) -> list[str]:
        enrol.install(self.kits[name], folder, data="none")  # the bench has its own
        return super().command(address, name, folder)

    def connect(self, address: Address, name: str) -> Transport:  # noqa: ARG002 - coordinators have one of theirs
        return open_transport(self.fleet.folder.here, name, suffix=False)


def _watch(agents: Sequence[Child], serving: Threaded, done: threading.Event) -> None:
    """A coordinator waits for its devices for ever; here a lost one ends the bench."""
    while not done.wait(1.0):
        if any(agent.gone.is_set() for agent in agents):
            serving.stop()
            return
