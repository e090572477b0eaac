"""Each attack that was once tried on the whole system, what came of it, and the tests that would notice it today.

So that none of them is lost when tests are moved or renamed. What a coordinator with the right key may not do to a
device is listed in the same way.
"""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

ATTACKS: dict[str, tuple[str, ...]] = {
    "write past the end of an array on a device": (
        "attacks/test_hostile_graphs.py::test_a_hostile_bundle_is_declined_by_its_code_and_the_agent_stays",
    ),
    "be the first coordinator that an agent meets": (
        "attacks/test_first_use.py::test_a_forger_that_speaks_first_is_not_believed_and_gets_no_update",
        "attacks/test_first_use.py::test_an_agent_across_a_network_without_a_key_does_not_start",
    ),
    "replace the model by a weight": (
        "attacks/test_outweighing.py::test_an_attacker_moves_the_accuracy_by_less_than_three_points",
    ),
    "one user for all: read, forge, quarantine, ghosts": (
        "attacks/test_members.py::test_in_a_secured_fleet_a_member_reads_forges_and_shuts_out_nobody",
        "attacks/test_stolen_names.py::test_nothing_can_be_said_in_another_s_name",
        "attacks/test_stolen_names.py::test_nothing_of_others_is_heard_whatever_is_subscribed_to",
    ),
    "poison what is usual with duplicates": (
        "attacks/test_outweighing.py::test_an_attacker_moves_the_accuracy_by_less_than_three_points",
        "attacks/test_memory_and_amplification.py::test_a_duplicate_is_not_even_opened",
    ),
    "an update that is too long": (
        "attacks/test_outweighing.py::test_what_is_sent_beside_an_update_is_bounded_too",
        "attacks/test_no_single_device.py::test_a_fifth_of_attackers_costs_the_majority_at_most_three_points",
    ),
    "chunks that claim memory": (
        "attacks/test_memory_and_amplification.py::test_chunks_that_claim_512_mib_take_no_memory_and_cost_the_device_its_standing",
        "attacks/test_memory_and_amplification.py::test_an_agent_believes_no_claim_and_opens_no_bomb",
    ),
    "a bomb in a small message": (
        "attacks/test_memory_and_amplification.py::test_a_bomb_inside_a_small_message_is_not_opened",
    ),
    "ask for models without end": (
        "attacks/test_memory_and_amplification.py::test_asking_again_for_a_model_does_not_make_the_coordinator_shout",
    ),
    "switch a fleet off with one message": (
        "attacks/test_switching_off.py::test_agents_outlive_the_message_say_it_once_and_serve_the_next_run",
        "attacks/test_switching_off.py::test_only_a_stop_of_its_own_operator_ends_an_agent",
    ),
    "replay a recorded manifest with a forged task": (
        "attacks/test_replay.py::test_a_task_forged_from_a_recorded_manifest_is_not_trained",
        "attacks/test_every_kind.py::test_what_was_said_is_done_once_whatever_it_is_and_after_a_restart_too",
    ),
    "a malicious broker": (
        "attacks/test_malicious_broker.py::test_whatever_a_broker_does_to_messages_the_model_is_the_undisturbed_one",
        "attacks/test_tampering_proxy.py::test_whatever_is_done_to_publishes_on_the_line_the_model_is_the_undisturbed_one",
        "attacks/test_sealed.py::test_whoever_reads_everything_sees_no_update_and_the_model_is_the_same",
    ),
    "paths in names": ("attacks/test_names_and_texts.py::test_an_agent_makes_no_path_and_no_topic_of_a_name",),
    "branches, false sizes and endless loops in graphs": (
        "attacks/test_hostile_graphs.py::test_a_hostile_bundle_is_declined_by_its_code_and_the_agent_stays",
        "attacks/test_cancelled_work.py::test_a_graph_ends_between_two_operators_and_runs_again_when_it_may",
    ),
    "code that a manifest names": (
        "attacks/test_chosen_code.py::test_with_onnx_a_task_without_graphs_imports_nothing",
        "attacks/test_chosen_code.py::test_with_torch_a_factory_that_the_agent_file_does_not_list_is_not_imported",
    ),
    "markup and new lines in texts": (
        "attacks/test_names_and_texts.py::test_nothing_a_device_says_is_obeyed",
        "attacks/test_names_and_texts.py::test_a_traceback_does_not_forge_lines",
    ),
    "the password in journals and command lines": (
        "attacks/test_passwords.py::test_a_run_keeps_the_password_and_never_writes_it_down",
        "attacks/test_passwords.py::test_a_password_in_set_is_refused_with_the_remedy_and_not_repeated",
    ),
    "files that others can read": (
        "fleet/test_private_files.py::test_a_whole_run_leaves_nothing_that_others_can_read",
    ),
    "what output perturbation claims": (
        "attacks/test_privacy_claims.py::test_one_record_moves_a_clipped_model_further_than_clip_over_n_and_never_further_than_is_accounted",
        "test_privacy.py::test_what_is_called_epsilon_is_the_worst_case_and_the_paper_s_figure_stands_beside_it",
    ),
    "what objective perturbation claims": (
        "attacks/test_privacy_claims.py::test_the_worst_record_of_the_real_network_does_what_the_accountant_reckons_with",
        "test_privacy_section.py::test_a_loss_that_no_proof_covers_is_refused_with_objective_perturbation",
    ),
    "the coordinator chooses the noise": (
        "attacks/test_privacy_claims.py::test_real_agents_write_down_the_bound_of_the_network_they_train",
        "attacks/test_greedy_coordinator.py::test_it_trains_until_its_allowance_is_spent_and_no_further",
        "attacks/test_greedy_coordinator.py::test_a_device_with_an_allowance_trains_for_nobody_without_noise",
        "attacks/test_greedy_coordinator.py::test_more_noise_later_does_not_make_little_noise_before_it_forgotten",
    ),
    "secure aggregation is refused, not pretended": (
        "test_privacy_section.py::test_no_combination_with_secure_aggregation_is_accepted",
    ),
    "impersonate behind an ACL, anonymous, wrong password": (
        "attacks/test_stolen_names.py::test_without_a_valid_certificate_of_this_fleet_nobody_is_let_in",
        "attacks/test_stolen_names.py::test_a_last_will_in_another_s_name_is_not_said",
    ),
    "pickles, and TLS of a client": (
        "test_no_foreign_code.py::test_no_production_code_runs_what_it_reads",
        "attacks/test_enrolment_abuse.py::test_who_speaks_an_older_tls_is_not_answered",
    ),
    "packages": (
        "test_package_locks.py::test_everything_has_one_version_and_its_hashes",
        "test_package_locks.py::test_a_file_of_another_hash_is_refused",
    ),
}

