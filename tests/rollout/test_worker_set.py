"""Workers as handles: nothing runs until they are opened, and who opened them closes them."""

import pickle
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import flowrl as fl
from flowrl.batch import Origin
from flowrl.ops import ParallelRollouts, TrainOneStep
from tests.envs import ContractEnv, CountEnv


def config(**settings) -> fl.PPOConfig:
    return fl.PPOConfig(**{"env": lambda context: CountEnv(3), "rollout_fragment_length": 4, "hiddens": (4,), **settings})


def test_remote_workers_are_a_plain_list_of_the_same_handles_from_the_start():
    workers = fl.WorkerSet(config(num_workers=3))
    remote = workers.remote_workers()
    assert isinstance(remote, list)
    assert [worker.index for worker in remote] == [1, 2, 3]
    assert all(one is other for one, other in zip(remote, workers.remote_workers()))
    assert not fl.WorkerSet(config()).remote_workers()


def test_a_closed_set_says_how_to_open_it():
    workers = fl.WorkerSet(config(num_workers=1))
    for use in (
        workers.sync_weights,
        lambda: workers.foreach_worker(print),
        workers.local_worker().get_weights,
        workers.remote_workers()[0].sample.remote,
    ):
        with pytest.raises(fl.NotOpenError, match="open"):
            use()


def test_the_source_of_a_rollout_is_the_handle_itself(engine):
    workers = fl.WorkerSet(config(num_workers=2))
    seen = {}
    with ParallelRollouts(workers, mode="async").zip_with_source_actor().run() as stream:
        for worker, _ in stream:
            seen[worker.index] = worker
            if len(seen) == 2:  # on a busy machine one may be up long before the other
                break
    assert [seen[index] for index in (1, 2)] == workers.remote_workers()


def test_each_fragment_says_where_and_with_which_weights_it_was_made(engine):
    workers = fl.WorkerSet(config(num_workers=2))
    with workers.open(), ParallelRollouts(workers).run() as rollouts:
        first = next(rollouts)
        engine_calls = workers.sync_weights()
        second = next(rollouts)
        [workers.engine.result(call) for call in engine_calls]
    assert first.origin == (Origin(1, 0, 0), Origin(2, 0, 0))
    assert second.origin == (Origin(1, 0, 1), Origin(2, 0, 1))
    assert set(first["policy_version"]) == {0}
    assert first.count == 8


def test_all_workers_begin_with_the_same_weights_but_choose_for_themselves(engine):
    with fl.WorkerSet(config(num_workers=2, rollout_fragment_length=64)).open() as workers:
        local, *remote = workers.foreach_worker(lambda worker: worker.get_weights())
        assert all(np.array_equal(other[name], local[name]) for other in remote for name in local)
        one, other = (workers.engine.result(worker.sample.remote()) for worker in workers.remote_workers())
        assert not np.array_equal(one["actions"], other["actions"])


def test_calls_of_a_worker_are_answered_in_their_order(engine):
    with fl.WorkerSet(config(num_workers=1)).open() as workers:
        worker = workers.remote_workers()[0]
        weights = {name: weight + 1 for name, weight in workers.local_worker().get_weights().items()}
        worker.set_weights.remote(weights, 7)
        fragment = workers.engine.result(worker.sample.remote())
        assert set(fragment["policy_version"]) == {7}


def test_gradients_travel_and_one_step_with_them_is_compute_apply(engine):
    settings = config(num_workers=2, lr=0.1)
    with fl.WorkerSet(settings).open() as workers:
        worker, other = workers.remote_workers()
        batch = workers.engine.result(worker.sample.remote())
        grads, stats = workers.engine.result(worker.compute_gradients.remote(batch))
        assert grads.keys() == workers.local_worker().get_weights().keys()
        assert "policy_loss" in stats
        workers.engine.result(worker.apply_gradients.remote(grads))
        workers.engine.result(other.compute_apply.remote(batch))
        one, two = (workers.engine.result(w.get_weights.remote()) for w in (worker, other))
        assert all(np.array_equal(one[name], two[name]) for name in one)
        assert isinstance(workers.engine.result(worker.get_host.remote()), str)


