"""Every command of the guides is typed somewhere: here, or in the story of a page of its own.

What is cut short says so in `SHORTER`; what this machine must not be asked for stands in `NOT_HERE`, with the reason.
"""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest
from guides import GUIDES, PAGES, ROOT, blocks, commands, typed
from safetensors.numpy import load_file
from secured_fleet import free_ports

from edgefl.cli.app import main
from edgefl.learn.models.zoo import softmax
from edgefl.system.processes import Child, python
from edgefl.wire.broker import Broker, find_mosquitto

# Pages, or parts of them, that have a story of their own.
TOLD_ELSEWHERE = {
    "tutorial.md": "test_tutorial.py",
    "README.md": "test_five_commands.py",
    "remote-diagnosis.md": "test_remote_diagnosis.py",
    "move-server.md": "test_moved_server.py",
}
LAPTOP = """
simulate run.toml
simulate run.toml --json
simulate run.toml --workers 2
simulate run.toml --forgetting
simulate run.toml --out results/first
simulate docs/examples/anomaly.toml
simulate docs/examples/multilabel.toml
simulate docs/examples/next_token.toml
simulate docs/examples/segmentation.toml
simulate docs/examples/two_inputs.toml
compare run.toml --algorithms fedavg,fedgc,scaffold --seeds 3
compare run.toml --algorithms fedavg,fedprox:mu=0.1,ft=fedavg+finetune --seeds 3 --workers 2 --out results
compare run.toml --algorithms fedprox:privacy.sigma=1.0,upcycled:privacy.sigma=0.8
sweep run.toml --algorithms fedavg,fedprox:mu=0.001|0.01|0.1 --grid lr=0.01,0.03,0.1 --seeds 5 --out results
compare docs/results/codecs.toml --seeds 3 --algorithms float32=fedavg,float16=fedavg:wire.up.codec=float16,\
int8=fedavg:wire.up.codec=int8,topk-10=fedavg:wire.up.codec=topk:wire.up.share=0.1,\
topk-1=fedavg:wire.up.codec=topk:wire.up.share=0.01,int8-both=fedavg:wire.codec=int8,\
topk-10-int8=fedavg:wire.up.codec=topk:wire.up.share=0.1:wire.down.codec=int8
privacy calibrate --epsilon 8 --delta 1e-5 --rounds 80 --clip 1 --algorithm upcycled
rehearse /etc/edgefl/run.toml
doctor run.toml
config show run.toml --origin
plan run.toml
plan run.toml --fleet pi4=200,jetson-nano=50 --samples 600
plan run.toml --fleet pi4=2000 --set rounds.cohort=100 --set wire.codec=int8
"""
AUTHORITY = """
fleet init --host server.local --devices pi-01,pi-02
fleet add pi-03
fleet label pi-03 site=north camera=v2
fleet label pi-01,pi-02 site=south
fleet label pi-03 camera=
fleet list --where site == 'north'
fleet revoke pi-02
fleet list
fleet forget pi-09
"""
DEVICE = """
fleet init --host server.local --devices pi-01,pi-02,pi-03
agent enrol /var/lib/edgefl/pi-01.kit --data npz:/var/lib/edgefl/windows.npz --install-only
"""
RUN_FOLDER = """
status
status --where memory_mb >= 900
replay runs/NAME --device pi-01
export runs/sensors model.onnx
agent evaluate agent.toml model.onnx
agent predict agent.toml model.onnx new.npz --out said.csv
agent evaluate agent.toml --own
agent predict agent.toml new.npz --own --out said.csv
agent export agent.toml own.onnx
coordinator extend run.toml --rounds 20
"""
SITE = """
fleet site north --host north.local
fleet add pi-07 --site north
broker start --site north.site
"""
GATEWAY = """
fleet add gw-north
coordinator key run.toml
fleet init --fleet north --models ed25519:... --devices pi-07,pi-08,pi-09
broker start --fleet north
agent enrol gw-north.kit --install-only --data digits
gateway start gateway.toml
"""
# A cluster of machines: tests/sim/test_ray.py has one of several raylets.
CLUSTER = "RAY_ADDRESS=10.0.0.5:6379"
# Those that stay until they are ended, and what they say when they stand.
STAY = {
    "fleet add pi-04 --token": "Ctrl-C ends it",
    "fleet listen": "Ctrl-C ends it",
    "page runs/NAME": "http://127.0.0.1:",
    "coordinator start run.toml --page 8700": "watch it at",
    "coordinator start run.toml --page 0.0.0.0": "watch it at",
}
# The four lines of the README after its five commands: test_five_commands.py has the secured broker for them.
README = """
fleet add pi-04
agent enrol pi-04.kit --data npz:/home/pi/windows.npz
agent start
fleet revoke pi-04
"""
# test_remote_diagnosis.py has the devices for them.
ASKED = """
device pi-05 doctor
device pi-05 logs
device pi-05 vitals
device pi-05 logs --json
device pi-05 vitals --timeout 60
device pi-05 logs --fleet trial --broker mqtt://localhost:1883
"""
RESTORE = """
backup key backup.key
backup fleet.tar --for backup.key.pub --runs runs
restore fleet.tar --key backup.key --runs runs --revoked pi-02
fleet list
broker start
coordinator start run.toml
coordinator start run.toml --set run.name=NAME-2 --set run.from=runs/NAME
"""
# test_moved_server.py has the two servers for them.
MOVED = """
backup key backup.key
backup fleet.tar --for backup.key.pub
restore fleet.tar --key backup.key
server audit --verify
fleet list
server start
server fleets
run list
"""
RENEWALS = """
fleet init --host server.local --device-certificates 2y
fleet settings --device-certificates 1y --grace 180d
fleet renew pi-03 --within 30d
"""
MOVING = """
fleet host server.local --also 10.0.0.7
fleet host --drop 192.168.1.5
"""
MANY = """
fleet add --count 340 --prefix pi- --out kits
fleet claim --devices 340 --until 7d
fleet claim --devices 340 --until 7d --serials devices.csv
fleet claims
agent enrol --claim WORD --name pi-07 --data npz:/var/lib/edgefl/windows.npz
fleet accept pi-07
fleet reject pi-09
fleet accept --all
fleet claim --withdraw 1a2b3c4d
"""
SERVER = """
fleet init --devices pi-01,pi-02,pi-03 --host server.local
run submit run.toml
run submit urgent.toml --priority 5
run logs sensors --follow
run pause sensors
run resume sensors
run history
server user add ann --role operator --fleet north
server user remove ann
server audit
server alerts
server quiet 0123456789abcdef01234567
"""
STORIES = (
    SERVER,
    RENEWALS,
    MOVING,
    MANY,
    LAPTOP,
    AUTHORITY,
    DEVICE,
    RUN_FOLDER,
    SITE,
    GATEWAY,
    README,
    ASKED,
    RESTORE,
    MOVED,
)
SHORTER = {
    "--seeds 3 --workers 2": "--seeds 1 --workers 2",
    "--rounds 20": "--rounds 2",
    "--count 340": "--count 3",
    " --follow": "",
    "mu=0.001|0.01|0.1 --grid lr=0.01,0.03,0.1 --seeds 5": "mu=0.001|0.1 --grid lr=0.1 --seeds 2",
    "docs/examples/": f"--set run.rounds=1 {ROOT}/docs/examples/",
    "docs/results/codecs.toml --seeds 3": f"{ROOT}/docs/results/codecs.toml --seeds 1 --set run.rounds=1",
    "8700": "0",
    "page runs/NAME": "page runs/NAME --page 0",
    "/etc/edgefl/": "",
    "/var/lib/edgefl/": "",
    "runs/sensors": "runs/NAME",
    "--where site == 'north'": "--where \"site == 'north'\"",  # as the shell reads it
    "--where memory_mb >= 900": "--where 'memory_mb >= 900'",
    "forget pi-09": "forget pi-01",  # one that is in the list
}
NOT_HERE = {
    "apt": "installs packages",
    "python": "runs a tool: tests/tools/test_commands.py",
    "useradd": "makes users",
    "install": "writes to folders of the system",
    "cp": "writes to folders of the system",
    "rm": "removes what `install` put there",
    "cd": "a folder of the system",
    "systemctl": "needs systemd; its units are checked by test_deploy.py",
    "journalctl": "needs systemd",
    "docker": "needs its daemon; its files are checked by test_deploy.py",
    "deploy/docker/pin.sh": "asks the registry of images",
    "ssh": "needs a server",
    "git": "clones from where the reader has it from",
    "python3": "makes a venv, or the wheel, which `make -f scripts/Makefile size` builds",
    "fl/bin/pip": "installs; `make -f scripts/Makefile wheels` does so from the hashes",
    "/opt/edgefl/bin/pip": "installs; `make -f scripts/Makefile wheels` does so from the hashes",
    ".": "activates a venv",
    "ray": "starts servers; `make -f scripts/Makefile ray` plays on a cluster of its own",
    CLUSTER: "as above",
    "openssl": "a secret for that cluster",
    "chmod": "of that secret",
    "export": "of that secret",
    "make": "this is `make test`; the others take minutes",
}
RUN = """
[run]
name = "NAME"
rounds = 2
[task]
data = "npz:windows.npz"
model = "softmax"
{fleet}
[algorithm]
name = "fedavg"
batches = 2
[rounds]
cohort = 1
"""
DIVIDED = 'partition = { kind = "iid", devices = 4 }\npublic = 0.2'
PRIVATE = '[privacy]\nmechanism = "output"\nclip = 1.0\ndelta = 1e-5'
AGENT = """
[agent]
id = "pi-01"
broker = "{broker}"
folder = "devices"
[data]
source = "npz:windows.npz"
"""


