import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode

from flowrl.algorithms.a2c import A2CConfig
from flowrl.algorithms.ppo import PPOConfig
from flowrl.batch import SampleBatch
from flowrl.errors import ConfigError
from flowrl.learner import checked_devices, compute_gradients, learn_on_batch
from flowrl.learner.devices import Replicas
from flowrl.learner.learner_thread import LearnerThread
from flowrl.policy import Policy
from flowrl.rollout.worker import RolloutWorker
from flowrl.rollout.worker_set import WorkerSet

OBS = gym.spaces.Box(-1, 1, (3,))
SMALL = {"seed": 3, "hiddens": (8,)}
ACTIONS = {"discrete": gym.spaces.Discrete(3, start=1), "box": gym.spaces.Box(-1, 1, (2,))}
SEEN: list[tuple[torch.device, list[float]]] = []
"""The device and the rows of every loss that a `Line` or a copy of it was asked for."""


class Line(Policy):
    """Fits y = w * x + b by half the squared error, beside a target that is no part of what is trained."""

    def __init__(self, enough_above: float = np.inf) -> None:
        self.network = torch.nn.Linear(1, 1, dtype=torch.float64)
        torch.nn.init.zeros_(self.network.weight)
        torch.nn.init.zeros_(self.network.bias)
        self.target = torch.nn.Linear(1, 1, dtype=torch.float64)
        self.scale = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
        self.unused = torch.nn.Parameter(torch.ones(2))
        self.enough_above = enough_above
        self.told: list[dict[str, float]] = []

    def act(self, obs, explore):
        raise NotImplementedError

    def loss(self, batch):
        SEEN.append((torch.get_default_device(), batch["x"].tolist()))
        errors = self.scale * self.network(torch.tensor(batch["x"])[:, None]).squeeze(1) - torch.tensor(batch["y"])
        return errors.square().mean() / 2, {"error": errors.square().mean().item(), "td_errors": errors, "three": 3.0}

    def named_parameters(self):
        return dict(self.network.named_parameters()) | {"scale": self.scale, "unused": self.unused}

    def is_enough(self, stats):
        self.told.append(dict(stats))
        return stats["error"] > self.enough_above


@pytest.fixture(autouse=True)
def _nothing_seen():
    SEEN.clear()


def line_batch(xs) -> SampleBatch:
    x = np.array(xs, np.float64)
    return SampleBatch({"x": x, "y": 2 * x + 1})


def learn(policy, batch, devices, seed=0, **more):
    optimizer = torch.optim.Adam(policy.named_parameters().values(), lr=0.01)
    return learn_on_batch(policy, optimizer, batch, np.random.default_rng(seed), devices=devices, **more)


def actor_critic(config, kind):
    """In float64, what the distribution trains too."""
    policy = config.make_policy(OBS, ACTIONS[kind], np.random.SeedSequence(0))
    for parameter in policy.named_parameters().values():
        parameter.data = parameter.data.double()
    return policy


def rollout(policy, num_rows) -> SampleBatch:
    rng = np.random.default_rng(1)
    obs = rng.standard_normal((num_rows, 3))
    _, columns = policy.act(obs.astype(np.float32), explore=True)
    columns = {name: column.astype(np.float64) if column.dtype == np.float32 else column for name, column in columns.items()}
    noise = {name: rng.standard_normal(num_rows) for name in ("advantages", "value_targets", "vf_preds")}
    return SampleBatch({"obs": obs, **columns, **noise})


