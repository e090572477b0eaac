"""A TCP proxy that does to a connection what radio does: delays it, slows it, cuts it at a byte, swallows all."""

import asyncio
import threading
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field


@dataclass
class Weather:
    """What the network is like now; it may change at any time."""

    latency: float = 0.0  # seconds each way
    rate: float | None = None  # bytes per second
    cut_at: list[int] = field(default_factory=list)  # cut the next connections after so many bytes from the client
    black_hole: bool = False  # everything is taken, nothing arrives, nobody is told
    shut: bool = False  # whoever comes is turned away
    cuts: int = 0


class Proxy(AbstractContextManager["Proxy"]):
    """Runs in a thread of its own while the `with` block does."""

    def __init__(self, port: int) -> None:
        self.to, self.weather = port, Weather()
        self.port = 0
        self._up = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._up.wait(30)

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)

    def shut(self) -> None:
        """Cut every connection, and let nobody in until `open`."""
        self.weather.shut = True
        self._loop.call_soon_threadsafe(lambda: [pump.cancel() for pump in self._tasks])

    def open(self) -> None:
        self.weather.shut = False

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._up.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.close()

    async def _serve(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        limit = self.weather.cut_at.pop(0) if self.weather.cut_at else None
        if self.weather.shut:
            back.transport.abort()
            return
        try:
            far, there = await asyncio.open_connection("127.0.0.1", self.to)
        except OSError:
            back.close()
            return
        try:
            pumps = {
                asyncio.create_task(self._pump(near, there, limit)),
                asyncio.create_task(self._pump(far, back, None)),
            }
            self._tasks |= pumps
            _, running = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in running:
                pump.cancel()
        finally:
            self._tasks -= pumps
            for writer in (there, back):
                with suppress(OSError, RuntimeError):
                    writer.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, limit: int | None) -> None:
        passed = 0
        with suppress(OSError):
            while data := await source.read(16384):
                if self.weather.black_hole:
                    continue
                if self.weather.latency:
                    await asyncio.sleep(self.weather.latency)
                if self.weather.rate:
                    await asyncio.sleep(len(data) / self.weather.rate)
                if limit is not None and passed + len(data) >= limit:
                    sink.write(data[: limit - passed])
                    await sink.drain()
                    self.weather.cuts += 1
                    return
                passed += len(data)
                sink.write(data)
                await sink.drain()
