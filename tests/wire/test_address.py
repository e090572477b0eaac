import socket

import pytest

from edgefl.base.errors import ConfigError
from edgefl.wire.address import Address, parse, reachable


@pytest.fixture(autouse=True)
def no_password_in_the_environment(monkeypatch):
    monkeypatch.delenv("EDGEFL_MQTT_PASSWORD", raising=False)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("mqtt://pi.local", Address("mqtt", "pi.local", 1883)),
        ("mqtt://10.0.0.7:1999", Address("mqtt", "10.0.0.7", 1999)),
        ("mqtts://pi.local/", Address("mqtts", "pi.local", 8883)),
        ("mqtt://[::1]:1884", Address("mqtt", "::1", 1884)),
        ("mqtt://ann@pi.local", Address("mqtt", "pi.local", 1883, "ann")),
        ("mqtt://ann:p%40ss@pi.local", Address("mqtt", "pi.local", 1883, "ann", "p@ss")),
        ("embedded", Address("embedded")),
    ],
)
def test_an_address_is_read(url, address):
    assert parse(url) == address


def test_the_password_of_the_environment_goes_first(monkeypatch):
    monkeypatch.setenv("EDGEFL_MQTT_PASSWORD", "better")
    assert parse("mqtt://ann:worse@pi").password == "better"


@pytest.mark.parametrize("url", ["mqtt://ann:secret@pi:1883", "mqtts://ann:secret@[::1]:99"])
def test_no_password_is_ever_shown(url):
    address = parse(url)
    assert "secret" not in f"{address} {address!r}"
    assert str(address) == url.replace(":secret", "")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "write mqtt://host:1883"),
        ("localhost:1883", "write mqtt://host:1883"),
        ("mqtt:localhost", "write mqtt://host:1883"),
        ("mqqt://localhost", "did you mean 'mqtt'?"),
        ("http://localhost", "known: mqtt, mqtts"),
        ("mqtt://", "names no host"),
        ("mqtt://host:nine", "port is not a number"),
        ("mqtt://host:70000", "port out of range"),
        ("mqtt://host:0", "must end after host and port"),
        ("mqtt://host/topic", "must end after host and port"),
        ("mqtt://[::1", "bad host"),
    ],
)
def test_anything_else_is_refused_in_one_line(url, says):
    with pytest.raises(ConfigError) as refused:
        parse(url)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("url", ["http://ann:secret@host", "mqtt://ann:secret@host:nine", "mqtt://ann:secret@host/x"])
def test_a_refusal_does_not_show_the_password(url):
    with pytest.raises(ConfigError) as refused:
        parse(url)
    assert "secret" not in str(refused.value)


def test_a_listening_port_is_reachable():
    with socket.create_server(("127.0.0.1", 0)) as server:
        reachable(Address("mqtt", "127.0.0.1", server.getsockname()[1]), 1.0)


def test_a_closed_port_is_named_with_the_remedy():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConfigError) as refused:
        reachable(Address("mqtt", "127.0.0.1", port), 1.0)
    assert str(refused.value) == (
        f"broker mqtt://127.0.0.1:{port} is not reachable (connection refused): "
        "start it with `edgefl broker start`, or correct broker.url"
    )


@pytest.mark.parametrize("host", ["nowhere.invalid", "pi..local"])
def test_an_unknown_host_is_told_from_a_closed_port(host):
    with pytest.raises(ConfigError, match=f"host name '{host}' is unknown"):
        reachable(Address("mqtt", host, 1883), 1.0)


def test_a_silent_host_is_told_from_a_closed_port():
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = Address("mqtt", "127.0.0.1", full.getsockname()[1])
        first = socket.create_connection(("127.0.0.1", address.port))  # the queue is full now: the next one waits
        with first, pytest.raises(ConfigError, match=r"no answer within 0\.05 s"):
            reachable(address, 0.05)
