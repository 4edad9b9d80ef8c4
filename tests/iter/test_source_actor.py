"""Which actor made an item: known after every gather and every stage that keeps items apart, refused where it is lost."""

from __future__ import annotations

import pytest

from flowrl.errors import PlanError
from flowrl.iter import Queue, create_colocated, from_actors, from_iterable, from_iterators
from flowrl.ops import Concurrently, Dequeue, Enqueue
from tests.iter.workers import Source, slowly

GATHERS = {
    "gather_sync": lambda s: s.gather_sync(),
    "gather_async": lambda s: s.gather_async(num_async=2),
    "batch_ms": lambda s: s.gather_async(batch_ms=3, num_async=2),
    "get_shard": lambda s: s.get_shard(0).union(s.get_shard(1)),
    "stages in the shards": lambda s: s.batch(2).flatten().filter(lambda x: True).local_shuffle(3, seed=1).transform(iter).gather_async(),
    "a union of shards": lambda s: s.select_shards([0]).union(s.select_shards([1])).gather_sync(),
}
_EMPTY: dict = {}
KEEP = {
    "nothing": lambda it: it,
    "for_each": lambda it: it.for_each(lambda x: x),
    "filter": lambda it: it.filter(lambda x: x % 2 == 0),
    "flatten": lambda it: it.for_each(lambda x: [x, x]).flatten(),
    "combine": lambda it: it.combine(lambda x: [x] * (x % 3)),
    "two flattens": lambda it: it.combine(lambda x: [[x], [x]]).flatten(),
    "shuffle": lambda it: it.shuffle(4, seed=2),
    "union": lambda it: it.union(_EMPTY["shards"].gather_sync(), round_robin_weights=[2, 1]),
    "duplicate": lambda it: Concurrently(it.duplicate(2), mode="async"),
    "all of them": lambda it: it.for_each(lambda x: x).shuffle(3, seed=1).combine(lambda x: [x]).filter(lambda x: True),
}


@pytest.fixture
def shards(engine):
    """Shard i has items 100 i to 100 i + 9; the third one, for unions, has none."""
    every = engine.shards(range(10), range(100, 110), [])
    _EMPTY["shards"] = every.select_shards([2])
    return every.select_shards([0, 1]), engine.pool(2, Source)


@pytest.mark.parametrize("gather", GATHERS)
def test_the_source_is_known_after_every_gather(shards, gather):
    plan, actors = shards
    pairs = list(GATHERS[gather](plan).zip_with_source_actor())
    assert len(pairs) == 20
    assert all(actor is actors[x // 100] for actor, x in pairs)


@pytest.mark.parametrize("keep", KEEP)
def test_the_source_is_kept(shards, keep):
    plan, actors = shards
    pairs = list(KEEP[keep](plan.gather_async(num_async=2)).zip_with_source_actor())
    assert len(pairs) >= 10
    assert all(actor is actors[x // 100] for actor, x in pairs)


def test_the_source_is_kept_by_enqueue(shards):
    plan, actors = shards
    shared = Queue(100)
    feed = plan.gather_async().for_each(Enqueue(shared)).zip_with_source_actor()
    pairs = list(Concurrently([feed, Dequeue(shared)], mode="async", output_indexes=[0]))
    assert len(pairs) == 20
    assert all(actor is actors[x // 100] for actor, x in pairs)


def test_stages_after_the_pairs_see_them(shards):
    plan, actors = shards
    plan = plan.gather_sync().zip_with_source_actor().for_each(lambda pair: (actors.index(pair[0]), pair[1])).batch(20)
    assert plan.take(1) == [[(i // 100, i) for pair in zip(range(10), range(100, 110)) for i in pair]]


class Merges:
    """An operator that makes one item of several."""

    merges_items = True

    def __init__(self):
        self.items = []

    def __call__(self, x):
        self.items.append(x)
        if len(self.items) < 3:
            return []
        made, self.items = self.items, []
        return [made]


LOSE = {
    "batch": lambda s: s.gather_sync().batch(2),
    "batch_across_shards": lambda s: s.batch_across_shards(),
    "repartition": lambda s: s.repartition(1).gather_sync(),
    "transform": lambda s: s.gather_sync().transform(iter),
    "Dequeue": lambda s: Dequeue(Queue(2)),
    "from_iterable": lambda s: from_iterable([1]),
    "merges_items": lambda s: s.gather_sync().combine(Merges()),
    "a union with one that loses it": lambda s: s.gather_sync().union(from_iterable([1])),
    "a stage later": lambda s: s.gather_sync().batch(2).for_each(len).filter(bool),
    "a duplicate of a batch": lambda s: s.gather_sync().batch(2).duplicate(2)[0],
}
NAMES = {
    "a union with one that loses it": "from_iterable",
    "a stage later": "batch",
    "a duplicate of a batch": "batch",
    "merges_items": "combine",
}


@pytest.mark.parametrize("lose", LOSE)
def test_where_the_source_is_lost_it_is_refused_when_built_with_a_hint(shards, lose):
    plan = LOSE[lose](shards[0])
    with pytest.raises(PlanError) as caught:
        plan.zip_with_source_actor()
    message = str(caught.value)
    assert f"not known after {NAMES.get(lose, lose)}(" in message
    assert message.count("test_source_actor.py:") >= 2, "the place that asks, and the one that loses it"
    assert "zip_with_source_actors()" in message


@pytest.mark.parametrize(
    "make",
    [
        lambda s: s.gather_sync().batch(3),
        lambda s: s.batch_across_shards(),
        lambda s: s.gather_async().combine(Merges()),
        lambda s: (
            s.gather_async().batch(2).for_each(lambda x: x).shuffle(2, seed=0).batch(2).for_each(lambda x: [i for part in x for i in part])
        ),
        lambda s: s.gather_sync().for_each(lambda x: [x]),
    ],
)
def test_all_sources_of_a_merged_item_are_known(shards, make):
    plan, actors = shards
    pairs = list(make(plan).zip_with_source_actors())
    assert len(pairs) >= 5
    for sources, items in pairs:
        assert set(sources) == {actors[x // 100] for x in items}
        assert len(sources) == len(set(sources))


@pytest.mark.parametrize("lose", ["repartition", "transform", "Dequeue", "from_iterable"])
def test_where_no_source_is_known_at_all_zip_with_source_actors_is_refused_too(shards, lose):
    with pytest.raises(PlanError, match="not known after"):
        LOSE[lose](shards[0]).zip_with_source_actors()


def test_the_source_is_right_while_another_answer_is_already_there(on_ray):
    """The actor of *this* item, not of whatever was fetched last."""
    actors = on_ray.pool(2, Source)
    plan = on_ray.shards(slowly(range(5), 0.01), range(100, 105)).gather_async(num_async=4).shuffle(4, seed=0)
    assert all(actor is actors[x // 100] for actor, x in plan.zip_with_source_actor())


def test_a_handle_is_given_as_the_handle_that_the_plan_named(engine):
    handles = create_colocated(Source, [], 2)
    with handles[0].open(), handles[1].open():
        for index, handle in enumerate(handles):
            engine.inner.result(handle.load.remote([index], False))
        pairs = list(from_actors(handles).gather_sync().zip_with_source_actor())
    assert [(handles.index(actor), x) for actor, x in pairs] == [(0, 0), (1, 1)]


def test_the_actor_of_a_plans_own_shard_can_be_called(engine):
    with from_iterators([[1, 2]]).gather_sync().zip_with_source_actor().run() as stream:
        actor, item = next(stream)
        assert item == 1
        assert engine.inner.result(actor.stream_counts.remote(0))[-1] == (1, 1, 0)
