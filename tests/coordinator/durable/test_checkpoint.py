"""Checkpoints: three generations, trusted only by their hash; rounds behind a damaged one are merged again."""

import os
import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file as numpy_load_file
from safetensors.torch import load_file
from torch import nn

from coordinator.decide.rounds import DeviceAnswered, DeviceJoined, RoundMerged, Rounds, Rules, step
from coordinator.durable import checkpoint, recovery, segments
from coordinator.durable.checkpoint import Checkpoint
from coordinator.durable.journal import AnswerFrame, Journal
from coordinator.shell.exporting import export_checkpoint
from edgefl.base.errors import ConfigError, StoreError
from edgefl.base.events import Round
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import job as jobs
from edgefl.job.run.job import Job, RunState
from edgefl.learn.models.build import build_module
from edgefl.system import store, user_code
from edgefl.system.disk import FolderDisk
from edgefl.wire import chunks, tensors
from edgefl.wire.codecs import Float32
from edgefl.wire.messages import Answer, frame

DAMAGED = 1000 if os.environ.get("EDGEFL_CHAOS") == "1" else 200
DEVICES = ("a", "b")


def job_of(model: str = "softmax", **rounds: object) -> Job:
    user_code.allow(model)
    table = {
        "run": {"name": "checkpoints", "rounds": 9, "seed": 3},
        "task": {"data": "synthetic", "model": model, "partition": {"kind": "iid", "devices": 2}},
        "algorithm": {"name": "scaffold", "batch": 64},
        "rounds": {"cohort": 2, "quorum": 2, **rounds},
    }
    return jobs.prepare(parse(RunFile, table, "test", environment={}))[0]


@pytest.fixture(scope="module")
def job() -> Job:
    return job_of()


def course_of(job: Job, round: int) -> RunState:
    rng = np.random.default_rng(round)
    params = np.abs(rng.normal(size=job.start.shape)).astype(np.float32)  # a variance is never negative
    return RunState(round, params, job.start, {"scaffold": {"c": params * 2}}, best=0.5)


def save(folder: Path, job: Job, *rounds: int) -> list[Path]:
    disk = FolderDisk(folder)
    return [folder / checkpoint.save(disk, job, Checkpoint(course_of(job, r), (Round(r),), r, 2 * r)) for r in rounds]


def state_of(path: Path) -> Path:
    return path.with_name(checkpoint.state_of(path.name))


def test_what_is_saved_comes_back(tmp_path, job):
    save(tmp_path, job, 4)
    saved = checkpoint.latest(FolderDisk(tmp_path), job)
    assert saved is not None
    assert saved.run_state.sha256() == course_of(job, 4).sha256()
    assert (saved.run_state.round, saved.reports, saved.bytes_up, saved.bytes_down) == (4, (Round(4),), 4, 8)
    assert np.array_equal(saved.run_state.states["scaffold"]["c"], course_of(job, 4).states["scaffold"]["c"])
    assert np.array_equal(saved.run_state.previous, job.start)


def test_three_generations_are_kept(tmp_path, job):
    save(tmp_path, job, 1, 2, 3, 4, 5)
    assert checkpoint.generations(FolderDisk(tmp_path)) == [f"checkpoint-00000{n}.safetensors" for n in (3, 4, 5)]


@pytest.mark.parametrize("which", ["model", "state"])
def test_no_damaged_checkpoint_is_loaded_silently(tmp_path, job, caplog, which):
    seed = 17
    rng = random.Random(seed)
    _, path = save(tmp_path, job, 1, 2)
    path = path if which == "model" else state_of(path)
    good = path.read_bytes()
    for number in range(DAMAGED):
        bad = bytearray(good)
        if rng.random() < 0.5:
            for _ in range(rng.randint(1, 4)):
                bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        else:
            del bad[rng.randrange(len(bad)) :]
        if bytes(bad) == good:
            continue  # a bit that was flipped back
        path.write_bytes(bad)
        caplog.clear()
        saved = checkpoint.latest(FolderDisk(tmp_path), job)
        assert saved is not None, f"seed {seed}, number {number}"
        assert saved.run_state.round == 1, f"seed {seed}, number {number}: loaded silently"
        assert "passed over" in caplog.text


def test_with_none_that_can_be_trusted_there_is_none(tmp_path, job):
    for path in save(tmp_path, job, 1, 2, 3):
        path.write_bytes(path.read_bytes()[:-1])
    assert checkpoint.latest(FolderDisk(tmp_path), job) is None


