import copy
import subprocess
import sys
import textwrap

import gymnasium as gym
import numpy as np
import pytest

import flowrl as fl
from flowrl.batch import EpisodeStats
from flowrl.env import Ended, EnvVector, vectorize
from tests.envs import ContractEnv, CountEnv

GO = np.array([0, 0])


def vector(*envs: gym.Env, worker: int = 0) -> EnvVector:
    return EnvVector(envs, np.random.SeedSequence(0), worker)


class Faulty(CountEnv):
    """A CountEnv whose third step is what `third` makes of it, once."""

    def __init__(self, third) -> None:
        super().__init__(10, ident=1)
        self.third = third
        self.num_steps = 0

    def step(self, action):
        self.num_steps += 1
        step = super().step(action)
        return self.third(step) if self.num_steps == 3 else step


def with_obs(obs):
    return lambda step: (obs, *step[1:])


def with_reward(reward):
    return lambda step: (step[0], reward, *step[2:])


def steps(envs: EnvVector, count: int) -> list[float]:
    """The first env's rewards."""
    rewards = []
    for _ in range(count):
        envs.reset_ended()
        rewards.append(envs.step(np.zeros(envs.num_envs, np.int64))[0][0])
    return rewards


def test_building_neither_resets_nor_steps():
    env = ContractEnv(3)
    vector(env)
    assert (env.num_resets, env.num_steps) == (0, 0)


def test_every_env_starts_with_a_seed_of_its_own_and_later_resets_pass_none():
    envs = [ContractEnv(2), ContractEnv(2)]
    steps(vector(*envs), 3)
    assert [[seed is None for seed in env.seeds] for env in envs] == [[False, True]] * 2
    assert envs[0].seeds[0] != envs[1].seeds[0]


def test_the_same_seed_gives_the_same_episodes():
    def first_obs(seed: int) -> list[list[float]]:
        envs = vectorize("CartPole-v1", num_envs=2, seed=np.random.SeedSequence(seed))
        envs.reset_ended()
        envs.close()
        return envs.obs.tolist()

    assert first_obs(1) == first_obs(1)
    assert first_obs(1) != first_obs(2)
    assert first_obs(1)[0] != first_obs(1)[1]


def test_action_spaces_are_seeded():
    def draws() -> list[int]:
        env = CountEnv(3)
        vector(env)
        return [int(env.action_space.sample()) for _ in range(20)]

    assert draws() == draws()


@pytest.mark.parametrize("end", ["term", "trunc"])
def test_an_episode_keeps_its_last_observation_until_it_is_reset(end):
    envs = vector(CountEnv(2, end, ident=7))
    envs.reset_ended()
    assert envs.step(GO[:1]) == ([1.0], [])
    assert envs.step(GO[:1]) == ([2.0], [Ended(0, end == "term", end == "trunc")])
    assert envs.obs.tolist() == [[7, 0, 2]]
    assert envs.reset_ended() == [0]
    assert envs.obs.tolist() == [[7, 1, 0]]


def test_lengths_and_returns_are_right_from_the_second_episode_on():  # B2, H2
    envs = vector(CountEnv(3), CountEnv(3), worker=4)
    steps(envs, 15)
    assert envs.take_finished() == (EpisodeStats(6.0, 3, 4),) * 10
    assert envs.take_finished() == ()


def test_episodes_are_numbered_over_all_envs():
    envs = vector(CountEnv(2), CountEnv(3))
    seen = []
    for _ in range(4):
        envs.reset_ended()
        seen.append(list(envs.episodes))
        envs.step(GO)
    assert seen == [[0, 1], [0, 1], [2, 1], [2, 3]]


def test_an_env_that_reuses_its_observation_is_copied():
    class Reusing(CountEnv):
        shared = np.zeros(3, np.float32)

        def _obs(self):
            self.shared[:] = self.ident, self.episode, self.t
            return self.shared

    envs = vector(Reusing(5, ident=0), Reusing(5, ident=1))
    steps(envs, 2)
    assert envs.obs.tolist() == [[0, 0, 2], [1, 0, 2]]


@pytest.mark.parametrize(
    "reward", [3, 3.0, True, np.float32(3), np.int64(3), np.array(3.0), np.array([3.0])], ids=lambda r: f"{type(r).__name__}{np.shape(r)}"
)
def test_any_one_finite_number_is_a_reward(reward):
    assert steps(vector(Faulty(with_reward(reward))), 3) == [1.0, 2.0, float(np.sum(reward))]


BAD_REWARDS = [None, float("nan"), float("inf"), 1e300, "1.0", np.zeros(2)]


