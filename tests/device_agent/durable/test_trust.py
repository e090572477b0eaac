"""A device trains for one coordinator: the one its file names, or the first it met."""

import logging
from pathlib import Path

import pytest

from device_agent.durable.trust import RequestedModel, Trust
from device_agent.shell.download import Download
from edgefl.base.errors import ConfigError, WireError
from edgefl.base.vector import Layout
from edgefl.system.disk import FolderDisk
from edgefl.wire import chunks
from edgefl.wire.messages import Manifest, Shape
from edgefl.wire.signing import Signer
from tools.failing_disk import FailingDisk

FRAME = b"a model" * 100
DIGEST = chunks.digest(FRAME)
WANTED = RequestedModel("digits", "life", 3, DIGEST.hex()[:16])
OURS, OTHER = Signer.new(), Signer.new()


def manifest(signer: Signer = OURS, **changes: object) -> bytes:
    unsigned = Manifest(
        job="digits",
        run_id="life",
        round=3,
        digest=DIGEST.hex(),
        size=len(FRAME),
        layout=Shape.of(Layout(("w",), ((2, 2),))),
        algorithm={"name": "fedavg"},
        network="softmax",
        sample=(2,),
        classes=2,
        loss="cross_entropy",
        codec="float32",
        seed=7,
    )
    return signer.sign(unsigned.model_copy(update=changes).model_dump_json().encode())


def refused(trust: Trust, payload: bytes) -> WireError:
    with pytest.raises(WireError) as error:
        trust.manifest(payload, WANTED)
    return error.value


def test_only_the_key_of_the_agent_file_is_trusted(tmp_path: Path):
    trust = Trust(FolderDisk(tmp_path), "default", OURS.key)
    assert trust.manifest(manifest(), WANTED).round == 3
    error = refused(trust, manifest(OTHER))
    assert error.code == "model.signature"
    assert str(error) == (
        f"signed by {OTHER.key}, but this device trusts {OURS.key}:"
        " if that is the coordinator's new key, set agent.coordinator to it"
    )
    assert list(tmp_path.iterdir()) == []


def test_the_first_coordinator_is_pinned_and_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    trust = Trust(FolderDisk(tmp_path), "default")
    for _ in range(3):
        trust.manifest(manifest(), WANTED)
    assert [record.getMessage().count(OURS.key) for record in caplog.records] == [1]
    error = refused(Trust(FolderDisk(tmp_path), "default"), manifest(OTHER))  # after a restart too
    assert f"delete {tmp_path / 'default.coordinator'} and restart, or set agent.coordinator" in str(error)


def test_the_remedies_it_names_help(tmp_path: Path):
    Trust(FolderDisk(tmp_path), "default").manifest(manifest(), WANTED)
    assert Trust(FolderDisk(tmp_path), "default", OTHER.key).manifest(manifest(OTHER), WANTED)
    (tmp_path / "default.coordinator").unlink()
    assert Trust(FolderDisk(tmp_path), "default").manifest(manifest(OTHER), WANTED)


def test_another_fleet_has_another_coordinator(tmp_path: Path):
    Trust(FolderDisk(tmp_path), "default").manifest(manifest(), WANTED)
    assert Trust(FolderDisk(tmp_path), "barn").manifest(manifest(OTHER), WANTED)


@pytest.mark.parametrize(
    "payload",
    [
        b"{}",
        manifest().replace(b'"seed":7', b'"seed":8'),
        manifest(OTHER).replace(OTHER.key.encode(), OURS.key.encode()),
        manifest(job="other"),
        manifest(run_id="an-earlier-one"),
        manifest(round=2),
        manifest(digest="0" * 64),
    ],
    ids=["unsigned", "changed", "under our name", "other job", "other life", "other round", "other model"],
)
def test_what_is_not_believed_is_not_pinned_either(payload: bytes, tmp_path: Path):
    trust = Trust(FolderDisk(tmp_path), "default")
    assert refused(trust, payload).code in {"model.unsigned", "model.signature", "model.foreign"}
    assert (trust.key, list(tmp_path.iterdir())) == (None, [])


def test_a_full_disk_costs_the_pin_and_not_the_round(caplog: pytest.LogCaptureFixture):
    trust = Trust(FailingDisk(capacity=0), "default")
    assert trust.manifest(manifest(), WANTED)
    assert "the coordinator's key is not pinned" in caplog.text
    assert refused(trust, manifest(OTHER)).code == "model.signature"