def test_a_checkpoint_of_another_model_is_the_operators_mistake(tmp_path, job):
    save(tmp_path, job, 1)
    with pytest.raises(ConfigError, match=r"another model than task\.model = 'mlp'") as refused:
        checkpoint.latest(FolderDisk(tmp_path), job_of("mlp"))
    there, here = re.findall(r"\b[0-9a-f]{12}\b", str(refused.value))
    assert there != here
    assert refused.value.exit_code == 2


def test_a_model_with_the_state_of_another_generation_is_passed_over(tmp_path, job, caplog):
    one, two = (state_of(path) for path in save(tmp_path, job, 1, 2))
    two.write_bytes(one.read_bytes())
    saved = checkpoint.latest(FolderDisk(tmp_path), job)
    assert saved is not None
    assert saved.run_state.round == 1
    assert "is not the state that checkpoint-000002.safetensors was written with" in caplog.text


def test_a_round_whose_state_alone_was_written_is_not_there(tmp_path, job):
    _, two = save(tmp_path, job, 1, 2)
    two.unlink()  # as if the power had failed between the two
    saved = checkpoint.latest(FolderDisk(tmp_path), job)
    assert saved is not None
    assert saved.run_state.round == 1
    save(tmp_path, job, 2, 3)
    assert checkpoint.latest(FolderDisk(tmp_path), job).run_state.round == 3


def test_the_states_of_old_generations_go_with_them(tmp_path, job):
    save(tmp_path, job, 1, 2, 3, 4, 5)
    assert sorted(path.name for path in tmp_path.glob("state-*")) == [f"state-00000{n}.safetensors" for n in (3, 4, 5)]


# ---- for others to open ----------------------------------------------------------------------------------------------


def odd_network(shape: tuple[int, ...], classes: int) -> nn.Module:
    """BatchNorm, a frozen layer, two tied ones, a counter, and a buffer that no state_dict has."""
    width = int(np.prod(shape))
    net = nn.Sequential(nn.Flatten(), nn.Linear(width, 6), nn.BatchNorm1d(6), nn.Linear(6, 6), nn.Linear(6, 6))
    net.append(nn.Linear(6, classes))
    net[3].weight.requires_grad_(False)
    net[4].bias = net[1].bias
    net.register_buffer("scale", torch.ones(1), persistent=False)
    return net


@pytest.mark.parametrize("model", ["softmax", "test_checkpoint:odd_network"])
def test_plain_safetensors_opens_a_checkpoint_and_the_torch_module_takes_it(tmp_path, model):
    job = job_of(model)
    run_state = course_of(job, 3)
    (path,) = save(tmp_path, job, 3)
    module = build_module(model, job.sample, job.classes, seed=12345)
    assert module.load_state_dict(load_file(path), strict=True)
    x = np.random.default_rng(0).normal(size=(5, *job.sample)).astype(np.float32)
    made = build_module(model, job.sample, job.classes, seed=job.run.run.seed)
    frozen = {name: p for name, p in made.named_parameters() if not p.requires_grad}
    held = dict(module.named_parameters())
    assert all(torch.equal(p, held[name]) for name, p in frozen.items())
    with torch.no_grad():
        outputs = module.eval()(torch.tensor(x)).numpy()
    np.testing.assert_allclose(outputs, job.model.logits(run_state.params, x), rtol=1e-5, atol=1e-5)  # two back-ends
    assert set(numpy_load_file(path)) == set(module.state_dict())
    saved = checkpoint.latest(FolderDisk(tmp_path), job)
    assert saved is not None
    assert saved.run_state.sha256() == run_state.sha256()


def test_a_frozen_tensor_that_is_another_one_now_is_the_operators_business(tmp_path):
    job = job_of("test_checkpoint:odd_network")
    (path,) = save(tmp_path, job, 3)
    arrays, about = store.load(path)
    store.save(path, {**arrays, "3.weight": arrays["3.weight"] + 1}, about)
    with pytest.raises(ConfigError, match=r"what is frozen in '3\.weight' is not what task\.model"):
        checkpoint.latest(FolderDisk(tmp_path), job)
    with pytest.raises(ConfigError, match=r"what is frozen in '3\.weight' is not what task\.model"):
        export_checkpoint(tmp_path, tmp_path / "model.onnx")


