"""Clocks that are years off: nothing but a certificate's dates may depend on what time it is."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from entrypoints import Setting
from fleet import Fleet, expected, toml

from coordinator.durable.journal import Journal
from edgefl.system.disk import FolderDisk
from edgefl.system.processes import Child
from edgefl.wire import broker as brokers

THOROUGH = os.environ.get("EDGEFL_CHAOS") == "1"
DAY = 86400.0  # seconds
YEAR = 365 * DAY
EDGEFL = [sys.executable, "-m", "edgefl"]

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]
thorough = pytest.mark.skipif(not THOROUGH, reason="starts the real commands under another clock: make chaos")


def test_a_run_whose_clocks_are_years_apart_ends_with_the_same_model(tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        off = zip(("coordinator", *fleet.names), (2 * YEAR, -2 * YEAR, 0.0, 2 * YEAR), strict=True)
        fleet.places = {name: Setting(ahead=ahead) for name, ahead in off}
        fleet.all_agents()
        fleet.check(fleet.until_done(fleet.coordinator()), "clocks two years off")
        assert _ahead(fleet) == pytest.approx(2 * YEAR, abs=DAY), "the clock was right after all"


def _ahead(fleet: Fleet) -> float:
    """Seconds that the coordinator's clock was ahead when it wrote its journal."""
    book = Journal(FolderDisk(fleet.folder / "runs" / "chaos"), reading=True)
    at = next(book.story()).at
    book.close()
    return at - time.time()


def test_a_coordinator_that_wakes_up_four_years_earlier_goes_on(tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        fleet.all_agents()
        fleet.places["coordinator"] = Setting(ahead=2 * YEAR)
        assert fleet.coordinator("kill:12").finished() is None, "it should have been killed"
        fleet.places["coordinator"] = Setting(ahead=-2 * YEAR)
        fleet.check(fleet.until_done(fleet.coordinator()), "four years earlier")


# ---- the real commands, under a library that lies about the time -----------------------------------------------------


@pytest.fixture
def faketime() -> str:
    places = ("/usr/lib", "/usr/local/lib")
    libraries = [path for place in places for path in Path(place).glob("**/faketime/libfaketime.so.1")]
    if not libraries:
        pytest.skip("needs libfaketime: apt install faketime")
    return str(libraries[0])


def _wrong(library: str, days: int) -> dict[str, str]:
    """The surroundings of a process whose clock is that many days ahead; waiting is not touched."""
    lie = {"LD_PRELOAD": library, "FAKETIME": f"{days:+d}d", "FAKETIME_DONT_FAKE_MONOTONIC": "1"} if days else {}
    return {**os.environ, **lie}


@contextmanager
def _running(command: list[str], environment: Mapping[str, str], log: Path) -> "Iterator[subprocess.Popen[str]]":
    with (
        log.open("w") as output,
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=output, text=True) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def _played(fleet: Fleet, library: str, days: tuple[int, ...], broker: Mapping[str, Any] | None = None) -> None:
    """The whole run, with the clock of the coordinator and of each device that many days ahead."""
    if broker:
        fleet.table["broker"] = {**fleet.table["broker"], **broker}
    (fleet.folder / "run.toml").write_text(toml(fleet.table))
    with ExitStack() as until_done:
        for name, ahead in zip(fleet.names, days[1:], strict=True):
            table = fleet.agent_table(name)
            if broker:
                table["agent"] |= {"broker": broker["url"], "tls": broker["tls"]}
            file = fleet.folder / f"{name}.toml"
            file.write_text(toml(table))
            agent = [*EDGEFL, "agent", "start", str(file)]
            until_done.enter_context(_running(agent, _wrong(library, ahead), fleet.folder / f"{name}.log"))
        command = [*EDGEFL, "coordinator", "start", str(fleet.folder / "run.toml"), "--json", "--no-rehearse"]
        log = fleet.folder / "coordinator.log"
        with _running(command, _wrong(library, days[0]), log) as coordinator:
            watch = threading.Timer(400, coordinator.kill)
            watch.start()
            assert coordinator.stdout is not None
            told = [json.loads(line) for line in coordinator.stdout]
            watch.cancel()
            assert coordinator.wait(60) == 0
    assert _ahead(fleet) == pytest.approx(days[0] * DAY, abs=DAY / 2), "the clock was right after all"
    rounds = [event for event in told if event["event"] == "round"]
    assert len(rounds) == fleet.table["run"]["rounds"]
    assert told[-1]["model_sha256"] == expected(fleet.table)


@thorough
def test_the_commands_do_not_care_for_two_years(faketime: str, tmp_path: Path, figures: Any) -> None:
    with Fleet(tmp_path) as fleet:
        _played(fleet, faketime, (730, -730, 0, 730))
    figures(
        "clocks two years off",
        "real processes, real Mosquitto; libfaketime: coordinator +2 years, devices -2, 0 and +2 years",
        "none needed",
        "4 of 4 rounds, same model",
    )


@thorough
def test_with_tls_they_do_not_care_for_a_day(faketime: str, tmp_path: Path, figures: Any) -> None:
    if brokers.find_mosquitto() is None:
        pytest.skip("needs mosquitto for TLS")
    with Fleet(tmp_path) as fleet:
        port = brokers.free_port("127.0.0.1", 0)
        ca = _certificates(tmp_path / "papers", days=3)
        mosquitto = Child(
            [brokers.find_mosquitto() or "", "-c", str(_secure(tmp_path / "papers", port))], tmp_path / "m.log"
        )
        try:
            tls = {"url": f"mqtts://127.0.0.1:{port}", "tls": {"ca": str(ca)}}
            _played(fleet, faketime, (1, -1, 0, 1), tls)
        finally:
            mosquitto.stop()
    figures(
        "clocks a day off, with TLS",
        "as before, mqtts; libfaketime: coordinator +1 day, devices -1, 0 and +1 day; certificates of three days",
        "none needed",
        "4 of 4 rounds, same model",
    )


def _secure(folder: Path, port: int) -> Path:
    lines = [
        f"listener {port} 127.0.0.1",
        "allow_anonymous true",
        f"certfile {folder / 'server.crt'}",
        f"keyfile {folder / 'server.key'}",
        "user root" if os.geteuid() == 0 else "",
        "set_tcp_nodelay true",
    ]
    (folder / "mosquitto.conf").write_text("\n".join(lines) + "\n")
    return folder / "mosquitto.conf"


def _certificates(folder: Path, days: int) -> Path:
    """A server's certificate that is its own authority, valid for so many days before and after now."""
    folder.mkdir()
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "broker")])
    now, around = datetime.now(timezone.utc), timedelta(days=days)
    place = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    built = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), now - around, now + around
    )
    built = built.add_extension(place, critical=False)
    built = built.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    (folder / "server.crt").write_bytes(built.sign(key, hashes.SHA256()).public_bytes(pem))
    (folder / "server.key").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    return folder / "server.crt"
