"""From the shards into the driver: barriers, back-pressure, order, fairness, and what comes out after a stop."""

from __future__ import annotations

import itertools
import time
from collections import Counter

import pytest

from flowrl.iter import Queue, SerialEngine, from_actors, from_range
from flowrl.iter.shard import MAX_ANSWER_BYTES, MAX_ANSWER_ITEMS
from flowrl.ops import Concurrently, Dequeue, Enqueue
from tests.conftest import EngineUnderTest
from tests.iter.workers import Source, Versioned, slowly


def versioned(engine: EngineUnderTest, count: int):
    actors = engine.pool(count, Versioned)
    for index, actor in enumerate(actors):
        engine.ask(actor, "set_shard", index)
        engine.ask(actor, "set_version", 0)
    return actors


# --- gather_sync: a barrier (C2) ------------------------------------------------------------------------------------


def test_gather_sync_gives_rounds_in_shard_order(engine):
    assert list(engine.shards([0, 1, 2], [10, 11, 12], [20, 21, 22]).gather_sync()) == [0, 10, 20, 1, 11, 21, 2, 12, 22]


def test_gather_sync_goes_on_without_a_shard_that_ended(engine):
    assert list(engine.shards([0], [10, 11, 12], [], [30, 31]).gather_sync()) == [0, 10, 30, 11, 31, 12]


def test_weights_sent_for_a_round_are_seen_by_every_shard_in_the_next(engine):
    actors = versioned(engine, 3)
    rounds: list[list[int]] = []
    with from_actors(actors).gather_sync().run() as stream:
        for number in range(1, 5):
            rounds.append([next(stream)[1] for _ in actors])
            for actor in actors:
                engine.inner.call(actor, "set_version", number)
    assert rounds == [[0] * 3, [1] * 3, [2] * 3, [3] * 3]


def test_a_shard_makes_nothing_ahead_of_its_barrier(engine):
    actors = versioned(engine, 2)
    with from_actors(actors).gather_sync().run() as stream:
        for number in range(1, 4):
            next(stream), next(stream)
            assert [engine.ask(actor, "count") for actor in actors] == [number, number]


def test_a_message_sent_within_a_round_reaches_only_the_next_round(engine):
    actors = versioned(engine, 2)
    with from_actors(actors).gather_sync().run() as stream:
        first = next(stream)
        for actor in actors:
            engine.inner.call(actor, "set_version", 7)
        second, third, fourth = next(stream), next(stream), next(stream)
    assert [first, second, third, fourth] == [(0, 0, 1), (1, 0, 1), (0, 7, 2), (1, 7, 2)]


def test_batch_across_shards_is_a_barrier_of_lists(engine):
    actors = versioned(engine, 3)
    seen = []
    with from_actors(actors).batch_across_shards().run() as stream:
        for number in range(1, 4):
            seen.append(next(stream))
            for actor in actors:
                engine.inner.call(actor, "set_version", number)
    assert seen == [[(shard, version, version + 1) for shard in range(3)] for version in range(3)]


def test_batch_across_shards_gives_shorter_lists_once_a_shard_has_ended(engine):
    assert list(engine.shards([0, 1, 2], [10], [20, 21]).batch_across_shards()) == [[0, 10, 20], [1, 21], [2]]


# --- gather_async: back-pressure (C3) -------------------------------------------------------------------------------


def test_with_one_call_in_flight_weights_for_an_item_are_in_force_for_the_next(engine):
    (actor,) = versioned(engine, 1)
    with from_actors([actor]).gather_async(num_async=1).run() as stream:
        for number in range(6):
            assert next(stream) == (0, number, number + 1)
            engine.inner.call(actor, "set_version", number + 1)


@pytest.mark.parametrize("num_async", [2, 3])
def test_with_k_calls_in_flight_weights_are_exactly_k_minus_1_items_old(engine, num_async):
    (actor,) = versioned(engine, 1)
    versions = []
    with from_actors([actor]).gather_async(num_async=num_async).run() as stream:
        for number in range(8):
            versions.append(next(stream)[1])
            engine.ask(actor, "set_version", number + 1)
    assert versions == [max(0, number - (num_async - 1)) for number in range(8)]


@pytest.mark.parametrize("num_async", [1, 3])
def test_a_shard_makes_at_most_num_async_items_beyond_those_handed_on(engine, num_async):
    actors = versioned(engine, 2)
    with from_actors(actors).gather_async(num_async=num_async).run() as stream:
        handed_on = Counter()
        for _ in range(12):
            handed_on[next(stream)[0]] += 1
            made = [engine.ask(actor, "count") for actor in actors]
            # The item in the driver's hands belongs to an answer that is not handled yet, so it is one of the k.
            assert all(made[shard] <= handed_on[shard] + num_async for shard in range(2))


