"""What DQN learns, with one seed: the rest is for the gates."""

import pytest

import flowrl as fl


@pytest.mark.timeout(300)
def test_dqn_learns_cartpole():
    config = fl.DQNConfig(
        env="CartPole-v1",
        num_envs=8,
        rollout_fragment_length=25,
        train_batch_size=128,
        training_intensity=12.8,
        hiddens=(128, 128),
        n_step=3,
    )
    with config.build() as trainer:
        result = trainer.train_until(episode_return_mean=150, num_steps_sampled=100_000)
    assert result["episode_return_mean"] >= 150
