"""PPO as a whole: the plan, what it learns, and that it is the same on both engines."""

import inspect

import gymnasium as gym
import numpy as np
import pytest

import flowrl as fl
from flowrl.algorithms import ppo
from flowrl.demo import CONFIG
from flowrl.env import vectorize
from flowrl.rollout import Sampler


def weights_and_results(engine, num_iterations: int = 3) -> tuple[dict, list[dict]]:
    config = fl.PPOConfig(env="CartPole-v1", num_workers=2, num_envs=3, rollout_fragment_length=50, train_batch_size=300, seed=3)
    workers = fl.WorkerSet(config)
    with ppo.execution_plan(workers, config).run(engine=engine) as stream:
        results = [next(stream) for _ in range(num_iterations)]
    return workers.local_worker().get_weights(), results


def without_times(result: dict) -> dict:
    info = {"counters": result["info"]["counters"], "learner": result["info"]["learner"]}
    return {**{name: value for name, value in result.items() if name not in ("time_s", "steps_per_s")}, "info": info}


def test_serial_and_ray_give_the_same_bits_after_three_iterations(on_ray):  # C12
    on_serial = weights_and_results("serial")
    on_ray = weights_and_results("ray")
    assert [without_times(result) for result in on_serial[1]] == [without_times(result) for result in on_ray[1]]
    assert all(on_serial[0][name].tobytes() == on_ray[0][name].tobytes() for name in on_serial[0])


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    def rewards(seed: int) -> list[float]:
        config = fl.PPOConfig(env="CartPole-v1", rollout_fragment_length=64, train_batch_size=64, seed=seed)
        plan = ppo.execution_plan(fl.WorkerSet(config), config)
        return [result["info"]["learner"]["vf_loss"] for result in plan.take(2)]

    assert rewards(0) == rewards(0) != rewards(1)


def test_the_plan_is_readable_on_one_page():
    plan_lines = inspect.getsource(ppo.sub_plan) + inspect.getsource(ppo.execution_plan)
    code = [line for line in plan_lines.splitlines() if line.strip() and not line.strip().startswith(('"""', "def "))]
    assert len(code) <= 12
    assert len(inspect.getsource(ppo).splitlines()) <= 120


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
