"""What the page costs a coordinator that waits: memory, and processor time over a minute.

    python scripts/page_idle.py [seconds]

Nobody has come yet, so nothing that needs torch is loaded. First nobody watches, then one browser would.
"""
# ruff: noqa: S603, T201 - a script: it prints, and starts our own program

import json
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from time import monotonic, sleep
from urllib.parse import urlsplit

import psutil

RUN = """
[run]
name = "idle"
folder = "{folder}"
[task]
partition = {{ kind = "iid", devices = 3 }}
[broker]
url = "embedded"
[page]
port = 0
"""


def look(process: psutil.Process, what: str, seconds: float) -> None:
    before, began = process.cpu_times(), monotonic()
    sleep(seconds)
    after, memory = process.cpu_times(), process.memory_full_info()
    busy = (after.user + after.system - before.user - before.system) / (monotonic() - began)
    held = f"{memory.rss / 1e6:.0f} MB resident, {memory.pss / 1e6:.0f} MB of them its own share"
    print(f"{what}: {busy:.2%} of a processor, {held}")


def watch(url: str) -> None:
    """As a browser does: ask for the stream of changes, and read it."""
    connection = HTTPConnection(urlsplit(url).netloc)
    connection.request("GET", "/events")
    answer = connection.getresponse()
    while answer.readline():
        pass


def main(seconds: float) -> None:
    with TemporaryDirectory() as folder:
        run = Path(folder) / "run.toml"
        run.write_text(RUN.format(folder=folder), encoding="utf-8")
        command = [sys.executable, "-m", "edgefl", "coordinator", "start", str(run), "--json", "--no-rehearse"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as coordinator:
            lines = coordinator.stdout or ()
            url = next(fact["url"] for fact in map(json.loads, lines) if fact["event"] == "shown")
            sleep(5)  # it has just begun
            process = psutil.Process(coordinator.pid)
            look(process, "no browser watches", seconds)
            Thread(target=watch, args=(url,), daemon=True).start()
            look(process, "one browser watches", seconds)
            coordinator.terminate()
            coordinator.communicate()


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
