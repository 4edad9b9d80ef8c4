"""Same plan and seed, same stream: on the serial engine always, and for synchronous plans on both engines (C12)."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from flowrl.iter import Queue, SerialEngine, create_colocated, from_actors, from_items, from_iterable, from_range
from flowrl.iter import engine as engine_block
from flowrl.ops import Concurrently, Dequeue, Enqueue
from tests.iter.workers import Recorder, Versioned


def one_of_everything():
    """An asynchronous plan with all that could make two runs differ."""
    shared = Queue(5)
    shards = from_range(60, num_shards=4).local_shuffle(5, seed=3).for_each(lambda x: x, max_concurrency=2)
    first, second = shards.gather_async(batch_ms=3, num_async=2).shuffle(7, seed=1).duplicate(2)
    again = from_items(range(30), num_shards=3).repartition(2).gather_async(num_async=2)
    return Concurrently(
        [first.for_each(Enqueue(shared)), Dequeue(shared).batch(4), second.transform(iter), again],
        mode="async",
        round_robin_weights=[1, "*", Fraction(2, 3), 2],
    )


@pytest.mark.parametrize("seed", [0, 1, 12345])
def test_the_serial_engine_gives_the_same_stream_for_the_same_seed(seed):
    streams = []
    for _ in range(3):
        with one_of_everything().run(engine=SerialEngine(seed=seed)) as stream:
            streams.append(list(stream))
    assert streams[0] == streams[1] == streams[2]


def test_the_serial_engine_gives_the_same_stream_whatever_ran_before():
    engine = SerialEngine(seed=4)
    plan = one_of_everything()
    first = list(plan.run(engine=engine))
    plan.take(7)
    assert list(plan.run(engine=engine)) == first


def test_another_seed_is_another_interleaving_of_the_same_items():
    plan = from_range(40, num_shards=4).gather_async(num_async=2)
    streams = [list(plan.run(engine=SerialEngine(seed=seed))) for seed in range(5)]
    assert all(sorted(stream) == list(range(40)) for stream in streams)
    assert len({tuple(stream) for stream in streams}) > 1


def test_how_the_stream_is_read_does_not_change_it():
    plan = one_of_everything()
    with plan.run(engine=SerialEngine(seed=2)) as stream:
        by_next = [next(stream) for _ in range(10)]
        by_next += stream
    with engine_block(SerialEngine(seed=2)):
        assert list(plan) == by_next


def test_batch_ms_takes_as_many_items_as_milliseconds_on_the_serial_engine(serial):
    with serial.shards(range(20)).gather_async(batch_ms=4).run() as stream:
        next(stream)
        (gather,) = stream._run.gathers
        assert gather.num_held == 3


SYNC = {
    "gather_sync": lambda s: s.gather_sync(),
    "batch_across_shards": lambda s: s.batch_across_shards(),
    "shuffles": lambda s: s.local_shuffle(6, seed=5).gather_sync().shuffle(9, seed=6),
    "stages": lambda s: s.for_each(lambda x: x * 0.1).filter(lambda x: x > 0.3).batch(3).gather_sync().flatten().combine(lambda x: [x, -x]),
    "a union of two barriers": lambda s: (
        s.select_shards([0]).gather_sync().union(s.select_shards([1, 2]).batch_across_shards(), deterministic=True)
    ),
    "weights": lambda s: (
        s.select_shards([0])
        .gather_sync()
        .union(s.select_shards([1, 2]).gather_sync(), deterministic=True, round_robin_weights=[Fraction(1, 2), 2])
    ),
    "max_concurrency": lambda s: s.for_each(lambda x: -x, max_concurrency=3).gather_sync(),
    "a duplicate": lambda s: Concurrently([*s.gather_sync().duplicate(2)], round_robin_weights=[2, 1]),
}


@pytest.mark.parametrize("sync", SYNC)
def test_a_synchronous_plan_gives_the_same_stream_on_both_engines(serial_under_test, ray_under_test, sync):
    streams = []
    for under_test in (serial_under_test, ray_under_test):
        with engine_block(under_test.inner):
            streams.append(list(SYNC[sync](under_test.shards(range(20), range(100, 125), range(200, 211)))))
    assert streams[0] == streams[1]
    assert len(streams[0]) > 20


def test_a_loop_of_weights_gives_the_same_results_on_both_engines(serial_under_test, ray_under_test):
    """A little training loop: what comes depends on all that was sent before."""
    results = []
    for under_test in (serial_under_test, ray_under_test):
        actors = under_test.pool(3, Versioned)
        for index, actor in enumerate(actors):
            under_test.ask(actor, "set_shard", index)
            under_test.ask(actor, "set_version", 0)
        weights = [1]

        def update(item, weights=weights, under_test=under_test, actors=actors):
            shard, version, seq = item
            weights.append((weights[-1] * 31 + 7 * version + 3 * shard + seq) % 1009)
            for actor in actors:
                under_test.inner.call(actor, "set_version", weights[-1])
            return weights[-1]

        results.append(from_actors(actors).gather_sync().for_each(update).take(30))
    assert results[0] == results[1]


# --- shuffles -------------------------------------------------------------------------------------------------------


def test_each_shard_shuffles_in_an_order_of_its_own(engine):
    plan = engine.shards(range(30), range(30)).local_shuffle(10, seed=3)
    orders = [list(plan.get_shard(i)) for i in range(2)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(30))


def test_a_shard_shuffles_by_its_place_in_the_plan_not_in_the_run(engine):
    plan = engine.shards(range(30), range(30), range(30)).local_shuffle(10, seed=3)
    together = list(plan.batch_across_shards())
    alone = list(plan.get_shard(2))
    selected = list(plan.select_shards([2, 0]).batch_across_shards())
    assert alone == [items[2] for items in together] == [items[0] for items in selected]
    assert [items[0] for items in together] == [items[1] for items in selected]


def test_a_seed_gives_the_same_shuffle_each_run_and_each_build():
    def build():
        return from_iterable(range(50)).shuffle(10, seed=8)

    plan = build()
    assert list(plan) == list(plan) == list(build())
    assert list(plan) != list(from_iterable(range(50)).shuffle(10, seed=9))


def test_a_shuffle_without_a_seed_takes_that_of_the_serial_engine():
    plan = from_iterable(range(50)).shuffle(20)
    orders = [list(plan.run(engine=SerialEngine(seed=seed))) for seed in (1, 1, 2)]
    assert [sorted(order) for order in orders] == [list(range(50))] * 3
    assert orders[0] == orders[1] != orders[2]


def test_a_shuffle_moves_items_by_less_than_its_buffer_allows():
    items = list(from_iterable(range(100)).shuffle(10, seed=0))
    assert sorted(items) == list(range(100))
    assert all(place >= item - 9 for place, item in enumerate(items)), "nothing comes more than a buffer early"
    assert items != list(range(100))


def test_no_stage_uses_the_global_random_numbers():
    random.seed(1)
    before = random.getstate()
    list(one_of_everything().run(engine=SerialEngine(seed=1)))
    assert random.getstate() == before


def test_actors_of_a_handle_are_alike_on_both_engines(serial_under_test, ray_under_test):
    told = []
    for under_test in (serial_under_test, ray_under_test):
        (recorder,) = create_colocated(Recorder, [], 1)
        with recorder.open(engine=under_test.inner):
            for value in ("a", [1, 2], {"k": (1,)}):
                recorder.tell.remote(value)
            told.append(under_test.inner.result(recorder.all.remote()))
    assert told[0] == told[1] == ["a", [1, 2], {"k": (1,)}]
