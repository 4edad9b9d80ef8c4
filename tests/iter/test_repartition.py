"""`repartition`: the items of all shards dealt anew, without loss, in bounded memory, whoever reads how fast."""

from __future__ import annotations

import itertools

import pytest

from flowrl.iter import from_actors
from flowrl.iter.shard import MAX_PARTITION_ITEMS
from tests.iter.workers import Source, Versioned, slowly


@pytest.mark.parametrize("batch_ms", [0, 3])
@pytest.mark.parametrize("num_partitions", [1, 3])
def test_every_item_comes_once(engine, num_partitions, batch_ms):
    shards = engine.shards(range(30), [], range(100, 141))
    items = list(shards.repartition(num_partitions, batch_ms=batch_ms).gather_async())
    assert sorted(items) == [*range(30), *range(100, 141)]


def test_there_are_as_many_partitions_as_asked_for(engine):
    plan = engine.shards(range(4), range(4)).repartition(3)
    assert plan.num_shards() == 3


def test_items_are_dealt_in_turn(serial):
    """Item j of a shard goes to partition j mod n, as long as none lags."""
    plan = serial.shards(range(9)).repartition(3).batch_across_shards()
    assert list(plan) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


def test_each_partition_keeps_the_order_of_a_shard(engine):
    for items in engine.shards(range(40)).repartition(2).batch(100).gather_sync():
        assert items == sorted(items)


def test_stages_above_and_below_run_in_the_shards(engine):
    plan = engine.shards(range(6), range(6, 12)).for_each(lambda x: 2 * x).repartition(2).filter(lambda x: x % 4).batch(2)
    assert sorted(plan.gather_sync().flatten()) == [2, 6, 10, 14, 18, 22]


def test_a_full_partition_is_skipped_not_waited_for(engine):
    """One partition is read to its end while the other one is not read at all: it lags by the bound, the rest is passed by."""
    plan = engine.shards(range(500)).repartition(2)
    with plan.get_shard(0).union(plan.get_shard(1).batch(10**6)).run() as stream:
        items = list(stream)
    parked = next(item for item in items if isinstance(item, list))
    singles = [item for item in items if not isinstance(item, list)]
    assert sorted([*singles, *parked]) == list(range(500))


def test_a_partition_that_lags_holds_a_bounded_number_of_items(serial):
    plan = serial.shards(range(1000)).repartition(2)
    (actor,) = serial.pool(1, Source)
    both = plan.get_shard(0).union(plan.get_shard(1), deterministic=True, round_robin_weights=[100, 1])
    with both.run() as stream:
        for _ in range(600):
            next(stream)
            (row,) = serial.inner.peek([(actor, "stream_counts", (0,))], 1)
            assert row[-1][2] <= MAX_PARTITION_ITEMS


def test_partitions_that_the_plan_does_not_read_take_no_part(engine):
    """Read one by one, as `shards()` are, nothing fills up and nothing is lost to a partition that nobody reads."""
    plan = engine.shards(range(400)).repartition(4)
    assert list(plan.get_shard(2)) == list(range(400))
    assert sorted(plan.select_shards([0, 3]).gather_async()) == list(range(400))


def test_repartition_of_a_repartition(engine):
    plan = engine.shards(range(20), range(100, 120)).repartition(2).for_each(lambda x: x + 1).repartition(1)
    assert sorted(plan.gather_sync()) == [*range(1, 21), *range(101, 121)]


def test_a_repartition_of_a_union_of_shards(engine):
    shards = engine.shards(range(5), range(100, 105), range(200, 205))
    plan = shards.select_shards([0]).union(shards.select_shards([1, 2]).for_each(lambda x: -x)).repartition(2)
    assert sorted(plan.gather_async()) == sorted([*range(5), *[-x for x in (*range(100, 105), *range(200, 205))]])


def test_a_slow_shard_does_not_hold_back_what_a_partition_gets_of_the_others(on_ray):
    items = list(on_ray.shards(slowly(["slow"], 0.5), range(30)).repartition(1).gather_async())
    assert items.index("slow") > 15


def test_a_partition_serves_the_shards_above_it_in_turn(on_ray):
    shards = on_ray.shards(*[lambda i=i: itertools.repeat(i) for i in range(4)])
    items = shards.repartition(1).gather_async(num_async=2).take(400)
    assert all(50 <= items.count(shard) <= 150 for shard in range(4)), [items.count(shard) for shard in range(4)]


def test_it_goes_on_after_the_consumer_stopped(engine):
    items = []
    with engine.shards(range(30), range(100, 130)).repartition(2).gather_async(num_async=2).run() as stream:
        for stop_at in (1, 5, 7):
            for item in stream:
                items.append(item)
                if len(items) % stop_at == 0:
                    break
        items += stream
    assert sorted(items) == [*range(30), *range(100, 130)]


def test_counters_from_above_and_below_a_repartition_arrive(engine):
    from flowrl.metrics import get_metrics

    def count(name):
        def bump(x):
            get_metrics().counters[name] += 1
            return x

        return bump

    with (
        engine.shards(range(10), range(10)).for_each(count("above")).repartition(2).for_each(count("below")).gather_async().run() as stream
    ):
        assert len(list(stream)) == 20
        assert dict(stream.metrics.counters) == {"above": 20, "below": 20}


def test_what_user_actors_made_and_nobody_got_is_counted_as_dropped(engine):
    (actor,) = engine.pool(1, Versioned)
    with from_actors([actor]).repartition(2).gather_sync().run() as stream:
        for _ in range(6):
            next(stream)
    made = engine.ask(actor, "count")
    assert made >= 6
    assert stream.metrics.counters["num_items_dropped"] == made - 6
