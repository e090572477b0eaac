"""Many devices become members with one word: each when a person accepts it, or its serial number is known."""

import json
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from fleets import until
from secured_fleet import EDGEFL, Secured, enrolling, make

from device_agent import claiming as waiting
from edgefl.base.errors import ConfigError, RemoteError
from edgefl.fleet import claiming, claims, members
from edgefl.fleet.authority import clock, read_certificate
from edgefl.fleet.claiming import AwaitsPerson, ClaimAsking
from edgefl.fleet.claims import ClaimWord
from edgefl.fleet.kit import Kit

DAY = timedelta(days=1)


@pytest.fixture
def secured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Secured:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return make(tmp_path, "pi-01")


@pytest.fixture
def listening(secured: Secured) -> Iterator[list[str]]:
    with enrolling(secured.fleet) as joined:
        yield joined


def word(secured: Secured, devices: int = 3, **serials: str) -> ClaimWord:
    return claims.issue(secured.fleet, devices, clock() + DAY, clock(), serials)


def device(of: ClaimWord, name: str, folder: Path) -> ClaimAsking:
    return ClaimAsking(claims.read_word(of.text()), name, folder / name / "claim.json")


def accept(secured: Secured, which: str, name: str = "") -> str:
    return claims.settle(secured.fleet, which, "accepted", clock(), name)


def test_a_device_waits_until_a_person_accepts_it_and_then_is_a_member(
    secured: Secured, listening: list[str], tmp_path: Path
) -> None:
    asking = device(word(secured), "pi-07", tmp_path)
    answer = asking.ask()
    assert isinstance(answer, AwaitsPerson)
    assert "pi-07" not in secured.fleet.members.members
    ((id, applicant),) = claims.waiting(secured.fleet, clock())
    assert (answer.id, applicant.name, applicant.address) == (id, "pi-07", "127.0.0.1")
    accept(secured, "pi-07")
    kit = asking.ask()
    assert isinstance(kit, Kit)
    assert listening == ["pi-07"]
    member = secured.fleet.members.active()["pi-07"]
    assert member.key == asking.signer.key
    assert (member.hosts, member.site) == ((), ""), "an ordinary device"
    assert read_certificate(kit.certificate.encode()).not_valid_after_utc == member.expires
    everything = b"".join(path.read_bytes() for path in secured.fleet.folder.path.rglob("*") if path.is_file())
    for secret in (kit.key, kit.device_key, asking.word.secret):
        assert secret.encode() not in everything


def test_an_answer_that_was_lost_is_given_again_and_the_keys_survive_a_restart(
    secured: Secured, listening: list[str], tmp_path: Path
) -> None:
    claim = word(secured)
    device(claim, "pi-07", tmp_path).ask()
    accept(secured, "pi-07")
    first = device(claim, "pi-07", tmp_path).ask()
    assert device(claim, "pi-07", tmp_path).ask() == first
    assert listening == ["pi-07"]
    assert (tmp_path / "pi-07" / "claim.json").stat().st_mode & 0o077 == 0
    secured.fleet.revoke("pi-07", clock())
    with pytest.raises(RemoteError, match="revoked since"):
        device(claim, "pi-07", tmp_path).ask()


def test_a_known_serial_number_needs_no_person_once(
    secured: Secured, listening: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claiming, "serial_number", lambda: "10000000abcdef01")
    claim = word(secured, **{"10000000abcdef01": "pi-42"})
    kit = device(claim, "raspberrypi", tmp_path).ask()
    assert isinstance(kit, Kit)
    assert kit.name == "pi-42"
    assert isinstance(device(claim, "other", tmp_path).ask(), AwaitsPerson), "another one with that number waits"


