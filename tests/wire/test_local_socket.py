"""A broker's socket in the file system: found where it is now, and only in a folder of ours."""

import inspect
import os
import socket
from pathlib import Path
from types import FrameType

import pytest

from edgefl.base.errors import ConfigError
from edgefl.wire import local_socket
from edgefl.wire.address import Address, parse, reachable
from edgefl.wire.lean_client import LeanClient


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("b")


def listening(path: Path) -> socket.socket:
    path.parent.mkdir(parents=True)
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    return server


def test_a_link_leads_to_it_wherever_it_is_now(home: Path) -> None:
    link = home / ("long" * 40) / "socket"
    link.parent.mkdir()
    for folder in ("first", "second"):
        with listening(home / folder / "door" / "s"):
            link.unlink(missing_ok=True)
            link.symlink_to(home / folder / "door" / "s")
            local_socket.connect(link).close()


def test_a_client_leaves_nothing_open_when_the_broker_was_killed(home: Path) -> None:
    path = home / "here" / "door" / "s"
    listening(path).close()
    client = LeanClient("a", "unix", lambda *_: None, lambda *_: None)
    with pytest.raises(ConnectionRefusedError) as refused:
        client.connect(str(path))
    (line,) = [one for frame in inspect.getinnerframes(refused.tb) for one in _sockets(frame.frame)]
    assert line.fileno() == -1, "closed"


def _sockets(frame: FrameType) -> list[socket.socket]:
    return [value for value in frame.f_locals.values() if isinstance(value, socket.socket)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder of another user")
def test_what_stands_in_a_folder_of_somebody_else_is_not_asked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(home / "stolen" / "door" / "s"):
        os.chown(home / "stolen", 12345, 12345)
        link = home / "link"
        link.symlink_to(home / "stolen" / "door" / "s")
        with pytest.raises(PermissionError, match="folder of another user"):
            local_socket.connect(link)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_cannot_knock(home: Path) -> None:
    path = home / "here" / "door" / "s"
    with listening(path):
        path.parent.chmod(0o700)
        for folder in (home, home.parent, home / "here"):
            folder.chmod(0o755)
        child = os.fork()
        if child == 0:
            os.setuid(12345)
            with socket.socket(socket.AF_UNIX) as line:
                os._exit(line.connect_ex(str(path)))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 13, "permission denied"


def test_its_address_is_local_and_says_what_is_wrong(tmp_path: Path) -> None:
    address = parse(f"unix://{tmp_path}/no%20such")
    assert address == Address("unix", f"{tmp_path}/no such")
    assert (address.local, address.tls, parse(str(address))) == (True, False, address)
    not_running = r"not reachable \(the broker of this machine's fleet is not running\): start it with `edgefl broker"
    with pytest.raises(ConfigError, match=not_running):
        reachable(address)
    with pytest.raises(ConfigError, match="names no socket: write unix:///path"):
        parse("unix:relative")
