"""What Ape-X learns, with one seed: the rest is for the gates."""

import pytest

import flowrl as fl


@pytest.mark.timeout(300)
def test_apex_learns_cartpole():
    config = fl.ApexConfig(
        env="CartPole-v1",
        engine="serial",
        num_envs=4,
        train_batch_size=256,
        training_intensity=8,
        hiddens=(128, 128),
        learning_starts=2000,
        target_network_update_freq=5000,
    )
    with config.build() as trainer:
        result = trainer.train_until(episode_return_mean=100, num_steps_sampled=100_000)
    assert result["episode_return_mean"] >= 100
