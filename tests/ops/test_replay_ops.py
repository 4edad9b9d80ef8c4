"""Storing, replaying and giving priorities back, in a plan."""

from __future__ import annotations

import math
import re
import time

import numpy as np
import pytest

import flowrl as fl
from flowrl.batch import SampleBatch
from flowrl.errors import ConfigError, DeadlockError, NotOpenError, PlanError
from flowrl.ops import Concurrently, Replay, StoreToReplayBuffer, UpdatePriorities
from flowrl.replay.actor import ReplayActor
from flowrl.replay.local_buffer import LocalReplayBuffer

ROWS = 10


def rows(first, count=ROWS):
    return SampleBatch({"obs": np.arange(first, first + count, dtype=np.float32)[:, None], "rewards": np.zeros(count, np.float32)})


def fragments(number=10**9):
    return (rows(ROWS * index) for index in range(number))


def shards_of(count=2, learning_starts=40, buffer_size=1000, train_batch_size=32, alpha=0.6):
    args = [count, learning_starts, buffer_size, train_batch_size, alpha, 0.4, 1e-6]
    return fl.create_colocated(ReplayActor, args, count)


def buffer_of(learning_starts=40, buffer_size=1000, **settings):
    return LocalReplayBuffer(learning_starts, buffer_size, 32, **settings)


def memory_of(where, **settings):
    return {"local_buffer": buffer_of(**settings)} if where == "local" else {"actors": shards_of(**settings)}


def store_and_replay(memory, number=10**9, **concurrently):
    store = fl.from_iterable(lambda: fragments(number)).for_each(StoreToReplayBuffer(**memory))
    return Concurrently([store, Replay(**memory)], **{"mode": "round_robin", "output_indexes": [1], **concurrently})


@pytest.fixture(params=["local", "actors"])
def where(request):
    return request.param


def test_nothing_comes_before_there_are_enough_rows_then_whole_batches(engine, where):
    memory = memory_of(where)
    stored = []
    store = fl.from_iterable(lambda: fragments()).for_each(StoreToReplayBuffer(**memory)).for_each(lambda batch: stored.append(batch))
    with Concurrently([store, Replay(**memory)], mode="round_robin", output_indexes=[1]).run() as stream:
        first = next(stream)
        assert len(stored) * ROWS >= (40 if where == "local" else 20)  # one shard may have its part before the other
        assert first.count == 32 and first.origin is None
        assert next(stream).count == 32


def test_replayed_rows_are_rows_that_were_stored_and_read_only(engine, where):
    with store_and_replay(memory_of(where)).run() as stream:
        batch = next(stream)
        assert set(batch["obs"][:, 0].tolist()) <= set(range(10_000))
        with pytest.raises(ValueError, match="read-only"):
            batch["obs"][0] = 7.0


def test_a_stored_batch_is_handed_on(engine, where):
    memory = memory_of(where)
    stored = fl.from_iterable(lambda: fragments(3)).for_each(StoreToReplayBuffer(**memory))
    assert [batch["obs"][0, 0] for batch in stored.take(3)] == [0.0, 10.0, 20.0]


def test_batches_go_to_the_actors_one_after_the_other(engine):
    actors = shards_of(3)
    with fl.from_iterable(lambda: fragments(7)).for_each(StoreToReplayBuffer(actors=actors)).run() as stream:
        for _ in range(7):
            next(stream)
        held = [engine.inner.result(actor.stats.remote())["num_rows"] for actor in actors]
    assert held == [30, 20, 20]


class ReadableReplay(ReplayActor):
    """Shows what was stored."""

    def __init__(self, *args):
        super().__init__(*args)
        self.stored = []

    def add_batch(self, batch):
        super().add_batch(batch)
        self.stored.append(batch["obs"][:, 0].tolist())

    def all(self):
        return self.stored


STREAMS = {
    "as they came": (lambda gathered: gathered, True),
    "seen by others": (lambda gathered: gathered.for_each(lambda batch: batch).filter(lambda batch: batch.count > 0), True),
    "changed": (lambda gathered: gathered.for_each(lambda batch: batch.with_columns(obs=batch["obs"] + 0)), False),
    "cut": (lambda gathered: gathered.for_each(lambda batch: batch[:3]), False),
    "two at a time, then one by one": (lambda gathered: gathered.batch(2).flatten(), None),
    "shuffled": (lambda gathered: gathered.shuffle(4, seed=0), None),
}


