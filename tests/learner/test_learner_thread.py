"""A learner beside the plan."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager, suppress

import numpy as np
import pytest

import flowrl as fl
from flowrl.batch import SampleBatch
from flowrl.errors import ConfigError, NotOpenError, QueueClosedError
from flowrl.learner.learner_thread import LearnerThread
from flowrl.ops import Concurrently, Dequeue, Enqueue, ParallelRollouts, UpdateTargetNetwork
from flowrl.rollout.worker_set import WorkerSet
from tests.policies import NUM_LAYERS, NUM_WEIGHTS, Constant, ConstantConfig


def batch_of(count=2, **columns):
    return SampleBatch({"rewards": np.arange(count, dtype=np.float32), "batch_indexes": np.arange(10, 10 + count), **columns})


def workers_of(**settings):
    return WorkerSet(ConstantConfig(env="CartPole-v1", **settings))


def plan_of(learner, batches):
    feed = fl.from_iterable(batches).for_each(Enqueue(learner.inqueue))
    return Concurrently([feed, Dequeue(learner.outqueue, check=learner.is_alive)], mode="async", output_indexes=[1])


def test_each_batch_comes_back_with_its_source_priorities_and_rows(engine):
    workers = workers_of()
    learner = LearnerThread(workers.local_worker())
    with plan_of(learner, [("shard", batch_of(3)), batch_of(2)]).run() as stream:
        (source, priorities, count), (none, _, two) = stream
    assert (source, count, none, two) == ("shard", 3, None, 2)
    rows, td_errors = priorities["default"]
    assert rows.tolist() == [10, 11, 12] and td_errors.tolist() == [0.0, 1.0, 2.0]


def test_a_batch_that_was_not_replayed_has_no_priorities(engine):
    learner = LearnerThread(workers_of().local_worker())
    with plan_of(learner, [SampleBatch({"rewards": np.zeros(2, np.float32)})]).run() as stream:
        assert next(stream) == (None, {}, 2)


def test_its_timers_and_numbers_are_in_the_runs_metrics(engine):
    learner = LearnerThread(workers_of().local_worker())
    with plan_of(learner, [batch_of(4) for _ in range(3)]).run() as stream:
        list(stream)
        assert stream.metrics.timers["learner_grad"].calls == 3
        assert stream.metrics.timers["learner_grad"].units == 12
        assert {"learner_dequeue", "learner_overall"} <= stream.metrics.timers.keys()
        assert stream.metrics.info["learner"]["loss"] == -2 * NUM_LAYERS * NUM_WEIGHTS == learner.stats["loss"]
        assert learner.learner_queue_size.stats()["count"] == 3


def test_a_second_run_counts_from_the_start(engine):
    learner = LearnerThread(workers_of().local_worker())
    plan = plan_of(learner, [batch_of()])
    for _ in range(2):
        with plan.run() as stream:
            next(stream)
            assert learner.grad_timer.calls == 1
            assert learner.local_worker.policy_version == 1


def test_what_is_no_batch_is_an_error_that_says_what_to_give(engine):
    learner = LearnerThread(workers_of().local_worker())
    with plan_of(learner, [17]).run() as stream, pytest.raises(TypeError, match="given int: expected a SampleBatch, or"):
        next(stream)


def test_a_learner_that_dies_raises_its_own_exception_with_its_traceback_within_5_seconds(engine):
    learner = LearnerThread(workers_of().local_worker())
    plan = plan_of(learner, [batch_of(), batch_of(poison=np.zeros(2))])
    with plan.run() as stream:
        next(stream)
        began = time.monotonic()
        with pytest.raises(ArithmeticError, match="cannot be learned from") as raised:
            next(stream)
        assert time.monotonic() - began < 5
        frames = [frame.name for frame in raised.traceback]
        assert "loss" in frames and "work" in frames
        assert not learner.is_alive()


@pytest.fixture
def quick_switches():
    """Threads change over as often as they can: a read that could be torn is."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@contextmanager
def at_full_speed(learner):
    """An open learner that always has a batch, and whose answers are always read."""

    def feed():
        with suppress(QueueClosedError, NotOpenError):
            while True:
                learner.inqueue.put(batch_of())

    def drain():
        with suppress(QueueClosedError, NotOpenError):
            while True:
                learner.outqueue.get()

    threads = [threading.Thread(target=feed), threading.Thread(target=drain)]
    with learner.open(engine="ray"):
        for thread in threads:
            thread.start()
        yield
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_weights_are_of_one_version_however_they_are_read(on_ray, quick_switches):
    """A learner that writes all-minus-ones, all-minus-twos, ..., and 10,000 reads: whole versions, that never go back nor change later."""
    workers = workers_of(num_workers=1)
    remote, local = workers.remote_workers()[0], workers.local_worker()
    kept, last = [], 0.0
    with at_full_speed(LearnerThread(local)):
        for read in range(10_000):
            through_worker = not read % 50
            if through_worker:
                remote.set_weights.remote(local.get_weights())
                weights = on_ray.inner.result(remote.get_weights.remote())
            else:
                weights = local.get_weights()
            values = {float(value) for array in weights.values() for value in (array.min(), array.max())}
            assert len(values) == 1, f"read {read} mixes {values}"
            (value,) = values
            assert value <= last
            last = value
            if not read % 500:
                kept.append((weights, {name: array.copy() for name, array in weights.items()}))
        assert local.policy_version > 5_000
    for weights, as_read in kept:
        assert all(np.array_equal(weights[name], as_read[name]) for name in weights)


