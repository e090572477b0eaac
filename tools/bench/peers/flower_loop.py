"""Flower's bare gRPC loop: its own `start_server`, `FedAvg` and `start_client`, one stream for each client.

Flower has deprecated these two functions since 1.13 in favour of SuperLink and SuperNode, and still ships them. They
are its fastest way: SuperNode polls, and starts a process for each client and round. This file needs only `flwr` (and
torch for the clients that train), so that Flower's own interpreter can run it:

    python flower_loop.py server PORT LINE CLIENTS
    python flower_loop.py client PORT [SEED]
"""

import logging
import os
import runpy
import sys
from pathlib import Path
from typing import Any

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"  # before it is imported: no telemetry
import flwr
import numpy as np
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays

LINE = str(Path(__file__).parents[3] / "edgefl/ops/bench/line.py")
ENDLESS = 1_000_000  # rounds: the end comes with that of the line
MLP = ((200, 784), (200,), (200, 200), (200,), (10, 200), (10,))  # what clients that train expect

logging.getLogger("flwr").setLevel(logging.ERROR)  # nothing is written per round


class FlowerTurns(flwr.server.strategy.FedAvg):  # type: ignore[misc]  # Any: flwr is not in our interpreter
    """FedAvg that waits for an order before the first round of a turn, and tells of every round."""

    def __init__(self, line: str, clients: int) -> None:
        super().__init__(
            fraction_evaluate=0.0,
            min_fit_clients=clients,
            min_available_clients=clients,
            accept_failures=False,
            initial_parameters=ndarrays_to_parameters([]),
        )
        self.path, self.left, self.trains = line, 0, False
        self.line: Any = None
        self.order: dict[str, Any] = {}

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
        if self.line is None:
            client_manager.wait_for(self.min_available_clients)
            self.line = runpy.run_path(LINE)["Line"](self.path)
        if not self.left:
            self.order = self.line.order() or os._exit(0)  # it has closed; Flower's threads would not end by themselves
            self.left, self.trains = self.order["rounds"], self.order["params"] == sum(map(np.prod, MLP))
            parameters = ndarrays_to_parameters(_begin(MLP if self.trains else None, self.order["params"]))
        return super().configure_fit(server_round, parameters, client_manager)

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        merged, metrics = super().aggregate_fit(server_round, results, failures)
        self.left -= 1
        if merged is None or (not self.left and not self.trains and not self._complete(merged)):
            print(f"an answer was lost: {failures}", file=sys.stderr, flush=True)
            os._exit(1)
        self.line.mark()
        if not self.left:
            self.line.done()
        return merged, metrics

    def _complete(self, merged: Any) -> bool:
        (vector,) = parameters_to_ndarrays(merged)
        return np.allclose(vector, self.order["rounds"], rtol=1e-4)


def _begin(shapes: Any, params: int) -> list[Any]:
    """The first model: nothing, or weights that can be trained."""
    rng = np.random.default_rng(0)
    return [np.zeros(params, np.float32)] if shapes is None else [rng.normal(0, 0.05, s).astype("f4") for s in shapes]


class Adding(flwr.client.NumPyClient):  # type: ignore[misc]
    """Adds one to every parameter."""

    def fit(self, parameters: Any, config: Any) -> Any:  # noqa: ARG002 - as Flower calls it
        return [parameters[0] + np.float32(1)], 1, {}


class FlowerClient(flwr.client.NumPyClient):  # type: ignore[misc]
    """One epoch with torch."""

    def __init__(self, seed: int) -> None:
        self.trainee = runpy.run_path(str(Path(__file__).with_name("torch_client.py")))["Trainee"](seed)

    def fit(self, parameters: Any, config: Any) -> Any:  # noqa: ARG002
        return self.trainee.epoch(parameters), self.trainee.samples, {}


def server(port: str, line: str, clients: int) -> None:
    """Serve until the other end of the line closes."""
    config = flwr.server.ServerConfig(num_rounds=ENDLESS)
    flwr.server.start_server(server_address=f"127.0.0.1:{port}", config=config, strategy=FlowerTurns(line, clients))


def client(port: str, seed: str | None = None) -> None:
    """Serve until the server is gone."""
    work = Adding() if seed is None else FlowerClient(int(seed))
    flwr.client.start_client(server_address=f"127.0.0.1:{port}", client=work.to_client(), max_wait_time=60.0)


if __name__ == "__main__":
    if sys.argv[1] == "server":
        server(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        client(*sys.argv[2:])