GATHERED = [*(("gather_async", stages) for stages in STREAMS), ("gather_async of many", "as they came"), ("gather_sync", "as they came")]


@pytest.mark.parametrize(("gather", "stages"), GATHERED)
def test_what_is_stored_is_what_came_out_of_the_stages_before(engine, monkeypatch, gather, stages):
    """On Ray a fragment that no stage has changed goes on by reference: stored is what the consumer sees all the same."""
    (replay,) = fl.create_colocated(ReadableReplay, [1, 40, 1000, 32, 0.6, 0.4, 1e-6], 1)
    named, name = [], engine.inner.named_by
    monkeypatch.setattr(engine.inner, "named_by", lambda call, item: (named.append(item), name(call, item))[1])
    shards = engine.shards(list(fragments(4)), [rows(100 + ROWS * index) for index in range(4)])
    how, as_sent = STREAMS[stages]
    gathered = shards.gather_sync() if gather == "gather_sync" else shards.gather_async(batch_ms=5 * (gather == "gather_async of many"))
    with how(gathered).for_each(StoreToReplayBuffer(actors=[replay])).run() as stream:
        seen = [next(stream)["obs"][:, 0].tolist() for _ in range(8)]
        assert engine.inner.result(replay.all.remote()) == seen
    if gather == "gather_async" and as_sent is not None:
        assert len(named) == 8 * as_sent


@pytest.mark.parametrize("weights", [[1, 4], ["*", 4], [1, "*"], [1, 0.5]])
@pytest.mark.parametrize("num_replays", [1, 2])
def test_turns_of_a_replay_that_is_not_ready_are_owed_not_waited_for(engine, where, weights, num_replays):
    """A13: the plan starts, whatever the weights, and with two replays too."""
    memories = [memory_of(where, learning_starts=200) for _ in range(num_replays)]
    store = fl.from_iterable(lambda: fragments())
    for memory in memories:
        store = store.for_each(StoreToReplayBuffer(**memory))
    branches = [store, *(Replay(**memory) for memory in memories)]
    shares = [weights[0], *[weights[1]] * num_replays]
    plan = Concurrently(branches, mode="round_robin", output_indexes=list(range(1, num_replays + 1)), round_robin_weights=shares)
    with plan.run() as stream:
        for _ in range(20):
            assert next(stream).count == 32


@pytest.mark.parametrize("weight", [4, 0.25])
def test_in_the_long_run_the_ratio_holds(engine, where, weight):
    memory = memory_of(where)
    stored = []
    store = fl.from_iterable(lambda: fragments()).for_each(StoreToReplayBuffer(**memory)).for_each(stored.append)
    plan = Concurrently([store, Replay(**memory)], mode="round_robin", output_indexes=[1], round_robin_weights=[1, weight])
    with plan.run() as stream:
        for _ in range(30):  # past the turns that were owed
            next(stream)
        before = len(stored)
        for _ in range(200):
            next(stream)
        assert 200 / (len(stored) - before) == pytest.approx(weight, rel=0.05)


def test_a_replay_that_nothing_feeds_is_a_deadlock_that_says_what_is_missing(serial):
    with (
        Replay(local_buffer=buffer_of()).run() as stream,
        pytest.raises(DeadlockError, match=r"Replay.*waits for 40 rows, of which it has 0"),
    ):
        next(stream)
    with Replay(actors=shards_of(2)).run() as stream, pytest.raises(DeadlockError, match=r"gather_async.*has nothing to give yet"):
        next(stream)


@pytest.mark.parametrize("where", ["actors", "local"])
def test_a_warm_up_that_stands_still_asks_nobody_and_burns_nothing(on_ray, where):  # E7
    """The shards have been asked once for each time that something reached them, and no more while the run sleeps."""
    memory = memory_of(where, learning_starts=10_000, buffer_size=20_000)
    slow = fl.from_items([0] * 3, num_shards=1).for_each(lambda x: (time.sleep(0.7), rows(0))[1]).gather_async()
    store = slow.for_each(StoreToReplayBuffer(**memory))
    with Concurrently([store, Replay(**memory)], mode="async").run() as stream:
        next(stream)
        began, cpu = time.monotonic(), time.process_time()
        next(stream)
        waited = time.monotonic() - began
        assert time.process_time() - cpu < 0.2 * waited
        asked = [actor.num_calls for actor in memory.get("actors", ())]
    assert sum(asked) <= 8  # what was stored, and nothing else


