"""Results as JSON and TensorBoard can hold them."""

import json
import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from flowrl.runs.plain import plain, scalars

leaves = (
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats() | st.text() | st.just(np.float32(0.5)) | st.just(np.arange(3))
)
nested = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=10)


@given(nested)
def test_whatever_is_in_a_result_it_is_strict_json(value):
    text = json.dumps(plain(value), allow_nan=False)
    assert json.loads(text) == plain(value)


@given(nested)
def test_what_is_plain_stays(value):
    assert plain(plain(value)) == plain(value)


def test_nan_and_infinity_become_null_wherever_they_are():
    assert plain({"a": math.nan, "b": [1.0, math.inf], "c": np.array([1.0, np.nan]), "d": np.float64("-inf")}) == {
        "a": None,
        "b": [1.0, None],
        "c": [1.0, None],
        "d": None,
    }


def test_numbers_of_numpy_and_torch_become_python_s():
    assert plain([np.int64(3), np.float32(0.5), np.bool_(True), torch.tensor(2.0), np.array([[1, 2]])]) == [3, 0.5, True, 2.0, [[1, 2]]]


def test_scalars_are_the_finite_numbers_by_their_path():
    result = {"mean": np.float32(2.5), "none": math.nan, "name": "x", "info": {"learner": {"kl": 0.5, "list": [1, 2]}, "empty": {}}}
    assert list(scalars(result)) == [("mean", 2.5), ("info/learner/kl", 0.5)]