def lines(story: str) -> list[str]:
    return [line for line in story.splitlines() if line]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with windows as the guide has people save them, and a home of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    y = np.arange(60) % 6
    x = np.random.default_rng(0).normal(y[:, None], size=(60, 4))
    snippet(r"np\.savez", np=np, x=x, y=y)
    Path("windows.npz").rename("new.npz")
    snippet(r"np\.savez", np=np, x=x, y=y)


def snippet(sign: str, **names: object) -> None:
    """Run the program of a guide that has this in it."""
    (code,) = (block for page in GUIDES for block in blocks(page, "python") if re.search(sign, block))
    exec(code, names)


@pytest.fixture
def type_(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """Type a line: what it printed; it must end well."""

    def run(line: str) -> str:
        monkeypatch.setattr(sys, "argv", ["edgefl", *words(line)])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        assert not end.value.code, f"{line}: {printed.out}{printed.err}"
        return printed.out

    return run


def words(line: str) -> list[str]:
    for long, short in SHORTER.items():
        line = line.replace(long, short)
    return shlex.split(line)


@contextmanager
def standing(*command: str, sign: str) -> Iterator[subprocess.Popen[str]]:
    """A command that stays, from when it has said its sign until the block ends."""
    program = [str(Path(sys.executable).with_name("edgefl")), *command]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        try:
            heard = list(takewhile(lambda text: sign not in text, process.stdout))
            assert process.poll() is None, f"{command}: {heard}"
            yield process
        finally:
            process.terminate()


def test_every_command_of_the_guides_has_a_story() -> None:
    pages = [page for page in PAGES if page.name != "tutorial.md"]
    told = {line for story in STORIES for line in lines(story)} | set(STAY)
    (five,) = re.findall(r"^## Five commands.*?```sh\n(.*?)```", PAGES[0].read_text(), re.DOTALL | re.MULTILINE)
    told |= {" ".join(command[1:]) for command in commands(five) if command[0].endswith("edgefl")}
    assert {" ".join(command) for page in pages for command in typed(page)} == told


def test_whoever_tells_of_a_page_elsewhere_reads_it() -> None:
    for page, test in TOLD_ELSEWHERE.items():
        assert page in (Path(__file__).parent / test).read_text()


def test_every_other_program_of_the_guides_has_a_reason_not_to_be_run() -> None:
    programs = {command[0] for page in PAGES for block in blocks(page, "sh") for command in commands(block)}
    assert {name for name in programs if not name.endswith("edgefl")} == set(NOT_HERE)


@pytest.mark.night
@pytest.mark.parametrize("line", lines(LAPTOP))
def test_on_a_laptop(line: str, type_: Callable[[str], str]) -> None:
    run = RUN.format(fleet="" if "--fleet" in line else DIVIDED)
    if "privacy.sigma" in line:
        run = run.replace("fedavg", "fedprox") + PRIVATE
    Path("run.toml").write_text(run)
    assert type_(line)


def test_the_authority_of_a_fleet(type_: Callable[[str], str]) -> None:
    init, add, *labels, where, revoke, members, forget = lines(AUTHORITY)
    assert "wrote pi-02.kit" in type_(f"{init} --port {free_ports()}")
    assert "wrote pi-03.kit" in type_(add)
    assert [type_(line).split()[-1] for line in labels] == ["site=north", "site=south", "site=north"]
    assert [line.split()[0] for line in type_(where).splitlines()] == ["name", "pi-03"]
    assert "pi-02" in type_(revoke)
    assert re.search(r"pi-02 +\S+ +- +\S+ \S+ UTC", type_(members)), "it has no end, but when it was revoked"
    assert type_(forget)
    with standing(*words("fleet add pi-04 --token"), sign=STAY["fleet add pi-04 --token"]):
        pass


def test_certificates_that_last_as_long_as_a_fleet_says(type_: Callable[[str], str]) -> None:
    init, settings, renew = lines(RENEWALS)
    type_(f"{init} --port {free_ports()} --devices pi-03")
    assert "last 1y" in type_(settings)
    assert "may have a new certificate until" in type_(renew)
    with standing("fleet", "listen", sign=STAY["fleet listen"]):
        pass


def test_a_broker_that_moves(type_: Callable[[str], str]) -> None:
    move, drop = lines(MOVING)
    assert "an address is for good" in type_(f"fleet init --host 192.168.1.5 --port {free_ports()}")
    assert f"edgefl {drop}" in type_(move)
    assert "192.168.1.5" not in type_(drop)


def test_many_devices_with_kits_and_with_one_word(type_: Callable[[str], str]) -> None:
    kits, claim, known, show, enrol, accept, reject, every, withdraw = lines(MANY)
    begin_a_fleet(type_)
    assert "pi-02.kit to pi-04.kit" in type_(kits)
    Path("devices.csv").write_text("serial,name\n10000000abcdef01,pi-001\n")
    for line in (claim, known):
        (word,) = re.findall(r"--claim (\S+)", type_(line))
    ids = re.findall(r"claim (\w{8}):", type_(show))
    with standing("fleet", "listen", sign=STAY["fleet listen"]):
        waits = "waits until a person accepts it"
        for name, verdict in (("pi-07", accept), ("pi-09", reject)):
            asks = words(enrol.replace("WORD", word).replace("pi-07", name))
            with standing(*asks, "--install-only", sign=waits) as device:
                assert name in type_(show)
                type_(verdict)
                if verdict == accept:
                    assert device.wait(60) == 0
    assert Path("state/edgefl/pi-07/agent.toml").exists()
    type_(every)
    assert type_(withdraw.replace("1a2b3c4d", ids[0]))


def test_a_device_with_a_kit_and_data_of_its_own(type_: Callable[[str], str]) -> None:
    for line in lines(DEVICE):
        assert type_(line)
    assert "windows.npz" in Path("state/edgefl/pi-01/agent.toml").read_text()


def begin_a_fleet(type_: Callable[[str], str]) -> int:
    port = free_ports()
    type_(f"fleet init --host 127.0.0.1 --port {port} --devices pi-01")
    return port


def test_a_site_with_a_broker_of_its_own(type_: Callable[[str], str]) -> None:
    begin_a_fleet(type_)
    site, add, start = lines(SITE)
    type_(f"{site} --host 127.0.0.1 --port {free_ports()}")
    type_(add)
    if find_mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    with standing("broker", "start", sign="listens on"), standing(*words(start), sign="listens on"):
        pass


def test_a_gateway_is_set_up_as_the_guide_says(type_: Callable[[str], str]) -> None:
    port = begin_a_fleet(type_)
    add, key, init, start, enrol, gateway = lines(GATEWAY)
    Path("run.toml").write_text(RUN.format(fleet=""))
    type_(add)
    (signer,) = re.findall(r"ed25519:\S+", type_(key))
    type_(f"{init.replace('ed25519:...', signer)} --host 127.0.0.1 --port {free_ports()}")
    type_(enrol)
    (table,) = (block for block in blocks(ROOT / "docs" / "guides" / "gateway.md", "toml"))
    table = table.replace("server.local:8883", f"127.0.0.1:{port}").replace('".../', '"state/edgefl/')
    Path("gateway.toml").write_text(table.replace('# coordinator = "ed25519:..."', f'coordinator = "{signer}"'))
    if find_mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    with (
        standing("broker", "start", sign="listens on"),
        standing(*words(start), sign="listens on"),
        standing(*words(gateway), sign="connected"),
    ):
        pass


@pytest.mark.night
def test_a_run_and_what_is_asked_of_it_later(mosquitto: Broker, type_: Callable[[str], str]) -> None:
    personal = RUN.replace('"fedavg"', '"ditto"')  # leaves the device a model of its own
    Path("run.toml").write_text(personal.format(fleet="") + f'[broker]\nurl = "{mosquitto.address}"')
    Path("agent.toml").write_text(AGENT.format(broker=mosquitto.address))
    with standing("agent", "start", "agent.toml", sign="connected device="):
        for line in ("coordinator start run.toml --page 8700", "coordinator start run.toml --page 0.0.0.0"):
            with standing(*words(line), "--no-rehearse", "--fresh", sign=STAY[line]) as coordinator:
                printed, _ = coordinator.communicate(timeout=300)
                assert "done: 2 rounds" in printed
        for line in lines(RUN_FOLDER):
            type_(line)
    assert len(Path("said.csv").read_text().splitlines()) == 61
    with standing(*words("page runs/NAME"), sign=STAY["page runs/NAME"]):
        pass
    (checkpoint,) = Path("runs/NAME").glob("checkpoint-*4.safetensors")
    checkpoint.rename("checkpoint-000020.safetensors")
    module = softmax((4,), 6)
    snippet("load_state_dict", module=module)
    saved = load_file("checkpoint-000020.safetensors")
    assert all(np.array_equal(saved[name], tensor) for name, tensor in module.state_dict().items())


def test_a_fleet_service_with_runs_and_people(type_: Callable[[str], str]) -> None:
    if find_mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    init, submit, urgent, logs, pause, resume, history, add, remove, audit, alerts, quiet = lines(SERVER)
    type_(f"{init.replace('server.local', '127.0.0.1')} --port {free_ports()}")
    for name in ("sensors", "urgent"):
        text = RUN.format(fleet="").replace('"NAME"', f'"{name}"')
        Path("run.toml" if name == "sensors" else f"{name}.toml").write_text(text)
    with standing("server", "start", "--set", "server.at_once=1", "--set", "page.port=0", sign="is at http"):
        type_(submit)
        type_(urgent)
        type_(logs)
        type_(pause)
        assert "sensors" in type_("run list")
        type_(resume)
        type_(history)
        type_(add.replace("north", "default"))
        type_(remove)
        assert type_(alerts)
        with pytest.raises(AssertionError, match="alert"):
            type_(quiet)
    told = type_(audit)
    assert "user.add ann" in told
    assert "run.pause sensors" in told


@pytest.mark.night
def test_a_server_is_restored_from_its_copies(
    type_: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run went on after the copy, and pi-02 was revoked: the one is told and mended, the other asked for."""
    if find_mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    monkeypatch.delenv("XDG_STATE_HOME")
    device, old, new = (tmp_path / name for name in ("device", "old", "new"))
    at_home(old, monkeypatch)
    type_(f"fleet init --host 127.0.0.1 --port {free_ports()} --devices pi-01,pi-02")
    data = tmp_path / "windows.npz"
    for name in ("pi-01", "pi-02"):
        type_(f"agent enrol {name}.kit --data npz:{data} --folder {device} --install-only")
    Path("check.npz").write_bytes(data.read_bytes())
    run = RUN.format(fleet="").replace("rounds = 2", "rounds = 100000")
    Path("run.toml").write_text(run.replace("windows.npz", str(old / "check.npz")))
    make_key, back_up, restore, listed, serve, go_on, as_another = lines(RESTORE)
    type_(make_key)
    with ExitStack() as until_done:
        with standing(*words(serve), sign="listens on"):
            until_done.enter_context(agent(device, "pi-01"))
            with standing(*words(go_on), "--no-rehearse", sign="round 2  devices 1"):
                type_(back_up)
            with standing(*words(go_on), sign="round 50  devices 1"):
                pass
        type_("fleet revoke pi-02")

        at_home(new, monkeypatch)
        for copy in ("fleet.tar", "backup.key"):
            (old / copy).rename(new / copy)
        (old / "check.npz").rename(new / "moved.npz")
        type_(restore)
        Path("run.toml").write_text(run.replace("windows.npz", str(new / "moved.npz")))
        assert re.search(r"pi-02 +\S+ +- +\S+ \S+ UTC", type_(listed)), "it was revoked again"
        until_done.enter_context(standing(*words(serve), sign="listens on"))
        with standing(*words(go_on), sign="is older than round"):
            pass
        with standing(*words(as_another), "--no-rehearse", sign="round 2  devices 1"):
            pass
        with agent(device, "pi-02", sign="if this device was revoked"):
            pass


def at_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server: its home and its current folder."""
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(folder)


@contextmanager
def agent(device: Path, name: str, sign: str = "connected") -> Iterator[None]:
    """An agent, from when it has said its sign; its log goes to a file, which never makes it wait."""
    child = Child(python("edgefl", "agent", "start", str(device / name / "agent.toml")), device / f"{name}.log")
    try:
        while sign not in child.last_words(10_000):
            assert child.exit_code is None or sign in child.last_words(10_000), child.last_words()
            time.sleep(0.05)
        yield
    finally:
        child.stop()
