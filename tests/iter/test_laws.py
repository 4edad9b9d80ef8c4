"""Laws of the algebra, on random plans."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flowrl.iter import Queue, SerialEngine, from_actors, from_items, from_iterable, from_range
from flowrl.iter import engine as engine_block
from flowrl.ops import Concurrently, Dequeue, Enqueue
from tests.iter.workers import Source

items = st.lists(st.integers(-50, 50), max_size=40)
functions = st.sampled_from([lambda x: x + 1, lambda x: -2 * x, lambda x: x % 7, lambda x: (x, x), str])
to_lists = st.sampled_from([lambda x: [], lambda x: [x], lambda x: [x, x], lambda x: range(x % 4)])
sizes = st.integers(1, 12)
weights = st.sampled_from([1, 2, 3, 0.5, 0.3, Fraction(2, 3), 7, "*"])


def local(values, num_shards):
    return from_iterable(values)


def in_shards(values, num_shards):
    return from_items(values, num_shards)


def ends(plan):
    """Its items, whether they are in the shards or in the driver."""
    return list(plan.gather_sync() if hasattr(plan, "gather_sync") else plan)


@given(items, functions, functions, sizes)
@pytest.mark.parametrize("source", [local, in_shards])
def test_for_each_after_for_each_is_for_each_of_both(source, values, f, g, num_shards):
    plan = source(values, num_shards)
    assert ends(plan.for_each(f).for_each(lambda x: g(x) if isinstance(x, int) else x)) == ends(
        plan.for_each(lambda x: g(f(x)) if isinstance(f(x), int) else f(x))
    )


@given(items, sizes, sizes)
@pytest.mark.parametrize("source", [local, in_shards])
def test_flatten_after_batch_is_the_identity(source, values, n, num_shards):
    plan = source(values, num_shards)
    assert ends(plan.batch(n).flatten()) == ends(plan)


@given(items, sizes)
def test_batches_are_full_but_the_last(values, n):
    batches = list(from_iterable(values).batch(n))
    assert [len(batch) for batch in batches] == [n] * (len(values) // n) + ([len(values) % n] if len(values) % n else [])


@given(items, to_lists, sizes)
@pytest.mark.parametrize("source", [local, in_shards])
def test_combine_is_flatten_after_for_each(source, values, f, num_shards):
    plan = source(values, num_shards)
    assert ends(plan.combine(f)) == ends(plan.for_each(f).flatten())


@given(items, sizes, st.integers(0, 2**32))
@pytest.mark.parametrize("source", [local, in_shards])
def test_a_shuffle_is_a_permutation(source, values, size, seed):
    plan = source(values, 2)
    shuffled = plan.shuffle(size, seed=seed) if source is local else plan.local_shuffle(size, seed=seed)
    assert sorted(ends(shuffled)) == sorted(values)
    if size == 1:
        assert ends(shuffled) == ends(plan)


@given(items, sizes)
def test_gathers_differ_in_order_only(values, num_shards):
    plan = from_items(values, num_shards)
    assert sorted(plan.gather_async()) == sorted(plan.gather_sync()) == sorted(plan.batch_across_shards().flatten()) == sorted(values)
    assert list(plan.gather_sync()) == values, "item j of shard j mod n comes back in its place"


@given(st.integers(0, 60), sizes)
def test_a_range_is_cut_into_slices_of_nearly_one_size(n, num_shards):
    slices = [list(shard) for shard in from_range(n, num_shards).shards()]
    assert [x for part in slices for x in part] == list(range(n))
    assert max(map(len, slices)) - min(map(len, slices)) <= 1
    assert sorted(map(len, slices)) == list(map(len, slices))


# --- unions ---------------------------------------------------------------------------------------------------------


@given(items, items, items, st.booleans())
def test_a_union_is_associative_as_a_multiset(a, b, c, deterministic):
    x, y, z = map(from_iterable, (a, b, c))
    left = x.union(y, deterministic=deterministic).union(z, deterministic=deterministic)
    right = x.union(y.union(z, deterministic=deterministic), deterministic=deterministic)
    flat = x.union(y, z, deterministic=deterministic)
    assert sorted(left) == sorted(right) == sorted(flat) == sorted(a + b + c)


@given(items, items, items)
def test_nesting_a_round_robin_with_the_weights_of_the_flat_one_keeps_its_order(a, b, c):
    """(x | y) with weight 2 beside z is the flat round robin, as long as each round of the inner one is whole."""
    n = min(len(a), len(b), len(c))
    x, y, z = (from_iterable(values[:n]) for values in (a, b, c))
    nested = x.union(y, deterministic=True).union(z, deterministic=True, round_robin_weights=[2, 1])
    assert list(nested) == list(x.union(y, z, deterministic=True))


@given(items, items)
def test_a_round_robin_is_the_interleaving_of_its_branches(a, b):
    n = min(len(a), len(b))
    expected = [x for pair in zip(a, b) for x in pair] + a[n:] + b[n:]
    assert list(from_iterable(a).union(from_iterable(b), deterministic=True)) == expected


@given(items, items, weights, weights, st.booleans())
def test_the_empty_branch_is_neutral_and_each_branch_keeps_its_order(a, b, v, w, deterministic):
    options = {"deterministic": deterministic, "round_robin_weights": [v, w]}
    assert list(from_iterable(a).union(from_iterable([]), **options)) == a
    tagged = list(from_iterable(a).for_each(lambda x: (0, x)).union(from_iterable(b).for_each(lambda x: (1, x)), **options))
    assert [x for tag, x in tagged if tag == 0] == a
    assert [x for tag, x in tagged if tag == 1] == b


# --- random trees: multiset in, multiset out (C4) -------------------------------------------------------------------


SHARD_STEPS = ("batch", "shuffle", "transform", "concurrent", "repartition")


@st.composite
def sources(draw, in_shards, steps):
    """A source of a plan, and what comes of it. `in_shards(values, num_shards)` makes the parallel ones."""
    values = draw(st.lists(st.integers(0, 999), max_size=25))
    plan = in_shards(values, draw(st.integers(1, 3))) if draw(st.booleans()) else None
    if plan is None:
        return from_iterable(values), values
    for _ in range(draw(st.integers(0, 2))):
        step = draw(st.sampled_from(steps))
        if step == "batch":
            plan = plan.batch(draw(sizes)).flatten()
        elif step == "shuffle":
            plan = plan.local_shuffle(draw(sizes), seed=draw(st.integers(0, 9)))
        elif step == "repartition":
            plan = plan.repartition(draw(st.integers(1, 3)), batch_ms=draw(st.sampled_from([0, 2])))
        elif step == "concurrent":
            plan = plan.for_each(lambda x: x, max_concurrency=draw(st.integers(1, 3)))
        else:
            plan = plan.transform(lambda it: (x for x in it))
    gather = draw(st.sampled_from(["sync", "lists", "async", "shards"]))
    if gather == "sync":
        return plan.gather_sync(), values
    if gather == "lists":
        return plan.batch_across_shards().flatten(), values
    if gather == "async":
        return plan.gather_async(batch_ms=draw(st.sampled_from([0, 3])), num_async=draw(st.integers(1, 3))), values
    shards = plan.shards()
    return (shards[0].union(*shards[1:]) if len(shards) > 1 else shards[0]), values


@st.composite
def plans(draw, depth=3, in_shards=from_items, steps=SHARD_STEPS):
    """A random tree of plans, and what comes of it."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(sources(in_shards, steps))
    kind = draw(st.sampled_from(["stage", "union", "concurrently", "duplicate", "queue"]))
    plan, values = draw(plans(depth - 1, in_shards, steps))
    if kind == "stage":
        step = draw(st.sampled_from(["batch", "shuffle", "combine", "filter", "transform"]))
        if step == "batch":
            return plan.batch(draw(sizes)).flatten(), values
        if step == "shuffle":
            return plan.shuffle(draw(sizes), seed=draw(st.integers(0, 9))), values
        if step == "combine":
            return plan.combine(lambda x: [x, x]), values * 2
        if step == "filter":
            return plan.filter(lambda x: x % 3), [x for x in values if x % 3]
        return plan.transform(lambda it: (x for x in it)), values
    if kind in ("union", "concurrently"):
        others = [draw(plans(depth - 1, in_shards, steps)) for _ in range(draw(st.integers(1, 2)))]
        branches = [plan, *(other for other, _ in others)]
        given_weights = draw(st.none() | st.lists(weights, min_size=len(branches), max_size=len(branches)))
        expected = values + [x for _, more in others for x in more]
        if kind == "union":
            return branches[0].union(*branches[1:], deterministic=draw(st.booleans()), round_robin_weights=given_weights), expected
        mode = draw(st.sampled_from(["round_robin", "async"]))
        return Concurrently(branches, mode=mode, round_robin_weights=given_weights), expected
    if kind == "duplicate":
        first, second = plan.duplicate(2)
        if draw(st.booleans()):
            return first, values
        first = first.batch(draw(st.integers(1, 100))).flatten()
        pair = draw(st.lists(weights, min_size=2, max_size=2))
        return first.union(second, deterministic=draw(st.booleans()), round_robin_weights=pair), values * 2
    shared = Queue(draw(st.integers(1, 4)))
    branches = [plan.for_each(Enqueue(shared)), Dequeue(shared)]
    outputs = draw(st.sampled_from([[0], [1], [0, 1]]))
    mode = draw(st.sampled_from(["round_robin", "async"]))
    given_weights = draw(st.lists(weights, min_size=2, max_size=2))
    return Concurrently(branches, mode=mode, output_indexes=outputs, round_robin_weights=given_weights), values * len(outputs)