def test_what_the_coordinator_has_computed_meanwhile_does_not_show_in_a_checkpoint(tmp_path):
    job = job_of("test_checkpoint:odd_network")
    (path,) = save(tmp_path, job, 3)
    before = path.read_bytes()
    job.model.vjp(job.start, np.zeros((4, *job.sample), np.float32))
    save(tmp_path, job, 3)
    assert path.read_bytes() == before
    assert checkpoint.latest(FolderDisk(tmp_path), job_of("test_checkpoint:odd_network")) is not None


def test_a_model_with_frozen_and_tied_tensors_is_exported_from_its_checkpoint(tmp_path):
    save(tmp_path, job_of("test_checkpoint:odd_network"), 3)
    exported = export_checkpoint(tmp_path, tmp_path / "model.onnx")
    assert exported.parity < 1e-5


# ---- behind a damaged checkpoint -----------------------------------------------------------------------------------


def answer(job: Job, device: str, round: int) -> AnswerFrame:
    rng = np.random.default_rng([round, ord(device)])
    arrays = {name: rng.normal(size=job.start.shape).astype(np.float32) for name in ("delta", "extra/dc")}
    described, parts, _ = tensors.encode(arrays, Float32())
    header = Answer(
        job="checkpoints", run_id="r", round=round, device=device, model="m", weight=1, steps=1, tensors=described
    )
    data = frame(header, parts)
    return AnswerFrame(round, device, chunks.digest(data), data)


def played(job: Job, folder: Path, rounds: int, *, late: str = "drop") -> tuple[Journal, Rounds, list[RunState]]:
    """A run of so many rounds, its journal and its state after each."""
    book = Journal(FolderDisk(folder))
    s = Rounds(Rules(rounds=9, seed=1, cohort=2, quorum=2, deadline=5.0, late=late))
    for name in DEVICES:
        s, _ = step(s, DeviceJoined(name, 0))
    run_states = [jobs.begin(job)]
    for round in range(1, rounds + 1):
        for name in DEVICES:
            after, _ = step(s, DeviceAnswered(name, round, 0))
            closing = after.phase == "merging"
            book.write((DeviceAnswered(name, round, 0),), after, answer(job, name, round), 2 if closing else None)
            s = after
        recalled, answers = recovery.promised(book, job, s)
        updates = {name: answers.take(kept.digest) for name, kept in recalled.answers.items()}
        assert (set(updates), recalled.population) == (set(DEVICES), 2)
        run_states.append(jobs.advance(job, run_states[-1], updates, population=2))
        s, _ = step(s, RoundMerged(round, 0))
        book.write((RoundMerged(round, 0),), s)
    return book, s, run_states


@pytest.mark.parametrize("behind", [0, 1, 2])
def test_rounds_behind_a_damaged_checkpoint_are_merged_again_to_the_same_model(tmp_path, job, behind):
    book, s, run_states = played(job, tmp_path, 5)
    again = (run_states[5 - behind], *recovery.catch_up(book, job, run_states[5 - behind], s))[-1]
    book.close()
    assert (again.round, again.sha256()) == (5, run_states[5].sha256())
    assert np.array_equal(again.states["variates"]["c"], run_states[5].states["variates"]["c"])


def test_an_answer_that_rotted_in_the_journal_is_not_merged(tmp_path, job):
    book, s, run_states = played(job, tmp_path, 3)
    data = bytearray(book.disk.read("journal-000001.log"))
    kept = book.answers(merged=2)[0]
    data[bytes(data).index(bytes(kept.frame)) + len(kept.frame) - 1] ^= 1
    book.disk.write("journal-000001.log", data)
    with pytest.raises(StoreError, match=r"the answer of device '.' to round 2 is damaged; restore .*--fresh"):
        recovery.catch_up(Journal(book.disk, reading=True), job, run_states[0], s)


def test_a_run_whose_answers_are_no_longer_there_says_so(tmp_path, job, monkeypatch):
    monkeypatch.setattr(segments, "ROUNDS", 1)
    book, s, run_states = played(job, tmp_path, 5)
    with pytest.raises(StoreError, match=r"no checkpoint after round 0 can be read.*--fresh"):
        recovery.catch_up(book, job, run_states[0], s)
    book.close()


def test_late_answers_that_were_accepted_are_promised_to_the_next_merge(tmp_path):
    job = job_of(late="discount")
    book, s, _ = played(job, tmp_path, 2, late="discount")
    book.write((DeviceAnswered("c", 1, 0),), s, answer(job, "c", 1))
    recalled, answers = recovery.promised(book, job, s)
    book.close()
    assert recalled.answers == {}
    assert (list(recalled.late), recalled.late["c"].round) == (["c"], 1)
    assert list(answers.records) == [recalled.late["c"].digest]
