import hashlib

import gymnasium as gym
import numpy as np
import pytest
import torch

from flowrl.algorithms.ppo import PPOConfig
from flowrl.batch import EpisodeStats, Origin, SampleBatch
from flowrl.env import EnvVector, vectorize
from flowrl.rollout.sampler import Sampler, worker_seed
from tests.envs import ContractEnv, CountEnv
from tests.policy.threads import with_other_threads


class Plain:
    """Takes one action for ever and adds nothing; `weights` may change which."""

    def __init__(self) -> None:
        self.action = 0

    def act(self, obs, explore):
        return np.full(len(obs), self.action), {}

    def postprocess(self, fragment):
        return fragment

    def set_weights(self, weights):
        self.action = int(weights["action"])


def sampler(*envs: gym.Env, length: int = 5, policy=None, **settings) -> Sampler:
    vector = EnvVector(envs, np.random.SeedSequence(0), settings.get("worker", 0))
    return Sampler(vector, policy or Plain(), length, **settings)


@pytest.mark.parametrize("end", ["term", "trunc"])
@pytest.mark.parametrize("episode", [1, 3, 7])
@pytest.mark.parametrize("length", [4, 5, 10])
def test_every_row_is_of_one_episode_and_none_is_missing(end, episode, length):  # C16: CountEnv's law
    sampling = sampler(CountEnv(episode, end, ident=0), CountEnv(episode, end, ident=1), length=length)
    fragments = [sampling.sample() for _ in range(3)]
    assert [fragment.count for fragment in fragments] == [2 * length] * 3
    for ident in (0, 1):
        rows = SampleBatch.concat([fragment[ident * length : (ident + 1) * length] for fragment in fragments])
        steps = np.arange(3 * length)
        assert rows["obs"].tolist() == np.stack([0 * steps + ident, steps // episode, steps % episode], axis=1).tolist()
        assert np.array_equal(rows["new_obs"], rows["obs"] + np.float32([0, 0, 1]))
        assert rows["rewards"].tolist() == (steps % episode + 1).tolist()
        assert rows["t"].tolist() == (steps % episode).tolist()
        ends = (steps % episode == episode - 1).tolist()
        assert rows["terminateds" if end == "term" else "truncateds"].tolist() == ends
        assert not rows["truncateds" if end == "term" else "terminateds"].any()


def test_episode_ids_are_unique_over_envs_workers_and_incarnations():
    def ids(worker: int, incarnation: int) -> list[int]:
        fragment = sampler(CountEnv(3), CountEnv(3), worker=worker, incarnation=incarnation).sample()
        return list(dict.fromkeys(fragment["eps_id"].tolist()))

    seen = [ids(0, 0), ids(1, 0), ids(1, 1), ids(32767, 4095)]
    assert [len(some) for some in seen] == [4, 4, 4, 4]
    assert len({number for some in seen for number in some}) == 16
    assert all(number >= 0 for some in seen for number in some)


@pytest.mark.parametrize("settings", [{"worker": 1 << 15}, {"incarnation": 1 << 12}, {"length": 0}], ids=str)
def test_numbers_that_do_not_fit_are_refused(settings):
    with pytest.raises(ValueError, match=r"expected 1 env step or more|eps_id has room"):
        sampler(CountEnv(3), **settings)


def test_an_episode_goes_on_in_the_next_fragment():  # B7
    sampling = sampler(CountEnv(1000), length=32)
    first, second = sampling.sample(), sampling.sample()
    assert (first.count, second.count) == (32, 32)
    assert second["t"].tolist() == list(range(32, 64))
    assert {*first["eps_id"].tolist()} == {*second["eps_id"].tolist()}


def test_exactly_the_steps_asked_for_are_taken_and_the_next_uses_the_new_weights():  # B6
    env = ContractEnv(1000)
    sampling = sampler(env, length=25)
    assert (env.num_resets, env.num_steps) == (0, 0)
    sampling.sample()
    assert (env.num_resets, env.num_steps) == (1, 25)
    sampling.set_weights({"action": np.array(1)}, version=3)
    fragment = sampling.sample()
    assert fragment["actions"][0] == 1
    assert fragment["policy_version"].tolist() == [3] * 25


def test_a_fragment_that_ends_with_an_episode_does_not_reset_the_env():  # B6
    env = ContractEnv(5)
    sampling = sampler(env, length=5)
    sampling.sample()
    assert env.num_resets == 1


def test_fragments_carry_where_they_came_from_and_the_policy_version():  # C15
    sampling = sampler(CountEnv(3), worker=2, incarnation=1)
    fragments = [sampling.sample(), sampling.sample()]
    assert [fragment.origin for fragment in fragments] == [Origin(2, 1, 0), Origin(2, 1, 1)]
    assert [fragment["policy_version"][0] for fragment in fragments] == [0, 0]


def test_finished_episodes_travel_with_the_fragment_they_finished_in():  # B2, H1, H2
    sampling = sampler(CountEnv(7), length=10, worker=4)
    assert [sampling.sample().episodes for _ in range(3)] == [(EpisodeStats(28.0, 7, 4),)] * 2 + [(EpisodeStats(28.0, 7, 4),) * 2]


def test_an_unfinished_episode_counts_in_no_statistics():  # H1
    sampling = sampler(CountEnv(150), length=100)
    assert sampling.sample().episodes == ()
    assert sampling.sample().episodes == (EpisodeStats(11325.0, 150, 0),)


def test_returns_are_summed_in_float64():
    class Tiny(CountEnv):
        def step(self, action):
            return (*super().step(action)[:1], 16777216.0 if self.t == 1 else 1.0, self.t == 3, False, {})

    assert sampler(Tiny(3)).sample().episodes[0].episode_return == 16777218.0


def test_fragments_are_read_only_and_never_change():  # C17
    sampling = sampler(CountEnv(3))
    first = sampling.sample()
    before = {name: column.copy() for name, column in first.items()}
    sampling.sample()
    assert all(np.array_equal(first[name], before[name]) for name in first)
    assert not any(column.flags.writeable for _, column in first.items())


def test_a_fragment_holds_views_of_what_was_sampled_without_a_copy():
    assert sampler(CountEnv(3), CountEnv(3)).sample()["obs"].base.shape == (2, 5, 3)


def test_columns_of_the_policy_are_stored_row_by_row_whatever_their_shape():
    class WithColumns(Plain):
        def act(self, obs, explore):
            return np.zeros(len(obs), np.int64), {"seen": obs[:, 1:].astype(np.float64), "explored": np.full(len(obs), explore)}

    fragment = sampler(CountEnv(3), CountEnv(4), policy=WithColumns(), explore=False).sample()
    assert np.array_equal(fragment["seen"], fragment["obs"][:, 1:])
    assert (fragment["seen"].dtype, fragment["explored"].any()) == (np.float64, np.False_)


def test_after_an_error_of_an_env_no_row_is_stitched():
    class Breaks(CountEnv):
        def step(self, action):
            if (self.episode, self.t) == (1, 1):
                raise ZeroDivisionError("once")
            return super().step(action)

    sampling = sampler(CountEnv(4, ident=0), Breaks(3, ident=1), length=5)
    with pytest.raises(ZeroDivisionError, match="once"):
        sampling.sample()
    fragment = sampling.sample()
    assert np.array_equal(fragment["new_obs"], fragment["obs"] + np.float32([0, 0, 1]))
    assert fragment["obs"][[0, 5]].tolist() == [[0, 1, 1], [1, 2, 0]]  # the first env goes on, the second begins anew
    assert np.array_equal(fragment["t"], fragment["obs"][:, 2])
    assert fragment.origin == Origin(0, 0, 0)
    assert [episode.length for episode in fragment.episodes] == [3, 4, 4, 3]  # those of the lost fragment too


def digest(seed: int, worker: int) -> str:
    """Of two fragments of 80 envs that an actor-critic sampled."""
    config = PPOConfig(env="CartPole-v1", num_envs=80, seed=seed)
    envs_seed, policy_seed = worker_seed(seed, worker).spawn(2)
    envs = vectorize(config.env, config.env_config, config.num_envs, envs_seed, worker)
    sampling = Sampler(envs, config.make_policy(envs.observation_space, envs.action_space, policy_seed), 50, worker)
    sha = hashlib.sha256()
    for fragment in (sampling.sample(), sampling.sample()):
        for name, column in fragment.items():
            sha.update(name.encode() + column.tobytes())
    envs.close()
    return sha.hexdigest()


def test_the_same_seed_and_worker_give_the_same_bits_and_others_do_not():  # L2
    assert digest(0, 1) == digest(0, 1)
    assert len({digest(0, 1), digest(0, 2), digest(1, 1)}) == 3


def test_sampling_gives_the_same_bits_in_a_process_with_one_thread_and_one_with_two():
    assert digest(0, 1) == with_other_threads("from tests.rollout.test_sampler import digest; print(digest(0, 1))")


def test_another_life_of_a_worker_has_another_seed():
    draws = {tuple(worker_seed(*which).generate_state(2)) for which in ((0, 1, 0), (0, 1, 1), (0, 2, 0), (1, 1, 0))}
    assert len(draws) == 4


class Answers(Plain):
    """Gives what it is told to."""

    def __init__(self, act=None, postprocess=None):
        super().__init__()
        self.answer, self.made = act, postprocess

    def act(self, obs, explore):
        return super().act(obs, explore) if self.answer is None else self.answer

    def postprocess(self, fragment):
        return fragment if self.made is None else self.made(fragment)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Answers(act=np.zeros(2, int)), r"Answers\.act gave ndarray: expected \(actions, columns\)"),
        (Answers(act=([0, 0], {})), "Answers.act gave list as 'actions'"),
        (Answers(act=(torch.zeros(2), {})), "Answers.act gave Tensor as 'actions'"),
        (Answers(act=(np.zeros(3, int), {})), r"gave an array of shape \(3,\) as 'actions': .* 2 actions"),
        (Answers(act=(np.zeros(2, int), {"logp": 0.5})), "gave float as 'logp'"),
        (Answers(act=(np.zeros(2, int), {"logp": np.zeros(())})), r"gave an array of shape \(\) as 'logp'"),
        (Answers(act=([0, 0], {"actions": np.zeros(2)})), "gave list as its actions"),
        (Answers(postprocess=lambda fragment: None), "Answers.postprocess gave NoneType: expected the fragment"),
    ],
)
def test_a_policy_that_gives_something_else_is_told_what_is_expected(policy, message):
    with pytest.raises(TypeError, match=message):
        sampler(CountEnv(3), CountEnv(3), policy=policy).sample()
