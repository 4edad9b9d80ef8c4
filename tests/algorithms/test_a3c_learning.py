"""What A3C learns, with one seed: the rest is for the gates."""

import pytest

import flowrl as fl


@pytest.mark.timeout(300)
def test_a3c_learns_cartpole(engine):
    with fl.A3CConfig(env="CartPole-v1").build() as trainer:
        result = trainer.train_until(episode_return_mean=150, num_steps_sampled=150_000)
    assert result["episode_return_mean"] >= 150