@pytest.mark.parametrize("num_devices", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.parametrize("config", [PPOConfig(**SMALL, vf_clip_param=0.5, kl_coeff=0.2), A2CConfig(**SMALL)], ids=["ppo", "a2c"])
def test_several_devices_make_the_update_of_one(config, kind, num_devices):
    alone, split = actor_critic(config, kind), actor_critic(config, kind)
    batch = rollout(alone, 23)
    more = {"num_sgd_iter": 3, "sgd_minibatch_size": 7, "grad_clip": 0.5}
    stats, merged = learn(alone, batch, (), **more), learn(split, batch, ["cpu"] * num_devices, **more)
    for name, weight in alone.get_weights().items():
        np.testing.assert_allclose(split.get_weights()[name], weight, rtol=0, atol=1e-6, err_msg=name)
    assert merged.keys() == stats.keys()
    for name, mean in stats.items():
        assert merged[name].value == pytest.approx(mean.value, abs=1e-6), name


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(-10, 10), min_size=1, max_size=12), st.integers(1, 6))
def test_a_gradient_is_the_same_however_its_rows_are_split(xs, num_devices):
    policy = Line()
    alone, info = compute_gradients(policy, line_batch(xs))
    split, merged = compute_gradients(policy, line_batch(xs), ["cpu"] * num_devices)
    for name, gradient in alone.items():
        np.testing.assert_allclose(split[name], gradient, rtol=1e-9, atol=1e-9)
    assert merged["error"].value == pytest.approx(info["error"].value)
    assert merged["error"].count == info["error"].count == len(xs)


@pytest.mark.parametrize(("num_rows", "sizes"), [(7, [2, 2, 3]), (6, [2, 2, 2]), (2, [1, 1]), (1, [1])])
def test_rows_are_split_in_order_and_evenly_and_each_part_has_its_device(num_rows, sizes):
    learn(Line(), line_batch(range(num_rows)), ["cpu:0", "cpu:1", "cpu:2"])
    assert [len(rows) for _, rows in SEEN] == sizes
    assert [x for _, rows in SEEN for x in rows] == list(range(num_rows))
    assert [device.index for device, _ in SEEN] == list(range(len(sizes)))


def test_values_of_rows_come_back_in_the_order_of_the_batch():
    batch = line_batch(range(11))
    stats = learn(Line(), batch, ["cpu"] * 3, sgd_minibatch_size=4, num_sgd_iter=1)
    alone = learn(Line(), batch, (), sgd_minibatch_size=4, num_sgd_iter=1)
    np.testing.assert_allclose(stats["td_errors"], alone["td_errors"], rtol=1e-6)
    assert stats["td_errors"].dtype == np.float32


def test_statistics_are_means_over_rows_not_over_devices():
    policy = Line()
    learn(policy, line_batch([0.0, 1.0, 2.0]), ["cpu"] * 2)  # parts of 1 and 2 rows, errors 1 and (9, 25)
    assert policy.told == [{"error": pytest.approx((1 + 9 + 25) / 3), "three": pytest.approx(3.0)}]


def test_the_policy_itself_decides_what_is_enough():
    left, goes_on = Line(enough_above=1.0), Line()
    for policy in (left, goes_on):
        learn(policy, line_batch([1.0, 2.0]), ["cpu"] * 2)
    assert left.network.weight.item() == 0.0 != goes_on.network.weight.item()


def test_what_no_loss_depends_on_has_no_gradient():
    policy = Line()
    learn(policy, line_batch([1.0, 2.0]), ["cpu"] * 2)
    assert policy.unused.grad is None
    assert policy.scale.grad is not None


def test_copies_take_over_the_weights_before_each_minibatch():
    policy = Line()
    learn(policy, line_batch([1.0, 1.0]), ["cpu"] * 2, num_sgd_iter=3)
    errors = [told["error"] for told in policy.told]
    assert errors == sorted(errors, reverse=True)
    assert len(set(errors)) == 3


def test_the_copies_share_no_memory_with_the_policy():
    class Breaks(Line):
        def loss(self, batch):
            answer = super().loss(batch)
            for tensor in (*self.network.parameters(), *self.target.parameters(), self.scale):
                tensor.data.add_(1.0)
            return answer

    policy = Breaks()
    before = {name: array.copy() for name, array in policy.get_weights().items()}
    target = policy.target.weight.item()
    compute_gradients(policy, line_batch([1.0, 2.0]), ["cpu"] * 2)
    assert policy.target.weight.item() == target
    assert all(np.array_equal(array, before[name]) for name, array in policy.get_weights().items())