def test_a_claim_takes_no_members_name_and_no_more_devices_than_it_says(secured: Secured, tmp_path: Path) -> None:
    claim = word(secured, devices=1)
    with enrolling(secured.fleet):
        device(claim, "pi-01", tmp_path).ask()
        device(claim, "pi-02", tmp_path).ask()
    with pytest.raises(ConfigError, match="'pi-01' is, or was, a member"):
        accept(secured, "pi-01")
    assert accept(secured, "pi-01", "pi-03") == "pi-03"
    with pytest.raises(ConfigError, match="for 1 devices, and all have come"):
        accept(secured, "pi-02")
    for reserved in ("coordinator", "../x"):
        with pytest.raises(ConfigError):
            claims.settle(secured.fleet, "pi-02", "accepted", clock(), reserved)


def test_no_more_wait_than_twice_the_number_of_the_claim(
    secured: Secured, listening: list[str], tmp_path: Path
) -> None:
    claim = word(secured, devices=1)
    for name in ("a", "b"):
        device(claim, name, tmp_path).ask()
    with pytest.raises(RemoteError, match="2 devices wait already"):
        device(claim, "c", tmp_path).ask()
    assert claims.settle(secured.fleet, "a", "rejected", clock()) == "a"
    with pytest.raises(RemoteError, match="rejected"):
        device(claim, "a", tmp_path).ask()
    assert isinstance(device(claim, "c", tmp_path).ask(), AwaitsPerson)


def test_a_claim_that_is_over_withdrawn_or_guessed_lets_nobody_wait(
    secured: Secured, listening: list[str], tmp_path: Path
) -> None:
    claim = word(secured)
    asking = device(claim, "pi-07", tmp_path)
    asking.ask()
    book = claims.read(secured.fleet)
    assert not claims.tidy(book, clock() + 2 * DAY).claims
    assert not claims.tidy(book, clock() + 2 * DAY).applicants
    claims.withdraw(secured.fleet, next(iter(book.claims))[: claims.ID], clock())
    with pytest.raises(RemoteError, match="withdrawn"):
        asking.ask()
    guessed = claim.model_copy(update={"secret": claim.secret[:-1] + "x"})
    with pytest.raises(RemoteError, match="not known"):
        device(guessed, "pi-08", tmp_path).ask()
    with pytest.raises(ConfigError, match="is over"):
        claims.issue(secured.fleet, 1, clock() - DAY, clock(), {})


@pytest.mark.parametrize(
    ("field", "value"), [("name", "pi-08"), ("serial", "other"), ("secret", "x" * 32), ("proof", "eA==")]
)
def test_what_another_key_signed_counts_for_nobody(secured: Secured, tmp_path: Path, field: str, value: str) -> None:
    asking = device(word(secured), "pi-07", tmp_path)
    about = asking.word.secret, "pi-07", "s", "h", asking.keys.request
    proof = claiming.base64.urlsafe_b64encode(asking.signer.signature(claiming.statement(*about))).decode()
    said = dict(zip(("secret", "name", "serial", "host", "request"), about, strict=True))
    said |= {"kind": "claim", "key": asking.signer.key, "proof": proof}
    claiming.attend(secured.fleet, json.dumps(said).encode(), "", clock())
    with pytest.raises(RemoteError):
        claiming.attend(secured.fleet, json.dumps({**said, field: value}).encode(), "", clock())


def test_another_server_is_not_believed(secured: Secured, listening: list[str], tmp_path: Path) -> None:
    claim = word(secured).model_copy(update={"authority": "0" * 64})
    with pytest.raises(ConfigError, match="another authority"):
        device(claim, "pi-07", tmp_path).ask()


def test_a_device_asks_more_and_more_rarely_and_says_what_it_waits_for_once(
    secured: Secured, listening: list[str], tmp_path: Path
) -> None:
    claim, pauses, told = word(secured), list[float](), list[str]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 8:
            accept(secured, "pi-07")

    kit, _ = waiting.wait(claim, "pi-07", tmp_path, told.append, sleep)
    assert kit.name == "pi-07"
    assert max(pauses) <= waiting.LONGEST
    assert pauses[0] < pauses[-1]
    (line,) = told
    assert "waits until a person accepts it: `edgefl fleet accept" in line