def test_a_damaged_pin_is_not_taken_for_no_pin(tmp_path: Path):
    (tmp_path / "default.coordinator").write_text("ed25519:hello\n")
    with pytest.raises(ConfigError, match=r"default\.coordinator does not hold the coordinator's key: delete it"):
        Trust(FolderDisk(tmp_path), "default")


def test_a_manifest_that_was_believed_stays_whatever_comes_after_it(tmp_path: Path):
    download = Download("default", WANTED, Trust(FolderDisk(tmp_path), "default", OURS.key), 1 << 20)
    download.add("manifest", manifest())
    download.add("manifest", manifest(OTHER, seed=8))
    assert (download.manifest and download.manifest.seed, download.refused) == (7, 0)


def test_a_frame_counts_only_if_it_is_the_one_that_was_signed(tmp_path: Path):
    """The id is a part of the hash: two frames may have it in common, but not the whole hash."""
    short = RequestedModel("digits", "life", 3, DIGEST.hex()[:1])
    attempt = next(f for f in (FRAME + bytes([i]) for i in range(256)) if chunks.digest(f).hex()[0] == short.id)
    download = Download("default", short, Trust(FolderDisk(tmp_path), "default", OURS.key), 1 << 20)
    download.add("0", chunks.chunk(attempt, chunks.digest(attempt), 0))
    download.add("manifest", manifest())
    assert download.frame is None
    with pytest.raises(WireError, match="chunks of another one"):
        download.add("0", chunks.chunk(attempt, chunks.digest(attempt), 0))
    download.add("0", chunks.chunk(FRAME, DIGEST, 0))
    assert download.frame == FRAME


def test_chunks_of_another_model_do_not_push_out_what_has_come(tmp_path: Path):
    large = bytes(chunks.CHUNK) + FRAME
    digest = chunks.digest(large)
    model_ref = RequestedModel("digits", "life", 3, digest.hex()[:16])
    download = Download("default", model_ref, Trust(FolderDisk(tmp_path), "default", OURS.key), 1 << 20)
    download.add("manifest", manifest(digest=digest.hex(), size=len(large)))
    download.add("0", chunks.chunk(large, digest, 0))
    evil = large[::-1]
    with pytest.raises(WireError, match="chunks of another one"):
        download.add("0", chunks.chunk(evil, chunks.digest(evil), 0))
    download.add("1", chunks.chunk(large, digest, 1))
    assert download.frame == large


def test_a_manifest_that_comes_after_the_chunks_goes_on_with_the_next_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As when the first one was forged: until it is believed, nobody knows how many groups there are."""
    monkeypatch.setattr("edgefl.wire.topics.GROUP", 1)
    large = bytes(chunks.CHUNK) + FRAME
    digest = chunks.digest(large)
    model_ref = RequestedModel("digits", "life", 3, digest.hex()[:16])
    download = Download("default", model_ref, Trust(FolderDisk(tmp_path), "default", OURS.key), 1 << 20)
    assert not download.add("0", chunks.chunk(large, digest, 0))
    assert download.add("manifest", manifest(digest=digest.hex(), size=len(large)))
    assert download.filters()[1].endswith("/1/+")
    assert not download.add("1", chunks.chunk(large, digest, 1))
    assert download.frame == large


def test_behind_a_gateway_models_are_the_coordinators_and_words_the_gateways():
    coordinator, gateway = OTHER, OURS
    trust = Trust(FailingDisk(), "default", gateway.key, coordinator.key)
    assert trust.trusts(gateway.key)
    assert not trust.trusts(coordinator.key)
    assert trust.manifest(manifest(coordinator), WANTED).round == 3
    assert refused(trust, manifest(gateway)).code == "model.signature", "it cannot make a model of its own"


def test_a_gateways_word_does_not_prove_the_model_that_comes_with_it():
    trust = Trust(FailingDisk(), "default", OURS.key, OTHER.key)
    forged = manifest(OTHER).replace(b'"seed":7', b'"seed":8')
    with pytest.raises(WireError) as error:
        trust.manifest(forged, WANTED, proven=True)
    assert error.value.code == "model.signature"