def test_a_replay_opened_by_the_user_hears_of_rows_from_outside(on_ray):
    """Another thread stores; the run has no branch that does."""
    import threading

    (actor,) = shards_of(1, learning_starts=20)
    with actor.open(engine=on_ray.inner), Replay(actors=[actor]).run() as stream:
        thread = threading.Timer(0.3, lambda: [actor.add_batch.remote(rows(0)) for _ in range(3)])
        thread.start()
        began = time.monotonic()
        assert next(stream).count == 32
        assert time.monotonic() - began < 5
        thread.join()


def test_what_a_user_opened_keeps_its_rows_and_what_a_run_opened_does_not(engine):
    buffer = buffer_of(learning_starts=10)
    stored = fl.from_iterable(lambda: fragments(2)).for_each(StoreToReplayBuffer(local_buffer=buffer))
    stored.take(2)
    with pytest.raises(NotOpenError):
        buffer.stats()
    with buffer.open():
        stored.take(2)
        stored.take(1)
        assert buffer.stats()["num_rows"] == 30


def test_priorities_come_back_to_the_local_buffer(engine):
    buffer = buffer_of(learning_starts=4, alpha=1.0, beta=0.0)

    def judged(batch):
        """Only row 3 is worth replaying."""
        return batch.with_columns(td_errors=np.where(batch["obs"][:, 0] == 3, 1.0, 1e-9)), {}

    store = fl.from_iterable([rows(0)]).for_each(StoreToReplayBuffer(local_buffer=buffer))
    train = Replay(local_buffer=buffer).for_each(judged).for_each(UpdatePriorities(local_buffer=buffer))
    with Concurrently([store, train], mode="round_robin", output_indexes=[1]).run() as stream:
        for _ in range(30):
            batch, _ = next(stream)
    assert np.mean(batch["obs"][:, 0] == 3) > 0.9


def test_priorities_come_back_to_the_actor_that_replayed_and_the_rows_are_counted(engine):
    (actor,) = actors = shards_of(1, learning_starts=4, alpha=1.0)

    def learned(item):
        source, batch = item
        return source, {"default": (batch["batch_indexes"], np.where(batch["obs"][:, 0] == 3, 1.0, 0.0))}, batch.count

    store = fl.from_iterable([rows(0)]).for_each(StoreToReplayBuffer(actors=actors))
    train = Replay(actors=actors, num_async=1).zip_with_source_actor().for_each(learned).for_each(UpdatePriorities())
    with Concurrently([store, train], mode="async", output_indexes=[1]).run() as stream:
        for _ in range(40):
            next(stream)
        assert stream.metrics.counters["num_steps_trained"] == 40 * 32
        batch = engine.inner.result(actor.replay.remote())
    assert np.mean(batch["obs"][:, 0] == 3) > 0.9


def test_priorities_that_are_not_finite_reach_the_consumer_as_an_error(engine):
    actors = shards_of(1, learning_starts=4)

    def learned(item):
        source, batch = item
        return source, {"default": (batch["batch_indexes"], np.full(batch.count, np.nan))}, batch.count

    store = fl.from_iterable([rows(0)]).for_each(StoreToReplayBuffer(actors=actors))
    train = Replay(actors=actors).zip_with_source_actor().for_each(learned).for_each(UpdatePriorities())
    with Concurrently([store, train], mode="async").run() as stream, pytest.raises(ValueError, match="nan"):
        for _ in range(50):
            next(stream)


def test_an_actor_that_lags_holds_up_who_feeds_it(on_ray):
    """At most 16 batches are on their way to it."""

    class SlowReplay(ReplayActor):
        def add_batch(self, batch):
            time.sleep(0.02)
            super().add_batch(batch)

    (actor,) = fl.create_colocated(SlowReplay, [1, 10**6, 10**6, 32, 0.6, 0.4, 1e-6], 1)
    with fl.from_iterable(lambda: fragments()).for_each(StoreToReplayBuffer(actors=[actor])).run() as stream:
        for _ in range(60):
            next(stream)
        stored = on_ray.inner.result(actor.stats.remote())["num_rows"] // ROWS  # after all that was on its way
        assert stored == 60
        began = time.monotonic()
        for _ in range(60):
            next(stream)
        assert time.monotonic() - began > (60 - 16 - 2) * 0.02


