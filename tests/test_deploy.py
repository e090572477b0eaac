"""What stands in deploy/ does what it says: the broker keeps devices apart, units and examples can be read."""

import configparser
import os
import queue
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from edgefl.config.reader import load, read_toml
from edgefl.config.schema import AgentFile, RunFile
from edgefl.errors import ConfigError
from edgefl.protocol import acl, topics
from edgefl.protocol.address import Address, reachable
from edgefl.protocol.broker import find_mosquitto
from edgefl.protocol.mqtt import MqttTransport
from edgefl.protocol.transport import Connected, TransportEvent
from edgefl.system.processes import Child

DEPLOY = Path(__file__).parents[1] / "deploy"
EXAMPLES = sorted(path.name for path in (DEPLOY / "examples").iterdir() if path.is_dir())
PATIENCE = 20.0
OK, NOT_AUTHORIZED = 0x00, 0x87
NOBODY_LISTENS = 0x10  # a publish that was accepted, and that no one has subscribed to
FLEET, JOB = "default", "digits"
PASSWORDS = {"coordinator": "c-secret", "pi-1": "one", "pi-2": "two"}


class Party:
    """A plain paho client, and what the broker tells it."""

    def __init__(self, port: int, user: str | None, password: str | None = None, tls: ssl.SSLContext | None = None):
        self.told: queue.Queue[object] = queue.Queue()
        self.client = paho.Client(CallbackAPIVersion.VERSION2, client_id=f"{user}-0a1b2c3d", protocol=paho.MQTTv5)
        self.client.on_connect = lambda _c, _u, _f, reason, _p: self.told.put(reason.value)
        self.client.on_subscribe = lambda _c, _u, _m, reasons, _p: self.told.put("subscribed")
        self.client.on_publish = lambda _c, _u, _m, reason, _p: self.told.put(reason.value)
        self.client.on_message = lambda _c, _u, message: self.told.put((message.topic, message.payload))
        if password is not None:
            self.client.username_pw_set(user, password)
        if tls is not None:
            self.client.tls_set_context(tls)
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        self.connected = self.told.get(timeout=PATIENCE)

    def publish(self, topic: str, payload: bytes = b"x") -> object:
        """The reason code that the broker acknowledges it with."""
        self.client.publish(topic, payload, qos=1)
        return self.told.get(timeout=PATIENCE)

    def subscribe(self, *filters: str) -> None:
        self.client.subscribe([(filter, 1) for filter in filters])
        assert self.told.get(timeout=PATIENCE) == "subscribed"

    def hears(self) -> object:
        return self.told.get(timeout=PATIENCE)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


Join = Callable[..., Party]


def adapted(name: str, home: Path, port: int, **paths: Path) -> Path:
    """A configuration of ours, for this port and these files instead of those in /etc."""
    text = (DEPLOY / "mosquitto" / name).read_text()
    text = re.sub(r"^listener \d+$", f"listener {port} 127.0.0.1", text, flags=re.MULTILINE)
    for key, path in {"acl_file": DEPLOY / "mosquitto" / "acl", **paths}.items():
        text, replaced = re.subn(rf"^{key} .*$", f"{key} {path}", text, flags=re.MULTILINE)
        assert replaced == 1, key
    if os.geteuid() == 0:
        text += "user root\n"  # or it becomes `mosquitto`, who cannot read a test's folder
    conf = home / "adapted.conf"
    conf.write_text(text)
    return conf


def serve(command: list[str], home: Path, port: int, environment: dict[str, str] | None = None) -> Child:
    """A broker that accepts connections."""
    child = Child(command, home / "broker.log", environment=environment)
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and not child.gone.wait(0.01):
        with suppress(ConfigError):
            reachable(Address("mqtt", "127.0.0.1", port))
            return child
    child.stop()
    return pytest.fail(f"the broker did not start: {child.last_words()}")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def program() -> str:
    executable = find_mosquitto()
    if executable is None:
        pytest.skip("mosquitto is not installed")
    return executable


@pytest.fixture(scope="module")
def password_program() -> None:
    if shutil.which("mosquitto_passwd") is None:
        pytest.skip("mosquitto_passwd is not installed")