def test_every_tensor_of_a_copy_is_brought_to_its_device():
    moved = {}

    class Watch(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            answer = function(*args, **(kwargs or {}))
            if function is torch.as_tensor:
                moved[answer.data_ptr()] = str(kwargs["device"])
            return answer

    policy = Line()
    policy.network.register_buffer("mean", torch.zeros(3))
    policy.constants = {"bounds": [torch.zeros(1), torch.ones(1)]}
    with Watch():
        (made,) = Replicas(policy, ["cpu:1"]).copies
    copied = made.policy
    tensors = [*copied.network.state_dict().values(), *copied.target.state_dict().values(), copied.scale, copied.unused]
    assert moved == {tensor.data_ptr(): "cpu:1" for tensor in (*tensors, *copied.constants["bounds"])}


def test_one_value_a_row_in_one_part_and_a_number_in_another_is_refused():
    class Squeezes(Line):
        def loss(self, batch):
            loss, _ = super().loss(batch)
            return loss, {"td_errors": torch.tensor(batch["x"])[:, None].squeeze()}

    with pytest.raises(TypeError, match=r"Squeezes\.loss gave td_errors with one value a row for some"):
        learn(Squeezes(), line_batch(range(3)), ["cpu"] * 2)


@pytest.mark.parametrize("name", ["cuda:99", "nonsense", "meta"])
def test_a_device_that_is_not_here_is_refused_by_name(name):
    with pytest.raises(ConfigError, match=f"torch cannot work on '{name}' here .*: name those that it has, or none"):
        checked_devices(["cpu", name])
    with pytest.raises(ConfigError, match=f"'{name}'"):
        learn(Line(), line_batch([1.0]), [name])


def test_a_worker_refuses_them_when_it_opens():
    config = PPOConfig(env="CartPole-v1", devices=["cpu", "cuda:99"])
    with pytest.raises(ConfigError, match="'cuda:99'"):
        RolloutWorker(config)


def test_a_worker_learns_on_its_devices_and_remote_ones_where_their_policy_is():
    def trained(**more):
        config = PPOConfig(env="CartPole-v1", hiddens=(8,), rollout_fragment_length=50, **more)
        worker = RolloutWorker(config)
        fragment = worker.sample()
        gradients, _ = worker.compute_gradients(fragment)
        worker.learn_on_batch(fragment, num_sgd_iter=2, sgd_minibatch_size=16)
        weights = worker.get_weights()
        worker.close()
        return gradients, weights

    for alone, split in zip(trained(), trained(devices=["cpu", "cpu"])):
        for name, array in alone.items():
            np.testing.assert_allclose(split[name], array, rtol=0, atol=1e-5, err_msg=name)
    config = PPOConfig(env="CartPole-v1", num_workers=1, devices=["cuda:99"])
    remote = RolloutWorker(config, index=1)
    remote.close()
    assert remote.devices == ()


def test_a_learners_devices_are_its_own_while_it_learns(serial):
    workers = WorkerSet(A2CConfig(env="CartPole-v1", hiddens=(4,)))
    learner = LearnerThread(workers.local_worker(), devices=["cpu", "cpu"])
    with workers.open():
        with learner.open():
            assert len(workers.local_worker().devices) == 2
        assert workers.local_worker().devices == ()


@pytest.mark.parametrize("devices", ["cuda:0", ["cuda:0", ""], [0], ["cuda:"], ["CUDA:0"], None, {"cuda:0"}], ids=str)
def test_a_setting_that_names_no_devices_is_refused(devices):
    with pytest.raises(ConfigError, match=r"devices=.*: expected a tuple of names of devices"):
        PPOConfig(devices=devices)


def test_the_setting_travels_as_json_does():
    config = PPOConfig(devices=["cuda:0", "cuda:1"])
    assert config.devices == ("cuda:0", "cuda:1")
    assert PPOConfig.from_dict(config.to_dict()).devices == config.devices
    assert PPOConfig().devices == ()
