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
    "read values of the data in what a device says when it fails": (
        "attacks/test_reasons_hold_no_data.py::test_nothing_that_leaves_a_device_has_a_marked_value_in_it",
        "attacks/test_reasons_hold_no_data.py::test_a_message_that_is_not_marked_stays_whatever_class_it_is_of",
        "attacks/test_reasons_hold_no_data.py::test_a_marked_text_quotes_nothing_but_what_is_known_to_be_free_of_data",
    ),
    "compute a row, or its label, from the sums or counts of two runs": (
        "attacks/test_sums_of_one_device.py::test_sums_of_two_runs_do_not_give_the_row_that_was_added_between",
        "attacks/test_sums_of_one_device.py::test_counts_of_two_runs_do_not_give_the_label_of_the_row_that_was_added_between",
        "attacks/test_sums_of_one_device.py::test_whatever_a_run_asks_for_a_few_samples_are_not_counted",
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
    "run a program by what a checkpoint says of its network": (
        "attacks/test_code_in_files.py::test_a_checkpoint_runs_no_program",
        "attacks/test_code_in_files.py::test_only_what_reads_the_operator_s_own_words_lets_code_be_named",
    ),
    "import a module by what a checkpoint says of its data, loss or algorithm": (
        "attacks/test_code_in_files.py::test_a_checkpoint_imports_nothing_to_be_judged",
        "attacks/test_code_in_files.py::test_only_the_gate_imports_what_is_named_elsewhere",
    ),
    "import a module by what the journal of a run's folder says": (
        "attacks/test_code_in_files.py::test_a_report_imports_nothing_that_a_journal_names",
        "attacks/test_code_in_files.py::test_what_reads_the_folder_of_a_run_names_the_way_to_choose_code",
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
        "learn/privacy/test_privacy.py::test_what_is_called_epsilon_is_the_worst_case_and_the_paper_s_figure_stands_beside_it",
    ),
    "what objective perturbation claims": (
        "attacks/test_privacy_claims.py::test_the_worst_record_of_the_real_network_does_what_the_accountant_reckons_with",
        "job/config/test_privacy_section.py::test_a_loss_that_no_proof_covers_is_refused_with_objective_perturbation",
    ),
    "the coordinator chooses the noise": (
        "attacks/test_privacy_claims.py::test_real_agents_write_down_the_bound_of_the_network_they_train",
        "attacks/test_greedy_coordinator.py::test_it_trains_until_its_allowance_is_spent_and_no_further",
        "attacks/test_greedy_coordinator.py::test_a_device_with_an_allowance_trains_for_nobody_without_noise",
        "attacks/test_greedy_coordinator.py::test_more_noise_later_does_not_make_little_noise_before_it_forgotten",
    ),
    "tell a value by failing at it, where an allowance is": (
        "attacks/test_telling_by_failing.py::test_a_graph_that_fails_at_a_value_learns_nothing_and_pays",
        "attacks/test_telling_by_failing.py::test_a_task_is_booked_while_its_graph_runs_and_again_when_it_runs_again",
        "attacks/test_telling_by_failing.py::test_failures_are_told_in_one_text_and_ten_of_them_end_the_service",
        "attacks/test_greedy_coordinator.py::test_updates_that_cost_next_to_nothing_are_counted_too",
        "device_agent/shell/test_failures.py::test_a_failure_is_told_in_one_text_and_ten_of_them_end_the_service",
        "device_agent/shell/test_failures.py::test_how_the_work_goes_and_how_the_machine_fares_is_told_by_devices_without_an_allowance_alone",
    ),
    "secure aggregation is refused, not pretended": (
        "job/config/test_privacy_section.py::test_no_combination_with_secure_aggregation_is_accepted",
    ),
    "impersonate behind an ACL, anonymous, wrong password": (
        "attacks/test_stolen_names.py::test_without_a_valid_certificate_of_this_fleet_nobody_is_let_in",
        "attacks/test_stolen_names.py::test_a_last_will_in_another_s_name_is_not_said",
    ),
    "pickles, and TLS of a client": (
        "test_no_foreign_code.py::test_no_production_code_runs_what_it_reads",
        "attacks/test_enrolment_abuse.py::test_who_speaks_an_older_tls_is_not_answered",
    ),
    "a small file that stands for gigabytes": (
        "attacks/test_bombs_in_files.py::test_an_archive_that_unpacks_to_gigabytes_is_not_unpacked",
        "attacks/test_bombs_in_files.py::test_a_model_whose_tensors_share_storage_takes_what_it_has_on_the_disk",
        "learn/data/test_bombs.py::test_a_bomb_is_refused_in_one_line",
        "learn/models/test_model_bombs.py::test_a_state_dict_may_be_a_bomb",
        "test_every_reader.py::test_every_reader_meets_a_bomb_or_reads_only_what_is_ours",
    ),
    "a database whose rows never end, or whose cells are gigabytes": (
        "attacks/test_bombs_in_files.py::test_a_view_is_no_table",
        "attacks/test_bombs_in_files.py::test_a_view_without_end_that_is_asked_for_has_one",
        "attacks/test_bombs_in_files.py::test_cells_of_900_mb_are_not_made",
    ),
    "packages": (
        "deploy/test_package_locks.py::test_everything_has_one_version_and_its_hashes",
        "deploy/test_package_locks.py::test_a_file_of_another_hash_is_refused",
    ),
}

