"""The list of bad inputs, and for each the tests that prove its answer. A test that is gone is missed here.

path::test          that test is there
path::test[word]    and this word is among what it tries
"""

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

FRAMES = "wire/test_frames.py::"
CHUNKS = "wire/test_chunks.py::"
DEVICES = "fleet/test_bad_devices.py::"
UPDATES = "chaos/test_bad_updates.py::test_every_bad_update_is_named_and_costs_nothing"
MISTAKES = "cli/test_validation_errors.py::"
BUNDLES = "fleet/test_bad_bundles.py::test_a_bad_bundle_is_declined_with_its_code_and_the_agent_stays"

# number: what comes in, what is answered, who proves it
INPUTS: dict[int, tuple[str, str, tuple[str, ...]]] = {
    1: ("an empty payload", "wire.truncated", (f"{FRAMES}test_an_empty_payload_is_truncated",)),
    2: (
        "a message cut at any byte",
        "wire.truncated",
        (
            f"{FRAMES}test_a_frame_cut_at_any_byte_is_truncated",
            f"{CHUNKS}test_a_chunk_cut_at_any_byte_of_its_head_is_truncated",
            "wire/test_tensors.py::test_a_body_cut_at_any_byte_is_truncated",
        ),
    ),
    3: (
        "a wrong magic or version",
        "wire.magic, wire.version; the reply says what is spoken",
        (
            f"{FRAMES}test_a_frame_of_another_version_is_told_which_one_we_speak",
            f"{DEVICES}test_a_device_of_another_protocol_is_refused_and_the_run_goes_on",
        ),
    ),
    4: (
        "a header of length 2^60",
        "wire.too_large, before memory is taken",
        (f"{FRAMES}test_huge_lengths_are_refused_before_memory_is_taken[2**60]",),
    ),
    5: (
        "a zstd bomb, 8 KB to 256 MiB",
        "wire.too_large",
        (
            f"{FRAMES}test_a_bomb_that_tells_its_size_is_refused[256 << 20]",
            f"{FRAMES}test_a_bomb_that_hides_its_size_is_refused",
        ),
    ),
    6: (
        "zstd without a size",
        "refused",
        (f"{FRAMES}test_compressed_bytes_that_do_not_tell_their_size_are_refused",),
    ),
    7: (
        "an npy header that claims 40 GB",
        "wire.magic: the format is not ours",
        (f"{FRAMES}test_other_formats_are_refused_by_their_first_bytes[npy of 40 GB]", f"{UPDATES}[40 GB]"),
    ),
    8: (
        "pickle, .pt, object arrays",
        "wire.magic, wire.dtype",
        (
            f"{FRAMES}test_other_formats_are_refused_by_their_first_bytes[pickle]",
            "wire/test_tensors.py::test_a_type_that_does_not_travel_is_refused[|O]",
            f"{UPDATES}[pickle]",
        ),
    ),
    9: (
        "msgpack 5,000 deep",
        "wire.malformed",
        (f"{FRAMES}test_a_header_that_is_not_one_plain_map_is_malformed[5000]",),
    ),
    10: (
        "keys that come twice",
        "wire.malformed",
        (
            f"{FRAMES}test_a_header_that_is_not_one_plain_map_is_malformed[twice]",
            "wire/test_tensors.py::test_a_tensor_that_comes_twice_is_refused",
        ),
    ),
    11: ("a tensor called ../../x", "update.unknown_tensor", (f"{UPDATES}[../../x]",)),
    12: ("bfloat16", "wire.dtype", (f"{UPDATES}[bfloat16]",)),
    13: ("NaN and infinity", "update.not_finite, tensor named", (f"{UPDATES}[not a number]", f"{UPDATES}[infinite]")),
    14: (
        "a norm of a million times the median",
        "update.norm",
        (
            "coordinator/shell/test_guards.py::test_only_the_absurd_is_refused_whatever_others_sent",
            f"{UPDATES}[absurdly long]",
        ),
    ),
    15: (
        "a missing, additional or transposed tensor",
        "wire.shape, update.extra",
        (f"{UPDATES}[another shape]", f"{UPDATES}[no extra]", f"{UPDATES}[one extra too many]"),
    ),
    16: (
        "0, -1, 2^63 or NaN samples",
        "wire.malformed; the weight is capped",
        (
            "wire/test_messages.py::test_a_weight_must_be_a_positive_number_within_reason[2**63]",
            "learn/test_robustness.py::test_a_weight_beyond_the_cap_is_cut_to_it_and_far_beyond_counts_the_less_the_more_is_claimed",
            f"{UPDATES}[weight 2^63]",
        ),
    ),
    17: (
        "chunk 7 of 5, overlaps, two sizes",
        "wire.malformed; the transfer begins anew",
        (
            f"{CHUNKS}test_numbers_that_contradict_each_other_are_malformed",
            f"{CHUNKS}test_two_sizes_for_one_digest_are_malformed",
            f"{CHUNKS}test_a_frame_that_is_not_what_it_was_announced_as_is_corrupt_and_may_be_sent_again",
        ),
    ),
    18: (
        "a thousand transfers that never end",
        "a device has room for two",
        ("wire/test_fuzz.py::test_a_thousand_transfers_that_never_end_take_the_room_of_two",),
    ),
    19: (
        "an answer to a future round",
        "refused: future",
        ("chaos/test_bad_updates.py::test_an_answer_to_a_round_that_is_not_yet_is_refused",),
    ),
    20: (
        "a device id twice",
        "the second is refused, both are named",
        (f"{DEVICES}test_a_second_agent_with_the_same_id_is_told_and_takes_no_part",),
    ),
    21: (
        "a model that is not signed, or wrongly",
        "model.unsigned, model.signature; the agent keeps what it had",
        (
            "wire/test_signing.py::test_no_byte_can_be_changed",
            "wire/test_signing.py::test_without_a_signature_it_is_unsigned",
            "fleet/test_forged_models.py::test_a_forged_model_is_not_trained_on_and_the_run_ends_with_its_own",
        ),
    ),
    22: (
        "ONNX with data outside the file",
        "model.external_data",
        ("learn/models/test_onnx_guard.py::test_data_outside_the_file_is_refused", f"{BUNDLES}[model.external_data]"),
    ),
    23: (
        "ONNX with a foreign operator",
        "model.domain",
        (
            "learn/models/test_onnx_guard.py::test_a_foreign_operator_is_refused_wherever_it_hides",
            f"{BUNDLES}[model.domain]",
        ),
    ),
    24: (
        "a small graph that needs 40 GB",
        "model.too_large",
        (
            "learn/models/test_onnx_guard.py::test_a_graph_larger_than_allowed_is_refused",
            f"{BUNDLES}[model.too_large]",
        ),
    ),
    25: (
        "a misspelt key, lerning_rate",
        "did you mean, exit code 2",
        (f"{MISTAKES}test_a_wrong_run_file_is_named_with_key_value_and_remedy[lerning_rate]",),
    ),
    26: (
        "lr = -1, a momentum of one, a quorum above the cohort",
        "the range is named, exit code 2",
        (
            f"{MISTAKES}test_a_wrong_run_file_is_named_with_key_value_and_remedy[rounds.quorum = 3]",
            "job/config/test_config.py::test_a_wrong_value_is_named_with_its_key_and_a_remedy[algorithm.momentum=1]",
        ),
    ),
    27: (
        "environment and file disagree",
        "`config show --origin` tells who won over whom",
        (
            "cli/test_config_show.py::test_a_flag_goes_over_the_environment_which_goes_over_the_file",
            "cli/test_config_show.py::test_a_person_reads_it_as_comments",
        ),
    ),
    28: (
        "a port that is taken, a broker that is down",
        "named; tried again with growing pauses",
        (
            f"{MISTAKES}test_a_taken_port_is_named",
            f"{MISTAKES}test_a_broker_that_is_not_there_is_named",
            "wire/test_mqtt.py::test_an_unreachable_broker_is_told_and_tried_again",
            "wire/test_reconnect.py::test_attempts_that_fail_come_ever_more_slowly_up_to_the_cap",
        ),
    ),
    29: (
        "a certificate that has expired or is not yet valid",
        "says which one, its dates and what the clock says",
        (
            "wire/test_certificates.py::test_the_dates_of_the_brokers_certificate",
            "wire/test_certificates.py::test_the_dates_of_our_own_certificate",
            "wire/test_certificates.py::test_the_commands_say_it_in_one_line_and_only_the_coordinator_waits_for_another_date",
            "ops/doctor/test_broker_checks.py::test_the_dates_of_the_broker_s_certificate_are_named",
        ),
    ),
    30: (
        "a key file of mode 0644",
        "refused",
        (
            "wire/test_mqtt.py::test_a_private_key_that_others_can_read_is_refused",
            "coordinator/durable/test_identity.py::test_a_key_that_others_can_read_is_refused",
        ),
    ),
    31: (
        "data that are empty, of one class, or damaged",
        "the device does not take part, and says why; one class is welcome",
        (
            (
                "device_agent/shell/test_broken_data.py::"
                "test_the_log_of_the_device_says_what_is_wrong_with_its_data[is empty]"
            ),
            f"{MISTAKES}test_devices_with_one_class_each_are_welcome",
            "learn/data/test_catalog.py::test_broken_files_of_the_data_root_are_named",
            f"{DEVICES}test_an_agent_with_data_of_another_shape_declines_and_says_so_at_the_end",
        ),
    ),
    32: (
        "secure aggregation with what needs single updates",
        "refused at the start, with the reason",
        (
            "job/config/test_privacy_section.py::test_secure_aggregation_is_refused_for_every_algorithm_with_the_reason",
            "job/config/test_privacy_section.py::test_no_combination_with_secure_aggregation_is_accepted",
        ),
    ),
    33: (
        "a checkpoint of another model",
        "both hashes are shown, exit code 2",
        (
            (
                "coordinator/durable/test_checkpoint.py::"
                "test_a_checkpoint_of_another_model_is_the_operators_mistake[exit_code == 2]"
            ),
        ),
    ),
    34: (
        "a state folder in use",
        "the owner's process is named, exit code 2",
        (f"{MISTAKES}test_a_state_folder_in_use_is_told_with_its_owner",),
    ),
    35: (
        "a torch that dies of an illegal instruction or lacks CUDA",
        "the doctor tries it in a process of its own and prints the pin",
        (
            "ops/doctor/test_engine_checks.py::test_a_torch_that_does_not_import_is_told_with_its_pin[libcudart]",
            "ops/doctor/test_engine_checks.py::test_the_doctor_survives_and_says_so_with_its_exit_code",
        ),
    ),
}


@cache
def names_in(path: str) -> set[str]:
    """The names of the tests in a file."""
    tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_the_list_is_complete() -> None:
    assert list(INPUTS) == list(range(1, 36))


@pytest.mark.parametrize("number", INPUTS)
def test_each_bad_input_has_a_test_that_is_still_there(number: int) -> None:
    what, answer, proofs = INPUTS[number]
    assert what
    assert answer
    assert proofs
    for proof in proofs:
        path, _, rest = proof.partition("::")
        name, bracket, word = rest.partition("[")
        assert name in names_in(path), proof
        if bracket:
            assert word.removesuffix("]") in (TESTS / path).read_text(encoding="utf-8"), proof
