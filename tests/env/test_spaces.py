import json

import gymnasium as gym
import numpy as np
import pytest

from flowrl.env.spaces import space_from_json, space_to_json
from flowrl.errors import ConfigError

SPACES = [
    gym.spaces.Box(-np.inf, np.inf, (3,)),
    gym.spaces.Box(np.array([0, -1], np.float32), np.array([np.inf, 1], np.float32)),
    gym.spaces.Box(0, 255, (2, 2, 3), np.uint8),
    gym.spaces.Box(-1, 1, (), np.float64),
    gym.spaces.Box(np.iinfo(np.int64).min, np.iinfo(np.int64).max, (2,), np.int64),
    gym.spaces.Discrete(3, start=-1),
    gym.spaces.MultiDiscrete([2, 3]),
    gym.spaces.MultiBinary(3),
    gym.spaces.MultiBinary([2, 3]),
    gym.spaces.MultiDiscrete([[2, 3], [4, 5]], start=np.array([[0, 1], [2, 3]])),
    gym.spaces.Dict({"b": gym.spaces.Discrete(2), "a": gym.spaces.Tuple([gym.spaces.Box(0, 1), gym.spaces.MultiBinary(2)])}),
]


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_a_space_comes_back_from_json_as_it_was(space):
    text = json.dumps(space_to_json(space), allow_nan=False)
    assert space_from_json(json.loads(text)) == space


def test_other_spaces_are_refused_both_ways():
    with pytest.raises(ConfigError, match="Text"):
        space_to_json(gym.spaces.Text(3))
    with pytest.raises(ConfigError, match="'Graph'"):
        space_from_json({"space": "Graph"})
