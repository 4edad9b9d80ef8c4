import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrl.batch import SampleBatch
from flowrl.replay.ring import Ring


def numbered(start: int, count: int) -> SampleBatch:
    return SampleBatch(
        {"number": np.arange(start, start + count), "obs": np.arange(start, start + count, dtype=np.float32).repeat(2).reshape(-1, 2)}
    )


def held(ring: Ring) -> list[int]:
    return sorted(ring.take(np.arange(len(ring)))["number"].tolist())


def test_capacity_is_counted_in_rows_and_the_oldest_go_first():  # E9
    for size in (10, 7):
        ring = Ring(100)
        for start in range(0, 30 * size, size):
            ring.add(numbered(start, size))
        assert (len(ring), ring.num_added) == (100, 30 * size)
        assert held(ring) == list(range(30 * size - 100, 30 * size))


def test_a_batch_over_the_end_goes_on_at_the_start():
    ring = Ring(5)
    ring.add(numbered(0, 3))
    assert ring.add(numbered(3, 4)) == [(slice(3, 5), slice(0, 2)), (slice(0, 2), slice(2, 4))]
    assert ring.take(np.arange(5))["number"].tolist() == [5, 6, 2, 3, 4]
    assert ring.take(np.arange(5))["obs"].tolist() == [[5, 5], [6, 6], [2, 2], [3, 3], [4, 4]]


def test_of_a_batch_larger_than_the_capacity_the_last_rows_are_kept():
    ring = Ring(4)
    ring.add(numbered(0, 11))
    assert (held(ring), len(ring), ring.num_added) == ([7, 8, 9, 10], 4, 11)


@given(st.integers(1, 9), st.lists(st.integers(0, 20), max_size=12))
def test_the_ring_is_the_tail_of_all_that_was_added_and_knows_its_numbers(capacity, sizes):
    ring = Ring(capacity)
    for size in sizes:
        ring.add(numbered(ring.num_added, size))
        slots = np.arange(len(ring))
        assert held(ring) == list(range(sum(sizes))[: ring.num_added][-capacity:])
        assert ring.numbers(slots).tolist() == ring.take(slots)["number"].tolist()


def test_nothing_is_shared_with_what_comes_in_or_goes_out():  # A12, O1
    ring = Ring(4)
    batch = numbered(0, 4)
    ring.add(batch)
    taken = ring.take(np.arange(4))
    ring.add(numbered(4, 4))
    assert taken["number"].tolist() == batch["number"].tolist() == [0, 1, 2, 3]
    assert all(column.flags.owndata for column in taken.values())


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"number": np.arange(2)}, r"\['number'\].*\['number', 'obs'\]"),
        ({"number": np.arange(2), "obs": np.zeros((2, 2), np.float64)}, r"'obs' has rows float64\[2\].*float32\[2\]"),
        ({"number": np.arange(2), "obs": np.zeros((2, 3), np.float32)}, r"'obs' has rows float32\[3\].*float32\[2\]"),
    ],
    ids=["columns", "dtype", "shape"],
)
def test_a_batch_of_another_kind_is_refused_by_the_column_and_changes_nothing(columns, named):
    ring = Ring(4)
    ring.add(numbered(0, 3))
    with pytest.raises(ValueError, match=named):
        ring.add(SampleBatch(columns))
    assert (held(ring), ring.num_added) == ([0, 1, 2], 3)


@pytest.mark.parametrize("capacity", [0, 10.5, float("nan"), True])
def test_a_capacity_that_is_no_whole_row_is_refused(capacity):
    with pytest.raises(ValueError, match=f"capacity={capacity}"):
        Ring(capacity)


def test_a_column_of_objects_is_refused():
    """They would be shared with who sent them."""
    objects = np.empty(2, object)
    objects[:] = [[1], [2]]
    ring = Ring(4)
    with pytest.raises(ValueError, match="column 'info' has the dtype object"):
        ring.add(SampleBatch({"info": objects}))
    ring.add(numbered(0, 3))
    assert held(ring) == [0, 1, 2]