def test_each_shard_draws_rows_of_its_own(serial):
    """The same rows in two shards come out in another order."""
    actors = shards_of(2, learning_starts=2)
    store = fl.from_iterable(lambda: [rows(0), rows(0)]).for_each(StoreToReplayBuffer(actors=actors))
    with store.run() as stream:
        next(stream), next(stream)
        drawn = [serial.inner.result(actor.replay.remote())["obs"][:, 0].tolist() for actor in actors]
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Replay(), "give either actors"),
        (lambda: StoreToReplayBuffer(actors=[], local_buffer=None), "create_colocated"),
        (lambda: Replay(actors=[ReplayActor]), "create_colocated"),
        (lambda: StoreToReplayBuffer(local_buffer=[1]), "pass a LocalReplayBuffer"),
        (lambda: StoreToReplayBuffer(actors=shards_of(1), local_buffer=buffer_of()), "give either actors"),
        (lambda: UpdatePriorities(local_buffer=7), "pass a LocalReplayBuffer"),
        (lambda: Replay(actors=shards_of(1), num_async=0), "num_async"),
    ],
)
def test_what_cannot_work_is_refused_when_built_with_the_plans_line(build, message):
    with pytest.raises(PlanError, match=message) as raised:
        build()
    assert "test_replay_ops.py:" in str(raised.value)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((2, 10, 1, 32, 0.6, 0.4, 1e-6), "buffer_size=1 rows in num_shards=2"),
        ((1, 200, 100, 32, 0.6, 0.4, 1e-6), "learning_starts=200 is above buffer_size=100"),
        ((1, 10, 100, 0, 0.6, 0.4, 1e-6), "train_batch_size=0"),
        ((1, 10, 100, 32, 0.6, 0.4, 0.0), "eps=0.0"),
        ((1, 10, 100, 32, 0.6, 0.4, math.inf), "eps=inf"),
        ((1, 10, 100, 32, None, 7, 1e-6), "beta=7"),
        ((1, math.nan, 100, 32, 0.6, 0.4, 1e-6), "learning_starts=nan: expected a whole number, 0 or more"),
        ((1, -5, 100, 32, 0.6, 0.4, 1e-6), "learning_starts=-5"),
        ((2.5, 10, 100, 32, 0.6, 0.4, 1e-6), "num_shards=2.5: expected a whole number, 1 or more"),
        ((1, 10, 10.5, 32, 0.6, 0.4, 1e-6), "buffer_size=10.5"),
        ((1, 10, 100, 2.5, 0.6, 0.4, 1e-6), "train_batch_size=2.5"),
    ],
)
def test_settings_that_do_not_fit_are_refused(args, message):
    with pytest.raises(ConfigError, match=message):
        ReplayActor(*args)


def test_totals_are_spread_over_the_shards():
    actor = ReplayActor(3, 100, 1000, 32, 0.6, 0.4, 1e-6)
    assert (actor.learning_starts, actor.buffer.capacity, actor.train_batch_size) == (34, 333, 32)


def test_a_memory_that_starts_when_it_is_full_starts_whatever_the_number_of_shards():
    actor = ReplayActor(3, 100, 100, 8, 0.6, 0.4, 1e-6)  # 33 rows each: the part of learning_starts, rounded up, would be 34
    actor.add_batch(rows(0, 33))
    assert actor.replay().count == 8


def test_priorities_of_a_train_step_without_a_buffer_are_told_what_to_add(serial):
    plan = fl.from_iterable([(rows(0), {"loss": 1.0})]).for_each(UpdatePriorities())
    with plan.run() as stream, pytest.raises(TypeError, match=r"after TrainOneStep.* say local_buffer="):
        next(stream)


def test_what_an_actor_refuses_is_told_of_with_the_operator_its_line_and_the_shard(engine):  # C7
    actors = shards_of(2)
    batches = [rows(0), rows(0), rows(0), rows(0).with_columns(more=np.zeros(ROWS))]
    store = fl.from_iterable(lambda: iter(batches * 9)).for_each(StoreToReplayBuffer(actors=actors))
    with store.run() as stream, pytest.raises(ValueError, match="a batch with the columns") as raised:
        list(stream)
    (note,) = raised.value.__notes__
    assert re.fullmatch(r"in StoreToReplayBuffer at test_replay_ops\.py:\d+, shard 1 of 2", note)
