"""What all tests share: brokers, each its own on a free loopback port; nobody's home is touched; no test is timed."""

import logging
import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from edgefl.protocol import broker as brokers
from edgefl.protocol.broker import Broker
from edgefl.system import user_files

# How fast a machine is says nothing about the code.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

BROKERS = {"mosquitto", "iotcore_broker", "broker"}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores, for many a test waits; at most four, for the memory of small machines."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return min(4, cores + 1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if BROKERS & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.broker)


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
def beside_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test's files stand beside is not found by the next one."""
    monkeypatch.setenv(user_files.FOLDERS, "")


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
