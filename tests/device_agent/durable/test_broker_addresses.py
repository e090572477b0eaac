"""A device learns where its broker is reached, and never to trust another one."""

import pytest

from device_agent.durable.broker_addresses import NAME, BrokerAddresses
from edgefl.base.errors import WireError
from edgefl.system.memory_disk import MemoryDisk
from edgefl.wire.address import Address, parse
from edgefl.wire.messages import Addresses

OLD, NEW = "mqtts://old.local:8883", "mqtts://new.local:8883"


def told(*brokers: str, number: int = 1) -> Addresses:
    return Addresses(number=number, brokers=brokers)


def known(disk: MemoryDisk, *given: str) -> tuple[str, ...]:
    return tuple(map(str, BrokerAddresses(disk, [parse(url) for url in given or (OLD,)])()))


def addresses(disk: MemoryDisk) -> BrokerAddresses:
    return BrokerAddresses(disk, [parse(OLD)])


def test_new_addresses_come_first_and_those_of_the_file_behind_them_after_a_restart_too() -> None:
    disk = MemoryDisk()
    assert known(disk) == (OLD,)
    assert addresses(disk).learn(told(NEW, OLD))
    assert known(disk) == (NEW, OLD)
    assert addresses(disk).learn(told(NEW, number=2))
    assert known(disk) == (NEW, OLD), "the file's own is tried last, however old it is"


def test_an_older_number_is_passed_over() -> None:
    disk = MemoryDisk()
    one = addresses(disk)
    assert one.learn(told(NEW, number=2))
    assert not one.learn(told(OLD, number=1))
    assert not addresses(disk).learn(told(OLD, number=2))
    assert known(disk) == (NEW, OLD)
    assert addresses(disk).known() == 2


@pytest.mark.parametrize(
    "url", ["mqtt://new.local:1883", "unix:///tmp/x", "embedded", "mqtts://user@new.local:8883", "mqtts://", "x" * 299]
)
def test_what_is_not_tls_or_no_address_is_refused_as_a_whole(url: str) -> None:
    disk = MemoryDisk()
    with pytest.raises(WireError):
        addresses(disk).learn(told(NEW, url))
    assert known(disk) == (OLD,)


def test_a_broker_without_tls_does_not_move_by_a_message() -> None:
    plain = BrokerAddresses(MemoryDisk(), [Address("mqtt", "old.local", 1883)])
    with pytest.raises(WireError, match="from TLS to TLS"):
        plain.learn(told(NEW))


def test_an_operator_who_writes_another_address_has_the_last_word() -> None:
    disk = MemoryDisk()
    addresses(disk).learn(told(NEW))
    assert known(disk, "mqtts://third.local:8883") == ("mqtts://third.local:8883",)


@pytest.mark.parametrize("damage", [b"", b"[]", b"{}", b'{"number": 1, "brokers": "x", "beside": []}', b"\xff"])
def test_a_damaged_file_is_as_none(damage: bytes) -> None:
    disk = MemoryDisk()
    disk.write(NAME, damage)
    assert known(disk) == (OLD,)