def test_the_shard_of_the_item_in_hand_is_idle_until_the_next_pull(engine):
    (actor,) = versioned(engine, 1)
    with from_actors([actor]).gather_async(num_async=1).run() as stream:
        for number in range(1, 6):
            next(stream)
            assert engine.ask(actor, "count") == number


def test_an_item_parked_in_a_batch_counts_as_handed_on(engine):
    (actor,) = versioned(engine, 1)
    with from_actors([actor]).gather_async().batch(3).run() as stream:
        assert next(stream) == [(0, 0, 1), (0, 0, 2), (0, 0, 3)]
        assert engine.ask(actor, "count") == 3
        engine.ask(actor, "set_version", 1)
        assert next(stream) == [(0, 1, 4), (0, 1, 5), (0, 1, 6)]


def test_an_item_parked_in_a_queue_or_duplicate_counts_as_handed_on(engine):
    """The shard makes the next item though the last one lies in a queue, or waits for the other child."""
    (actor,) = versioned(engine, 1)
    shared = Queue(3)
    first, second = from_actors([actor]).gather_async().duplicate(2)
    plan = Concurrently([first.for_each(Enqueue(shared)), Dequeue(shared).batch(100), second.batch(100)], mode="async", output_indexes=[0])
    with plan.run() as stream:
        for number in range(1, 4):
            assert next(stream) == (0, number - 1, number)
            assert engine.ask(actor, "count") == number
            engine.ask(actor, "set_version", number)


def test_with_batch_ms_a_shard_is_asked_again_after_the_last_item_of_its_answer(engine):
    (actor,) = versioned(engine, 1)
    with from_actors([actor]).for_each(lambda x: x).gather_async(batch_ms=2).run() as stream:
        items = [next(stream)]
        made = engine.ask(actor, "count")
        engine.ask(actor, "set_version", 1)
        items += [next(stream) for _ in range(made)]
    assert [version for _, version, _ in items] == [0] * made + [1]
    assert [seq for _, _, seq in items] == list(range(1, made + 2))


@pytest.mark.parametrize(("num_async", "width"), [(1, 2), (2, 3)])
def test_a_concurrent_for_each_adds_max_concurrency_minus_1_to_the_age_of_weights(engine, num_async, width):
    (actor,) = versioned(engine, 1)
    versions = []
    with from_actors([actor]).for_each(lambda x: x, max_concurrency=width).gather_async(num_async=num_async).run() as stream:
        for number in range(8):
            versions.append(next(stream)[1])
            engine.ask(actor, "set_version", number + 1)
    assert versions == [max(0, number - (num_async + width - 2)) for number in range(8)]


@pytest.mark.parametrize("options", [{}, {"num_async": 3}, {"batch_ms": 2}, {"batch_ms": 2, "num_async": 2}])
def test_gather_async_keeps_each_shards_own_order(engine, options):
    items = list(engine.shards(range(50), range(100, 150), range(200, 250)).gather_async(**options))
    for start in (0, 100, 200):
        assert [item for item in items if start <= item < start + 50] == list(range(start, start + 50))


def test_gather_async_gives_what_is_ready_while_a_slow_shard_works(on_ray):
    slow, fast = slowly(["slow"], 0.5), range(20)
    items = list(on_ray.shards(slow, fast).gather_async())
    assert items.index("slow") > 10


def test_a_concurrent_for_each_gives_results_in_input_order(engine):
    def fn(x):
        time.sleep(0.02 * (x % 3 == 0))
        return -x

    assert list(engine.shards(range(12)).for_each(fn, max_concurrency=3).gather_sync()) == [-x for x in range(12)]


def test_get_shard_gives_one_shard_in_order(engine):
    assert list(engine.shards(range(5), range(100, 105)).get_shard(1, num_async=2)) == list(range(100, 105))


# --- nothing lost, nothing twice (C4) -------------------------------------------------------------------------------

GATHERS = {
    "gather_sync": lambda shards: shards.gather_sync(),
    "batch_across_shards": lambda shards: shards.batch_across_shards().flatten(),
    "gather_async": lambda shards: shards.gather_async(),
    "gather_async(num_async=3)": lambda shards: shards.gather_async(num_async=3),
    "gather_async(batch_ms=3)": lambda shards: shards.gather_async(batch_ms=3),
    "gather_async(batch_ms=3, num_async=2)": lambda shards: shards.gather_async(batch_ms=3, num_async=2),
}
SIZES = [0, 1, 7, 40]


