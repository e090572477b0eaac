"""`edgefl config show`: what a file comes to, and who said so."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.cli.app import main
from edgefl.job.config.agent_file import AgentFile
from edgefl.job.config.origin import effective
from edgefl.job.config.reader import load, parse, tomllib
from edgefl.job.config.schema import RunFile
from edgefl.job.config.toml_text import key_lines, leaves, line_of, name, written
from edgefl.learn.algorithms import registry

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted([*ROOT.glob("deploy/examples/*/*.toml"), *ROOT.glob("edgefl/cli/templates/*.toml")])

RUN = """\
[run]
name = "t"
rounds = 5

[task]
data = "synthetic"
model = "softmax"
partition = { kind = "iid", devices = 4 }

[algorithm]
name = "fedgc"
lr = 0.25

[broker]
url = "mqtt://me:hush@server:1883"
"""

Show = Callable[..., tuple[int, str, str]]


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Show:
    """`edgefl config show` with these words and variables: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text(RUN)

    def run(*words: str, **environment: str) -> tuple[int, str, str]:
        for variable, value in environment.items():
            monkeypatch.setenv(variable, value)
        monkeypatch.setattr(sys, "argv", ["edgefl", "config", "show", *words])
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return int(end.value.code or 0), captured.out, captured.err

    return run


def origins(show: Show, *words: str, **environment: str) -> dict[str, dict[str, object]]:
    _, out, _ = show("run.toml", "--origin", "--json", *words, **environment)
    return {line["key"]: line for line in map(json.loads, out.splitlines())}


# ---- what is in force ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda path: f"{path.parent.name}/{path.name}")
@pytest.mark.parametrize("origin", [(), ("--origin",)], ids=["plain", "origin"])
def test_what_is_shown_is_the_same_file_again(show: Show, file: Path, origin: tuple[str, ...]) -> None:
    code, out, _ = show(str(file), *origin)
    kind = AgentFile if "[agent]" in out else RunFile
    assert code == 0
    assert effective(parse(kind, tomllib.loads(out), "shown", (), {})) == effective(load(kind, file, (), {}))


@pytest.mark.parametrize("algorithm", sorted(registry.ALGORITHMS))
def test_every_algorithm_is_shown_with_all_it_has(show: Show, algorithm: str) -> None:
    Path("a.toml").write_text(f"[algorithm]\nname = '{algorithm}'\n[rounds]\ncohort = 3\n")
    _, out, _ = show("a.toml")
    again = parse(RunFile, tomllib.loads(out), "shown", (), {})
    first = load(RunFile, Path("a.toml"), (), {})
    assert again.make_algorithm() == first.make_algorithm()
    assert again.make_stages() == first.make_stages()


def test_json_is_one_object_with_every_key(show: Show) -> None:
    _, out, _ = show("run.toml", "--json", "--set", "run.seed=4")
    table = json.loads(out)
    assert (table["run"]["seed"], table["run"]["rounds"], table["rounds"]["quorum"]) == (4, 5, 4)
    assert [stage["name"] for stage in table["aggregation"]] == ["mean", "sgc"]
    assert table["fleet"] is None


def test_an_agent_file_is_recognised_or_named(show: Show) -> None:
    Path("agent.toml").write_text("[agent]\nid = 'pi-1'\n")
    assert 'id = "pi-1"' in show("agent.toml")[1]
    Path("empty.toml").write_text("")
    assert json.loads(show("empty.toml", "--agent", "--json")[1])["data"]["source"] == "digits"


def test_privacy_is_shown_in_its_own_section(show: Show) -> None:
    Path("p.toml").write_text("[algorithm]\nname='upcycled'\n[privacy]\nmechanism='output'\n[rounds]\ncohort=2\n")
    _, out, _ = show("p.toml")
    table = tomllib.loads(out)
    assert table["privacy"]["mechanism"] == "output"
    assert table["privacy"]["clip"] == 10.0
    assert "privacy" not in table["algorithm"]


def test_a_wrong_file_is_told_as_everywhere(show: Show) -> None:
    code, out, err = show("run.toml", "--set", "run.ronds=3")
    assert (code, out) == (2, "")
    assert err == "edgefl: run.toml: unknown key 'run.ronds'; did you mean 'rounds'?\n"


# ---- who said so ---------------------------------------------------------------------------------------------------


