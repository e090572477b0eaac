"""The floor of gRPC: the same bytes over one stream for each client, and nothing else; no framework, no arrays.

It needs only `grpc`, so that any interpreter can run it:

    python bare_grpc.py server PORT LINE CLIENTS
    python bare_grpc.py client PORT
"""

import runpy
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc

LINE = str(Path(__file__).parents[3] / "edgefl/ops/bench/line.py")
SERVICE, METHOD = "bare", "Stream"
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class RoundStreams:
    """The streams of all clients: a model for each, and a wait until all have answered."""

    def __init__(self, clients: int) -> None:
        self.clients, self.heard, self.lock = clients, 0, threading.Lock()
        self.down: list[SimpleQueue[bytes]] = []
        self.here, self.answered = threading.Event(), threading.Event()

    def stream(self, answers: Iterator[bytes], _context: Any) -> Iterator[bytes]:
        """One client, for as long as it is connected."""
        mine: SimpleQueue[bytes] = SimpleQueue()
        with self.lock:
            self.down.append(mine)
            if len(self.down) == self.clients:
                self.here.set()
        threading.Thread(target=self._listen, args=(answers,), daemon=True).start()
        while True:
            yield mine.get()

    def _listen(self, answers: Iterator[bytes]) -> None:
        for _ in answers:
            with self.lock:
                self.heard += 1
                if self.heard == self.clients:
                    self.heard = 0
                    self.answered.set()

    def play(self, model: bytes) -> None:
        """One round."""
        for queue in self.down:
            queue.put(model)
        self.answered.wait()
        self.answered.clear()


def server(port: str, line: str, clients: int) -> None:
    """Serve until the other end of the line closes."""
    rounds = RoundStreams(clients)
    handler = grpc.stream_stream_rpc_method_handler(rounds.stream)
    listening = grpc.server(ThreadPoolExecutor(clients), options=OPTIONS)
    listening.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
    listening.add_insecure_port(f"127.0.0.1:{port}")
    listening.start()
    rounds.here.wait()

    def play(order: Any, mark: Any) -> None:
        model = bytes(4 * order["params"])
        for _ in range(order["rounds"]):
            rounds.play(model)
            mark()

    runpy.run_path(LINE)["serve"](line, play)
    listening.stop(0)


def client(port: str) -> None:
    """Whatever comes goes back."""
    up: SimpleQueue[bytes] = SimpleQueue()
    channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS)
    for model in channel.stream_stream(f"/{SERVICE}/{METHOD}")(iter(up.get, None), wait_for_ready=True):
        up.put(model)


if __name__ == "__main__":
    if sys.argv[1] == "server":
        server(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        client(sys.argv[2])
