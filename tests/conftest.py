"""What all tests share: brokers, each its own on a free loopback port; nobody's home is touched; no test is timed."""

import logging
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import draws
import pytest

from edgefl.system import user_code, user_files
from edgefl.wire import broker as brokers
from edgefl.wire.broker import Broker

draws.set_up()

BROKERS = {"mosquitto", "iotcore_broker", "broker"}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores, for many a test waits; at most four, for the memory of small machines."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return min(4, cores + 1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the fixtures that they use; skip those that need a program which is not installed."""
    missing = brokers.find_mosquitto() is None
    for item in items:
        if missing and item.get_closest_marker("mosquitto"):
            item.add_marker(pytest.mark.skip(reason="mosquitto is not installed"))
        fixtures = set(getattr(item, "fixturenames", ()))
        if BROKERS & fixtures:
            item.add_marker(pytest.mark.broker)
        if "chromium" in fixtures:
            item.add_marker(pytest.mark.night)


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_is_heard() -> None:
    """A shell starts `make test &` with SIGINT ignored, which what a test starts would inherit."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where coordinators keep their keys, those in child processes too."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(autouse=True)
def no_device_is_known(state_folder: None) -> None:
    """Devices of two tests may have one name, and each has a key of its own."""
    for keys in Path(os.environ["XDG_STATE_HOME"]).glob("edgefl/fleets/*.devices"):
        keys.unlink()


@pytest.fixture(autouse=True)
def beside_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test's files stand beside, and the code that they name, is not known to the next one."""
    monkeypatch.setenv(user_files.FOLDERS, "")
    monkeypatch.setenv(user_code.PLACES, "")


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """A command that is called in this process sets up logging for all of it."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.fixture
def mosquitto() -> Iterator[Broker]:
    if brokers.find_mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    with brokers.start(prefer="mosquitto") as broker:
        yield broker


@pytest.fixture
def iotcore_broker() -> Iterator[Broker]:
    if not brokers.has_iotcore():
        pytest.skip("iotcore is not installed")
    with brokers.start(prefer="iotcore") as broker:
        yield broker


@pytest.fixture(params=["mosquitto", "iotcore_broker"])
def broker(request: pytest.FixtureRequest) -> Broker:
    running = request.getfixturevalue(request.param)
    assert isinstance(running, Broker)
    return running


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A real browser without a window."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium is installed (apt install chromium)")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()
