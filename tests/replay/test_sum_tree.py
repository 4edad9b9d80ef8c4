import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrl.replay.sum_tree import SumTree


def tree_of(values, capacity: int | None = None) -> SumTree:
    tree = SumTree(capacity or len(values))
    tree.fill(slice(0, len(values)), np.array(values, np.float64))
    return tree


@pytest.mark.parametrize(("num_filled", "capacity"), [(4096, 4096), (100, 512), (1, 1), (33, 1000)])
def test_a_mass_at_or_above_the_top_finds_the_last_slot(num_filled, capacity):  # E1
    tree = tree_of([0.5**0.4] * num_filled, capacity)
    assert tree.find(np.array([tree.total, tree.total * (1 + 1e-12), tree.total * 2])).tolist() == [num_filled - 1] * 3


def test_a_slot_is_found_from_its_lower_edge_on():
    tree = tree_of([1.0, 2.0, 3.0])
    assert tree.find(np.array([0.0, 0.999, 1.0, 2.999, 3.0, 5.999])).tolist() == [0, 0, 1, 1, 2, 2]


# Whole numbers have exact sums: what is found is what numpy finds in the plain running sum.
@given(st.lists(st.integers(1, 5), min_size=1, max_size=200), st.integers(0, 100), st.data())
def test_the_tree_finds_what_the_plain_running_sum_finds(values, spare, data):
    tree = tree_of(values, len(values) + spare)
    changes = data.draw(st.lists(st.tuples(st.integers(0, len(values) - 1), st.integers(1, 9))))
    tree.put(np.array([slot for slot, _ in changes], np.int64), np.array([value for _, value in changes], np.float64))
    for slot, value in changes:
        values[slot] = value
    masses = np.array(data.draw(st.lists(st.integers(0, 2 * sum(values) - 1), min_size=1))) / 2
    assert tree.find(masses).tolist() == np.cumsum(values).searchsorted(masses, side="right").tolist()
    assert (tree.total, tree.minimum) == (sum(values), min(values))


def test_the_sum_does_not_drift_over_a_hundred_thousand_changes():  # E6
    rng = np.random.default_rng(0)
    tree = tree_of(rng.random(1000) + 1e-6)
    for _ in range(1000):
        tree.put(rng.integers(0, 1000, 100), 10.0 ** rng.uniform(-6, 6, 100))
        total = tree.total
    exact = math.fsum(tree[np.arange(1000)])
    assert abs(total - exact) / exact < 1e-9


def test_the_minimum_rises_when_the_smallest_value_does():
    tree = tree_of([5.0] * 40 + [1.0] + [3.0] * 40)
    assert tree.minimum == 1.0
    tree.put(np.array([40]), np.array([4.0]))
    assert tree.minimum == 3.0
    tree.fill(slice(41, 81), 6.0)
    assert tree.minimum == 4.0


def test_of_two_values_for_one_slot_the_last_one_holds():
    tree = tree_of([1.0, 1.0])
    tree.put(np.array([0, 1, 0]), np.array([9.0, 2.0, 4.0]))
    assert (tree[np.array([0, 1])].tolist(), tree.total) == ([4.0, 2.0], 6.0)


def test_an_empty_tree_has_no_sum_and_no_minimum():
    assert (SumTree(10).total, SumTree(10).minimum) == (0.0, math.inf)