@pytest.fixture(scope="module")
def lan(program: str, password_program: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a broker with deploy/mosquitto/mosquitto.conf, started as the container starts it."""
    home, port = tmp_path_factory.mktemp("lan"), free_port()
    users = " ".join(f"{user}:{password}" for user, password in PASSWORDS.items())
    settings = {
        "EDGEFL_USERS": users,
        "EDGEFL_BROKER_CONF": str(adapted("mosquitto.conf", home, port)),
        "EDGEFL_BROKER_HOME": str(home),
        "PATH": f"{os.environ['PATH']}:{Path(program).parent}",
    }
    child = serve(["sh", str(DEPLOY / "docker" / "broker.sh")], home, port, settings)
    yield port
    child.stop()


@pytest.fixture
def join() -> Iterator[Join]:
    parties: list[Party] = []

    def start(port: int, user: str | None, *more: object, **options: object) -> Party:
        parties.append(Party(port, user, *more, **options))
        return parties[-1]

    yield start
    for party in parties:
        party.close()


@pytest.fixture
def login(lan: int, join: Join) -> Callable[[str], Party]:
    return lambda user: join(lan, user, PASSWORDS[user])


Login = Callable[[str], Party]


@pytest.mark.broker
def test_a_device_speaks_on_its_own_topics_and_on_nobody_elses(login: Login):
    device = login("pi-1")
    assert device.publish(topics.up(FLEET, JOB, "pi-1")) == NOBODY_LISTENS
    assert device.publish(topics.presence(FLEET, "pi-1")) == NOBODY_LISTENS
    forbidden = (
        topics.up(FLEET, JOB, "pi-2"),
        topics.presence(FLEET, "pi-2"),
        topics.down(FLEET, JOB, "pi-1"),
        topics.state(FLEET, JOB),
        topics.manifest(FLEET, JOB, "abc"),
        topics.chunk(FLEET, JOB, "abc", 0),
    )
    assert [device.publish(topic) for topic in forbidden] == [NOT_AUTHORIZED] * len(forbidden)


@pytest.mark.broker
def test_a_device_hears_what_is_for_it_or_for_all_and_nothing_else(login: Login):
    device, coordinator = login("pi-1"), login("coordinator")
    device.subscribe("#", topics.down(FLEET, JOB, "pi-2"))
    mine = [
        topics.state(FLEET, JOB),
        topics.manifest(FLEET, JOB, "abc"),
        topics.chunk(FLEET, JOB, "abc", 300),
        topics.down(FLEET, JOB, "pi-1"),
    ]
    others = [topics.down(FLEET, JOB, "pi-2"), topics.up(FLEET, JOB, "pi-2"), topics.presence(FLEET, "pi-2")]
    for topic in (*others, *mine):
        coordinator.publish(topic)
    heard = [device.hears() for _ in mine]  # the broker keeps the order: others' would have come first
    assert heard == [(topic, b"x") for topic in mine]


@pytest.mark.broker
def test_the_coordinator_hears_every_device_and_speaks_to_each(login: Login):
    coordinator, devices = login("coordinator"), [login("pi-1"), login("pi-2")]
    coordinator.subscribe(topics.presence(FLEET, "+"), topics.up(FLEET, JOB, "+"))
    for name, device in zip(("pi-1", "pi-2"), devices, strict=True):
        device.subscribe(topics.down(FLEET, "+", name))
        assert device.publish(topics.up(FLEET, JOB, name)) == OK
        assert coordinator.hears() == (topics.up(FLEET, JOB, name), b"x")
        assert device.publish(topics.presence(FLEET, name)) == OK
        assert coordinator.hears() == (topics.presence(FLEET, name), b"x")
        assert coordinator.publish(topics.down(FLEET, JOB, name)) == OK
        assert device.hears() == (topics.down(FLEET, JOB, name), b"x")


@pytest.mark.broker
@pytest.mark.parametrize(("user", "password"), [("pi-1", "two"), ("stranger", "one"), (None, None)])
def test_nobody_gets_in_without_a_password_of_their_own(lan: int, join: Join, user: str | None, password: str | None):
    assert join(lan, user, password).connected == NOT_AUTHORIZED


def make_certificates(home: Path, *names: str) -> None:
    """A CA of our own and certificates for these names, made as docs/operating.md says."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=home, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    authority = ("-subj", "/CN=edgefl CA", "-addext", "keyUsage=critical,keyCertSign")
    openssl("req", "-x509", *key, "-days", "2", *authority, "-keyout", "ca.key", "-out", "ca.crt")
    for name in names:
        (home / f"{name}.ext").write_text("subjectAltName=IP:127.0.0.1\n")
        openssl("req", *key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        signing = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", f"{name}.ext")
        openssl("x509", "-req", "-days", "2", "-in", f"{name}.csr", *signing, "-out", f"{name}.crt")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    home = tmp_path_factory.mktemp("certificates")
    make_certificates(home, "server", "coordinator", "pi-1")
    return home


@pytest.fixture(scope="module")
def production(program: str, certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a broker with deploy/mosquitto/mosquitto-tls.conf."""
    home, port = tmp_path_factory.mktemp("production"), free_port()
    files = {"cafile": "ca.crt", "certfile": "server.crt", "keyfile": "server.key"}
    paths = {key: certificates / name for key, name in files.items()}
    child = serve([program, "-c", str(adapted("mosquitto-tls.conf", home, port, **paths))], home, port)
    yield port
    child.stop()


def tls(certificates: Path, name: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificates / "ca.crt")
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python 3.13 does by itself
    if name is not None:
        context.load_cert_chain(certificates / f"{name}.crt", certificates / f"{name}.key")
    return context


@pytest.mark.broker
def test_with_certificates_the_common_name_is_the_user(production: int, certificates: Path, join: Join):
    device = join(production, "pi-2", tls=tls(certificates, "pi-1"))  # the client id lies, the certificate does not
    assert device.publish(topics.up(FLEET, JOB, "pi-1")) == NOBODY_LISTENS
    assert device.publish(topics.up(FLEET, JOB, "pi-2")) == NOT_AUTHORIZED
    coordinator = join(production, "x", tls=tls(certificates, "coordinator"))
    assert coordinator.publish(topics.down(FLEET, JOB, "pi-2")) == NOBODY_LISTENS


@pytest.mark.broker
def test_nobody_gets_in_without_a_certificate(production: int, certificates: Path):
    bare = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    bare.tls_set_context(tls(certificates, None))
    answers: list[object] = []
    bare.on_connect = lambda *answer: answers.append(answer)
    try:
        bare.connect("127.0.0.1", production)
        while bare.loop(PATIENCE) == paho.MQTT_ERR_SUCCESS:
            assert not answers
    except OSError:  # with TLS 1.3 the refusal may come in the handshake, or with the first read
        pass
    finally:
        bare.disconnect()
        if (sock := bare.socket()) is not None:
            sock.close()
    assert not answers


@pytest.mark.broker
def test_our_transport_trusts_a_ca_named_by_the_environment(
    program: str, password_program: None, certificates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The variant with passwords over TLS, as the comment in mosquitto-tls.conf describes it."""
    port = free_port()
    files = {"cafile": "ca.crt", "certfile": "server.crt", "keyfile": "server.key"}
    conf = adapted("mosquitto-tls.conf", tmp_path, port, **{key: certificates / name for key, name in files.items()})
    passwd = tmp_path / "passwd"
    passwd.touch(mode=0o600)
    passwd.write_text("pi-1:one\n")
    subprocess.run(["mosquitto_passwd", "-U", str(passwd)], check=True)
    lines = conf.read_text().replace("require_certificate true\n", f"password_file {passwd}\n")
    conf.write_text(lines.replace("use_identity_as_username true\n", ""))
    child = serve([program, "-c", str(conf)], tmp_path, port)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "ca.crt"))
    told: queue.Queue[TransportEvent] = queue.Queue()
    transport = MqttTransport(Address("mqtts", "127.0.0.1", port, "pi-1", "one"), "pi-1-0a1b2c3d")
    transport.start(told.put)
    try:
        assert told.get(timeout=PATIENCE) == Connected()
    finally:
        transport.close()
        child.stop()


def test_a_broker_of_ones_own_has_the_acl_of_an_installed_one():
    assert (DEPLOY / "mosquitto" / "acl").read_text() == acl.TEXT


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_a_valid_run_file_and_agent_file_that_belong_together(example: str):
    folder = DEPLOY / "examples" / example
    run = load(RunFile, folder / "run.toml", environment={})
    agent = load(AgentFile, folder / "agent.toml", environment={})
    assert run.broker.url.startswith("mqtt://coordinator@")
    assert agent.agent.broker.startswith(f"mqtt://{agent.agent.id}@")
    assert agent.agent.fleet == run.broker.fleet
    assert agent.data.partition == run.task.partition
    if run.task.partition is not None:
        assert (agent.data.source, agent.data.seed) == (run.task.data, run.run.seed)
        assert agent.data.public == run.task.public


def test_the_network_of_ones_own_can_be_built(monkeypatch: pytest.MonkeyPatch):
    from edgefl.models.build import build

    folder = DEPLOY / "examples" / "own_model"
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    model, params = build(read_toml(folder / "run.toml")["task"]["model"], (1, 8, 8), 10, seed=0, device="cpu")
    assert model.layout.size == len(params) > 0


def unit(name: str) -> configparser.SectionProxy:
    parser = configparser.RawConfigParser(strict=False)  # a key may come twice; the last is enough here
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their capitals
    parser.read(DEPLOY / "systemd" / name)
    return parser["Service"]


UNITS = ("edgefl-agent.service", "edgefl-coordinator.service")


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_runs_without_rights_and_leaves_a_wrong_file_alone(name: str):
    service = unit(name)
    assert service["User"] == "edgefl"
    assert (service["NoNewPrivileges"], service["ProtectSystem"]) == ("yes", "strict")
    assert service["RestartPreventExitStatus"] == "2"
    assert service["StateDirectory"] == "edgefl"
    assert {"MemoryMax", "EnvironmentFile"} <= set(service)


def test_an_agent_always_comes_back_but_a_finished_run_does_not_begin_again():
    assert [unit(name)["Restart"] for name in UNITS] == ["always", "on-failure"]


@pytest.mark.parametrize("name", UNITS)
def test_systemd_understands_every_line_of_a_unit(name: str, tmp_path: Path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    text = (DEPLOY / "systemd" / name).read_text()
    (tmp_path / name).write_text(text.replace("/opt/edgefl/bin/edgefl", "/bin/true"))
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / name)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    complaints = [line for line in done.stderr.splitlines() if name in line]  # not those about the machine's own units
    assert complaints == []


def test_what_units_and_containers_set_by_environment_are_keys_of_our_files():
    texts = [path.read_text() for path in (*DEPLOY.glob("systemd/*"), *DEPLOY.glob("docker/*Dockerfile"))]
    texts.append((DEPLOY / "docker" / "compose.yaml").read_text())
    named = {m.groups() for text in texts for m in re.finditer(r"\bEDGEFL_([A-Z]+)__([A-Z_]+)[=:]", text)}
    known = {
        (section.upper(), key.upper())
        for file in (RunFile, AgentFile)
        for section, field in file.model_fields.items()
        for key in getattr(field.annotation, "model_fields", ())
    }
    assert {("AGENT", "ID"), ("DATA", "PART"), ("BROKER", "URL"), ("RUN", "FOLDER")} <= named
    assert named <= known


def test_each_agent_of_the_compose_file_has_its_own_name_and_part():
    compose = (DEPLOY / "docker" / "compose.yaml").read_text()
    devices = load(RunFile, DEPLOY / "examples" / "digits" / "run.toml", environment={}).task.partition
    names = re.findall(r"EDGEFL_AGENT__ID: (\S+)", compose)
    assert re.findall(r"mqtt://(device-\d+)@broker:1883", compose) == names == re.findall(r"(device-\d+):\$", compose)
    assert devices is not None
    assert re.findall(r'EDGEFL_DATA__PART: "(\d+)"', compose) == [str(i) for i in range(devices.devices)]


def test_containers_stand_on_images_that_are_named_by_digest():
    docker = DEPLOY / "docker"
    bases = [
        line.split()[1]
        for path in docker.glob("*Dockerfile")
        for line in path.read_text().splitlines()
        if line.startswith("FROM ")
    ]
    assert bases == ["${PYTHON_IMAGE}"] * 4
    assert all("\nARG PYTHON_IMAGE\n" in path.read_text() for path in docker.glob("*Dockerfile"))  # no default: no tag
    foreign = re.findall(r"(?:image|PYTHON_IMAGE): (\S+)", (docker / "compose.yaml").read_text())
    assert sorted(set(foreign)) == [
        "${MOSQUITTO_IMAGE:?run",
        "${PYTHON_IMAGE:?run",
        "edgefl-agent",
        "edgefl-coordinator",
    ]


def test_images_are_pinned_by_what_the_registry_says_or_not_at_all(tmp_path):
    """With a docker that answers as the registry would."""
    script, fake = tmp_path / "pin.sh", tmp_path / "docker"
    script.write_text((DEPLOY / "docker" / "pin.sh").read_text())
    fake.write_text('#!/bin/sh\ncase "$4" in python:*) echo sha256:11 ;; *) echo "$ANSWER" ;; esac\n')
    fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    bad = subprocess.run(
        ["sh", script], check=False, env={**environment, "ANSWER": "unauthorized"}, capture_output=True
    )
    assert bad.returncode == 1
    assert not (tmp_path / "images.env").exists()
    subprocess.run(["sh", script], check=True, env={**environment, "ANSWER": "sha256:22"}, capture_output=True)
    lines = (tmp_path / "images.env").read_text().splitlines()[1:]
    assert lines == ["PYTHON_IMAGE=python:3.11-slim@sha256:11", "MOSQUITTO_IMAGE=eclipse-mosquitto:2@sha256:22"]