@pytest.mark.parametrize("reward", BAD_REWARDS, ids=repr)
def test_anything_else_is_refused_naming_env_step_and_remedy(reward):
    with pytest.raises(ValueError, match=r"reward .*wrap it") as caught:
        steps(vector(CountEnv(9), Faulty(with_reward(reward)), worker=2), 3)
    assert "env 1 of 2 of worker 2" in caught.value.__notes__[0]
    assert "after 2 steps of its episode" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("obs", "message"),
    [
        (np.float32(7.0), r"shape \(\)"),
        (np.zeros(4, np.float32), r"shape \(4,\): the space says \(3,\)"),
        (np.array([0, np.nan, 0], np.float32), "finite"),
        (np.array([0, 0, 1e300]), "finite"),
        (np.zeros(3, np.complex64), "dtype complex64: the space says float32"),
    ],
    ids=["scalar", "shape", "nan", "overflow", "dtype"],
)
def test_an_observation_that_does_not_fit_is_refused_naming_the_env(obs, message):
    with pytest.raises(ValueError, match=message) as caught:
        steps(vector(CountEnv(9), Faulty(with_obs(obs))), 3)
    assert "env 1 of 2" in caught.value.__notes__[0]


def test_float64_observations_become_what_the_space_says():
    envs = vector(Faulty(with_obs(np.array([1.0, 2.0, 3.0]))))
    steps(envs, 3)
    assert (envs.obs.dtype, envs.obs.tolist()) == (np.float32, [[1, 2, 3]])


class FixedObs(CountEnv):
    def __init__(self, space: gym.spaces.Space, obs) -> None:
        super().__init__(10)
        self.observation_space, self.fixed = space, obs

    def _obs(self):
        return self.fixed


@pytest.mark.parametrize(
    ("space", "obs"),
    [
        (gym.spaces.Box(-np.inf, np.inf, (1,), np.float64), np.array([16777217.0])),
        (gym.spaces.Box(0, 255, (2, 2, 3), np.uint8), np.full((2, 2, 3), 255, np.uint8)),
        (gym.spaces.Box(0, 9, (), np.int64), np.array(9)),
        (gym.spaces.Discrete(3, start=-1), -1),
        (gym.spaces.Discrete(3), np.int32(2)),
        (gym.spaces.Discrete(3), np.array(2)),
        (gym.spaces.MultiDiscrete([2, 3]), (1, 2)),
        (gym.spaces.MultiDiscrete([[2, 3], [4, 5]]), np.ones((2, 2), np.uint8)),
        (gym.spaces.MultiBinary(2), np.array([True, False])),
    ],
    ids=["float64", "uint8 image", "0-d", "choice", "choice as int32", "choice as an array", "choices", "matrix of choices", "bits"],
)
def test_observations_keep_the_dtype_of_their_space(space, obs):  # K9
    envs = vector(FixedObs(space, obs))
    steps(envs, 1)
    assert (envs.obs.dtype, envs.obs.shape) == (space.dtype, (1, *space.shape))
    assert np.array_equal(envs.obs[0], obs)


@pytest.mark.parametrize(
    ("space", "obs", "message"),
    [
        (gym.spaces.Discrete(3), 3, r"observation array\(3\): the space says Discrete\(3\), mend the env"),
        (gym.spaces.Discrete(3, start=5), 0, "the space says Discrete"),
        (gym.spaces.Discrete(3), 1.0, "dtype float64"),
        (gym.spaces.MultiDiscrete([2, 3]), np.array([0, 3]), "the space says MultiDiscrete"),
        (gym.spaces.MultiDiscrete([2, 3]), np.array([0, -1]), "the space says MultiDiscrete"),
        (gym.spaces.MultiBinary(2), np.array([0, 2], np.int8), "the space says MultiBinary"),
        (gym.spaces.MultiBinary(2), np.zeros(3, np.int8), "shape"),
    ],
)
def test_a_choice_that_the_space_has_not_is_refused(space, obs, message):
    with pytest.raises(ValueError, match=message):
        vector(FixedObs(space, obs)).reset_ended()


def test_a_choice_that_goes_wrong_later_is_refused_too():
    env = FixedObs(gym.spaces.MultiDiscrete([2, 3]), np.array([1, 2]))
    envs = vector(env)
    steps(envs, 1)
    env.fixed = np.array([1, 3])
    with pytest.raises(ValueError, match="the space says MultiDiscrete"):
        steps(envs, 1)


def test_an_integer_that_would_wrap_is_refused():
    envs = vector(FixedObs(gym.spaces.Box(0, 255, (1,), np.uint8), np.array([256], np.uint16)))
    with pytest.raises(ValueError, match="does not fit into uint8"):
        envs.reset_ended()


def divide(step):
    raise ZeroDivisionError("in the env")


def test_an_error_of_an_env_keeps_its_type_and_names_env_and_worker():  # B9
    with pytest.raises(ZeroDivisionError) as caught:
        steps(vector(CountEnv(9), Faulty(divide), CountEnv(9), worker=3), 5)
    assert caught.value.__notes__[0].startswith("env 1 of 3 of worker 3 (<Faulty instance>), after 2 steps of its episode")


def test_after_an_error_that_env_begins_anew_and_the_others_go_on():
    envs = vector(CountEnv(4), Faulty(divide))
    with pytest.raises(ZeroDivisionError):
        steps(envs, 3)
    assert envs.reset_ended() == [1]
    assert envs.obs.tolist() == [[0, 0, 3], [1, 1, 0]]
    envs.step(GO)
    assert envs.take_finished() == (EpisodeStats(10.0, 4, 0),)