def read_in_parts(plan, stops):
    """Stop and go on at random places, by `for` and by `next`."""
    taken = []
    with plan.run() as stream:
        for stop in stops:
            for item in stream:
                taken.append(item)
                if len(taken) % stop == 0:
                    break
            taken.extend(item for item in [next(stream, None)] if item is not None)
        taken += stream
        assert next(stream, None) is None
    return taken


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(plans(), st.lists(st.integers(1, 9), max_size=3), st.integers(0, 5))
def test_whatever_the_plan_nothing_is_lost_and_nothing_comes_twice(plan_and_values, stops, seed):
    plan, values = plan_and_values
    plan.check()
    with engine_block(SerialEngine(seed=seed)):
        assert sorted(read_in_parts(plan, stops)) == sorted(values)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(plans(), st.integers(0, 5))
def test_whatever_the_plan_the_serial_engine_repeats_it(plan_and_values, seed):
    plan, _ = plan_and_values
    with engine_block(SerialEngine(seed=seed)):
        assert list(plan) == list(plan)


# --- on Ray, few and small ------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), stops=st.lists(st.integers(1, 9), max_size=2))
def test_on_ray_too_nothing_is_lost_and_nothing_comes_twice(on_ray, data, stops):
    """The shards are actors that other tests use too, six of them; a plan's further sources are in the driver."""
    free = on_ray.pool(6, Source)[:]

    def in_shards(values, num_shards):
        if len(free) < num_shards:
            return None
        actors = [free.pop() for _ in range(num_shards)]
        for index, actor in enumerate(actors):
            on_ray.ask(actor, "load", values[index::num_shards], False)
        return from_actors(actors)

    plan, values = data.draw(plans(2, in_shards, SHARD_STEPS[:3]))
    assert sorted(read_in_parts(plan, stops)) == sorted(values)


