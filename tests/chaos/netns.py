"""A cable between two network namespaces: the broker and the coordinator at one end, the devices at the other.

It can be pulled, lose packets and be slow, as the kernel does it: nobody is told, nothing is reset.
"""

import ctypes
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from edgefl.wire.broker import find_mosquitto

HERE, THERE = "10.213.7.1", "10.213.7.2"  # the server, the devices; both only inside the namespaces
NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_LIBRARY = ctypes.CDLL(None, use_errno=True)


def enter(namespace: str) -> None:
    """From now on this thread, and what it starts, is in that namespace; a path or a name."""
    handle = os.open(namespace if "/" in namespace else f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        if _LIBRARY.setns(handle, NEW_NETWORK):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    finally:
        os.close(handle)


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True)


class Netns(AbstractContextManager["Netns"]):
    """Plugged in while the `with` block lasts; a test is skipped where the machine does not allow it."""

    def __init__(self) -> None:
        mark = secrets.token_hex(3)
        self.server, self.devices = f"edgefl-{mark}-s", f"edgefl-{mark}-d"
        self.password = secrets.token_hex(8)
        if os.geteuid() != 0:
            pytest.skip("needs root for network namespaces")
        if shutil.which("ip") is None:
            pytest.skip("needs `ip` for network namespaces: apt install iproute2")
        if find_mosquitto() is None:
            pytest.skip("needs mosquitto: beyond loopback devices are kept apart by their accounts")
        result = _run("ip", "netns", "add", self.server)
        if result.returncode:
            pytest.skip(f"this machine makes no network namespaces: {result.stderr.strip()}")
        try:
            self._lay()
        except BaseException:
            self.__exit__()
            raise

    def _lay(self) -> None:
        self._must("ip", "netns", "add", self.devices)
        pair = ("far", "netns", self.server, "type", "veth", "peer", "near", "netns", self.devices)
        self._must("ip", "link", "add", *pair)
        for namespace, link, address in ((self.server, "far", HERE), (self.devices, "near", THERE)):
            self._must("ip", "-n", namespace, "address", "add", f"{address}/24", "dev", link)
            self._must("ip", "-n", namespace, "link", "set", "lo", "up")
            self._must("ip", "-n", namespace, "link", "set", link, "up")

    def __exit__(self, *_: object) -> None:
        for namespace in (self.server, self.devices):
            _run("ip", "netns", "delete", namespace)

    @contextmanager
    def at_the_server(self) -> Iterator[None]:
        """What is started in here is at the server's end."""
        with Path("/proc/thread-self/ns/net").open() as ours:
            enter(self.server)
            try:
                yield
            finally:
                enter(f"/proc/self/fd/{ours.fileno()}")

    # ---- what may happen to it ------------------------------------------------------------------------------------

    def pull(self) -> None:
        """At the server's end: to a device everything it sends just vanishes."""
        self._must("ip", "-n", self.server, "link", "set", "far", "down")

    def plug(self) -> None:
        self._must("ip", "-n", self.server, "link", "set", "far", "up")

    def lose(self, share: float) -> None:
        """This share of all packets from now on, in each direction."""
        for chain in ("INPUT", "OUTPUT"):
            side = "-i" if chain == "INPUT" else "-o"
            rule = ("-A", chain, side, "far", "-m", "statistic", "--mode", "random", "--probability", str(share))
            if shutil.which("iptables") is None:
                pytest.skip("needs iptables to lose packets: apt install iptables")
            self._must("ip", "netns", "exec", self.server, "iptables", *rule, "-j", "DROP")

    def slow(self, rate: str) -> None:
        """So many bits per second at most, in each direction."""
        if shutil.which("tc") is None:
            pytest.skip("needs `tc` for a slow link: apt install iproute2")
        for namespace, link in ((self.server, "far"), (self.devices, "near")):
            shaper = ("root", "tbf", "rate", rate, "burst", "4kb", "latency", "500ms")
            self._must("ip", "netns", "exec", namespace, "tc", "qdisc", "add", "dev", link, *shaper)

    @staticmethod
    def _must(*command: str) -> None:
        done = _run(*command)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
