"""Where a plan begins, and the stages that need no more said than their result."""

from __future__ import annotations

import pytest

from flowrl.errors import PlanError
from flowrl.iter import engine as engine_block
from flowrl.iter import from_actors, from_items, from_iterable, from_iterators, from_range
from tests.iter.workers import Source, one_at_a_time


def shards_of(plan):
    return [list(shard) for shard in plan.shards()]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: from_items("abcde", num_shards=2), [["a", "c", "e"], ["b", "d"]]),
        (lambda: from_items([], num_shards=2), [[], []]),
        (lambda: from_items([None, 1]), [[None], [1]]),
        (lambda: from_range(10, num_shards=3), [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]]),
        (lambda: from_range(11, num_shards=3), [[0, 1, 2], [3, 4, 5, 6], [7, 8, 9, 10]]),
        (lambda: from_range(2, num_shards=3), [[], [0], [1]]),
        (lambda: from_range(0), [[], []]),
        (lambda: from_iterators([[1, 2], one_at_a_time(3), "ab"]), [[1, 2], [0, 1, 2], ["a", "b"]]),
    ],
)
def test_sources_give_their_items_by_shard(serial, make, expected):
    plan = make()
    assert plan.num_shards() == len(expected)
    assert shards_of(plan) == expected


def test_sources_start_their_own_actors_on_both_engines(engine):
    plan = from_range(4, num_shards=1).union(from_items("ab", num_shards=1))
    assert list(plan.gather_sync()) == [0, "a", 1, "b", 2, 3]


@pytest.mark.parametrize(
    "make",
    [
        lambda: from_range(3, 1, repeat=True),
        lambda: from_items([0, 1, 2], 1, repeat=True),
        lambda: from_iterators([one_at_a_time(3)], repeat=True),
    ],
)
def test_repeat_begins_again_at_the_end(serial, make):
    assert make().gather_sync().take(8) == [0, 1, 2, 0, 1, 2, 0, 1]


def test_repeat_of_nothing_ends(serial):
    assert list(from_items([], 2, repeat=True).gather_async()) == []


def test_a_class_whose_instances_are_iterable_is_a_factory():
    class Countdown:
        def __iter__(self):
            return iter([3, 2, 1])

    plan = from_iterable(Countdown)
    assert list(plan) == list(plan) == [3, 2, 1]


def test_a_sequence_by_getitem_is_an_iterable(engine):
    class Squares:
        def __len__(self):
            return 4

        def __getitem__(self, i):
            if i >= 4:
                raise IndexError
            return i * i

    assert list(from_iterable(Squares())) == [0, 1, 4, 9]
    assert list(engine.shards(Squares()).gather_sync()) == [0, 1, 4, 9]


@pytest.mark.parametrize("one_shot", [lambda: iter([1]), lambda: (x for x in [1]), lambda: map(str, [1]), lambda: zip([1])])
def test_a_one_shot_iterator_is_refused_when_built(one_shot):
    source = one_shot()
    for build in (from_iterable, lambda s: from_iterators([s]), from_items, lambda s: from_iterators(s)):
        with pytest.raises(PlanError, match=r"test_sources\.py:\d+ got .* pass a function that makes it"):
            build(source)


@pytest.mark.parametrize("wrong", [3, None, object()])
def test_what_is_no_source_is_refused_when_built(wrong):
    with pytest.raises(PlanError, match="neither an iterable nor a function"):
        from_iterable(wrong)


def test_a_source_function_that_returns_no_iterable_says_so(engine):
    with pytest.raises(TypeError, match="the source function returned 3"):
        engine.shards(lambda: 3).gather_sync().take(1)


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "2", None])
def test_a_number_of_shards_must_be_a_whole_number_above_0(bad):
    with pytest.raises(PlanError, match="num_shards"):
        from_range(4, num_shards=bad)


def test_running_again_starts_over(engine):
    plan = engine.shards(range(4), range(10, 14)).batch(2).gather_sync()
    assert list(plan) == list(plan) == [[0, 1], [10, 11], [2, 3], [12, 13]]


def test_user_actors_keep_their_state_from_run_to_run(engine):
    with engine_block(engine.inner) as e:
        actor = e.start(Ticking)
        plan = from_actors([actor]).gather_sync()
        assert [plan.take(2), plan.take(2)] == [[1, 2], [3, 4]] if engine.name == "serial" else len(plan.take(2)) == 2
        e.stop(actor)


class Ticking(Source):
    """Counts on from run to run."""

    def __init__(self):
        super().__init__()
        self.ticks = 0
        self.load(self.tick, False)

    def tick(self):
        while True:
            self.ticks += 1
            yield self.ticks


def test_a_worker_that_forgot_its_base_classes_init_says_so(engine):
    with engine_block(engine.inner) as e:
        actor = e.start(Forgetful)
        with pytest.raises(Exception, match=r"must call ParallelIteratorWorker\.__init__"):
            from_actors([actor]).gather_sync().take(1)


class Forgetful(Source):
    """Does not call its base class."""

    def __init__(self):
        pass


