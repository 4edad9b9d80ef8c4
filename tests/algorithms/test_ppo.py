"""PPO as a whole: the plan, what it learns, and that it is the same on both engines."""

import inspect
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import flowrl as fl
from flowrl.algorithms import ppo
from flowrl.env import vectorize
from flowrl.ops import ParallelRollouts
from flowrl.rollout import Sampler
from flowrl.runs.settings import RunSettings, read_settings

CONFIG = RunSettings.from_dict(read_settings(Path(__file__).parents[2] / "settings" / "demo_ppo_cartpole.json")).config
"""What `make demo` trains."""


EVERYTHING = {
    "observation_filter": "MeanStdFilter",
    "normalize_rewards": True,
    "kl_coeff": 0.2,
    "max_kl": 0.02,
    "vf_clip_param": 0.2,
    "lr_schedule": [(0, 1e-3), (1000, 0.0)],
    "clip_param_schedule": [(0, 0.2), (1000, 0.1)],
}


def weights_and_results(engine, num_iterations: int = 3, **settings) -> tuple[dict, list[dict]]:
    config = fl.PPOConfig(num_workers=2, num_envs=3, rollout_fragment_length=50, train_batch_size=300, seed=3, **settings)
    workers = fl.WorkerSet(config)
    with ppo.execution_plan(workers, config).run(engine=engine) as stream:
        results = [next(stream) for _ in range(num_iterations)]
    return workers.local_worker().get_weights(), results


def without_times(result: dict) -> dict:
    info = {"counters": result["info"]["counters"], "learner": result["info"]["learner"]}
    return {**{name: value for name, value in result.items() if name not in ("time_s", "steps_per_s")}, "info": info}


@pytest.mark.parametrize("settings", [{"env": "CartPole-v1"}, {"env": "Pendulum-v1", **EVERYTHING}], ids=["plain", "everything"])
def test_serial_and_ray_give_the_same_bits_after_three_iterations(on_ray, settings):  # C12
    on_serial = weights_and_results("serial", **settings)
    on_ray = weights_and_results("ray", **settings)
    assert repr([without_times(result) for result in on_serial[1]]) == repr(
        [without_times(result) for result in on_ray[1]]
    )  # NaN is not NaN
    assert all(on_serial[0][name].tobytes() == on_ray[0][name].tobytes() for name in on_serial[0])


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    def losses(seed: int) -> list[float]:
        config = fl.PPOConfig(env="CartPole-v1", rollout_fragment_length=64, train_batch_size=64, seed=seed)
        plan = ppo.execution_plan(fl.WorkerSet(config), config)
        return [result["info"]["learner"]["vf_loss"] for result in plan.take(2)]

    assert losses(0) == losses(0) != losses(1)


def test_the_plan_is_readable_on_one_page():
    plan_lines = inspect.getsource(ppo.sub_plan) + inspect.getsource(ppo.execution_plan)
    code = [line for line in plan_lines.splitlines() if line.strip() and not line.strip().startswith(('"""', "def "))]
    assert len(code) <= 12
    assert len(inspect.getsource(ppo).splitlines()) <= 165


def greedy_return(config: fl.PPOConfig, weights: dict, num_episodes: int) -> float:
    """Mean return of the likeliest actions over so many episodes, in envs of their own."""
    envs = vectorize(config.env, num_envs=10, seed=np.random.SeedSequence(12345))
    policy = config.make_policy(envs.observation_space, envs.action_space, np.random.SeedSequence(0))
    policy.set_weights(weights)
    sampler = Sampler(envs, policy, fragment_length=500, explore=False)
    episodes = []
    while len(episodes) < num_episodes:
        episodes.extend(sampler.sample().episodes)
    envs.close()
    return float(np.mean([episode.episode_return for episode in episodes[:num_episodes]]))


@pytest.mark.timeout(300)
def test_ppo_solves_cartpole_within_100_000_steps():
    assert gym.spec("CartPole-v1").reward_threshold == 475
    config = CONFIG.replace(num_workers=0, num_envs=CONFIG.num_envs * CONFIG.num_workers, engine="serial")
    workers = fl.WorkerSet(config)
    with ppo.execution_plan(workers, config).run() as results:
        for result in results:
            if result["num_steps_sampled"] > 100_000 - config.train_batch_size or result["episode_return_mean"] >= 475:
                break
    assert result["num_steps_sampled"] <= 100_000
    assert greedy_return(config, workers.local_worker().get_weights(), num_episodes=100) >= 475


class Target(gym.Env):
    """One step: pays what is left of 1 after the distance of each number of the action from its target."""

    def __init__(self, action_space: gym.Space, target) -> None:
        self.observation_space, self.action_space = gym.spaces.Box(0, 1, (1,), np.float64), action_space
        self.target = np.array(target)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.ones(1), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return np.ones(1), 1.0 - float(np.abs(action - self.target).mean()), True, False, {}


@pytest.mark.parametrize(
    ("space", "target"),
    [
        (gym.spaces.Discrete(4, start=-1), 2),
        (gym.spaces.MultiDiscrete([3, 4]), [2, 0]),
        (gym.spaces.MultiBinary(4), [1, 0, 0, 1]),
        (gym.spaces.Box(np.array([-3, 10]), np.array([3, 15]), dtype=np.int32), [2, 11]),
        (gym.spaces.Box(np.array([-2, 0], np.float32), np.array([0, 5], np.float32)), [-1.5, 4.0]),
        (gym.spaces.Box(np.array([1, -np.inf, -np.inf], np.float32), np.array([np.inf, 0, np.inf], np.float32)), [1.5, -1.0, 0.5]),
    ],
    ids=["Discrete", "MultiDiscrete", "MultiBinary", "whole numbers", "Box", "half-bounded"],
)
def test_ppo_finds_the_best_action_of_every_kind(space, target):
    config = fl.PPOConfig(env=lambda context: Target(space, target), num_envs=8, rollout_fragment_length=32, train_batch_size=256, lr=1e-2)
    with config.build() as trainer:
        trainer.train_until(num_steps_sampled=10_000)
        assert trainer.evaluate(10)["episode_return_mean"] > 0.9


def test_advantages_are_standardised_over_the_whole_batch():
    workers = fl.WorkerSet(fl.PPOConfig(env="CartPole-v1", train_batch_size=100, rollout_fragment_length=50))
    batch, _ = ppo.sub_plan(ParallelRollouts(workers), workers, workers.config).take(1)[0]
    assert batch.count == 100
    assert (batch["advantages"].mean(), batch["advantages"].std()) == (pytest.approx(0, abs=1e-6), pytest.approx(1, abs=1e-5))