def test_version_and_weights_belong_together(on_ray, quick_switches):
    local = workers_of().local_worker()
    with at_full_speed(LearnerThread(local)):
        for _ in range(1_000):
            weights, version = local.get_versioned_weights()
            assert {float(array.max()) for array in weights.values()} == {-float(version)}


def endless(batch):
    while True:
        yield batch


def test_the_target_is_updated_between_two_steps(on_ray):
    """Its value is a whole version, and the period is kept by rows trained."""
    workers = workers_of()
    learner = LearnerThread(workers.local_worker())

    def counted(item):
        fl.LocalIterator.get_metrics().counters["num_steps_trained"] += item[2]
        return item

    plan = (
        plan_of(learner, lambda: endless(batch_of(2))).for_each(counted).for_each(UpdateTargetNetwork(workers, 10, by_steps_trained=True))
    )
    with plan.run() as stream:
        for _ in range(50):
            next(stream)
        assert stream.metrics.counters["num_target_updates"] == 50 * 2 // 10
        assert workers.local_worker().policy.target <= -49


def test_it_is_a_handle_that_starts_nothing():
    before = threading.active_count()
    learner = LearnerThread(workers_of().local_worker())
    learner.start()
    assert threading.active_count() == before and not learner.is_open and not learner.is_alive()


def test_it_opens_the_workers_it_trains_and_closes_them_with_the_run(engine):
    workers = workers_of()
    learner = LearnerThread(workers.local_worker())
    with plan_of(learner, [batch_of()]).run() as stream:
        next(stream)
        assert workers.is_open
    assert not workers.is_open
    assert float(next(iter(workers.local_worker().get_weights().values())).max()) == -1.0


class Sleeper(Constant):
    """A learner that is put to sleep in its third step."""

    gate = threading.Event()
    asleep = threading.Event()

    def loss(self, batch):
        if "sleep" in batch:
            self.asleep.set()
            self.gate.wait(60)
        return super().loss(batch)


class SleeperConfig(fl.AlgorithmConfig):
    def make_policy(self, observation_space, action_space, seed):
        return Sleeper(self, observation_space, action_space, seed)


@pytest.fixture
def sleeping_learner(on_ray):
    """The workers of a learner in a step that lasts, its third."""
    Sleeper.gate.clear()
    Sleeper.asleep.clear()
    workers = WorkerSet(SleeperConfig(env="CartPole-v1"))
    learner = LearnerThread(workers.local_worker())
    batches = [batch_of(), batch_of(), batch_of(sleep=np.zeros(2))]
    with plan_of(learner, batches).run() as stream:
        assert [next(stream)[2], next(stream)[2]] == [2, 2]
        assert Sleeper.asleep.wait(20)
        yield workers
        Sleeper.gate.set()


def test_while_a_step_lasts_weights_are_read_without_waiting(sleeping_learner):
    workers = sleeping_learner
    began = time.monotonic()
    weights, version = workers.local_worker().get_versioned_weights()
    assert time.monotonic() - began < 1
    assert version == 2 and {float(array.max()) for array in weights.values()} == {-2.0}
    next(iter(weights.values()))[:] = 7.0  # a copy: nobody else sees it
    assert {float(array.max()) for array in workers.local_worker().get_weights().values()} == {-2.0}


def test_a_run_can_be_left_while_a_step_lasts_and_the_last_whole_weights_stay(on_ray):
    Sleeper.gate.clear()
    Sleeper.asleep.clear()
    workers = WorkerSet(SleeperConfig(env="CartPole-v1"))
    learner = LearnerThread(workers.local_worker())
    with plan_of(learner, [batch_of(), batch_of(sleep=np.zeros(2)), batch_of()]).run() as stream:
        next(stream)
        assert Sleeper.asleep.wait(20)
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert {float(array.max()) for array in workers.local_worker().get_weights().values()} == {-1.0}
    Sleeper.gate.set()


def test_on_several_devices_it_learns_what_it_learns_on_one(serial):
    """`devices=` of its own, or of the config; PPO's loss in float64 agrees to 1e-6 in tests/learner/test_devices.py."""

    def weights_after(**settings):
        devices = settings.pop("learner_devices", None)
        config = fl.DQNConfig(env="CartPole-v1", hiddens=(16,), train_batch_size=33, learning_starts=64, **settings)
        workers = WorkerSet(config)
        learner = LearnerThread(workers.local_worker(), devices=devices)
        rollouts = ParallelRollouts(workers).for_each(Enqueue(learner.inqueue))
        plan = Concurrently([rollouts, Dequeue(learner.outqueue, check=learner.is_alive)], mode="async", output_indexes=[1])
        with plan.run() as stream:
            for _ in range(10):
                next(stream)
        return workers.local_worker().get_weights()

    one = weights_after()
    for settings in ({"devices": ("cpu", "cpu")}, {"learner_devices": ["cpu", "cpu", "cpu"]}):
        several = weights_after(**settings)
        assert all(np.allclose(one[name], several[name], atol=1e-5) for name in one)


def test_a_device_that_is_not_there_is_an_error_when_the_learner_opens(serial):
    learner = LearnerThread(workers_of().local_worker(), devices=["cuda:77"])
    with pytest.raises(ConfigError, match="cuda:77"), plan_of(learner, [batch_of()]).run():
        pass
