"""`make chaos`: every write index, a hundred seeded kills, twenty brokers; minutes, and a table of figures."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from fleet import Fleet, Life, expected, run_table, toml
from proxy import Proxy

from coordinator.durable import checkpoint
from coordinator.durable.checkpoint import Checkpoint
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run.job import RunState
from edgefl.system.disk import FolderDisk

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(os.environ.get("EDGEFL_CHAOS") != "1", reason="takes minutes: make chaos"),
]

HOW = "real processes, real Mosquitto"
SLOWEST = 10.0  # seconds a resumption may take


def _resumed(life: Life, since: float) -> float:
    """Seconds until the coordinator was at work again."""
    with life.news:
        assert life.news.wait_for(
            lambda: life.over or any(e["event"] in {"asked", "round", "ended"} for e in life.events), 60
        )
    return monotonic() - since


def test_the_coordinator_is_killed_at_every_write_index(tmp_path: Path, figures: Any) -> None:
    index, failed, slowest = 0, [], 0.0
    while True:
        index += 1
        with Fleet(tmp_path / str(index)) as fleet:
            fleet.all_agents()
            life = fleet.coordinator(f"kill:{index}")
            if life.finished() is not None:
                break  # the run has no such write
            again = monotonic()
            life = fleet.coordinator()
            slowest = max(slowest, _resumed(life, again))
            try:
                fleet.check(fleet.until_done(life), f"kill:{index}")
            except AssertionError as error:
                failed.append(str(error))
    assert not failed, "\n".join(failed)
    assert slowest < SLOWEST
    figures(
        "coordinator killed at every write",
        f"{HOW}; SIGKILL right before write 1, 2, … of a run of 4 rounds",
        f"indexes 1 to {index - 1}",
        f"{index - 1} of {index - 1} finish, same model, 0 receipts lost or counted twice;"
        f" slowest resumption {slowest:.1f} s",
    )


def test_the_coordinators_disk_is_full_at_every_write_index(tmp_path: Path, figures: Any) -> None:
    index, paused = 0, 0
    while True:
        index += 1
        with Fleet(tmp_path / str(index)) as fleet:
            fleet.all_agents()
            life = fleet.coordinator(f"full:{index}")
            fleet.check(fleet.until_done(life), f"full:{index}")
            paused += life.find(event="paused") is not None
            ended = life.find(event="ended")
            if ended is not None and ended["writes"] < index:
                break
    figures(
        "coordinator's disk full at every write",
        f"{HOW}; three writes in a row fail",
        f"indexes 1 to {index - 1}",
        f"{index - 1} of {index - 1} finish, same model; {paused} paused and went on, the others started again",
    )


def test_an_agent_is_killed_at_every_write_index(tmp_path: Path, figures: Any) -> None:
    last = 3 + 2 * 4  # its birth, its key and the coordinator's; then the spool and the state of each round
    for index in range(1, last + 1):
        with Fleet(tmp_path / str(index)) as fleet:
            life = fleet.coordinator()
            first, *others = fleet.names
            for name in others:
                fleet.agent(name)
            fleet.agent(first, f"kill:{index}")
            fleet.agents[first].join(60)
            assert fleet.agents[first].exitcode == -signal.SIGKILL, f"kill:{index}"
            fleet.agent(first)
            fleet.check(fleet.until_done(life), f"agent kill:{index}")
    figures(
        "agent killed at every write",
        f"{HOW}; SIGKILL right before write 1, 2, … of a run of 4 rounds",
        f"indexes 1 to {last}",
        f"{last} of {last} finish, same model, every answer counted once",
    )


@pytest.mark.parametrize("seed", range(10))
def test_seeded_kills_of_everything(seed: int, tmp_path: Path, figures: Any) -> None:
    rng, did, slowest = random.Random(seed), Counter[str](), 0.0
    with Fleet(tmp_path, run={"rounds": 300}) as fleet:
        fleet.all_agents()
        life = fleet.coordinator()
        while did["coordinator killed"] < 10:
            life.process.join(rng.uniform(0.0, 0.4))
            if not life.process.is_alive() and not life.find(event="ended"):
                log = (tmp_path / "coordinator.log").read_text()
                assert "is not reachable" in log[-400:], f"seed {seed}: it ended by itself"
                life = fleet.coordinator()  # it was started while there was no broker, and said so
                did["starts without a broker"] += 1
            what = rng.choices(["coordinator", "agent", "broker", "stop"], [5, 3, 1, 2])[0]
            name = rng.choice(fleet.names)
            if what == "coordinator" or life.find(event="ended"):
                if life.find(event="ended"):
                    break
                life.end()
                again = monotonic()
                life = fleet.coordinator()
                slowest = max(slowest, _resumed(life, again))
                did["coordinator killed"] += 1
            elif what == "agent":
                fleet.kill_agent(name)
                fleet.agent(name)
                did["agents killed"] += 1
            elif what == "broker":
                fleet.kill_broker()
                did["brokers killed"] += 1
            else:
                pid = rng.choice([life.process.pid, fleet.agents[name].pid])
                with suppress(ProcessLookupError):  # the run may have just ended
                    os.kill(pid, signal.SIGSTOP)
                    life.process.join(rng.uniform(0.1, 0.6))
                    os.kill(pid, signal.SIGCONT)
                did["processes stopped and continued"] += 1
        fleet.check(fleet.until_done(life), f"seed {seed}")
    assert slowest < SLOWEST, f"seed {seed}"
    assert did["coordinator killed"] == 10, f"seed {seed}: the run ended too early"
    words = ", ".join(f"{count} {what}" for what, count in sorted(did.items()))
    figures(
        f"seeded kills of everything, seed {seed}",
        f"{HOW}; SIGKILL and SIGSTOP at random moments of 300 rounds",
        seed,
        f"{words}: finishes, same model, 0 receipts lost or counted twice; slowest resumption {slowest:.1f} s",
    )


def test_twenty_brokers_are_killed_in_one_run(tmp_path: Path, figures: Any) -> None:
    with Fleet(tmp_path, run={"rounds": 24}) as fleet:
        fleet.all_agents()
        life = fleet.coordinator()
        for round in range(1, 21):
            assert life.wait_for(300, event="round", round=round), "it ended too early"
            fleet.kill_broker()
        fleet.check(fleet.until_done(life), "20 brokers")
    figures(
        "broker killed",
        f"{HOW} without persistence; SIGKILL after each of 20 rounds",
        "none needed",
        f"{fleet.broker_kills} of 20 survived in one run, same model",
    )


def test_a_half_open_connection_is_noticed_and_the_device_comes_back(tmp_path: Path, figures: Any) -> None:
    allowed = 17.0  # seconds: one and a half times a keep-alive of ten, and two
    with Fleet(tmp_path, run={"rounds": 2000}) as fleet, Proxy(fleet.broker.address.port) as proxy:
        first, *others = fleet.names
        life = fleet.coordinator()
        for name in others:
            fleet.agent(name)
        fleet.agent(first, port=proxy.port)
        life.wait_for(event="round", round=1)
        proxy.weather.black_hole = True
        began = monotonic()
        assert life.wait_for(event="lost", device=first)
        took = monotonic() - began
        seen = len(life.events)
        proxy.weather.black_hole = False
        with life.news:
            back = {"event": "joined", "device": first}.items()
            came = life.news.wait_for(lambda: any(back <= event.items() for event in life.events[seen:]), 60)
            assert came, "it never came back"
        again = monotonic() - began - took
        fleet.kill_agent(first)
    assert took <= allowed
    figures(
        "half-open connection",
        f"{HOW}; a proxy swallows everything between one agent and the broker",
        "none needed",
        f"seen as offline after {took:.1f} s (promised: {allowed:.0f} s), back {again:.1f} s after the network was",
    )


def test_a_thousand_checkpoints_are_damaged(tmp_path: Path, figures: Any) -> None:
    seed, count = 23, 1000
    rng = random.Random(seed)
    run = parse(RunFile, run_table(tmp_path), "chaos", environment={})
    job = jobs.prepare(run)[0]
    disk = FolderDisk(tmp_path)
    names = (checkpoint.save(disk, job, Checkpoint(RunState(round, job.start), (), 0, 0)) for round in (1, 2))
    older, newest = (tmp_path / name for name in names)
    good = newest.read_bytes()
    for number in range(count):
        at = rng.randrange(len(good))
        flipped = good[:at] + bytes([good[at] ^ 1 << rng.randrange(8)]) + good[at + 1 :]
        newest.write_bytes(flipped if number % 2 else good[:at])
        saved = checkpoint.latest(FolderDisk(tmp_path), job)
        assert saved is not None, f"seed {seed}, number {number}"
        assert saved.run_state.round == 1, f"seed {seed}, number {number}: loaded silently"
    assert older.exists()
    figures(
        "damaged checkpoints",
        "one bit flipped, or cut short at a byte, at random",
        seed,
        f"0 of {count} loaded; the generation before it was, with a warning, every time",
    )


def test_the_command_line_resumes_in_time(tmp_path: Path, figures: Any) -> None:
    with Fleet(tmp_path) as fleet:
        fleet.all_agents()
        file = tmp_path / "run.toml"
        file.write_text(toml(fleet.table))
        command = [sys.executable, "-m", "edgefl", "coordinator", "start", str(file), "--json", "--no-rehearse"]
        began = monotonic()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
            _until(first, "answered")
            start = monotonic() - began
            first.kill()
        began = monotonic()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as second:
            _until(second, "resumed")
            took = monotonic() - began
            done = _until(second, "done")
            assert second.wait(60) == 0
        assert done["model_sha256"] == expected(fleet.table)
    figures(
        "`edgefl coordinator start` killed and started again",
        f"{HOW}, the real command",
        "none needed",
        f"same model; its first answer came {start:.1f} s after the first start, resumed {took:.1f} s after the second",
    )


def _until(process: "subprocess.Popen[str]", event: str) -> dict[str, Any]:
    assert process.stdout is not None
    watch = threading.Timer(120, process.kill)
    watch.start()
    try:
        for line in process.stdout:
            fact: dict[str, Any] = json.loads(line)
            if fact["event"] == event:
                return fact
    finally:
        watch.cancel()
    raise AssertionError(f"it never said {event}")