def test_a_flag_goes_over_the_environment_which_goes_over_the_file(show: Show) -> None:
    rounds = origins(show, "--set", "run.rounds=9", "--set", "run.rounds=8", EDGEFL_RUN__ROUNDS="7")["run.rounds"]
    assert (rounds["value"], rounds["origin"]) == (8, "--set")
    assert rounds["over"] == [
        {"origin": "--set", "value": 9},
        {"origin": "EDGEFL_RUN__ROUNDS", "value": 7},
        {"origin": "run.toml:3", "value": 5},
    ]


def test_each_source_is_named_where_it_is_the_strongest(show: Show) -> None:
    keys = origins(show, "--set", "task.partition.devices=6", EDGEFL_ALGORITHM__LR="0.5")
    assert keys["run.name"]["origin"] == "run.toml:2"
    assert keys["run.seed"]["origin"] == "default"
    assert keys["algorithm.lr"]["origin"] == "EDGEFL_ALGORITHM__LR"
    assert keys["task.partition.devices"]["origin"] == "--set"
    assert keys["task.partition.kind"]["origin"] == "run.toml:8"
    assert keys["aggregation[1].name"] == {
        "key": "aggregation[1].name",
        "value": "sgc",
        "origin": "algorithm 'fedgc'",
        "over": [],
    }
    assert keys["rounds.cohort"] == {
        "key": "rounds.cohort",
        "value": 6,
        "origin": "default: all of task.partition",
        "over": [],
    }


def test_sources_that_agree_do_not_go_over_each_other(show: Show) -> None:
    assert origins(show, EDGEFL_RUN__ROUNDS="5")["run.rounds"]["over"] == []


def test_a_table_that_is_replaced_takes_all_its_keys_with_it(show: Show) -> None:
    Path("run.toml").write_text(RUN.replace('kind = "iid"', 'kind = "dirichlet", omega = 0.3'))
    keys = origins(show, EDGEFL_TASK__PARTITION="{ kind = 'iid', devices = 4 }")
    assert keys["task.partition.omega"]["value"] is None
    assert keys["task.partition.omega"]["over"] == [{"origin": "run.toml:8", "value": 0.3}]
    assert keys["task.partition.kind"]["origin"] == "EDGEFL_TASK__PARTITION"


def test_a_person_reads_it_as_comments(show: Show) -> None:
    _, out, _ = show("run.toml", "--origin", EDGEFL_RUN__ROUNDS="7")
    lines = out.splitlines()
    at = lines.index("rounds = 7                              # EDGEFL_RUN__ROUNDS")
    assert lines[at + 1].strip() == "#   instead of 5 (run.toml:3)"
    assert max(len(line) for line in lines) <= 80


def test_no_password_is_shown_wherever_it_was_written(show: Show) -> None:
    result = show(
        "run.toml", "--origin", EDGEFL_BROKER__URL="mqtt://me:psst@server:1883", EDGEFL_MQTT_PASSWORD="sesame"
    )
    assert not [word for word in ("hush", "psst", "sesame") if word in "".join(map(str, result))]
    assert "EDGEFL_MQTT_PASSWORD is set" in result[2]
    assert "mqtt://me@server:1883" in result[1]


def test_a_variable_that_reaches_no_file_is_told(show: Show) -> None:
    _, _, err = show("run.toml", EDGEFL_ROUND__COHORT="3", EDGEFL_DATA="/data", EDGEFL_AGENT__ID="pi")
    assert err == "edgefl: EDGEFL_ROUND__COHORT has no effect: no file has a section 'round'; did you mean 'rounds'?\n"


# ---- TOML as text --------------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    # a lone surrogate cannot stand in a file at all
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab -.é\"'", max_size=4), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(VALUES)
def test_what_is_written_is_read_again(value: object) -> None:
    assert tomllib.loads(f"v = {written(value)}") == {"v": value}


LINES = '''\
a = 1
[b]
c.d = 2
e = """
[not a table]
f = 3
"""
"g h" = 4
[[s]]
x = 5
[[s]]
x = 6
y = { z = 7 }
[s.t]
u = 8
'''


def test_each_key_is_found_on_its_line() -> None:
    lines = key_lines(LINES)
    numbers = {".".join(map(str, way)): line_of(way, lines) for way in leaves(tomllib.loads(LINES))}
    assert numbers == {"a": 1, "b.c.d": 3, "b.e": 4, "b.g h": 8, "s.0.x": 10, "s.1.x": 12, "s.1.y.z": 13, "s.1.t.u": 15}


def test_a_key_that_is_nowhere_has_no_line() -> None:
    assert line_of(("q", "r"), key_lines(LINES)) is None


def test_a_name_that_is_more_than_a_word_is_quoted() -> None:
    assert [name("pi4"), name("jetson nano")] == ["pi4", '"jetson nano"']