ON_THE_PAGE: dict[str, tuple[str, ...]] = {
    "shut the page with requests that never end": (
        "attacks/test_page_strangers.py::test_requests_that_never_end_do_not_shut_the_page",
        "watch/page/test_page_guard.py::test_a_request_that_does_not_come_to_its_end_is_let_go_of",
    ),
    "take the places of those who watch, from another web page": (
        "attacks/test_page_strangers.py::test_another_web_page_takes_no_place_of_those_who_watch",
        "watch/page/test_page_guard.py::test_another_web_page_gets_nothing",
    ),
    "ask the page as a browser that was led astray": (
        "watch/page/test_page_guard.py::test_a_stranger_s_name_that_leads_here_is_refused",
        "watch/page/test_page_guard.py::test_the_page_only_shows",
        "watch/page/test_page_guard.py::test_no_answer_lets_a_browser_run_anything_but_our_scripts",
        "watch/page/test_page_guard.py::test_nothing_of_the_disk_can_be_asked_for",
        "watch/page/test_page_browser.py::test_whatever_a_device_says_is_shown_and_not_obeyed",
        "watch/exporters/test_prometheus.py::test_names_cannot_break_out_and_numbers_may_be_anything",
        "attacks/test_page_strangers.py::test_no_torn_number_or_huge_header_ends_the_page",
    ),
    "keep the coordinator busy with what the page reckons": (
        "watch/page/test_page_budget.py::test_work_of_two_seconds_is_followed_by_eight_without",
        "watch/page/test_page_budget.py::test_those_who_come_when_too_many_wait_are_sent_away",
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
    "fill the journal by coming and going": (
        "attacks/test_coming_and_going.py::test_coming_and_going_fills_no_journal_and_the_page_still_knows_who_is_there",
        "coordinator/decide/test_story_limit.py::test_of_each_hour_so_much_is_written_down_and_nothing_is_forgotten",
        "coordinator/decide/test_story_limit.py::test_the_rounds_hear_once_a_minute_where_such_a_device_is",
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
        "learn/models/test_onnx_guard.py::test_data_outside_the_file_is_refused",
    ),
    "take memory that no limit counts": (
        "attacks/test_box.py::test_a_box_has_no_files_no_network_and_no_programs",
        "attacks/test_box.py::test_where_calls_are_not_filtered_the_address_space_still_is_limited",
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


ALL = ATTACKS | ON_THE_PAGE | WITH_A_STOLEN_DEVICE | A_COORDINATOR_MAY_NOT


def names_in(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("attack", ALL)
def test_every_known_attack_has_its_tests(attack: str) -> None:
    for place in ALL[attack]:
        file, _, name = place.partition("::")
        assert name in names_in(TESTS / file), f"{place} is gone: name the test that took its place"
