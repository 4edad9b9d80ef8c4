"""Dict and Tuple observations and actions: one column with a field for each part."""

import pickle

import gymnasium as gym
import numpy as np
import pytest

from flowrl.batch import SampleBatch
from flowrl.env import EnvVector
from flowrl.env.fitting import fitted
from flowrl.env.spaces import at, dtype_of, for_env, joined, leaves_of
from tests.envs import CountEnv, Echo, Seek

SPACE = gym.spaces.Dict(
    {
        "z": gym.spaces.Discrete(3, start=5),
        "camera": gym.spaces.Box(0, 255, (2, 3, 1), np.uint8),
        "arm": gym.spaces.Tuple([gym.spaces.Box(-np.inf, np.inf, (2,), np.float64), gym.spaces.MultiBinary(3)]),
    }
)


def value(z=6, camera=7, arm=(1.0, 16777217.0), bits=(1, 0, 1)):
    return {"z": z, "camera": np.full((2, 3, 1), camera, np.uint8), "arm": (np.array(arm), np.array(bits, np.int8))}


def test_leaves_are_fields_in_the_order_of_sorted_keys():
    assert [path for path, _ in leaves_of(SPACE)] == [("arm", "0"), ("arm", "1"), ("camera",), ("z",)]
    other = gym.spaces.Dict(dict(reversed(SPACE.spaces.items())))
    assert dtype_of(other) == dtype_of(SPACE)


def test_each_leaf_keeps_its_dtype_and_its_values():  # K9
    row = fitted(value(), SPACE)
    assert row.shape == () and row.dtype == dtype_of(SPACE)
    assert (row["arm"]["0"].tolist(), row["arm"]["0"].dtype) == ([1.0, 16777217.0], np.float64)
    assert (row["camera"].dtype, row["camera"].max(), row["z"]) == (np.uint8, 7, 6)


def test_a_value_comes_back_as_an_env_takes_it():
    back = for_env(SPACE)(fitted(value(), SPACE))
    assert SPACE.contains(back)
    assert type(back["z"]) is int and type(back["arm"]) is tuple
    back["camera"][:] = 0  # its own


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (value() | {"z": 8}, r"observation\['z'\] array\(8\): the space says Discrete\(3, start=5\), mend the env"),
        (value(arm=(1.0, np.nan)), r"observation\['arm'\]\[0\] array\(\[ 1., nan\]\): expected finite numbers"),
        (value(arm=(1.0, 2.0, 3.0)), r"observation\['arm'\]\[0\] of shape \(3,\): the space says \(2,\)"),
        (value(bits=(0, 2, 0)), r"observation\['arm'\]\[1\].*the space says MultiBinary\(3\)"),
        (value() | {"camera": np.zeros((2, 3, 1))}, r"observation\['camera'\] of dtype float64: the space says uint8"),
        (
            value() | {"more": 1},
            r"observation \['arm', 'camera', 'more', 'z'\]: the space says a dict with the keys \['arm', 'camera', 'z'\]",
        ),
        ({"z": 6}, r"observation \['z'\]: the space says a dict with the keys"),
        (value() | {"arm": (np.zeros(2),)}, r"observation\['arm'\] \(array.*the space says a tuple of 2"),
        (np.zeros(3), r"observation array\(.*the space says a dict with the keys"),
    ],
)
def test_a_leaf_that_does_not_fit_is_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        fitted(wrong, SPACE)


class Nested(CountEnv):
    """A CountEnv that observes its t in every leaf."""

    def __init__(self, length=3, bad_at=None) -> None:
        super().__init__(length)
        self.observation_space, self.action_space, self.bad_at = SPACE, Echo({"actions": "tuple"}).action_space, bad_at
        self.actions: list[object] = []

    def step(self, action):
        self.actions.append(action)
        return super().step(action)

    def _obs(self):
        return value(z=5 + self.t % 3, camera=self.t, arm=(self.t, np.inf if self.t == self.bad_at else 0))


def acted(*rows):
    inner = {"a": np.array([[row[2]] for row in rows]), "z": np.array([row[1] for row in rows])}
    return joined({"0": np.array([row[0] for row in rows]), "1": joined(inner)})


def test_a_vector_writes_each_leaf_and_hands_each_env_its_own_action():
    envs = EnvVector([Nested(), Nested()], np.random.SeedSequence(0))
    envs.reset_ended()
    rewards, ended = envs.step(acted((1, 5, 3), (0, 7, 2)))
    assert rewards == [1.0, 1.0] and not ended
    assert envs.obs["camera"][:, 0, 0, 0].tolist() == [1, 1] and envs.obs["arm"]["0"].tolist() == [[1, 0], [1, 0]]
    assert [env.actions for env in envs.envs] == [[(1, {"a": np.array([3]), "z": 5})], [(0, {"a": np.array([2]), "z": 7})]]
    assert all(env.action_space.contains(env.actions[0]) for env in envs.envs)


def test_a_bad_leaf_is_told_with_its_env_and_step():
    envs = EnvVector([Nested(9), Nested(9, bad_at=2)], np.random.SeedSequence(0))
    envs.reset_ended()
    envs.step(acted((0, 5, 0), (0, 5, 0)))
    with pytest.raises(ValueError, match=r"observation\['arm'\]\[0\].*finite") as caught:
        envs.step(acted((0, 5, 0), (0, 5, 0)))
    assert caught.value.__notes__[0].startswith("env 1 of 2 of worker 0") and "after 1 steps" in caught.value.__notes__[0]
    assert envs.reset_ended() == [1]


def test_batches_of_nested_columns_are_sliced_joined_and_sent_like_others():
    rows = np.stack([fitted(value(camera=at_t), SPACE) for at_t in range(4)])
    batch = SampleBatch({"obs": rows})
    both = pickle.loads(pickle.dumps(SampleBatch.concat([batch[:2], batch[np.array([3, 2])]]), protocol=5))
    assert both["obs"].dtype == dtype_of(SPACE)
    assert at(both["obs"], ("camera",))[:, 0, 0, 0].tolist() == [0, 1, 3, 2]
    assert repr(batch).startswith("SampleBatch(4 rows: obs {arm {0 float64[2], 1 int8[3]}, camera uint8[2, 3, 1], z int64}")
    with pytest.raises(ValueError, match="read-only"):
        batch["obs"]["camera"][0] = 1


def test_the_order_of_keys_is_no_difference_between_envs():
    vector = EnvVector([Seek(), Seek({"reversed": True})], np.random.SeedSequence(0))
    vector.reset_ended()
    assert vector.obs.dtype.names == ("image", "place")
