"""The contracts of docs/contracts.md: contract x engine -> tests. A hole in the table, or a test that is not there, fails."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent

BOTH = ("serial", "ray")
ENGINES = {f"C{number}": BOTH for number in range(1, 18)} | {"C9": ("ray",), "C13": ("ray",), "C12": ("serial", "between")}
"""On which engines each contract holds; "between": the two give the same."""

TABLE = {
    "C1": ["iter/test_nothing_starts.py::test_building_checking_drawing_and_explaining_start_nothing"],
    "C2": [
        "iter/test_gathers.py::test_weights_sent_for_a_round_are_seen_by_every_shard_in_the_next",
        "iter/test_gathers.py::test_a_message_sent_within_a_round_reaches_only_the_next_round",
        "iter/test_gathers.py::test_a_shard_makes_nothing_ahead_of_its_barrier",
        "iter/test_gathers.py::test_gather_sync_gives_rounds_in_shard_order",
        "iter/test_gathers.py::test_batch_across_shards_is_a_barrier_of_lists",
    ],
    "C3": [
        "iter/test_gathers.py::test_with_one_call_in_flight_weights_for_an_item_are_in_force_for_the_next",
        "iter/test_gathers.py::test_with_k_calls_in_flight_weights_are_exactly_k_minus_1_items_old",
        "iter/test_gathers.py::test_a_shard_makes_at_most_num_async_items_beyond_those_handed_on",
        "iter/test_gathers.py::test_the_shard_of_the_item_in_hand_is_idle_until_the_next_pull",
        "iter/test_gathers.py::test_an_item_parked_in_a_batch_counts_as_handed_on",
        "iter/test_gathers.py::test_an_item_parked_in_a_queue_or_duplicate_counts_as_handed_on",
        "iter/test_gathers.py::test_with_batch_ms_a_shard_is_asked_again_after_the_last_item_of_its_answer",
        "iter/test_gathers.py::test_a_concurrent_for_each_adds_max_concurrency_minus_1_to_the_age_of_weights",
        "iter/test_gathers.py::test_gather_async_keeps_each_shards_own_order",
    ],
    "C4": [
        "iter/test_gathers.py::test_every_gather_gives_every_item_once",
        "iter/test_gathers.py::test_a_stream_left_by_break_goes_on_where_it_was",
        "iter/test_gathers.py::test_results_that_piled_up_while_the_consumer_was_away_all_come",
        "iter/test_unions.py::test_uneven_branches_are_all_used_up",
        "iter/test_unions.py::test_a_union_left_by_break_goes_on_where_it_was",
        "iter/test_queues.py::test_enqueue_hands_the_item_on_and_nothing_is_dropped",
        "iter/test_repartition.py::test_every_item_comes_once",
        "iter/test_repartition.py::test_it_goes_on_after_the_consumer_stopped",
        "iter/test_duplicate.py::test_both_children_get_every_item",
        "iter/test_laws.py::test_whatever_the_plan_nothing_is_lost_and_nothing_comes_twice",
        "iter/test_laws.py::test_on_ray_too_nothing_is_lost_and_nothing_comes_twice",
    ],
    "C5": [
        "iter/test_gathers.py::test_no_shard_starves_while_the_driver_is_the_bottleneck",
        "iter/test_gathers.py::test_a_shard_that_drops_everything_does_not_starve_the_others",
        "iter/test_gathers.py::test_the_serial_engine_serves_everyone_once_before_anyone_twice",
        "iter/test_unions.py::test_a_gather_is_served_beside_a_branch_that_is_always_ready",
        "iter/test_unions.py::test_pending_calls_are_looked_at_at_most_each_half_millisecond",
        "iter/test_unions.py::test_a_branch_that_drops_everything_does_not_starve_the_other",
        "iter/test_repartition.py::test_a_partition_serves_the_shards_above_it_in_turn",
    ],
    "C6": [
        "iter/test_errors.py::test_items_that_look_like_signals_are_items",
        "iter/test_errors.py::test_a_stop_iteration_of_a_user_function_is_an_error_that_says_so",
        "iter/test_errors.py::test_a_stop_iteration_inside_a_source_generator_is_an_error",
        "iter/test_errors.py::test_nothing_is_asked_again_after_its_end",
    ],
    "C7": [
        "iter/test_errors.py::test_an_error_names_operator_plan_line_shard_and_item",
        "iter/test_errors.py::test_the_plan_lives_on_after_an_error",
        "iter/test_errors.py::test_an_error_keeps_its_type_and_state",
        "iter/test_errors.py::test_a_transform_that_raised_is_finished",
        "iter/test_errors.py::test_a_source_that_raised_is_finished_and_the_other_shards_go_on",
        "iter/test_errors.py::test_a_dead_actor_is_raised_once_and_the_other_shards_go_on",
        "iter/test_errors.py::test_a_dead_actor_above_a_repartition_is_raised_once",
        "iter/test_errors.py::test_an_error_in_the_thread_that_a_dequeue_reads_from_is_told_by_its_check",
    ],
    "C8": [
        "iter/test_gathers.py::test_an_answer_holds_at_most_10_000_items",
        "iter/test_gathers.py::test_an_answer_holds_at_most_32_mb_whatever_the_items_are",
        "iter/test_gathers.py::test_calls_in_flight_are_bounded_by_num_async_a_shard",
        "iter/test_queues.py::test_a_full_queue_stops_the_feeding_branch",
        "iter/test_duplicate.py::test_a_child_is_never_more_than_the_lag_ahead",
        "iter/test_repartition.py::test_a_full_partition_is_skipped_not_waited_for",
        "iter/test_repartition.py::test_a_partition_that_lags_holds_a_bounded_number_of_items",
    ],
    "C9": [
        "iter/test_idle.py::test_an_idle_plan_of_calls_takes_little_cpu",
        "iter/test_idle.py::test_an_idle_plan_of_calls_and_a_thread_takes_little_cpu",
        "iter/test_idle.py::test_no_timed_wait_is_below_100_ms",
    ],
    "C10": [
        "iter/test_source_actor.py::test_the_source_is_known_after_every_gather",
        "iter/test_source_actor.py::test_the_source_is_kept",
        "iter/test_source_actor.py::test_the_source_is_kept_by_enqueue",
        "iter/test_source_actor.py::test_where_the_source_is_lost_it_is_refused_when_built_with_a_hint",
        "iter/test_source_actor.py::test_all_sources_of_a_merged_item_are_known",
    ],
    "C11": [
        "iter/test_metrics.py::test_all_branches_of_a_run_share_one_context",
        "iter/test_metrics.py::test_what_shards_count_is_merged",
        "iter/test_metrics.py::test_what_was_counted_of_dropped_items_arrives_with_the_next_answer_or_the_end",
        "iter/test_metrics.py::test_it_is_unset_while_the_consumer_has_an_item",
        "iter/test_metrics.py::test_a_nested_run_has_its_own_and_gives_the_outer_one_back",
        "iter/test_metrics.py::test_outside_a_run_it_is_an_error_that_says_what_to_do",
    ],
    "C12": [
        "iter/test_determinism.py::test_the_serial_engine_gives_the_same_stream_for_the_same_seed",
        "iter/test_determinism.py::test_batch_ms_takes_as_many_items_as_milliseconds_on_the_serial_engine",
        "iter/test_determinism.py::test_a_synchronous_plan_gives_the_same_stream_on_both_engines",
        "iter/test_determinism.py::test_a_loop_of_weights_gives_the_same_results_on_both_engines",
        "iter/test_laws.py::test_whatever_the_plan_the_serial_engine_repeats_it",
    ],
    "C13": [
        "iter/test_leaving.py::test_leaving_a_run_ends_its_actors",
        "iter/test_leaving.py::test_leaving_a_run_with_a_repartition_ends_all_its_actors",
        "iter/test_leaving.py::test_ctrl_c_ends_the_actors_of_a_run",
    ],
    "C14": [
        "iter/test_state.py::test_no_stage_of_a_run_holds_a_generator_of_flowrls",
        "iter/test_state.py::test_the_state_of_a_chain_can_be_moved_to_another_one",
        "iter/test_state.py::test_no_function_of_the_run_has_state_of_its_own",
    ],
    "C15": [
        "rollout/test_worker_set.py::test_each_fragment_says_where_and_with_which_weights_it_was_made",
        "rollout/test_sampler.py::test_fragments_carry_where_they_came_from_and_the_policy_version",
    ],
    "C16": [
        "rollout/test_sampler.py::test_every_row_is_of_one_episode_and_none_is_missing",
        "rollout/test_sampler.py::test_an_unfinished_episode_counts_in_no_statistics",
        "policy/test_gae.py::test_a_termination_cuts_where_it_is_and_nothing_crosses_it",
    ],
    "C17": [
        "iter/test_read_only.py::test_arrays_of_every_kind_come_read_only",
        "iter/test_read_only.py::test_arrays_inside_other_things_come_read_only",
        "iter/test_read_only.py::test_every_gather_hands_out_read_only_items",
        "iter/test_read_only.py::test_an_item_never_changes_though_the_shard_uses_its_memory_again",
        "iter/test_read_only.py::test_an_item_never_changes_though_the_actors_state_does",
    ],
}
WITHOUT_ENGINE = {"C16"}
"""Contracts of code that no engine has a part in: a worker's inside."""

