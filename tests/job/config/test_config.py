"""Run files and agent files: what an operator can get wrong, and the one line that tells."""

from pathlib import Path

import pytest

from edgefl.base.errors import ConfigError
from edgefl.job.config.agent_file import AgentFile
from edgefl.job.config.reader import load, parse, read_toml
from edgefl.job.config.schema import RunFile, Wire
from edgefl.wire.codec_int8 import Int8
from edgefl.wire.codec_topk import TopK

RUN = """
[run]
name = "digits"
rounds = 5
[task]
partition = { kind = "iid", devices = 4 }
[algorithm]
name = "fedavg"
lr = 0.1
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(RUN)
    return path


def read(path, *sets, **environment):
    return load(RunFile, path, sets, environment)


def complaint(path, *sets, **environment):
    """What the operator reads: one line that begins with the file."""
    with pytest.raises(ConfigError) as caught:
        read(path, *sets, **environment)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(f"{path}: ")
    return line.removeprefix(f"{path}: ")


# ---- what is right -------------------------------------------------------------------------------------------------


def test_a_file_says_what_differs_from_the_defaults(file):
    run = read(file)
    assert (run.run.name, run.run.rounds, run.run.seed) == ("digits", 5, 0)
    assert run.make_algorithm().lr == 0.1
    assert [stage.name for stage in run.make_stages()] == ["mean"]


def test_without_more_the_whole_fleet_is_asked_and_four_fifths_are_enough(file):
    run = read(file)
    assert (run.cohort, run.quorum, run.start_with) == (4, 4, 4)
    run = read(file, "task.partition.devices=10")
    assert (run.cohort, run.quorum, run.start_with) == (10, 8, 10)


def test_without_a_partition_a_run_starts_with_whoever_comes():
    run = parse(RunFile, {"rounds": {"cohort": 6}}, "run.toml", (), {})
    assert (run.cohort, run.quorum, run.start_with) == (6, 5, None)


def test_stages_of_the_file_replace_those_of_the_algorithm(file):
    file.write_text(RUN + '[[aggregation]]\nname = "mean"\n[[aggregation]]\nname = "scale"\nfactor = 0.5\n')
    assert [stage.name for stage in read(file).make_stages()] == ["mean", "scale"]


def test_a_run_read_from_its_own_json_is_the_same_run(file):
    run = read(file)
    assert RunFile.model_validate_json(run.model_dump_json()) == run


# ---- who wins ------------------------------------------------------------------------------------------------------


def test_the_environment_wins_over_the_file(file):
    assert read(file, EDGEFL_ALGORITHM__LR="0.2").make_algorithm().lr == 0.2


def test_a_flag_wins_over_the_environment(file):
    assert read(file, "algorithm.lr=0.3", EDGEFL_ALGORITHM__LR="0.2").make_algorithm().lr == 0.3


def test_the_last_flag_wins(file):
    assert read(file, "run.rounds=7", "run.rounds=8").run.rounds == 8


def test_flags_reach_tables_in_tables_and_make_those_that_are_missing(file):
    run = read(file, "task.partition.devices=7", "wire.codec=float16", 'run.folder = "here"')
    assert (run.cohort, run.wire.codec, run.run.folder) == (7, "float16", Path("here"))


def test_flags_choose_a_codec_for_each_direction(file):
    run = read(file, "wire.up.codec=topk", "wire.up.share=0.1", "wire.down.codec=int8")
    assert (run.wire.up_codec(), run.wire.down_codec()) == (TopK(share=0.1), Int8())


def test_a_codec_without_a_direction_is_for_both(file):
    both, other = read(file, "wire.codec=int8"), read(file, "wire.codec=float16", "wire.up.codec=int8")
    assert (both.wire.up_codec(), both.wire.down_codec()) == (Int8(), Int8())
    assert (other.wire.up_codec().name, other.wire.down_codec().name) == ("int8", "float16")


def test_flags_speak_toml_and_a_bare_word_is_a_word(file):
    run = read(file, "task.data=synthetic", "task.sample=[8, 8]", "wire.compress=true", "run.target_accuracy=0.5")
    assert (run.task.data, run.task.sample) == ("synthetic", (8, 8))
    assert (run.wire.compress, run.run.target_accuracy) == (True, 0.5)


def test_other_variables_of_the_environment_are_not_ours(file):
    assert read(file, EDGEFL_DATA="/data", EDGEFL_AGENT__ID="pi-1", ROUNDS__COHORT="1", PATH="x") == read(file)


def test_overriding_leaves_the_table_of_the_caller_alone():
    table = {"rounds": {"cohort": 2}}
    parse(RunFile, table, "run.toml", ["rounds.cohort=3", "run.seed=4"], {})
    assert table == {"rounds": {"cohort": 2}}


# ---- what is wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("rounds.cohrot=3", "unknown key 'rounds.cohrot'; did you mean 'cohort'?"),
        ("round.cohort=3", "unknown key 'round'; did you mean 'rounds'?"),
        ("task.partition.device=3", "unknown key 'task.partition.device'; did you mean 'devices'?"),
        ("algorithm.hurry=1", "algorithm 'fedavg': unknown key 'hurry'; known: augment, batch, batches, epochs, lr,"),
        ("algorithm.lerning_rate=1", "algorithm 'fedavg': unknown key 'lerning_rate'; did you mean 'lr'?"),
        ("rounds.clients_per_round=3", "unknown key 'rounds.clients_per_round'; did you mean 'cohort'?"),
        ("algorithm.batchs=1", "algorithm 'fedavg': unknown key 'batchs'; did you mean 'batches'?"),
        (
            "algorithm.name=fedbuff",
            "algorithm.name = 'fedbuff' is not in the registry; FedBuff is rounds.mode = 'buffered' with any of them",
        ),
        ("algorithm.name=fedvag", "algorithm.name = 'fedvag' is not in the registry; did you mean 'fedavg'?"),
        ("algorithm.lr=-1", "algorithm 'fedavg': lr = -1: Input should be greater than 0"),
        ("algorithm.lr=nan", "algorithm 'fedavg': lr = nan: Input should be a finite number"),
        ("algorithm.lr=fast", "algorithm 'fedavg': lr = \"fast\": Input should be a valid number"),
        ("algorithm.momentum=1", "algorithm 'fedavg': momentum = 1: Input should be less than 1"),
        ("rounds.quorum=0", "rounds.quorum = 0: Input should be greater than or equal to 1"),
        ("rounds.quorum=5", "rounds.quorum = 5 is larger than rounds.cohort = 4; lower it to 4"),
        ("rounds.start_with=2", "rounds.start_with = 2 is smaller than rounds.quorum = 4; raise it to 4"),
        ("rounds.cohort=5", "rounds.cohort = 5 is larger than task.partition.devices = 4; lower it to 4"),
        ("rounds.deadline=0", "rounds.deadline = 0: Input should be greater than 0"),
        ("rounds.late=maybe", "rounds.late = \"maybe\": Input should be 'drop', 'discount' or 'memory'"),
        ("run.rounds=many", 'run.rounds = "many": Input should be a valid integer'),
        ("run.rounds=0", "run.rounds = 0: Input should be greater than or equal to 1"),
        ("run.seed=-1", "run.seed = -1: Input should be greater than or equal to 0"),
        ("run.target_accuracy=95", "run.target_accuracy = 95: Input should be less than or equal to 1"),
        ("wire.codec=flot16", "wire.codec = \"flot16\": not known; did you mean 'float16'?"),
        ("wire.up.codec=itn8", "wire.up.codec = 'itn8' is not known; did you mean 'int8'?"),
        ("wire.up.share=0.1", "wire.up 'float32': unknown key 'share'; known: codec"),
        ("wire.down.codec=topk", "wire.down.codec = 'topk' goes up only; choose another for [wire.down]"),
        ("wire.codec=topk", "wire.codec = 'topk' goes up only; choose another for [wire.down]"),
        ("task.loss=cross_entrpy", "task.loss = \"cross_entrpy\": not known; did you mean 'cross_entropy'?"),
        ("task.partition.kind=even", "task.partition.kind = \"even\": Input should be 'iid', "),
        ("task.public=1.5", "task.public = 1.5: Input should be less than or equal to 0.9"),
        ("broker.fleet=a/b", "broker.fleet 'a/b' cannot stand in a topic"),
        ("compute.threads=0", "compute.threads = 0: Input should be greater than or equal to 1"),
    ],
)
def test_a_wrong_value_is_named_with_its_key_and_a_remedy(file, word, line):
    assert complaint(file, word).startswith(line)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "+", "#", "-a", "état", "x" * 65, "presence", "state", "a\n"])
def test_a_run_name_must_be_able_to_stand_in_a_topic(file, name):
    file.write_text(RUN.replace('"digits"', f'"{name}"'.replace("\n", "\\n")), encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot stand in a topic: use up to 64 letters"):
        read(file)


def test_a_key_in_the_wrong_section_is_told_where_it_belongs(file):
    file.write_text('partition = "dirichlet(0.5, 10)"\n' + RUN, encoding="utf-8")
    assert complaint(file) == "unknown key 'partition'; did you mean 'task.partition'?"
    file.write_text(RUN + "[fleet]\ndevices = 10\n", encoding="utf-8")
    assert complaint(file) == "unknown key 'fleet.devices'; did you mean 'task.partition.devices'?"
    file.write_text(RUN + "[fleet]\npatience = 3\n", encoding="utf-8")
    assert complaint(file) == "unknown key 'fleet.patience'; did you mean 'evaluation.patience'?"


def test_a_table_in_the_wrong_place_is_told_where_it_belongs(file):
    assert complaint(file, "rounds.selection=oort") == "unknown key 'rounds.selection'; did you mean '[selection]'?"


def test_a_value_of_another_shape_is_told_in_words_of_the_file(file):
    assert complaint(file, "export.tensorboard=folder") == 'export.tensorboard = "folder": expected a table'
    assert complaint(file, "task.sample=4") == "task.sample = 4: expected a list"


def test_a_wrong_variable_of_the_environment_is_refused_like_a_wrong_key(file):
    assert complaint(file, EDGEFL_ROUNDS__COHORT="-2").startswith("rounds.cohort = -2: ")
    assert complaint(file, EDGEFL_ROUNDS__COHRT="2") == "unknown key 'rounds.cohrt'; did you mean 'cohort'?"


def test_a_misspelt_stage_is_named(file):
    file.write_text(RUN + '[[aggregation]]\nname = "maen"\n')
    assert complaint(file) == "aggregation.name = 'maen' is not in the registry; did you mean 'mean'?"


def test_an_algorithm_needs_a_name(file):
    file.write_text("[task]\npartition = { kind = 'iid', devices = 2 }\n[algorithm]\nlr = 1.0\n")
    assert complaint(file).startswith("algorithm.name = None is not in the registry; known: ")


def test_hints_name_only_what_can_be_set(file):
    """Facts about a class, such as whether it looks back, are not hyper-parameters."""
    line = complaint(file, "algorithm.uses_previos=true")
    assert "uses_previous" not in line
    assert "cohort_rounds" not in line


def test_a_run_must_say_how_many_devices_it_asks(file):
    file.write_text("[run]\nrounds = 1\n")
    assert complaint(file).startswith("rounds.cohort: say how many devices a round asks")


def test_without_data_the_shape_of_a_sample_is_needed():
    with pytest.raises(ConfigError, match=r"run.toml: task: .*give task\.sample .* and task\.classes"):
        parse(RunFile, {"task": {"data": None}, "rounds": {"cohort": 1}}, "run.toml", (), {})


@pytest.mark.parametrize("word", ["algorithm.lr", "lr=3", "=3", ""])
def test_a_flag_that_is_not_one_is_shown_how_to_write_it(file, word):
    with pytest.raises(ConfigError, match=r"^--set .*: write it as section\.key=value"):
        read(file, word)


def test_a_key_below_something_that_is_no_table_cannot_be_set(file):
    assert complaint(file, "run.name.first=x") == "'run.name.first' cannot be set, 'name' is not a table"


def test_a_table_where_a_word_should_be_is_refused(file):
    file.write_text("algorithm = 'fedavg'\n")
    assert complaint(file).startswith('algorithm = "fedavg": expected a table')


# ---- what cannot be read -------------------------------------------------------------------------------------------


def test_a_file_that_is_not_there_is_named_with_a_way_to_begin(tmp_path):
    assert complaint(tmp_path / "run.toml") == "no such file; `edgefl init` writes a commented one"


def test_toml_that_cannot_be_read_tells_the_line(file):
    file.write_text("[run]\nname = digits\n")
    assert complaint(file).startswith("not valid TOML: ")
    assert "line 2" in complaint(file)


def test_bytes_that_are_no_text_are_no_toml(file):
    file.write_bytes(b"\xff\xfe[run]")
    assert complaint(file).startswith("not valid TOML: ")


def test_a_folder_is_not_a_file(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_toml(tmp_path)


# ---- agent files ---------------------------------------------------------------------------------------------------


def test_an_agent_may_say_nothing_but_its_name():
    agent = parse(AgentFile, {}, "agent.toml", (), {"EDGEFL_AGENT__ID": "pi-04", "EDGEFL_RUN__SEED": "3"})
    assert (agent.agent.id, agent.compute.backend) == ("pi-04", "auto")


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("agent.id=pi/4", "agent.toml: agent.id 'pi/4' cannot stand in a topic"),
        ("agent.fleet=#", "agent.toml: agent.fleet '#' cannot stand in a topic"),
        ("agent.borker=x", "agent.toml: unknown key 'agent.borker'; did you mean 'broker'?"),
        ("compute.backend=tensorflow", 'agent.toml: compute.backend = "tensorflow": Input should be'),
        ("data.part=-1", "agent.toml: data.part = -1: Input should be"),
    ],
)
def test_an_agent_s_mistake_is_named_too(word, line):
    with pytest.raises(ConfigError) as caught:
        parse(AgentFile, {}, "agent.toml", [word], {})
    assert str(caught.value).startswith(line)


def test_a_key_that_breaks_lines_is_still_told_in_one():
    with pytest.raises(ConfigError) as refused:
        parse(RunFile, {"run": {"\n": None}}, "fuzz.toml", environment={})
    assert str(refused.value).startswith(r"fuzz.toml: unknown key 'run.\n'")


@pytest.mark.parametrize(
    ("seal", "at_home", "away"), [("auto", False, True), (True, True, True), (False, False, False)]
)
def test_answers_are_sealed_where_the_file_says_so_or_with_auto_wherever_others_could_listen(seal, at_home, away):
    wire = Wire(seal=seal)
    assert (wire.seals(local=True), wire.seals(local=False)) == (at_home, away)
    assert Wire().seal is False
