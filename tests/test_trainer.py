import gc
import math

import gymnasium as gym
import numpy as np
import pytest
import torch

import flowrl as fl
from flowrl.algorithms import ppo
from flowrl.ops import ParallelRollouts, TrainOneStep
from tests.envs import CountEnv

SHORT = {"env": lambda context: CountEnv(3), "rollout_fragment_length": 6, "train_batch_size": 6, "hiddens": (4,)}


def config(**settings) -> fl.PPOConfig:
    return fl.PPOConfig(**{**SHORT, **settings})


def test_building_starts_nothing():  # C1
    made = []
    trainer = config(env=lambda context: made.append(CountEnv(3)) or made[-1], num_workers=2).build()
    trainer.plan.explain()
    assert (made, trainer.workers.is_open, repr(trainer)) == ([], False, "Trainer(PPOConfig, not yet open)")
    trainer.close()


def test_train_gives_result_after_result(engine):
    with config(num_workers=2).build() as trainer:
        results = [trainer.train() for _ in range(3)]
    assert [result["training_iteration"] for result in results] == [1, 2, 3]
    assert results[-1]["episode_return_mean"] == 6.0
    assert trainer.last_result == results[-1]
    assert not trainer.workers.is_open


def test_training_without_a_with_block_ends_with_close():
    trainer = config().build()
    trainer.train()
    assert trainer.workers.is_open
    trainer.close()
    trainer.close()
    assert not trainer.workers.is_open
    with pytest.raises(fl.NotOpenError, match="closed: build another one"):
        trainer.train()


def test_train_until_ends_at_the_first_target_that_is_reached():
    with config().build() as trainer:
        assert trainer.train_until(num_steps_sampled=20, episode_return_mean=1000)["num_steps_sampled"] == 24
        assert trainer.train_until(num_steps_sampled=10_000, episode_return_mean=6)["num_steps_sampled"] == 24  # reached before
        assert trainer.train_until(training_iteration=6)["training_iteration"] == 6


def test_a_mean_before_the_first_episode_reaches_nothing():
    with config(env=lambda context: CountEnv(20)).build() as trainer:
        assert math.isnan(trainer.train()["episode_return_mean"])
        assert trainer.train_until(episode_return_mean=-1e9)["num_steps_sampled"] == 24


def test_a_target_that_no_result_has_names_the_nearest():
    with config().build() as trainer:
        with pytest.raises(fl.ConfigError, match=r"no number 'episode_reward_mean'\. Did you mean 'episode_return_mean'"):
            trainer.train_until(episode_reward_mean=3)
        with pytest.raises(fl.ConfigError, match="needs a target"):
            trainer.train_until()


def test_evaluation_has_envs_of_its_own_and_is_never_counted():
    made = []

    def env(context):
        made.append(context.worker_index)
        return CountEnv(3)

    with config(env=env).build() as trainer:
        first = trainer.train()
        assert trainer.evaluate(4)["episode_returns"] == [6.0] * 4
        second = trainer.train()
    assert len(made) == 1 + 4
    assert [(result["num_steps_sampled"], result["episodes_total"]) for result in (first, second)] == [(6, 2), (12, 4)]


def test_evaluating_and_acting_change_nothing_in_training():
    def losses(watched: bool) -> list[float]:
        with config(env="CartPole-v1", train_batch_size=50, rollout_fragment_length=50).build() as trainer:
            given = []
            for _ in range(3):
                given.append(trainer.train()["info"]["learner"]["loss"])
                if watched:
                    trainer.evaluate(2, explore=True)
                    trainer.compute_action(np.zeros(4), explore=True)
            return given

    assert losses(False) == losses(True)


def test_acting_follows_training():
    with config(env="CartPole-v1", lr=0.5, train_batch_size=50, rollout_fragment_length=50).build() as trainer:
        before = trainer.evaluate(5)
        trainer.train()
        assert trainer.evaluate(5) != before
        weights = trainer.workers.local_worker().get_weights()
        assert all(np.array_equal(weight, weights[name]) for name, weight in trainer._policy_now().policy.get_weights().items())


def test_after_closing_the_policy_still_acts_and_can_be_saved(tmp_path):
    with config().build() as trainer:
        trainer.train()
    assert trainer.compute_action([0, 0, 1]) in (0, 1)
    assert trainer.evaluate(1)["episode_return_mean"] == 6.0
    trainer.save(tmp_path)
    again = fl.load_policy(tmp_path)
    assert again.compute_action([0, 0, 1]) == trainer.compute_action([0, 0, 1])
    with pytest.raises(fl.ConfigError, match="<lambda>"):  # no name leads to that env again
        again.evaluate(1)


def test_a_trainer_that_is_dropped_while_it_is_open_stops_its_workers_and_says_so():
    trainer = config(num_workers=1).build()
    trainer.train()
    workers = trainer.workers
    with pytest.warns(ResourceWarning, match=r"use `with config.build\(\) as trainer:`"):
        del trainer
        gc.collect()
    assert not workers.is_open