FIXTURES = {"serial": {"serial", "serial_under_test"}, "ray": {"on_ray", "ray_under_test", "ray_cluster"}}


@cache
def functions_of(path):
    """The tests of a file, and the fixtures that each asks for."""
    tree = ast.parse((TESTS / path).read_text())
    found = {node.name: {argument.arg for argument in node.args.args} for node in tree.body if isinstance(node, ast.FunctionDef)}
    # A fixture of the file may bring the engine.
    return {name: arguments.union(*(found.get(argument, set()) for argument in arguments)) for name, arguments in found.items()}


def engines_of(test):
    """On which engines a test runs, by the fixtures that it asks for; without any it runs on the serial engine."""
    path, _, name = test.partition("::")
    arguments = functions_of(path)[name]
    if "engine" in arguments:
        return {"serial", "ray"}
    named = {engine for engine, fixtures in FIXTURES.items() if arguments & fixtures}
    return (named | {"between"} if len(named) == 2 else named) or {"serial"}


@pytest.mark.parametrize("contract", ENGINES)
def test_every_contract_has_its_tests_on_the_engines_that_the_design_names(contract):
    assert TABLE.get(contract), f"{contract} has no test"
    if contract not in WITHOUT_ENGINE:
        covered = set().union(*(engines_of(test) for test in TABLE[contract]))
        missing = set(ENGINES[contract]) - covered
        assert not missing, f"{contract} has no test on: {missing}"


@pytest.mark.parametrize("test", [test for tests in TABLE.values() for test in tests])
def test_every_test_of_the_table_is_there(test):
    path, _, name = test.partition("::")
    assert (TESTS / path).exists(), path
    assert name in functions_of(path), name
    assert name.startswith("test_")


def test_the_table_has_no_other_contract():
    assert set(TABLE) == set(ENGINES)


def test_no_test_of_the_table_is_skipped():
    for path in {test.partition("::")[0] for tests in TABLE.values() for test in tests}:
        text = (TESTS / path).read_text()
        assert "mark.skip" not in text and "pytest.skip" not in text and "xfail" not in text, path