def test_where_nobody_listens_it_goes_on_asking(secured: Secured, tmp_path: Path) -> None:
    told = list[str]()

    class EnoughError(Exception):
        pass

    def sleep(_: float) -> None:
        raise EnoughError

    with pytest.raises(EnoughError):
        waiting.wait(word(secured), "pi-07", tmp_path, told.append, sleep)
    assert "does `edgefl fleet listen` run there?" in told[0]


def test_serial_numbers_come_from_a_file_of_two_columns(tmp_path: Path) -> None:
    path = tmp_path / "serials.csv"
    path.write_text("serial,name\n10000000aa,pi-01\n10000000bb,pi-02\n")
    assert claims.serials(path) == {"10000000aa": "pi-01", "10000000bb": "pi-02"}
    for text, why in (("a\n", "each is serial,name"), ("a,x\na,y\n", "twice"), ("a,x\nb,x\n", "twice"), ("a,é\n", "é")):
        path.write_text(text)
        with pytest.raises(ConfigError, match=why):
            claims.serials(path)
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ConfigError, match="larger than 4 MiB"):
        claims.serials(path)


def test_names_of_many_go_on_behind_the_last_one() -> None:
    assert members.numbered("pi-", 3, ["other"]) == ["pi-01", "pi-02", "pi-03"]
    assert members.numbered("pi-", 2, ["pi-01", "pi-07", "pi-x", "cam-99"]) == ["pi-08", "pi-09"]
    assert members.numbered("pi-", 340, [])[-1] == "pi-340"
    assert members.numbered("pi-", 340, [])[0] == "pi-001"
    assert members.numbered("pi-", 1, ["pi-099"]) == ["pi-100"]


def test_many_kits_are_written_into_a_folder_and_their_numbers_go_on(secured: Secured) -> None:
    for numbers in (["02", "03", "04"], ["05", "06", "07"]):
        done = secured.edgefl("fleet", "add", "--count", "3", "--prefix", "pi-", "--out", "kits", "--data", "digits")
        assert done.returncode == 0, done.stderr
        assert f"pi-{numbers[0]}.kit to pi-{numbers[-1]}.kit" in done.stdout
    kits = sorted(path.name for path in (secured.state / "kits").glob("*.kit"))
    assert kits == [f"pi-0{number}.kit" for number in range(2, 8)]
    assert len(secured.fleet.members.active()) == 7
    for wrong in (["--count", "3"], ["pi-09", "--count", "3", "--prefix", "x"], []):
        assert secured.edgefl("fleet", "add", *wrong).returncode == 2


@pytest.mark.timeout(120)
def test_the_whole_story_as_it_is_typed(secured: Secured, listening: list[str], tmp_path: Path) -> None:
    done = secured.edgefl("fleet", "claim", "--devices", "2", "--until", "7d")
    line = next(line for line in done.stdout.splitlines() if "agent enrol" in line).strip()
    claim = line.split("--claim ")[1].split()[0]
    home = str(tmp_path / "home")
    words = ["agent", "enrol", "--claim", claim, "--name", "pi-07", "--data", "digits", "--folder", home]
    log = tmp_path / "enrol.log"
    with log.open("wb") as written:
        command = [*EDGEFL, *words, "--install-only"]
        with subprocess.Popen(command, stderr=written, env=secured.environment, cwd=secured.state) as enrolling_device:
            until(lambda: "waits until a person accepts it" in log.read_text(), 60)
            assert "pi-07" in secured.edgefl("fleet", "claims").stdout
            assert secured.edgefl("fleet", "accept", "--all").returncode == 0
            assert enrolling_device.wait(60) == 0
    assert (tmp_path / "home" / "pi-07" / "agent.toml").exists()
    assert sorted(path.name for path in (tmp_path / "home").iterdir()) == ["pi-07"]
    assert listening == ["pi-07"]
    assert secured.edgefl("fleet", "accept").returncode == 2
    assert secured.edgefl("agent", "enrol", "--claim", claim).returncode == 2