WITH_A_STOLEN_DEVICE: dict[str, tuple[str, ...]] = {
    "fill the server's memory": (
        "attacks/test_broker_memory.py::test_no_flood_of_a_member_takes_more_than_the_broker_may_have",
    ),
    "say what no client says": (
        "attacks/test_mqtt_tricks.py::test_no_trick_says_anything_in_another_s_name",
        "attacks/test_mqtt_tricks.py::test_whatever_one_calls_oneself_the_certificate_says_who_one_is",
        "attacks/test_mqtt_tricks.py::test_nothing_can_be_said_before_the_handshake_has_ended",
    ),
    "set its disk back": (
        "attacks/test_set_back.py::test_a_device_whose_disk_is_set_back_is_heard_by_a_coordinator_that_knew_it_later",
    ),
    "send numbers that are none": (
        "attacks/test_poisoned_numbers.py::test_no_byte_of_a_payload_puts_a_number_into_a_model_that_is_none",
        "attacks/test_poisoned_numbers.py::test_numbers_at_the_edge_of_what_there_is_move_no_robust_stage",
    ),
}

A_COORDINATOR_MAY_NOT: dict[str, tuple[str, ...]] = {
    "read files, or reach the network, through a graph": (
        "attacks/test_box.py::test_a_box_has_no_files_no_network_and_no_programs",
        "models/test_onnx_guard.py::test_data_outside_the_file_is_refused",
    ),
    "write files by a name": ("attacks/test_names_and_texts.py::test_an_agent_makes_no_path_and_no_topic_of_a_name",),
    "choose code": (
        "attacks/test_chosen_code.py::test_algorithms_losses_and_codecs_are_not_imported_because_a_message_names_them",
    ),
    "exhaust memory": (
        "attacks/test_memory_and_amplification.py::test_an_agent_takes_no_more_of_a_model_than_it_asked_for",
        "fleet/test_bad_bundles.py::test_a_device_with_little_memory_says_so",
    ),
    "keep it busy for ever": (
        "attacks/test_box.py::test_what_never_ends_is_ended_after_its_time",
        "attacks/test_keeping_busy.py::test_a_task_whose_model_never_comes_does_not_keep_a_device_from_other_runs",
    ),
    "have more than an operator allows": (
        "attacks/test_greedy_coordinator.py::test_a_device_with_an_allowance_trains_for_nobody_without_noise",
        "attacks/test_greedy_coordinator.py::test_counts_and_sums_are_not_told_beside_an_allowance",
        "attacks/test_greedy_coordinator.py::test_a_private_device_tells_no_loss_whoever_asks",
    ),
    "end it": ("attacks/test_switching_off.py::test_only_a_stop_of_its_own_operator_ends_an_agent",),
    "shut it out of its fleet": (
        "attacks/test_renewal_abuse.py::test_a_device_takes_no_certificate_of_another_authority",
        "attacks/test_renewal_abuse.py::test_whatever_bit_of_a_certificate_is_changed_the_device_keeps_its_own_and_runs_on",
    ),
}


ALL = ATTACKS | WITH_A_STOLEN_DEVICE | A_COORDINATOR_MAY_NOT


def names_in(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("attack", ALL)
def test_every_known_attack_has_its_tests(attack: str) -> None:
    for place in ALL[attack]:
        file, _, name = place.partition("::")
        assert name in names_in(TESTS / file), f"{place} is gone: name the test that took its place"
