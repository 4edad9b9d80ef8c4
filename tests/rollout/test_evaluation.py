import numpy as np

from flowrl.env import EnvVector
from flowrl.rollout.evaluation import play, summary_of
from tests.envs import ContractEnv, CountEnv


class Still:
    """Takes action 0, and says whether it was asked to explore."""

    def __init__(self):
        self.explored = set()

    def act(self, obs, explore):
        self.explored.add(explore)
        return np.zeros(len(obs), int), {}


def vector(*envs) -> EnvVector:
    return EnvVector(envs, np.random.SeedSequence(0))


def test_short_episodes_are_not_favoured():
    """Half of the envs have long episodes: half of the episodes counted are long, however late they end."""
    episodes = play(Still(), vector(CountEnv(2), CountEnv(20), CountEnv(2), CountEnv(20)), 8)
    assert [episode.length for episode in episodes] == [2, 2, 20, 20, 2, 2, 20, 20]
    assert [episode.episode_return for episode in episodes[:3]] == [3, 3, 210]


def test_exactly_so_many_episodes_are_played_and_the_policy_does_not_explore():
    policy = Still()
    assert len(play(policy, vector(CountEnv(3, "trunc"), CountEnv(3)), 5)) == 5
    assert policy.explored == {False}


def test_an_env_is_used_by_the_rules():
    envs = [ContractEnv(3), ContractEnv(5)]
    play(Still(), vector(*envs), 4)
    assert envs[0].num_resets >= 2 and envs[1].num_resets == 2


def test_a_summary_has_mean_deviation_and_each_return():
    summary = summary_of(play(Still(), vector(CountEnv(2), CountEnv(3)), 2))
    assert summary == {
        "episode_return_mean": 4.5,
        "episode_return_std": 1.5,
        "episode_return_min": 3.0,
        "episode_return_max": 6.0,
        "episode_len_mean": 2.5,
        "num_episodes": 2,
        "episode_returns": [3.0, 6.0],
    }
