"""A file says when devices of an emulated fleet are there; a wrong line is told with file and number."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.base.errors import ConfigError, RunError
from edgefl.base.events import Answered, Asked, Done, Fact, Joined, Lost
from edgefl.job.config.reader import parse
from edgefl.job.config.schema import RunFile
from edgefl.job.run import fingerprint
from edgefl.job.run import job as jobs
from edgefl.sim import availability_trace
from edgefl.sim.availability_trace import read, until
from edgefl.sim.drivers import play
from edgefl.sim.emulator import emulate
from edgefl.sim.rehearsal import rehearse

DEVICES = jobs.device_names(4)


def trace(folder: Path, *lines: str, heading: str = "device,from,to") -> Path:
    path = folder / "nights.csv"
    path.write_text("\n".join([heading, *lines, ""]), encoding="utf-8")
    return path


# ── the file ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_each_device_is_there_in_its_spans(tmp_path: Path):
    path = trace(tmp_path, "device-01,50,60.5", "device-00,0,10", " device-01 , 5 , 20 ", "", "device-00,30,40")
    assert read(path, DEVICES) == {
        "device-00": ((0.0, 10.0), (30.0, 40.0)),
        "device-01": ((5.0, 20.0), (50.0, 60.5)),
        "device-02": (),
        "device-03": (),
    }


def test_spans_that_touch_are_one(tmp_path: Path):
    spans = read(trace(tmp_path, "device-00,10,20", "device-00,0,10", "device-00,20,30", "device-00,31,32"), DEVICES)
    assert spans["device-00"] == ((0.0, 30.0), (31.0, 32.0))


def test_columns_may_stand_in_any_order_and_others_beside_them(tmp_path: Path):
    path = trace(tmp_path, "rain,10,device-02,0", heading="weather, TO ,Device,from")
    assert read(path, DEVICES)["device-02"] == ((0.0, 10.0),)


def test_dates_count_from_the_first_in_the_file(tmp_path: Path):
    path = trace(
        tmp_path,
        "device-00,2026-11-17T22:00:10Z,2026-11-17T23:00:00Z",
        "device-01,2026-11-18T00:00:00+02:00,2026-11-17 22:01",
    )
    assert read(path, DEVICES)["device-00"] == ((10.0, 3600.0),)
    assert read(path, DEVICES)["device-01"] == ((0.0, 60.0),)


def test_a_file_of_a_spreadsheet_is_read(tmp_path: Path):
    path = tmp_path / "nights.csv"
    path.write_bytes(b'\xef\xbb\xbf"device","from","to"\r\n"device-00","1","2"\r\n')
    assert read(path, DEVICES)["device-00"] == ((1.0, 2.0),)


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (["device-00,0,10", "device-00,5,20"], "line 3: 'device-00' is there already, as line 2 says: join the two"),
        (["device-00,5,20", "device-00,0,10"], "line 2: 'device-00' is there already, as line 3 says: join the two"),
        (["device-00,0,10", "device-00,0,10"], "line 3: 'device-00' is there already, as line 2 says"),
        (["device-00,0,10", "device-0,5,20"], "line 3: the run has no device 'device-0'; did you mean 'device-0"),
        (["device-00,0,10", "pi-01,5,20"], "line 3: the run has no device 'pi-01'; known: device-00, device-01,"),
        (["device-00,10,10"], "line 2: to = 10 is not later than from = 10"),
        (["device-00,10,9"], "line 2: to = 9 is not later than from = 10"),
        (["device-00,-1,9"], "line 2: from = -1: give seconds since the run began, from 0 on"),
        (["device-00,0,inf"], "line 2: to = inf: give seconds since the run began"),
        (["device-00,nan,5"], "line 2: from = nan: give seconds since the run began"),
        (["device-00,,5"], "line 2: from = '': give seconds, or a date with a time as 2026-11-17T22:00:00Z"),
        (["device-00,noon,5"], "line 2: from = 'noon': give seconds, or a date"),
        (["device-00,0"], "line 2: 2 cells, of which one has to be 'to'"),
        (["device-00,0,1", "", "device-01"], "line 4: 1 cells, of which one has to be 'to'"),
        (["device-00,0,2026-11-17T22:00:00Z"], "line 2: one time is a date and the other a number of seconds"),
        (
            ["device-00,0,5", "device-01,2026-11-17T22:00:00Z,2026-11-17T23:00:00Z"],
            "line 3: times are dates here and seconds in line 2: write one kind",
        ),
        (
            ["device-01,2026-11-17T22:00:00Z,2026-11-17T23:00:00Z", "device-00,0,5"],
            "line 3: times are seconds here and dates in line 2: write one kind",
        ),
        (['device-00,0,"5', ""], "line 2: not csv"),
        (["device-00,0,5", "device-01,0," + "," * 10_000], "line 3: longer than 10000 characters"),
        (["device-00,0,5", "device-01,0," + "," * 9_984 + "5,"], "line 3: to = '': give seconds, or a date"),
    ],
)
def test_a_wrong_line_is_told_with_file_and_number(tmp_path: Path, lines: list[str], complaint: str):
    path = trace(tmp_path, *lines)
    with pytest.raises(ConfigError) as error:
        read(path, DEVICES)
    assert str(error.value).startswith(f"{path}, {complaint}")


@pytest.mark.parametrize(
    ("heading", "complaint"),
    [
        ("name,from,to", "line 1: no column 'device': the heading is device,from,to, in any order"),
        ("device,from,until", "line 1: no column 'to'"),
        ("device,from,to,from", "line 1: two columns 'from'"),
        ("", "line 1: no column 'device'"),
    ],
)
def test_a_wrong_heading_is_told(tmp_path: Path, heading: str, complaint: str):
    path = trace(tmp_path, "device-00,0,10", heading=heading)
    with pytest.raises(ConfigError) as error:
        read(path, DEVICES)
    assert str(error.value).startswith(f"{path}, {complaint}")


def test_a_file_that_is_none_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ConfigError, match=r"nights\.csv: cannot be read \(No such file or directory\)"):
        read(tmp_path / "nights.csv", DEVICES)
    with pytest.raises(ConfigError, match=r"nights\.csv: no line below the heading"):
        read(trace(tmp_path), DEVICES)
    (tmp_path / "nights.csv").write_bytes(b"device,from,to\ndevice-00,0,\xff\n")
    with pytest.raises(ConfigError, match=r"nights\.csv: not a text in UTF-8"):
        read(tmp_path / "nights.csv", DEVICES)
    monkeypatch.setattr(availability_trace, "LARGEST", 3)
    with pytest.raises(ConfigError, match=r"nights\.csv: larger than 0 MiB"):
        read(tmp_path / "nights.csv", DEVICES)


def test_of_a_large_fleet_not_every_name_is_listed(tmp_path: Path):
    many = jobs.device_names(1000)
    with pytest.raises(
        ConfigError, match=r"line 2: the run has no device 'pi-01'; they are called as 'device-000' is$"
    ):
        read(trace(tmp_path, "pi-01,0,10"), many)


@pytest.mark.parametrize("line", [b"," * 30_000_000, b"\0" * 30_000_000, b'"' * 30_000_000])
def test_a_trace_may_be_a_bomb(tmp_path: Path, line: bytes):
    """A line of thirty million cells, of nothing, or of quotes, is refused by its length."""
    path = tmp_path / "nights.csv"
    path.write_bytes(b"device,from,to\n" + line)
    with pytest.raises(ConfigError, match=r"nights\.csv, line 2: longer than 10000 characters"):
        read(path, DEVICES)


edges = st.lists(st.integers(0, 100), unique=True, min_size=2, max_size=8).map(sorted)


@given(edges, st.randoms(use_true_random=False))
def test_the_order_of_lines_does_not_matter(tmp_path_factory: pytest.TempPathFactory, times: list[int], draw: Any):
    spans = list(zip(times[::2], times[1::2], strict=False))
    lines = [f"device-00,{begin},{end}" for begin, end in spans]
    draw.shuffle(lines)
    path = trace(tmp_path_factory.mktemp("trace"), *lines)
    assert read(path, DEVICES)["device-00"] == tuple((float(begin), float(end)) for begin, end in spans)


def test_a_device_comes_back_with_its_next_span_or_never():
    spans = ((0.0, 10.0), (20.0, 30.0))
    assert [until(spans, moment) for moment in (-1.0, 0.0, 10.0, 19.9, 20.0, 30.0)] == [
        0,
        20,
        20,
        20,
        *[float("inf")] * 2,
    ]


# ── the fleet ────────────────────────────────────────────────────────────────────────────────────────────────


def run_file(path: Path, **more: Any) -> RunFile:
    """Four devices that take 5 s for a round."""
    table: dict[str, Any] = {
        "run": {"name": "nights", "rounds": 4, "seed": 5},
        "task": {
            "data": "synthetic",
            "model": "softmax",
            "backend": "torch",
            "public": 0.1,
            "partition": {"kind": "iid", "devices": 4},
        },
        "algorithm": {"name": "fedavg", "batch": 16, "batches": 5},
        "rounds": {"cohort": 4, "quorum": 1, "deadline": 20.0},
        "fleet": {
            "trace": str(path),
            "profiles": {"slow": 4},
            "custom": {"slow": {"jitter": 0.0, "latency": 0.01}},
            "ms_per_step": 1000.0,
        },
    }
    for section, keys in more.items():
        table[section] = {**table.get(section, {}), **keys}
    return parse(RunFile, table, "test", environment={})


def emulated(run: RunFile) -> list[Fact]:
    told: list[Fact] = []
    job, held = jobs.prepare(run)
    emulate(job, dict(zip(jobs.device_names(len(held.devices)), held.devices, strict=True)), told.append)
    return told


def test_devices_are_asked_while_they_are_there(tmp_path: Path):
    path = trace(tmp_path, "device-00,0,9", "device-01,0,1000", "device-02,8,1000")
    told = emulated(run_file(path))
    asked = {fact.round: set(fact.devices) for fact in told if isinstance(fact, Asked)}
    assert asked[1] == {"device-00", "device-01"}
    assert asked[4] == {"device-01", "device-02"}
    joined = {fact.device: fact.at for fact in told if isinstance(fact, Joined)}
    assert joined["device-00"] == pytest.approx(0.03, abs=0.01), "after three latencies"
    assert joined["device-02"] == pytest.approx(8.03, abs=0.01)
    assert "device-03" not in joined
    lost = {fact.device: fact.at for fact in told if isinstance(fact, Lost)}
    assert lost["device-00"] == pytest.approx(9.0, abs=0.1)
    assert isinstance(told[-1], Done)


def test_a_device_that_comes_back_sends_what_it_has(tmp_path: Path):
    path = trace(tmp_path, "device-00,0,3", "device-00,10,1000", "device-01,0,1000")
    told = emulated(run_file(path, rounds={"quorum": 2}))
    first = next(fact for fact in told if isinstance(fact, Answered) and fact.device == "device-00")
    assert first.round == 1
    assert first.at >= 10.0


def test_the_same_trace_gives_the_same_story(tmp_path: Path):
    path = trace(tmp_path, "device-00,0,9", "device-01,0,30", "device-02,8,25", "device-03,3,1000")
    assert emulated_times(run_file(path)) == emulated_times(run_file(path))


def emulated_times(run: RunFile) -> list[tuple[str, float]]:
    return [(type(fact).__name__, fact.at) for fact in emulated(run) if not isinstance(fact, Done)]


def test_a_run_that_outlasts_its_trace_says_so(tmp_path: Path):
    path = trace(tmp_path, "device-00,0,12", "device-01,0,12")
    with pytest.raises(RunError, match=r"fleet\.trace ends at 12 s: give it more lines, or the run fewer rounds"):
        emulated(run_file(path))


def test_the_run_waits_for_a_night_that_is_longer_than_its_patience(tmp_path: Path):
    """A hundred deadlines without a merge end a run, unless the trace goes on: 20 s of deadline, 6,000 s of night."""
    path = trace(tmp_path, "device-00,0,12", "device-00,6000,6100")
    assert isinstance(emulated(run_file(path))[-1], Done)


def test_a_trace_and_labels_go_together(tmp_path: Path):
    path = trace(tmp_path, *(f"{name},0,1000" for name in DEVICES))
    labels = {name: {"site": "north"} for name in DEVICES[:2]}
    told = emulated(run_file(path, rounds={"where": "site == 'north'", "cohort": 2}, fleet={"labels": labels}))
    assert {name for fact in told if isinstance(fact, Asked) for name in fact.devices} == set(DEVICES[:2])


def test_it_is_found_beside_the_run_file_and_is_wrong_before_anything_is_played(tmp_path: Path):
    path = trace(tmp_path, "device-00,0,x")
    run = run_file(path)
    for start in (lambda: play(run, None, lambda _: None), lambda: rehearse(run)):
        with pytest.raises(ConfigError, match=r"nights\.csv, line 2: to = 'x'"):
            start()


@pytest.mark.parametrize(
    "fleet",
    [{"availability": {"on": 1, "off": 1}}, {"custom": {"slow": {"availability": {"on": 1, "off": 1}}}}],
)
def test_only_one_thing_says_when_devices_are_there(tmp_path: Path, fleet: dict[str, Any]):
    with pytest.raises(ConfigError, match=r"fleet\.trace says when devices are there, and so does"):
        run_file(trace(tmp_path, "device-00,0,1"), fleet=fleet)


def test_another_trace_is_another_run(tmp_path: Path):
    run = run_file(trace(tmp_path, "device-00,0,1"))
    before = fingerprint.words(run)["fleet.trace"]
    assert fingerprint.words(run)["fleet.trace"] == before
    trace(tmp_path, "device-00,0,2")
    assert fingerprint.words(run)["fleet.trace"] != before
