"""Items from a shard are read-only on every engine and never change after they were handed out (C17)."""

from __future__ import annotations

import numpy as np
import pytest

from flowrl.iter import create_colocated, from_actors
from flowrl.iter import engine as engine_block
from tests.iter.workers import Holder, ParallelIteratorWorker, Recorder

ARRAYS = {
    "floats": lambda: np.arange(6, dtype=np.float64),
    "a matrix": lambda: np.ones((3, 4), np.float32),
    "in Fortran's order": lambda: np.asfortranarray(np.ones((3, 4))),
    "every second element": lambda: np.arange(12)[::2],
    "a transposed view": lambda: np.arange(12).reshape(3, 4).T,
    "reversed": lambda: np.arange(6)[::-1],
    "no elements": lambda: np.empty((0, 3)),
    "one element": lambda: np.array([7]),
    "a scalar array": lambda: np.array(7.0),
    "booleans": lambda: np.array([True, False]),
    "text": lambda: np.array(["a", "bc"]),
    "records": lambda: np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    "bytes": lambda: np.frombuffer(b"abc", np.uint8),
    "large": lambda: np.ones(300_000),
    "of objects": lambda: np.array([{"a": 1}, None], dtype=object),
    "read-only already": lambda: _locked(np.ones(3)),
}
WRAPPED = {
    "in a list": lambda x: [x],
    "in a dict": lambda x: {"obs": x},
    "in a tuple of dicts": lambda x: ({"obs": x}, 1),
    "in an object": lambda x: Holder(x),
    "in objects in a list": lambda x: [Holder([x])],
}


def _locked(array):
    array.flags.writeable = False
    return array


def unwrap(item):
    while not isinstance(item, np.ndarray):
        item = item[0] if isinstance(item, list | tuple) else item["obs"] if isinstance(item, dict) else item.array
    return item


GATHERS = {
    "gather_sync": lambda s: s.gather_sync(),
    "gather_async": lambda s: s.gather_async(batch_ms=2, num_async=2),
    "batch_across_shards": lambda s: s.batch_across_shards().flatten(),
    "repartition": lambda s: s.repartition(1).gather_sync(),
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays_of_every_kind_come_read_only(engine, kind):
    make = ARRAYS[kind]
    (item,) = engine.shards([0]).for_each(lambda _: make()).gather_sync().take(1)
    assert not item.flags.writeable
    assert np.array_equal(item, make())


@pytest.mark.parametrize("kind", ["floats", "every second element"])
@pytest.mark.parametrize("wrapped", WRAPPED)
def test_arrays_inside_other_things_come_read_only(engine, wrapped, kind):
    wrap, make = WRAPPED[wrapped], ARRAYS[kind]
    (item,) = engine.shards([0]).for_each(lambda _: wrap(make())).gather_sync().take(1)
    assert not unwrap(item).flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        unwrap(item)[0] = 7


@pytest.mark.parametrize("gather", GATHERS)
def test_every_gather_hands_out_read_only_items(engine, gather):
    items = list(GATHERS[gather](engine.shards(range(3), range(3)).for_each(lambda x: np.full(4, x))))
    assert len(items) == 6
    assert not any(item.flags.writeable for item in items)


@pytest.mark.parametrize("gather", GATHERS)
def test_an_item_never_changes_though_the_shard_uses_its_memory_again(engine, gather):
    """An env that gives the same array each step, changed in place, as many do."""

    def reuse():
        array = np.zeros(3)
        for number in range(8):
            array += 1
            yield array if number >= 0 else None

    plan = GATHERS[gather](engine.shards(reuse))
    with plan.run() as stream:
        first = next(stream)
        before = first.copy()
        rest = list(stream)
    assert np.array_equal(first, before)
    if gather != "gather_async":
        assert [item[0] for item in [first, *rest]] == [1, 2, 3, 4, 5, 6, 7, 8]


class Stateful(ParallelIteratorWorker):
    """A shard that gives out its own state, and changes it."""

    def __init__(self):
        super().__init__(self._items, False)
        self.state = {"w": np.zeros(2), "names": ["a"]}

    def _items(self):
        while True:
            yield self.state

    def change(self):
        self.state["w"] += 1
        self.state["names"].append("b")

    def set(self, weights):
        self.state["w"] = weights

    def get(self):
        return self.state


def test_an_item_never_changes_though_the_actors_state_does(engine):
    (actor,) = create_colocated(Stateful, [], 1)
    with actor.open(), from_actors([actor]).gather_sync().run() as stream:
        first = next(stream)
        actor.change.remote()
        second = next(stream)
    assert (first["w"].tolist(), first["names"]) == ([0, 0], ["a"])
    assert (second["w"].tolist(), second["names"]) == ([1, 1], ["a", "b"])


def test_what_is_sent_to_an_actor_is_read_only_there_and_never_changes(engine):
    (actor,) = create_colocated(Stateful, [], 1)
    weights = np.zeros(2)
    with actor.open():
        actor.set.remote(weights)
        weights += 5
        assert engine.inner.result(actor.get.remote())["w"].tolist() == [0, 0]
        with pytest.raises(ValueError, match="read-only"):
            engine.inner.result(actor.change.remote())


def test_an_answer_of_an_actor_is_read_only_and_never_changes(engine):
    (actor,) = create_colocated(Stateful, [], 1)
    with actor.open():
        answer = engine.inner.result(actor.get.remote())
        actor.change.remote()
        engine.inner.result(actor.get.remote())
        assert answer["w"].tolist() == [0, 0]
        with pytest.raises(ValueError, match="read-only"):
            answer["w"] += 1


def test_who_edits_copies(engine):
    plan = engine.shards([np.zeros(2)]).gather_sync().for_each(lambda x: x.copy() + 1)
    assert plan.take(1)[0].tolist() == [1, 1]


def test_a_shared_value_is_read_only_and_a_copy(engine):
    value = {"w": np.zeros(2)}
    with engine_block(engine.inner) as e:
        shared = e.share(value)
        recorder = e.start(Recorder)
        e.result(e.call(recorder, "tell", shared))
        value["w"] += 1
        assert e.result(e.call(recorder, "all"))[0]["w"].tolist() == [0, 0]


def test_items_through_a_concurrent_for_each_are_read_only_on_both_sides(engine):
    def writeable(x):
        return x.flags.writeable, np.ones(2)

    plan = engine.shards([np.ones(2)]).for_each(writeable, max_concurrency=2).for_each(lambda pair: (pair[0], pair[1].flags.writeable))
    assert plan.gather_sync().take(1) == [(False, False)]


def test_freezing_copies_no_more_than_it_must():
    from flowrl.iter.freeze import freeze

    locked = _locked(np.ones(3))
    assert freeze(locked) is locked
    assert freeze("text") is not None and freeze(7) == 7
    open_view = np.ones(3)
    view = open_view[:]
    view.flags.writeable = False
    frozen = freeze(view)
    open_view += 1
    assert frozen.tolist() == [1, 1, 1], "a read-only view of memory that somebody can write to is copied"