@pytest.fixture(scope="module")
def peer(ray_cluster):
    """`ray.util.iter`, which still ships in ray: an implementation to compare with where it is right."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.util import iter as ray_iter

        yield ray_iter.from_range(24, num_shards=2)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "make",
    [
        lambda s: s.gather_sync(),
        lambda s: s.batch_across_shards(),
        lambda s: s.for_each(lambda x: x * x).filter(lambda x: x % 2).batch(4).gather_sync(),
        lambda s: s.combine(lambda x: [x, x + 1]).gather_sync().batch(5).flatten(),
        lambda s: s.get_shard(1),
        lambda s: s.gather_sync().for_each(lambda x: [x, x]).flatten().filter(lambda x: x > 5),
        lambda s: s.get_shard(0).union(s.get_shard(1), deterministic=True),
    ],
)
def test_the_result_is_that_of_ray_util_iter(on_ray, peer, make):
    assert list(make(on_ray.shards(range(12), range(12, 24)))) == list(make(peer))


@pytest.mark.filterwarnings("ignore")
def test_the_items_are_those_of_ray_util_iter_where_the_order_is_free(on_ray, peer):
    ours = on_ray.shards(range(12), range(12, 24)).local_shuffle(3).gather_async(num_async=2)
    assert sorted(ours) == sorted(peer.local_shuffle(3).gather_async(num_async=2))