# --- stages ---------------------------------------------------------------------------------------------------------

STAGES = {
    "for_each": (lambda it: it.for_each(lambda x: 2 * x), [0, 2, 4, 6, 8]),
    "filter": (lambda it: it.filter(lambda x: x % 2), [1, 3]),
    "batch": (lambda it: it.batch(2), [[0, 1], [2, 3], [4]]),
    "flatten": (lambda it: it.for_each(lambda x: range(x)).flatten(), [0, 0, 1, 0, 1, 2, 0, 1, 2, 3]),
    "combine": (lambda it: it.combine(lambda x: [x] * (x % 3)), [1, 2, 2, 4]),
    "all": (
        lambda it: (
            it.for_each(lambda x: x + 1).combine(lambda x: [x, -x]).filter(lambda x: x != 3).batch(4).for_each(sum).batch(2).flatten()
        ),
        [0, 2, -5],
    ),
}


@pytest.mark.parametrize("stage", STAGES)
def test_stages_do_the_same_in_a_shard_in_the_driver_and_on_a_local_source(engine, stage):
    make, expected = STAGES[stage]
    assert list(make(engine.shards(range(5))).gather_sync()) == expected
    assert list(make(engine.shards(range(5)).gather_sync())) == expected
    assert list(make(from_iterable(range(5)))) == expected


def test_select_shards_and_get_shard(engine):
    plan = engine.shards([0, 1], [10, 11], [20, 21])
    assert list(plan.select_shards([2, 0]).gather_sync()) == [20, 0, 21, 1]
    assert list(plan.get_shard(1)) == [10, 11]
    assert plan.select_shards([2, 0]).num_shards() == 2


@pytest.mark.parametrize("bad", [[3], [-1], [0, 0], ["0"], []])
def test_shards_that_are_not_there_are_refused(bad):
    with pytest.raises(PlanError, match="select_shards"):
        from_range(4, num_shards=3).select_shards(bad)


def test_a_union_of_shards_puts_them_side_by_side(engine):
    plan = engine.shards([0, 1], [10, 11], [20, 21])
    union = plan.select_shards([0]).for_each(lambda x: -x).union(plan.select_shards([1, 2]))
    assert union.num_shards() == 3
    assert list(union.gather_sync()) == [0, 10, 20, -1, 11, 21]


def test_take_and_show(engine, capsys):
    plan = engine.shards(range(3), range(10, 13))
    assert plan.take(4) == [0, 10, 1, 11]
    assert plan.gather_async().take(0) == []
    plan.show(3)
    assert capsys.readouterr().out == "0\n10\n1\n"
    from_iterable("ab").show()
    assert capsys.readouterr().out == "a\nb\n"


def test_each_shard_has_its_own_copy_of_a_stage(engine):
    class Numbers:
        def __init__(self):
            self.count = 0

        def __call__(self, x):
            self.count += 1
            return self.count

    numbers = Numbers()
    assert list(engine.shards("abc", "de").for_each(numbers).gather_sync()) == [1, 1, 2, 2, 3]
    assert numbers.count == 0


def test_a_users_callable_in_the_driver_keeps_what_it_remembers():
    class Numbers:
        count = 0

        def __call__(self, x):
            self.count += 1
            return self.count

    plan = from_iterable("ab").for_each(Numbers())
    assert [list(plan), list(plan)] == [[1, 2], [3, 4]]


def test_iter_and_list_open_runs_of_their_own_beside_next():
    plan = from_iterable(range(3))
    with plan:
        assert next(plan) == 0
        assert list(plan) == [0, 1, 2]
        assert [next(plan), next(plan), next(plan, "end")] == [1, 2, "end"]


def test_a_parallel_iterator_cannot_be_iterated_and_says_what_to_do():
    with pytest.raises(TypeError, match=r"end it with gather_sync\(\), gather_async\(\)"):
        iter(from_range(3))


# --- in another process (A11) ---------------------------------------------------------------------------------------


def test_shards_can_be_passed_to_remote_functions(on_ray):
    import ray

    @ray.remote(num_cpus=0)
    def do_sum(shard):
        return sum(shard)

    plan = from_range(10_000, 3)
    assert ray.get([do_sum.remote(shard) for shard in plan.shards()]) == [5552778, 16661667, 27780555]


def test_a_shard_that_was_read_in_part_refuses_to_travel_and_says_why(serial):
    import cloudpickle

    shard = from_range(10, 2).get_shard(0)
    with shard:
        assert next(shard) == 0
        with pytest.raises(TypeError, match=r"close\(\) it first"):
            cloudpickle.dumps(shard)
    again = cloudpickle.loads(cloudpickle.dumps(shard))
    assert list(again) == [0, 1, 2, 3, 4]


def test_a_plan_is_small_when_pickled_and_the_same_afterwards(serial):
    import cloudpickle

    plan = from_range(6, 2).for_each(lambda x: x + 1).gather_sync().batch(2)
    packed = cloudpickle.dumps(plan)
    assert len(packed) < 10_000
    assert list(cloudpickle.loads(packed)) == list(plan)