def test_a_trainer_that_was_never_used_has_no_policy_after_closing():
    trainer = config().build()
    trainer.close()
    with pytest.raises(fl.NotOpenError, match="closed before it was used"):
        trainer.compute_action([0, 0, 1])


def test_training_goes_on_from_a_loaded_policy_in_all_workers(engine, tmp_path):
    with config(num_workers=2, observation_filter="MeanStdFilter", lr=0.1).build() as trainer:
        trainer.train()
        trainer.save(tmp_path)
        saved = trainer.workers.local_worker().get_weights()
    with config(num_workers=2, observation_filter="MeanStdFilter", seed=5).build() as other:
        other.load(tmp_path)
        for weights in other.workers.foreach_worker(lambda worker: worker.get_weights()):
            assert all(np.array_equal(weights[name], saved[name]) for name in saved)
        assert other.compute_action([0, 0, 1]) == trainer.compute_action([0, 0, 1])
        other.train()


def test_a_policy_of_another_network_is_refused(tmp_path):
    with config().build() as trainer:
        trainer.save(tmp_path)
    with config(hiddens=(5,)).build() as other, pytest.raises(fl.ConfigError, match="does not fit this config"):
        other.load(tmp_path)


def test_an_error_of_the_env_comes_as_it_is_and_training_goes_on(engine):
    class Fragile(CountEnv):
        def step(self, action):
            if self.episode == 3 and self.t == 1:
                raise ZeroDivisionError("in the env")
            return super().step(action)

    with config(env=lambda context: Fragile(3), num_workers=1).build() as trainer:
        trainer.train()
        with pytest.raises(ZeroDivisionError) as caught:
            trainer.train()
        assert any("ParallelRollouts" in note for note in caught.value.__notes__)
        assert trainer.train()["num_steps_sampled"] == 12


def test_a_plan_of_the_users_own_trains_through_the_same_door():
    def my_plan(workers, config):
        return (
            ParallelRollouts(workers)
            .for_each(TrainOneStep(workers))
            .for_each(lambda item: {"loss": item[1]["loss"], "rows": item[0].count})
        )

    with config().build(my_plan) as trainer:
        assert trainer.train()["rows"] == 6
        assert trainer.train_until(rows=6)["rows"] == 6


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (lambda workers, config: None, "gave NoneType: expected a stream in the driver"),
        (lambda workers, config: ParallelRollouts(workers, mode="raw"), "gave ParallelIterator"),
        (lambda workers, config: [1], "gave list"),
    ],
)
def test_a_plan_that_is_none_is_refused_when_built(plan, message):
    with pytest.raises(fl.PlanError, match=message):
        config(num_workers=1).build(plan)


def test_what_is_no_plan_function_and_no_target_is_refused():
    with pytest.raises(fl.ConfigError, match=r"build\('ppo'\): expected a function"):
        config().build("ppo")
    with config().build() as trainer, pytest.raises(fl.ConfigError, match="episode_return_mean='high': expected a number"):
        trainer.train_until(episode_return_mean="high")


def test_a_plan_function_of_other_arguments_is_refused():
    with pytest.raises(fl.ConfigError, match=r"<lambda> is called as execution_plan\(workers, config\): too many positional"):
        config().build(lambda workers: None)


def test_what_is_changed_by_hand_is_what_acts_and_is_saved(tmp_path):
    with config().build() as trainer:
        before = trainer.compute_action([0, 0, 1])
        weights = trainer.workers.local_worker().get_weights()
        name = next(name for name in weights if name.endswith("bias") and "policy" in name and weights[name].shape == (2,))

        def prefer_the_other(policy, policy_id):
            with torch.no_grad():
                dict(policy.named_parameters())[name][1 - before] += 100

        trainer.workers.foreach_policy(prefer_the_other)
        assert trainer.compute_action([0, 0, 1]) == 1 - before


def test_a_plan_that_ends_and_one_without_results_say_so():
    with config().build(lambda workers, config: fl.from_iterable([1])) as trainer:
        with pytest.raises(fl.ConfigError, match="the plan gives int, no results"):
            trainer.train_until(loss=1)
        with pytest.raises(fl.RunError, match="come to its end"):
            trainer.train()


def test_a_running_plan_can_be_looked_at(tmp_path):
    with config().build() as trainer:
        trainer.train()
        assert "1     0" in trainer.stream.explain().splitlines()[-1]  # one fragment went through, none is held
        trainer.stream.draw(tmp_path / "plan.svg")
        assert trainer.stream.metrics.counters["num_steps_sampled"] == 6


def test_the_class_of_a_config_is_the_algorithm():
    class Mine(fl.PPOConfig):
        def make_plan(self, workers):
            return ppo.execution_plan(workers, self).for_each(lambda result: result | {"mine": True})

    with Mine(**SHORT).build() as trainer:
        assert trainer.train()["mine"]


def test_spaces_that_no_policy_can_take_are_named_when_the_workers_open():
    class Speaking(CountEnv):
        def __init__(self, env_config):
            super().__init__(5)
            self.observation_space = gym.spaces.Text(3)

    with pytest.raises(fl.ConfigError, match=r"observation space of <Speaking instance>: Text\("), config(env=Speaking).build() as trainer:
        trainer.train()