def test_what_a_user_opened_keeps_its_weights_from_plan_to_plan():
    workers = fl.WorkerSet(config(num_workers=1, engine="serial"))
    with workers.open():
        weights = {name: weight + 1 for name, weight in workers.local_worker().get_weights().items()}
        workers.local_worker().set_weights(weights)
        ParallelRollouts(workers).take(1)
        assert workers.is_open
        kept = workers.local_worker().get_weights()
    assert all(np.array_equal(kept[name], weights[name]) for name in weights)
    assert not workers.is_open


def test_what_a_run_opened_starts_fresh_but_its_last_weights_stay_readable(tmp_path):
    workers = fl.WorkerSet(config(num_workers=1, engine="serial"))
    with pytest.raises(fl.NotOpenError, match="nothing has run yet"):
        workers.save(tmp_path / "policy.safetensors")
    with ParallelRollouts(workers).run() as rollouts:
        first = next(rollouts)
        begun = workers.local_worker().get_weights()
        workers.local_worker().set_weights({name: weight + 1 for name, weight in begun.items()})
    last = workers.local_worker().get_weights()
    assert all(np.array_equal(last[name], begun[name] + 1) for name in begun)
    workers.save(tmp_path / "policy.safetensors")
    assert {name: weight.tolist() for name, weight in load_file(tmp_path / "policy.safetensors").items()} == {
        name: weight.tolist() for name, weight in last.items()
    }
    with ParallelRollouts(workers).run() as rollouts:
        assert next(rollouts)["actions"].tolist() == first["actions"].tolist()
        assert np.array_equal(workers.local_worker().get_weights()["value.0.bias"], begun["value.0.bias"])


def test_handles_pickle_to_themselves_in_their_process():
    workers = fl.WorkerSet(config(num_workers=1))
    assert cloudpickle.loads(cloudpickle.dumps(workers)) is workers
    worker = workers.remote_workers()[0]
    assert pickle.loads(cloudpickle.dumps(worker)) is worker


def test_building_workers_steps_no_env_and_the_local_one_of_a_set_makes_one_env():
    made = []

    def env(context):
        made.append((context.worker_index, ContractEnv(5)))
        return made[-1][1]

    with fl.WorkerSet(config(env=env, num_workers=2, num_envs=3, engine="serial")).open():
        assert [index for index, _ in made] == [0]  # the remote workers have a copy of the function, as on Ray
        assert all(env.num_resets == env.num_steps == 0 for _, env in made)


def test_without_workers_the_local_worker_samples_in_the_driver():
    settings = config(num_envs=2)
    plan = ParallelRollouts(fl.WorkerSet(settings))
    assert settings.engine_name == "serial"
    with plan.run() as rollouts:
        assert next(rollouts).origin == Origin(0, 0, 0)
        assert rollouts.metrics.counters["num_steps_sampled"] == 8


def test_an_error_of_an_env_costs_one_fragment_and_the_plan_lives_on():
    class Fragile(CountEnv):
        def step(self, action):
            if self.episode == 1 and self.t == 0:
                raise RuntimeError("the motor is hot")
            return super().step(action)

    workers = fl.WorkerSet(config(env=lambda context: Fragile(3), num_workers=1, engine="serial"))
    with ParallelRollouts(workers, mode="async").run() as rollouts:
        with pytest.raises(RuntimeError, match="the motor is hot") as caught:
            next(rollouts)
        assert any("env 0" in note for note in caught.value.__notes__)
        assert any("shard 0 of 1" in note for note in caught.value.__notes__)
        assert next(rollouts).count == 4


class Bare(fl.Policy):
    """Nothing but what a policy has to have; its network is made as torch makes networks."""

    def __init__(self, with_network=True):
        if with_network:
            self.network = torch.nn.Linear(3, 2)

    def act(self, obs, explore):
        return np.zeros(len(obs), np.int64), {}

    def loss(self, batch):
        loss = self.network(torch.tensor(batch["obs"])).square().mean()
        return loss, {"loss": loss}


