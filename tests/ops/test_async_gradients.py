"""Gradients from the workers, and weights back to the one whose gradient was applied."""

from __future__ import annotations

import pytest

import flowrl as fl
from flowrl.errors import PlanError
from flowrl.ops import ApplyGradients, AsyncGradients, ComputeGradients, ParallelRollouts
from flowrl.rollout.worker_set import WorkerSet
from tests.policies import NUM_LAYERS, NUM_WEIGHTS, ConstantConfig


def workers_of(num_workers=2, **settings):
    return WorkerSet(ConstantConfig(env="CartPole-v1", num_workers=num_workers, rollout_fragment_length=10, **settings))


def value_of(weights):
    """The one number that all weights are."""
    (value,) = {float(array.flat[index]) for array in weights.values() for index in (0, -1)}
    return value


def test_a_gradient_is_that_of_the_workers_own_fragment_and_its_steps_are_counted(engine):
    with AsyncGradients(workers_of()).run() as stream:
        (gradient, info), num_rows = next(stream)
        next(stream)
        assert num_rows == 10 and len(gradient) == NUM_LAYERS
        assert value_of(gradient) == 1.0  # the loss is the sum of all weights
        assert info["loss"].value == 0.0
        assert stream.metrics.counters["num_steps_sampled"] == 20
        assert stream.metrics.timers["compute_gradients"].units == 20


def test_with_one_in_flight_a_gradient_is_computed_with_the_weights_that_its_last_one_made(engine):
    """C3 with k=1: its `loss` is the sum of the weights it was computed with, which those of the last update must be."""
    workers = workers_of()
    applied = AsyncGradients(workers).zip_with_source_actor().for_each(ApplyGradients(workers, update_all=False))
    version_sent = dict.fromkeys(workers.remote_workers(), 0)
    with applied.run() as stream:
        for update in range(1, 25):
            (worker, ((_, info), _)), _ = next(stream)
            computed_with = -info["loss"].value / (NUM_LAYERS * NUM_WEIGHTS)
            assert computed_with == version_sent[worker]
            version_sent[worker] = update
        assert stream.metrics.counters["num_weight_syncs"] == 24
        assert value_of(workers.local_worker().get_weights()) == -24


def test_only_the_worker_whose_gradient_was_applied_gets_new_weights(engine):
    workers = workers_of()
    with AsyncGradients(workers).zip_with_source_actor().for_each(ApplyGradients(workers, update_all=False)).run() as stream:
        (worker, _), _ = next(stream)
        held = [value_of(engine.inner.result(other.get_weights.remote())) for other in workers.remote_workers()]
        assert held == [-1.0 if other is worker else 0.0 for other in workers.remote_workers()]


def test_with_update_all_every_worker_gets_them(engine):
    workers = workers_of()
    with AsyncGradients(workers).zip_with_source_actor().for_each(ApplyGradients(workers)).run() as stream:
        next(stream)
        assert [value_of(engine.inner.result(other.get_weights.remote())) for other in workers.remote_workers()] == [-1.0, -1.0]


def test_without_remote_workers_the_local_one_samples_and_computes():
    workers = workers_of(num_workers=0)
    with AsyncGradients(workers).for_each(ApplyGradients(workers, update_all=False)).run() as stream:
        next(stream)
        assert stream.metrics.counters["num_steps_sampled"] == 10
        assert value_of(workers.local_worker().get_weights()) == -1.0
    with pytest.raises(PlanError, match="set num_workers"):
        AsyncGradients(workers).zip_with_source_actor()


def test_a_gradient_without_its_worker_is_an_error_that_says_what_to_add(engine):
    workers = workers_of()
    plan, message = (
        AsyncGradients(workers).for_each(ApplyGradients(workers, update_all=False)),
        r"put \.zip_with_source_actor\(\) before it",
    )
    with plan.run() as stream, pytest.raises(ValueError, match=message):
        next(stream)


def test_in_shards_of_raw_rollouts_each_worker_computes_with_its_own_weights(engine):
    workers = workers_of()
    shards = ParallelRollouts(workers, mode="raw").for_each(ComputeGradients(workers))
    with shards.batch_across_shards().run() as stream:
        first = workers.remote_workers()[0]
        engine.inner.result(first.apply.remote(lambda worker: worker.set_weights({k: w + 5 for k, w in worker.get_weights().items()})))
        losses = [info["loss"].value for (_, info), _ in next(stream)]
    assert losses == [5.0 * NUM_LAYERS * NUM_WEIGHTS, 0.0]


def test_async_gradients_of_anything_else_are_refused():
    with pytest.raises(PlanError, match="pass a WorkerSet"):
        AsyncGradients(fl.from_range(3))