@pytest.mark.parametrize("gather", GATHERS)
def test_every_gather_gives_every_item_once(engine, gather):
    shards = engine.shards(*[range(1000 * index, 1000 * index + size) for index, size in enumerate(SIZES)])
    expected = [1000 * index + item for index, size in enumerate(SIZES) for item in range(size)]
    assert sorted(GATHERS[gather](shards)) == expected


@pytest.mark.parametrize("gather", GATHERS)
def test_a_stream_left_by_break_goes_on_where_it_was(engine, gather):
    shards = engine.shards(range(30), range(100, 130))
    items = []
    with GATHERS[gather](shards).run() as stream:
        for stop_at in (1, 2, 5, 17):
            for item in stream:
                items.append(item)
                if len(items) % stop_at == 0:
                    break
        items.append(next(stream))
        items += stream
    assert sorted(items) == [*range(30), *range(100, 130)]


def test_results_that_piled_up_while_the_consumer_was_away_all_come(on_ray):
    """A8: nothing was ready at first; later everything is, and each value arrives once."""
    with on_ray.shards(slowly(range(4), 0.02), slowly(range(10, 14), 0.02)).gather_async(num_async=4).run() as stream:
        items = [next(stream)]
        on_ray.inner.wait(list(stream._run.pending), 5, len(stream._run.pending))
        items += stream
    assert sorted(items) == [0, 1, 2, 3, 10, 11, 12, 13]


def test_a_second_run_begins_again_whatever_was_in_flight_in_the_first(engine):
    """A7: no left-over results of a run that was left, and no item twice."""
    plan = engine.shards(range(10), range(10, 20)).gather_async(num_async=3)
    assert len(plan.take(3)) == 3
    assert sorted(plan) == list(range(20))
    assert sorted(plan) == list(range(20))


def test_two_runs_over_the_same_actors_do_not_disturb_each_other(engine):
    plan = engine.shards(range(10), range(10, 20)).gather_async()
    with plan.run() as one, plan.run() as other:
        first, second = [], []
        for _ in range(7):
            first.append(next(one))
            second += [next(other), next(other)]
        first += one
        second += other
    assert sorted(first) == sorted(second) == list(range(20))


def test_six_runs_at_once_over_the_same_actor_do_not_disturb_each_other(engine):
    plan = engine.shards(range(6)).gather_async()
    streams = [plan.run() for _ in range(6)]
    try:
        rounds = [[next(stream) for stream in streams] for _ in range(6)]
        assert rounds == [[item] * 6 for item in range(6)]
        assert [list(stream) for stream in streams] == [[]] * 6
    finally:
        for stream in streams:
            stream.close()


def test_what_from_actors_made_and_nobody_got_is_counted_as_dropped(engine):
    actors = versioned(engine, 2)
    with from_actors(actors).gather_async(num_async=3).run() as stream:
        for _ in range(4):
            next(stream)
    made = sum(engine.ask(actor, "count") for actor in actors)
    assert stream.metrics.counters["num_items_dropped"] == made - 4


def test_a_run_read_to_its_end_drops_nothing(engine):
    plan = engine.shards(range(5), range(5)).filter(lambda x: x % 2).batch(2).gather_async(num_async=2)
    with plan.run() as stream:
        assert sorted(stream) == [[1, 3], [1, 3]]
    assert "num_items_dropped" not in stream.metrics.counters


# --- fair (C5) ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_async", "most_pulls"), [(1, 16), (4, 32)])
def test_no_shard_starves_while_the_driver_is_the_bottleneck(engine, num_async, most_pulls):
    """A2: 4 endless instant shards, a slow consumer; of 400 items 60 to 140 a shard, no gap over 16 pulls (4 x 4 answers and as many)."""
    sources = [lambda shard=shard: itertools.repeat(shard) for shard in range(4)]
    order = []
    with engine.shards(*sources).gather_async(num_async=num_async).run() as stream:
        for _ in range(400):
            order.append(next(stream))
            if engine.name == "ray":
                time.sleep(0.005)  # the slow consumer that the report is about
    counts = Counter(order)
    assert all(60 <= counts[shard] <= 140 for shard in range(4)), counts
    for shard in range(4):
        places = [place for place, item in enumerate(order) if item == shard]
        assert max(later - earlier for earlier, later in zip([-1, *places], [*places, 400])) <= most_pulls


