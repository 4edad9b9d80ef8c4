"""Observations as networks read them."""

import gymnasium as gym
import numpy as np
import pytest
import torch

import flowrl as fl
from flowrl.errors import ConfigError
from flowrl.policy import OneHot
from flowrl.rollout.trained import TrainedPolicy


@pytest.mark.parametrize(
    ("space", "obs", "expected"),
    [
        (gym.spaces.Discrete(3), [0, 2], [[1, 0, 0], [0, 0, 1]]),
        (gym.spaces.Discrete(3, start=-1), [-1, 1], [[1, 0, 0], [0, 0, 1]]),
        (gym.spaces.MultiDiscrete([2, 3, 4]), [[1, 2, 0], [0, 1, 3]], [[0, 1, 0, 0, 1, 1, 0, 0, 0], [1, 0, 0, 1, 0, 0, 0, 0, 1]]),  # K8
        (gym.spaces.MultiDiscrete([2, 2], start=np.array([5, -1])), [[5, 0]], [[1, 0, 0, 1]]),
        (gym.spaces.MultiDiscrete([[2, 1], [1, 2]]), [[[1, 0], [0, 1]]], [[0, 1, 1, 1, 0, 1]]),
    ],
    ids=repr,
)
def test_choices_are_ones_among_zeros(space, obs, expected):
    encoder = OneHot(space)
    encoded = encoder(np.array(obs))
    assert encoded.tolist() == expected
    assert all(encoder.space.contains(row) for row in encoded)


SPACES = [
    gym.spaces.Discrete(4, start=-2),
    gym.spaces.MultiDiscrete([2, 2]),
    gym.spaces.MultiBinary(2),
    gym.spaces.Box(0, 1, (2,), np.uint8),
]


class Told(gym.Env):
    """One step: the observation, one of four, says which of four actions pays 1; the others pay 0."""

    def __init__(self, observation_space: gym.Space) -> None:
        self.observation_space, self.action_space = observation_space, gym.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.right = int(self.np_random.integers(4))
        return self._obs(), {}

    def step(self, action):
        return self._obs(), float(action == self.right), True, False, {}

    def _obs(self):
        if isinstance(self.observation_space, gym.spaces.Discrete):
            return self.right - 2
        return np.array(divmod(self.right, 2), self.observation_space.dtype)


ALGORITHMS = {
    "PPO": lambda **how: fl.PPOConfig(train_batch_size=256, rollout_fragment_length=32, lr=1e-2, **how),
    "A2C": lambda **how: fl.A2CConfig(rollout_fragment_length=8, train_batch_size=64, lr=1e-2, **how),
    "DQN": lambda **how: fl.DQNConfig(
        lr=5e-3, learning_starts=200, n_step=3, buffer_size=2000, epsilon_schedule=[[0, 1.0], [2000, 0.05]], **how
    ),
}


@pytest.mark.parametrize("space", SPACES, ids=repr)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_choices_say_is_learned(algorithm, space):
    config = ALGORITHMS[algorithm](env=lambda context: Told(space), num_envs=8, hiddens=(32,))
    with config.build() as trainer:
        trainer.train_until(num_steps_sampled=6_000)
        assert trainer.evaluate(40)["episode_return_mean"] == 1.0
        env = Told(space)
        for seed in range(8):
            obs, _ = env.reset(seed=seed)
            assert trainer.compute_action(obs) == env.right  # K5: the env's own observation


class Recorded(torch.nn.Module):
    """Keeps what it was made with, and the last thing that it saw."""

    def __init__(self, observation_space, num_outputs):
        super().__init__()
        self.space, self.outputs, self.value = observation_space, torch.nn.Linear(9, num_outputs), torch.nn.Linear(9, 1)

    def forward(self, obs):
        self.seen = obs
        return self.outputs(obs), self.value(obs).squeeze(1)


@pytest.mark.parametrize("config", [fl.PPOConfig, fl.DQNConfig])
def test_a_model_of_ones_own_sees_one_hot_rows_and_is_made_for_them(config):
    space = gym.spaces.MultiDiscrete([2, 3, 4])
    policy = TrainedPolicy(config(env="CartPole-v1", model=Recorded), space, gym.spaces.Discrete(2))
    policy.compute_action([1, 2, 0])
    network = policy.policy.network
    assert network.space == gym.spaces.Box(0, 1, (9,))
    assert network.seen.tolist() == [[0, 1, 0, 0, 1, 1, 0, 0, 0]]


@pytest.mark.parametrize("config", [fl.PPOConfig, fl.DQNConfig])
def test_choices_are_not_normalised_and_that_is_said(config):
    with pytest.raises(ConfigError, match=r"observation_filter='MeanStdFilter': Discrete\(16\) has choices.*take 'NoFilter'"):
        TrainedPolicy(config(env="FrozenLake-v1", observation_filter="MeanStdFilter"), gym.spaces.Discrete(16), gym.spaces.Discrete(4))


def test_a_saved_policy_of_choices_takes_the_envs_own_observations(tmp_path):
    policy = TrainedPolicy(fl.DQNConfig(env="FrozenLake-v1"), gym.spaces.Discrete(16), gym.spaces.Discrete(4))
    loaded = fl.load_policy(policy.save(tmp_path))
    assert [loaded.compute_action(state) for state in range(16)] == [policy.compute_action(state) for state in range(16)]
