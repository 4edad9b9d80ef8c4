"""One stream for several branches: side by side, apart, at different places, and never further apart than the lag."""

from __future__ import annotations

import itertools

import pytest

from flowrl.iter import from_iterable
from flowrl.iter.unions import MAX_LAG_ITEMS
from flowrl.ops import Concurrently
from tests.iter.workers import never


def test_both_children_get_every_item(engine):
    first, second = engine.shards(range(20), range(100, 120)).gather_async(num_async=2).duplicate(2)
    plan = Concurrently([first.for_each(lambda x: ("a", x)), second.for_each(lambda x: ("b", x))], mode="async")
    items = list(plan)
    assert sorted(x for name, x in items if name == "a") == [*range(20), *range(100, 120)]
    assert [x for name, x in items if name == "a"] == [x for name, x in items if name == "b"]


def test_three_children_get_every_item():
    children = from_iterable(range(10)).duplicate(3)
    assert sorted(Concurrently(children, mode="round_robin")) == sorted([*range(10)] * 3)


def test_the_source_is_read_once(engine):
    first, second = engine.shards(range(10)).gather_sync().duplicate(2)
    with first.union(second).run() as stream:
        assert sorted(stream) == sorted([*range(10)] * 2)
        (gather,) = stream._run.gathers
        assert gather.num_out == 10


# --- A4 -------------------------------------------------------------------------------------------------------------


def test_children_read_one_after_the_other_each_give_all(engine):
    a, b = engine.shards(range(5)).gather_sync().duplicate(2)
    assert (list(a), list(b)) == ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])


def test_children_at_different_places_each_give_all(engine):
    a, b = engine.shards(range(5)).gather_sync().duplicate(2)
    with a, b:
        first = [next(a), next(a)]
        assert list(b) == [0, 1, 2, 3, 4]
        assert [*first, next(a), next(a), next(a)] == [0, 1, 2, 3, 4]
        assert next(a, "end") == "end"


def test_children_of_an_empty_stream_end():
    a, b = from_iterable([]).duplicate(2)
    assert (list(a), list(b), list(a.union(b))) == ([], [], [])


def test_children_end_beside_each_other_whatever_their_places():
    a, b = from_iterable(range(5)).duplicate(2)
    plan = a.union(b.for_each(lambda x: -x), round_robin_weights=[3, 1], deterministic=True)
    assert list(plan) == [0, 1, 2, 0, 3, 4, -1, -2, -3, -4]


# --- children that are not there ------------------------------------------------------------------------------------


def test_a_child_that_the_plan_does_not_reach_does_not_hold_it_back(engine):
    first, _ = engine.shards(range(10 * MAX_LAG_ITEMS)).gather_async(batch_ms=5).duplicate(2)
    assert list(first) == list(range(10 * MAX_LAG_ITEMS))


# --- bounded lag (C8) -----------------------------------------------------------------------------------------------


def test_a_child_is_never_more_than_the_lag_ahead(engine):
    ahead, behind = engine.shards(range(400)).gather_async(batch_ms=5).duplicate(2)
    plan = ahead.for_each(lambda x: "ahead").union(behind.for_each(lambda x: "behind"), round_robin_weights=[10, 1])
    lead = most = 0
    with plan.run() as stream:
        for item in stream:
            lead += 1 if item == "ahead" else -1
            most = max(most, lead)
    assert lead == 0
    assert 50 < most <= MAX_LAG_ITEMS + 1


def test_a_batch_larger_than_the_lag_does_not_lock_the_plan(engine):
    """A13 with a duplicate: one branch needs 200 items before it gives one, the other one takes them one by one."""
    first, second = engine.shards(range(400)).gather_async(batch_ms=5).duplicate(2)
    items = list(first.batch(200).union(second, deterministic=True))
    assert len(items) == 402
    assert sorted(x for x in items if isinstance(x, int)) == list(range(400))


@pytest.mark.parametrize("weights", [[1, 4], ["*", 1], [1, "*"], [0.25, 1]])
@pytest.mark.parametrize("mode", ["round_robin", "async"])
def test_whatever_the_weights_children_never_lock_each_other(mode, weights):
    first, second = from_iterable(range(1000)).duplicate(2)
    plan = Concurrently([first.batch(150), second.filter(never)], mode=mode, round_robin_weights=weights)
    assert [len(batch) for batch in plan] == [150] * 6 + [100]


def test_duplicates_of_duplicates_give_every_item(engine):
    left, right = engine.shards(range(150)).gather_async(batch_ms=3).duplicate(2)
    one, two = left.duplicate(2)
    plan = Concurrently([one, two.batch(40).flatten(), right.filter(lambda x: x % 2)], mode="async", round_robin_weights=[1, 3, 2])
    assert sorted(plan) == sorted([*range(150)] * 2 + [*range(1, 150, 2)])


def test_an_endless_duplicate_holds_a_bounded_number_of_items():
    first, second = from_iterable(itertools.count).duplicate(2)
    with first.union(second.batch(7), round_robin_weights=["*", 1]).run() as stream:
        for _ in range(5000):
            next(stream)
            assert all(getattr(stage, "num_held", 0) <= MAX_LAG_ITEMS for stage in stream._run.objects)


def test_an_error_above_a_duplicate_is_told_once_and_no_child_loses_an_item():
    def fail_on_3(x):
        if x == 3:
            raise ValueError("three")
        return x

    first, second = from_iterable(range(6)).for_each(fail_on_3).duplicate(2)
    with first.union(second).run() as stream:
        seen = []
        while (item := _next_or_error(stream)) is not None:
            seen.append(item)
    assert [str(item) for item in seen if isinstance(item, ValueError)] == ["three"]
    assert sorted(item for item in seen if isinstance(item, int)) == [0, 0, 1, 1, 2, 2, 4, 4, 5, 5]


def _next_or_error(stream):
    try:
        return next(stream, None)
    except ValueError as error:
        return error


def test_a_branch_that_edits_an_item_of_a_shard_gets_an_error_and_the_other_keeps_it(engine):
    """A12: two branches share one batch object."""
    import numpy as np

    def edit(x):
        x *= 0
        return x

    first, second = engine.shards([np.ones(3)]).gather_sync().duplicate(2)
    with first.for_each(edit).union(second, deterministic=True).run() as stream:
        with pytest.raises(ValueError, match="read-only"):
            next(stream)
        assert next(stream).tolist() == [1, 1, 1]