def test_a_shard_that_drops_everything_does_not_starve_the_others(engine):
    plan = engine.shards(lambda: itertools.count(10), range(5)).filter(lambda x: x < 5).gather_async()
    assert plan.take(5) == [0, 1, 2, 3, 4]
    assert engine.shards([1], [2]).gather_sync().take(2) == [1, 2], "the actor that is still looking for an item can be used again"


def test_a_barrier_waits_for_a_shard_that_drops_much(engine):
    shards = engine.shards(lambda: itertools.count(), range(1000, 10**6, 1000), [3, 5000])
    assert shards.filter(lambda x: x % 1000 == 0).gather_sync().take(5) == [0, 1000, 5000, 1000, 2000]
    assert shards.filter(lambda x: x % 50_000 == 3).batch_across_shards().take(2) == [[3, 3], [50_003]]


def test_the_serial_engine_serves_everyone_once_before_anyone_twice():
    plan = from_range(12, num_shards=4).gather_async()
    for seed in range(5):
        with plan.run(engine=SerialEngine(seed=seed)) as stream:
            order = [item // 3 for item in stream]
        assert [sorted(order[start : start + 4]) for start in (0, 4, 8)] == [[0, 1, 2, 3]] * 3


# --- bounded (C8) ---------------------------------------------------------------------------------------------------


def test_an_answer_holds_at_most_10_000_items(on_ray):
    """A second of tiny items is some 700,000; the shard stops at the bound and waits to be asked again."""
    plan = on_ray.shards(lambda: itertools.count()).gather_async(batch_ms=60_000)
    with plan.run() as stream:
        assert next(stream) == 0
        (gather,) = stream._run.gathers
        assert gather.num_held == MAX_ANSWER_ITEMS - 1


@pytest.mark.parametrize("shape", ["array", "list", "dict", "dataclass"])
def test_an_answer_holds_at_most_32_mb_whatever_the_items_are(on_ray, shape):
    import numpy as np

    from tests.iter.workers import Holder

    one_mb = np.zeros(2**20, np.uint8)
    items = {"array": one_mb, "list": [one_mb], "dict": {"obs": one_mb}, "dataclass": Holder(one_mb)}
    item = items[shape]
    plan = on_ray.shards([0], repeat=True).for_each(lambda _: item).gather_async(batch_ms=60_000)
    with plan.run() as stream:
        next(stream)
        (gather,) = stream._run.gathers
        assert gather.num_held <= MAX_ANSWER_BYTES // 2**20


def test_calls_in_flight_are_bounded_by_num_async_a_shard(on_ray):
    """O2: refs in flight are at most workers x num_async."""
    with on_ray.shards(*[lambda: itertools.count()] * 3).gather_async(num_async=2).run() as stream:
        for _ in range(60):
            next(stream)
            assert len(stream._run.pending) + sum(shard.num_ready for g in stream._run.gathers for shard in g.shards) <= 6


def test_a_concurrent_for_each_makes_at_most_so_many_calls_at_once(on_ray):
    from tests.iter.workers import Recorder

    (recorder,) = on_ray.pool(1, Recorder)
    on_ray.ask(recorder, "clear")

    def fn(x):
        import ray

        ray.get(recorder.tell.remote(+1))
        time.sleep(0.01)
        ray.get(recorder.tell.remote(-1))
        return x

    assert list(on_ray.shards(range(12)).for_each(fn, max_concurrency=2).gather_sync()) == list(range(12))
    running = list(itertools.accumulate(on_ray.ask(recorder, "all")))
    assert max(running) <= 2


def test_a_concurrent_for_each_over_big_results_does_not_fill_the_object_store(on_ray):
    """A3: 60 arrays of 8 MB through a store of 200 MB, and the consumer keeps only their sums."""
    import numpy as np

    from tests.iter.workers import spilled_bytes

    before = spilled_bytes()
    plan = on_ray.shards(range(60)).for_each(lambda x: np.full(2**20, x, np.float64), max_concurrency=2).gather_async()
    assert [float(x.sum()) / 2**20 for x in plan] == list(range(60))
    assert spilled_bytes() == before


def test_the_shard_pool_is_what_it_says(engine):
    """The other tests lean on it: one actor a shard, and a source loaded anew is what is read."""
    assert sorted(engine.shards([1], [2]).gather_sync()) == [1, 2]
    assert len(engine.pool(2, Source)) == 2