def test_an_episode_that_ended_beside_an_error_still_counts():
    envs = vector(CountEnv(3), Faulty(divide))
    with pytest.raises(ZeroDivisionError):
        steps(envs, 3)
    assert envs.take_finished() == (EpisodeStats(6.0, 3, 0),)
    assert envs.reset_ended() == [0, 1]


def test_an_env_whose_reset_fails_is_reset_again_with_its_seed():
    class Failing(ContractEnv):
        def reset(self, *, seed=None, options=None):
            first_obs = super().reset(seed=seed, options=options)
            if self.num_resets == 1:
                raise OSError("not yet")
            return first_obs

    env = Failing(3)
    envs = vector(env)
    with pytest.raises(OSError, match="not yet") as caught:
        envs.reset_ended()
    assert "env 0 of 1 of worker 0 (<Failing instance>), in its reset" in caught.value.__notes__[0]
    assert envs.reset_ended() == [0]
    assert env.seeds[0] == env.seeds[1] is not None


def test_an_env_error_ends_the_process_in_seconds():  # B9
    script = """
        import numpy as np
        from flowrl.env import vectorize
        from tests.envs import CountEnv
        class Broken(CountEnv):
            def step(self, action):
                return 1 // 0
        envs = vectorize(lambda config: (CountEnv, Broken)[config.vector_index == 1](5), num_envs=3)
        envs.reset_ended()
        envs.step(np.zeros(3, int))
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], timeout=30, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.strip().splitlines()[-2].startswith("ZeroDivisionError")
    assert "env 1 of 3" in ended.stderr


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (FixedObs(gym.spaces.Text(3), "a"), r"observation space of <FixedObs instance>: Text\(.*expected Box, Discrete.*, wrap the env"),
        (FixedObs(gym.spaces.Dict(a=gym.spaces.Text(3)), {"a": "a"}), r"Text\(.*expected Box"),
        (FixedObs(gym.spaces.Tuple([gym.spaces.Box(0, 1), gym.spaces.Dict({})]), 0), r"Dict\(\): expected at least one part"),
        (FixedObs(gym.spaces.Dict({3: gym.spaces.Box(0, 1)}), 0), "expected texts as keys"),
    ],
)
def test_other_observation_spaces_are_refused_when_built(env, message):
    with pytest.raises(ValueError, match=message):
        vector(env)


def test_other_action_spaces_are_refused_when_built():
    env = CountEnv(3)
    env.action_space = gym.spaces.Text(2)
    with pytest.raises(fl.ConfigError, match=r"action space of <.*Text\(.*expected Box, Discrete.*wrap the env or choose another one"):
        vector(env)


class Recording(CountEnv):
    """Keeps the actions it gets; may spoil them afterwards, as envs do."""

    def __init__(self, action_space: gym.Space) -> None:
        super().__init__(9)
        self.action_space = action_space
        self.actions: list = []

    def step(self, action):
        self.actions.append(copy.deepcopy(action))
        if isinstance(action, np.ndarray):
            action *= 0
        return super().step(action)


@pytest.mark.parametrize(
    ("space", "actions"),
    [
        (gym.spaces.Discrete(3), np.array([2, 1])),
        (gym.spaces.MultiDiscrete([3, 4]), np.array([[2, 1], [0, 3]])),
        (gym.spaces.MultiBinary(2), np.array([[1, 0], [1, 1]], np.int8)),
        (gym.spaces.Box(-5, 5, (2,), np.int16), np.array([[-5, 3], [0, 5]], np.int16)),
        (gym.spaces.Box(-1, 1, (2,), np.float64), np.array([[0.5, -1.0], [1.0, 0.0]])),
    ],
)
def test_each_env_gets_an_action_of_its_own_as_its_space_has_it(space, actions):
    one, other = Recording(space), Recording(space)
    envs = vector(one, other)
    envs.reset_ended()
    envs.step(actions.copy())
    assert [np.array(env.actions[0]).tolist() for env in (one, other)] == actions.tolist()
    assert all(env.action_space.contains(env.actions[0]) for env in (one, other))


def test_envs_with_different_spaces_are_refused_when_built():
    other = CountEnv(3)
    other.action_space = gym.spaces.Discrete(5)
    with pytest.raises(ValueError, match=r"env 1 has .*Discrete\(5\), env 0 has .*Discrete\(2\)"):
        vector(CountEnv(3), other)


def test_a_wrong_number_of_actions_is_refused():
    envs = vector(CountEnv(3), CountEnv(3))
    envs.reset_ended()
    with pytest.raises(ValueError, match="1 actions for 2 envs"):
        envs.step(GO[:1])


def test_closing_closes_every_env_also_where_one_raises():
    class Closing(CountEnv):
        closed = False

        def close(self):
            self.closed = True
            if self.ident == 0:
                raise OSError("stuck")

    envs = [Closing(3, ident=0), Closing(3, ident=1)]
    with pytest.raises(OSError, match="stuck"):
        vector(*envs).close()
    assert [env.closed for env in envs] == [True, True]
