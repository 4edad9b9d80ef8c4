"""Weights on their way: from a learner to workers, and to target networks."""

from __future__ import annotations

import numpy as np
import pytest

import flowrl as fl
from flowrl.errors import PlanError
from flowrl.learner.learner_thread import LearnerThread
from flowrl.ops import Concurrently, Dequeue, Enqueue, ParallelRollouts, TrainOneStep, UpdateTargetNetwork, UpdateWorkerWeights
from flowrl.rollout.worker_set import WorkerSet
from tests.policies import ConstantConfig


def workers_of(**settings):
    return WorkerSet(ConstantConfig(env="CartPole-v1", rollout_fragment_length=10, **settings))


def plan_over(workers, delay, mode="async"):
    """Each fragment is trained on by the learner; its worker may get new weights."""
    learner = LearnerThread(workers.local_worker())
    rollouts = ParallelRollouts(workers, mode="async").zip_with_source_actor()
    store = rollouts.for_each(UpdateWorkerWeights(learner, workers, delay)).for_each(Enqueue(learner.inqueue))
    return Concurrently([store, Dequeue(learner.outqueue, check=learner.is_alive)], mode=mode), learner


def test_a_worker_gets_weights_once_it_has_sampled_so_many_steps_since(engine):
    workers = workers_of(num_workers=2)
    plan, _ = plan_over(workers, delay=30)
    with plan.run() as stream:
        while stream.metrics.counters["num_steps_sampled"] < 300:
            next(stream)
        syncs = stream.metrics.counters["num_weight_syncs"]
        assert 300 // 30 - 2 <= syncs <= stream.metrics.counters["num_steps_sampled"] // 30


def test_the_version_of_every_workers_rows_rises_and_lags_no_more_than_the_delay(engine):
    """F6: by the versions of the rows themselves, of which a worker samples `delay` steps at most with the same weights."""
    workers = workers_of(num_workers=2)
    plan, learner = plan_over(workers, delay=20, mode="round_robin")  # a step of the learner for each fragment
    rows = {worker: [] for worker in workers.remote_workers()}
    with plan.run() as stream:
        while min(map(len, rows.values())) < 12:
            item = next(stream)
            if len(item) == 2:
                worker, batch = item
                rows[worker].append(int(batch["policy_version"][0]))
        assert learner.local_worker.policy_version > 0
    for versions in rows.values():
        assert versions == sorted(versions) and versions[-1] > versions[0]
        assert all(versions.count(version) <= 2 for version in versions)  # 2 fragments of 10 rows


class CountsCopies(fl.SerialEngine):
    num_shared = 0

    def share(self, value):
        self.num_shared += 1
        return super().share(value)


def test_weights_are_copied_out_of_the_learner_only_where_it_has_changed_them():
    workers, engine = workers_of(num_workers=2), CountsCopies()
    plan, learner = plan_over(workers, delay=0)
    with plan.run(engine=engine) as stream:
        changed = 0
        for _ in range(40):
            before = engine.num_shared, learner.weights_updated
            next(stream)
            changed += engine.num_shared - before[0]
            assert engine.num_shared == before[0] or before[1] or not before[0]
        assert 1 < changed < stream.metrics.counters["num_weight_syncs"] + 1


def test_by_sampled_steps_the_target_is_updated_each_period(engine):
    workers = workers_of(num_workers=1)
    plan = ParallelRollouts(workers).for_each(UpdateTargetNetwork(workers, 25))
    with plan.run() as stream:
        updates = []
        for _ in range(10):
            assert next(stream).count == 10  # the item is handed on
            updates.append(stream.metrics.counters["num_target_updates"])
    assert updates == [0, 0, 1, 1, 1, 2, 2, 2, 3, 3]  # at 30, 60 and 90 of 100 steps


def test_each_operator_keeps_a_period_of_its_own():
    workers = workers_of(num_workers=0)
    often, seldom = UpdateTargetNetwork(workers, 10), UpdateTargetNetwork(workers, 50)
    with ParallelRollouts(workers).for_each(often).for_each(seldom).run() as stream:
        for _ in range(10):
            next(stream)
        assert stream.metrics.counters["num_target_updates"] == 10 + 2


def test_by_trained_steps_it_goes_by_rows_trained():
    workers = workers_of(num_workers=0)
    plan = ParallelRollouts(workers).for_each(TrainOneStep(workers)).for_each(UpdateTargetNetwork(workers, 20, by_steps_trained=True))
    with plan.run() as stream:
        next(stream)
        assert workers.local_worker().policy.target == 0.0
        next(stream)
        assert workers.local_worker().policy.target == -2.0


def test_running_again_starts_the_period_over():
    workers = workers_of(num_workers=0)
    plan = ParallelRollouts(workers).for_each(UpdateTargetNetwork(workers, 30))
    for _ in range(2):
        with plan.run() as stream:
            for _ in range(4):
                next(stream)
            assert stream.metrics.counters["num_target_updates"] == 1


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: UpdateTargetNetwork([], 10), "pass a WorkerSet"),
        (lambda: UpdateTargetNetwork(workers_of(), 0), "target_update_freq"),
        (lambda: UpdateWorkerWeights(None, workers_of(), 10), "pass a LearnerThread"),
        (lambda: UpdateWorkerWeights(LearnerThread(workers_of().local_worker()), workers_of(), -1), "max_weight_sync_delay"),
    ],
)
def test_what_cannot_work_is_refused_when_built(build, message):
    with pytest.raises(PlanError, match=message):
        build()


def test_schedules_of_exploration_hear_how_far_the_run_is(engine):
    """Remote workers hear it with their weights: DQN's epsilon falls there too."""
    config = fl.DQNConfig(
        env="CartPole-v1", num_workers=2, learning_starts=16, epsilon_schedule=((0, 1.0), (100, 0.0)), min_steps_per_reporting=0
    )
    workers = WorkerSet(config)
    with config.make_plan(workers).run() as stream:
        while stream.metrics.counters["num_steps_sampled"] < 120:
            next(stream)
        epsilons = workers.foreach_policy(lambda policy, _: policy.get_exploration_info()["epsilon"])
    assert epsilons == [0.0, 0.0, 0.0]


def test_weights_that_somebody_else_has_set_are_not_undone(engine):
    """The learner has nothing to learn yet; a policy is loaded into all workers meanwhile."""
    workers = workers_of(num_workers=1)
    learner = LearnerThread(workers.local_worker())
    store = ParallelRollouts(workers, mode="async").zip_with_source_actor().for_each(UpdateWorkerWeights(learner, workers, 0))
    with store.run() as stream:
        next(stream), next(stream)
        loaded = {name: np.full_like(weights, 7.0) for name, weights in workers.local_worker().get_weights().items()}
        workers.foreach_worker(lambda worker: worker.set_weights(loaded))
        for _ in range(3):
            next(stream)
        (remote,) = workers.remote_workers()
        weights = engine.inner.result(remote.get_weights.remote())
    assert all((array == 7.0).all() for array in weights.values())
