"""How fragments become train batches."""

import numpy as np
import pytest

import flowrl as fl
from flowrl.batch import EpisodeStats, Origin, SampleBatch
from flowrl.ops import ConcatBatches, ParallelRollouts, StandardizeFields
from tests.envs import CountEnv


def rows(*values: float, origin=None) -> SampleBatch:
    return SampleBatch({"x": np.array(values, np.float32)}, origin)


def config(**settings) -> fl.PPOConfig:
    return fl.PPOConfig(
        **{"env": lambda context: CountEnv(3), "rollout_fragment_length": 4, "hiddens": (4,), "engine": "serial", **settings}
    )


def test_bulk_sync_gives_one_batch_a_round_and_counts_it():
    with ParallelRollouts(fl.WorkerSet(config(num_workers=2, num_envs=2))).run() as rollouts:
        batch = next(rollouts)
        assert batch.count == 16
        assert batch.origin == (Origin(1, 0, 0), Origin(2, 0, 0))
        assert rollouts.metrics.counters["num_steps_sampled"] == 16
        assert rollouts.metrics.counters["num_episodes"] == 4
        assert rollouts.metrics.values["episodes"].items == [EpisodeStats(6.0, 3, worker) for worker in (1, 1, 2, 2)]


def test_raw_rollouts_are_shards_that_nobody_has_counted():
    rollouts = ParallelRollouts(fl.WorkerSet(config(num_workers=2)), mode="raw")
    assert isinstance(rollouts, fl.ParallelIterator)
    assert rollouts.for_each(lambda batch: batch.count).gather_sync().take(3) == [4, 4, 4]


@pytest.mark.parametrize(
    ("workers", "mode", "words"),
    [
        (fl.WorkerSet(config()), "raw", "no remote workers"),
        (fl.WorkerSet(config(num_workers=1)), "sync", "mode is 'bulk_sync', 'async' or 'raw'"),
        ([1], "bulk_sync", "pass a WorkerSet"),
    ],
)
def test_rollouts_that_cannot_be_are_refused_when_built(workers, mode, words):
    with pytest.raises(fl.PlanError, match=words) as caught:
        ParallelRollouts(workers, mode=mode)
    assert "test_rollout_ops.py:" in str(caught.value)


def test_no_row_is_lost_or_twice_between_two_train_batches():
    plan = fl.from_iterable([rows(*range(start, start + 7)) for start in range(0, 70, 7)]).combine(ConcatBatches(20))
    batches = list(plan)
    assert [batch.count for batch in batches] == [21, 21, 21]
    assert np.concatenate([batch["x"] for batch in batches]).tolist() == list(range(63))


def test_a_second_run_begins_with_an_empty_concat():
    plan = fl.from_iterable([rows(1, 2, 3)] * 3).combine(ConcatBatches(6))
    assert [batch.count for batch in plan] == [6]
    assert [batch.count for batch in plan] == [6]


def test_a_joined_batch_knows_all_its_sources():
    plan = fl.from_items([rows(1), rows(2), rows(3), rows(4)], num_shards=2).gather_sync().combine(ConcatBatches(2))
    with pytest.raises(fl.PlanError, match="zip_with_source_actors"):
        plan.zip_with_source_actor()
    assert [len(actors) for actors, _ in plan.zip_with_source_actors().run(engine="serial")] == [2, 2]


def test_a_train_batch_of_no_rows_is_refused():
    with pytest.raises(fl.PlanError, match="at least 1"):
        ConcatBatches(0)


def test_standardized_fields_have_mean_0_and_deviation_1_in_a_new_batch():
    batch = rows(1, 2, 3, 4)
    new = StandardizeFields(["x"])(batch)
    assert new["x"] == pytest.approx([-1.3416407, -0.4472136, 0.4472136, 1.3416407])  # (x - 2.5) / sqrt(1.25)
    assert new["x"].dtype == np.float32
    assert batch["x"].tolist() == [1, 2, 3, 4]


def test_a_field_that_does_not_vary_becomes_0_and_not_nan():
    assert StandardizeFields(["x"])(rows(5, 5))["x"].tolist() == [0, 0]
