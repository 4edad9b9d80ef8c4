"""A2C as a whole: one gradient step a batch, in one or in parts, the same on both engines."""

import inspect
import math

import gymnasium as gym
import numpy as np
import pytest

import flowrl as fl
from flowrl.algorithms import a2c
from flowrl.batch import SampleBatch
from flowrl.learner import compute_gradients
from tests.envs import CountEnv

OBS = gym.spaces.Box(-1, 1, (1,), np.float32)


def policy(**settings) -> a2c.A2CPolicy:
    config = fl.A2CConfig(hiddens=(), **settings)
    mine = config.make_policy(OBS, gym.spaces.Discrete(2), np.random.SeedSequence(0))
    weights = {name: np.zeros_like(weight) for name, weight in mine.get_weights().items()}
    mine.set_weights(weights | {"value.0.bias": np.array([1.0], np.float32)})
    return mine


def batch(advantages, targets) -> SampleBatch:
    count = len(advantages)
    return SampleBatch(
        {
            "obs": np.zeros((count, 1), np.float32),
            "actions": np.ones(count, np.int64),
            "action_logp": np.full(count, math.log(0.5), np.float32),
            "advantages": np.array(advantages, np.float32),
            "value_targets": np.array(targets, np.float32),
            "vf_preds": np.ones(count, np.float32),
        }
    )


def test_the_loss_is_that_of_the_policy_gradient():
    loss, stats = policy(vf_loss_coeff=0.25, entropy_coeff=0.1).loss(batch([2.0, -1.0], [3.0, 1.0]))
    assert stats["policy_loss"] == pytest.approx(-math.log(0.5) * (2 - 1) / 2)
    assert stats["vf_loss"] == pytest.approx((4 + 0) / 2)
    assert stats["entropy"] == pytest.approx(math.log(2))
    assert loss.item() == pytest.approx(stats["policy_loss"] + 0.25 * 2 - 0.1 * math.log(2))
    assert stats["kl"] == pytest.approx(0, abs=1e-6)


def test_the_gradient_does_not_depend_on_the_number_of_rows():  # F5
    rows = batch([2.0, -1.0], [3.0, 1.0])
    once, twice = (compute_gradients(policy(), rows)[0], compute_gradients(policy(), SampleBatch.concat([rows, rows]))[0])
    assert all(np.allclose(once[name], twice[name], atol=1e-6) for name in once)


def run(engine: str, num_iterations: int = 3, **settings) -> tuple[dict, list[dict]]:
    config = fl.A2CConfig(
        env="CartPole-v1", num_workers=2, num_envs=4, train_batch_size=128, engine=engine, min_steps_per_reporting=0, **settings
    )
    with config.build() as trainer:
        results = [trainer.train() for _ in range(num_iterations)]
    return trainer.workers.local_worker().get_weights(), results


@pytest.mark.parametrize("microbatch_size", [0, 50])
def test_each_train_batch_is_one_optimizer_step_and_one_version(microbatch_size):  # F4
    config = fl.A2CConfig(env="CartPole-v1", microbatch_size=microbatch_size, min_steps_per_reporting=0)
    with config.build() as trainer:
        for iteration in range(1, 4):
            result = trainer.train()
            optimizer = trainer.workers.local_worker().optimizer
            assert next(iter(optimizer.state.values()))["step"].item() == trainer.workers.local_worker().policy_version == iteration
            assert result["num_steps_trained"] == result["num_steps_sampled"] == 128 * iteration


def test_in_parts_it_learns_what_it_learns_in_one():
    whole, in_parts = run("serial"), run("serial", microbatch_size=41)
    assert all(np.allclose(whole[0][name], in_parts[0][name], atol=1e-5) for name in whole[0])
    assert [result["episode_return_mean"] for result in whole[1]] == [result["episode_return_mean"] for result in in_parts[1]]


@pytest.mark.parametrize("microbatch_size", [0, 50])
def test_serial_and_ray_give_the_same_bits(on_ray, microbatch_size):  # C12
    settings = {"microbatch_size": microbatch_size, "observation_filter": "MeanStdFilter", "normalize_rewards": True}
    one, other = run("serial", **settings), run("ray", **settings)
    assert all(one[0][name].tobytes() == other[0][name].tobytes() for name in one[0])
    assert [result["info"]["learner"] for result in one[1]] == [result["info"]["learner"] for result in other[1]]


def test_without_settings_its_targets_are_the_discounted_rewards_up_to_the_cut():
    workers = fl.WorkerSet(fl.A2CConfig(env=lambda context: CountEnv(3, "term"), num_envs=1, rollout_fragment_length=3, gamma=0.5))
    with workers.open():
        fragment = workers.local_worker().sample()
    assert fragment["value_targets"].tolist() == pytest.approx([1 + 0.5 * 2 + 0.25 * 3, 2 + 0.5 * 3, 3], rel=1e-5)


def test_the_plan_is_at_most_ten_lines():
    plan_lines = inspect.getsource(a2c.sub_plan) + inspect.getsource(a2c.execution_plan)
    assert len([line for line in plan_lines.splitlines() if line.strip() and not line.strip().startswith('"""')]) <= 10


@pytest.mark.timeout(300)
def test_a2c_learns_cartpole():
    with fl.A2CConfig(env="CartPole-v1").build() as trainer:
        result = trainer.train_until(episode_return_mean=200, num_steps_sampled=150_000)
    assert result["episode_return_mean"] >= 200
