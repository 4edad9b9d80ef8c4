"""When a result is due, and what is in it."""

import json
import math

import numpy as np
import pytest

import flowrl as fl
from flowrl.batch import EpisodeStats, SampleBatch
from flowrl.ops import Concurrently, OncePerTimeInterval, OncePerTimestepsElapsed, ParallelRollouts, StandardMetricsReporting
from flowrl.ops.rollout import CountRollouts
from flowrl.runs.plain import plain
from tests.envs import CountEnv

ALL_KEYS = {
    "training_iteration", "episode_return_mean", "episode_return_min", "episode_return_max", "episode_len_mean", "episodes_this_iter",
    "episodes_total", "num_steps_sampled", "num_steps_trained", "steps_per_s", "time_s", "num_weight_syncs", "num_target_updates",
    "num_items_dropped", "info",
}  # fmt: skip


def config(length: int = 3, **settings) -> fl.PPOConfig:
    return fl.PPOConfig(
        **{"env": lambda context: CountEnv(length), "rollout_fragment_length": 10, "hiddens": (4,), "engine": "serial", **settings}
    )


def report_of(settings: fl.PPOConfig, num_results: int, **reporting) -> list[dict]:
    workers = fl.WorkerSet(settings)
    return StandardMetricsReporting(ParallelRollouts(workers), workers, settings, **reporting).take(num_results)


def played(*episodes: tuple[float, int, int]) -> SampleBatch:
    return SampleBatch({"x": np.zeros(10)}, episodes=[EpisodeStats(*episode) for episode in episodes])


def test_a_result_is_a_plain_dict_with_all_that_the_design_names():
    (result,) = report_of(config(), 1)
    assert type(result) is dict
    assert set(result) == ALL_KEYS
    assert set(result["info"]) >= {"counters", "timers", "learner"}
    assert result["num_steps_sampled"] == 10
    assert (result["episode_return_mean"], result["episode_len_mean"], result["episodes_this_iter"]) == (6.0, 3.0, 3)


def test_before_the_first_finished_episode_the_mean_is_nan_and_null_in_a_file():
    results = report_of(config(length=150, rollout_fragment_length=50), 3)
    assert [result["episodes_this_iter"] for result in results] == [0, 0, 1]
    assert math.isnan(results[0]["episode_return_mean"])
    assert json.loads(json.dumps(plain(results[0]), allow_nan=False))["episode_return_mean"] is None
    assert results[2]["episode_return_mean"] == 150 * 151 / 2


def test_a_result_comes_when_enough_steps_were_sampled():
    results = report_of(config(min_steps_per_reporting=25), 3)
    assert [result["num_steps_sampled"] for result in results] == [30, 60, 90]
    assert [result["training_iteration"] for result in results] == [1, 2, 3]


def test_time_between_results_is_counted_on_the_serial_engine_so_that_they_repeat():  # C12
    results = report_of(config(min_time_s_per_reporting=0.004), 3)
    assert [result["num_steps_sampled"] for result in results] == [40, 80, 120]  # 1 ms a fragment


def test_means_are_of_the_last_episodes_of_the_selected_workers():
    workers = fl.WorkerSet(config(num_workers=3))
    fragments = fl.from_iterable([played((1, 1, 1), (2, 2, 2)), played((3, 3, 2), (5, 5, 3)), played((4, 4, 2))]).for_each(CountRollouts())
    settings = config(num_workers=3, metrics_num_episodes=2)
    for selected, expected in ((None, [1.5, 4, 4.5]), ([], [1.5, 4, 4.5]), (workers.remote_workers()[1:2], [2, 2.5, 3.5])):
        results = list(StandardMetricsReporting(fragments, workers, settings, selected_workers=selected).run(engine="serial"))
        assert [result["episode_return_mean"] for result in results] == expected
        assert [result["episodes_total"] for result in results] == ([1, 2, 3] if selected else [2, 4, 5])


def test_every_item_is_looked_at_whatever_it_is_and_a_result_is_the_callers():
    workers = fl.WorkerSet(config())
    results = list(StandardMetricsReporting(fl.from_iterable([None, "x", 3]), workers, config()).run(engine="serial"))
    results[0]["info"]["counters"]["mine"] = 1
    assert [result["training_iteration"] for result in results] == [1, 2, 3]
    assert "mine" not in results[1]["info"]["counters"]


def test_two_reports_in_one_plan_both_hear_of_every_episode():
    workers = fl.WorkerSet(config())
    one, other = fl.from_iterable([played((1, 1, 0)), played((2, 2, 0))]).for_each(CountRollouts()).duplicate(2)
    reports = [StandardMetricsReporting(branch, workers, config()) for branch in (one, other)]
    results = list(Concurrently(reports).run(engine="serial"))
    assert [result["episodes_total"] for result in results] == [1, 1, 2, 2]


def test_a_second_run_counts_from_0():
    workers = fl.WorkerSet(config())
    plan = StandardMetricsReporting(ParallelRollouts(workers), workers, config())
    assert [[result["num_steps_sampled"] for result in plan.take(2)] for _ in range(2)] == [[10, 20], [10, 20]]


def test_once_per_time_interval_and_once_per_timesteps_are_filters():
    ticks = fl.from_iterable(range(10)).filter(OncePerTimeInterval(0.003))
    assert list(ticks.run(engine="serial")) == [2, 5, 8]
    steps = fl.from_iterable([SampleBatch({"x": np.zeros(4)})] * 6).for_each(CountRollouts()).filter(OncePerTimestepsElapsed(8))
    assert len(list(steps)) == 3


@pytest.mark.parametrize("mode", ["bulk_sync", "async"])
def test_reporting_calls_no_worker(mode):
    workers = fl.WorkerSet(config(num_workers=2))
    plan = StandardMetricsReporting(ParallelRollouts(workers, mode=mode), workers, config())
    with plan.run() as results:
        next(results)
        calls = [len(worker.live.calls) for worker in workers.remote_workers()]
        taken = next(results)["num_steps_sampled"]
    assert taken == (40 if mode == "bulk_sync" else 20)
    assert sum(calls) <= 2