class BareConfig(fl.AlgorithmConfig):
    with_network: bool = True

    def make_policy(self, observation_space, action_space, seed):
        return Bare(self.with_network)


def bare(**settings) -> BareConfig:
    return BareConfig(env=lambda context: CountEnv(3), rollout_fragment_length=4, **settings)


def test_a_policy_of_the_users_own_begins_with_the_same_weights_in_every_worker_and_every_run(engine):
    def first_weights(seed):
        with fl.WorkerSet(bare(num_workers=2, seed=seed)).open() as workers:
            return [weights["weight"].tolist() for weights in workers.foreach_worker(lambda worker: worker.get_weights())]

    torch.manual_seed(7)
    one = first_weights(3)
    torch.manual_seed(8)
    assert one[0] == one[1] == one[2] == first_weights(3)[0] != first_weights(4)[0]


def test_a_policy_with_act_loss_and_a_network_trains(engine):
    workers = fl.WorkerSet(bare(num_workers=1))
    with ParallelRollouts(workers).for_each(TrainOneStep(workers)).run() as train:
        assert next(train)[1]["loss"] > next(train)[1]["loss"]


def test_policies_that_lack_something_are_refused_by_name_when_the_workers_open():
    with pytest.raises(fl.ConfigError, match=r"Bare: .*'network'.*Set self\.network"), fl.WorkerSet(bare(with_network=False)).open():
        pass

    class Odd(BareConfig):
        def make_policy(self, observation_space, action_space, seed):
            return object()

    workers = fl.WorkerSet(Odd(env=lambda context: CountEnv(3)))
    with pytest.raises(fl.ConfigError, match=r"make_policy gave object, which has no act, .*subclass of flowrl\.Policy"), workers.open():
        pass


def test_a_stop_iteration_in_an_env_is_an_error_that_says_so_and_not_the_end(engine):  # C6
    class Exhausted(CountEnv):
        def step(self, action):
            if self.episode == 1 and self.t == 1:
                next(iter([]))
            return super().step(action)

    workers = fl.WorkerSet(config(env=lambda context: Exhausted(3), num_workers=1))
    with ParallelRollouts(workers).run() as rollouts:
        next(rollouts)
        with pytest.raises(fl.RunError, match="raised StopIteration while a fragment was sampled"):
            next(rollouts)
        assert next(rollouts).count > 0


class Closes(CountEnv):
    """Writes a line into a file when it is closed."""

    def __init__(self, env_config):
        super().__init__(3)
        self.file, self.fails = env_config["file"], env_config.get("fails")

    def close(self):
        with Path(self.file).open("a") as file:
            file.write("closed\n")
        if self.fails:
            raise OSError("will not close")


def test_every_env_of_every_worker_is_closed(engine, tmp_path):  # C13
    settings = config(env=Closes, env_config={"file": str(tmp_path / "closed")}, num_workers=2, num_envs=2)
    with fl.WorkerSet(settings).open() as workers:
        workers.foreach_worker(lambda worker: None)  # all are up
    assert (tmp_path / "closed").read_text().count("closed") == 1 + 2 * 2


def test_an_env_that_does_not_close_is_heard_and_all_the_same_everything_stops(engine, tmp_path):
    settings = config(env=Closes, env_config={"file": str(tmp_path / "closed"), "fails": True}, num_workers=1)
    workers = fl.WorkerSet(settings)
    with pytest.raises(OSError, match="will not close"), workers.open():
        workers.foreach_worker(lambda worker: None)
    assert not workers.is_open and not workers.remote_workers()[0].is_open
    assert (tmp_path / "closed").read_text().count("closed") == 2


def test_envs_are_closed_where_the_policy_cannot_be_made(tmp_path):
    def model(space, num_outputs):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), fl.WorkerSet(config(env=Closes, env_config={"file": str(tmp_path / "x")}, model=model)).open():
        pass
    assert (tmp_path / "x").read_text() == "closed\n"
