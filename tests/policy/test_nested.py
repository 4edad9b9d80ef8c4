"""Dict and Tuple spaces, and images, as policies see and choose them."""

import gymnasium as gym
import numpy as np
import pytest
import torch

import flowrl as fl
from flowrl.env.fitting import fitted
from flowrl.env.spaces import for_env
from flowrl.errors import ConfigError
from flowrl.policy import Encoder, Gaussian, Joint, MultiCategorical, distribution_for
from flowrl.policy.distributions import stored_tensors
from flowrl.policy.networks import ActorCritic, ImageEncoder, QNetwork
from flowrl.rollout.trained import TrainedPolicy
from tests.envs import Echo, Seek

MIXED = gym.spaces.Dict(
    {
        "image": gym.spaces.Box(0, 255, (4, 5, 2), np.uint8),
        "body": gym.spaces.Tuple([gym.spaces.Box(-9, 9, (2,), np.float64), gym.spaces.Discrete(3, start=1)]),
        "bits": gym.spaces.MultiBinary(2),
    }
)


def rows_of(space, num_rows, seed=0):
    space.seed(seed)
    return np.stack([fitted(space.sample(), space) for _ in range(num_rows)])


def test_choices_inside_a_tuple_are_ones_among_zeros():  # K8
    space = gym.spaces.Tuple([gym.spaces.MultiDiscrete([2, 3, 4])])
    obs = np.array([([1, 2, 0],), ([0, 1, 3],)], [("0", np.int64, (3,))])
    assert Encoder(space, "NoFilter").flat(obs).tolist() == [[0, 1, 0, 0, 1, 1, 0, 0, 0], [1, 0, 0, 1, 0, 0, 0, 0, 1]]


def test_numbers_and_choices_are_one_row_and_images_are_apart():
    encoder, obs = Encoder(MIXED, "NoFilter"), rows_of(MIXED, 6)
    flat, image = encoder.inputs(obs, torch.float32)
    assert flat.shape == (6, encoder.num_flat) == (6, 2 + 2 + 3)
    assert np.allclose(flat[:, :2], obs["bits"]) or np.allclose(flat[:, 2:4], obs["bits"])
    assert (flat[:, 4:].argmax(dim=1) + 1).tolist() == obs["body"]["1"].tolist()
    assert image.dtype == torch.uint8 and image.shape == (6, 4, 5, 2)


class Recorded(torch.nn.Module):
    def __init__(self, observation_space, num_outputs):
        super().__init__()
        self.space, self.layer, self.num_outputs = observation_space, torch.nn.Linear(3, num_outputs + 1), num_outputs

    def forward(self, obs):
        self.seen = obs
        outputs = self.layer(obs["body"][1])
        return outputs[:, :-1], outputs[:, -1]


@pytest.mark.parametrize("config", [fl.PPOConfig, fl.DQNConfig])
def test_a_model_of_ones_own_sees_dicts_and_tuples_of_tensors(config):
    policy = TrainedPolicy(config(env="CartPole-v1", model=Recorded), MIXED, gym.spaces.Discrete(2))
    obs = MIXED.sample()
    policy.compute_action(obs)
    network = policy.policy.network
    seen = network.seen
    assert list(seen) == ["bits", "body", "image"] and type(seen["body"]) is tuple
    assert network.space["body"][1] == gym.spaces.Box(0, 1, (3,)) and network.space["image"] == MIXED["image"]
    assert np.allclose(seen["body"][0], obs["body"][0]) and seen["body"][1].argmax() + 1 == obs["body"][1]
    assert seen["image"].dtype == torch.float32 and np.array_equal(seen["image"][0], obs["image"])


def test_moments_are_of_the_numbers_alone():
    encoder, obs = Encoder(MIXED, "MeanStdFilter"), rows_of(MIXED, 50)
    encoder.obs_filter.update(encoder.moments_of(obs)["obs_filter"])
    flat, image = encoder.inputs(obs, torch.float64)
    assert np.allclose(flat[:, :4].mean(dim=0), 0, atol=1e-6) and np.allclose(flat[:, :4].std(dim=0, correction=0), 1, atol=1e-6)
    assert set(np.unique(flat[:, 4:])) == {0.0, 1.0} and image.dtype == torch.uint8


def test_an_image_alone_is_not_normalised_and_that_is_said():
    with pytest.raises(ConfigError, match=r"observation_filter='MeanStdFilter': Box.*images, and no numbers.*take 'NoFilter'"):
        Encoder(gym.spaces.Box(0, 255, (8, 8, 3), np.uint8), "MeanStdFilter")


# --- networks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "layers", "num_outputs"),
    [
        ((84, 84, 4), [(4, 32, 8), (32, 64, 4), (64, 64, 3)], 512),
        ((4, 84, 84), [(4, 32, 8), (32, 64, 4), (64, 64, 3)], 512),
        ((10, 10, 6), [(6, 16, 3)], 128),
        ((2, 5, 1), [(1, 16, 2)], 128),
    ],
)
def test_convolutions_go_by_the_size_of_the_image_and_channels_are_its_shortest_side(shape, layers, num_outputs):
    space = gym.spaces.Box(0, 255, shape, np.uint8)
    encoder = ImageEncoder(0, [space])
    found = [(m.in_channels, m.out_channels, m.kernel_size[0]) for m in encoder.modules() if isinstance(m, torch.nn.Conv2d)]
    assert found == layers
    features = encoder((torch.zeros(3, 0), torch.zeros((3, *shape), dtype=torch.uint8)))
    assert features.shape == (3, num_outputs) == (3, encoder.num_outputs)


def test_whole_numbers_of_an_image_are_brought_to_0_and_1():
    torch.manual_seed(0)
    for low, high, dtype in ((0, 255, np.uint8), (-3, 7, np.int16)):
        whole = ImageEncoder(0, [gym.spaces.Box(low, high, (6, 6, 1), dtype)])
        floats = ImageEncoder(0, [gym.spaces.Box(0, 1, (6, 6, 1))])
        floats.load_state_dict(whole.state_dict())
        image = np.random.default_rng(0).integers(low, high + 1, (4, 6, 6, 1)).astype(dtype)
        nothing = torch.zeros(4, 0)
        scaled = torch.tensor((image - float(low)) / (high - low), dtype=torch.float32)
        assert torch.allclose(whole((nothing, torch.tensor(image))), floats((nothing, scaled)), atol=1e-6)


def test_filters_of_ones_own_are_taken_and_too_large_ones_are_refused():
    config = fl.PPOConfig(env=Seek, conv_filters=((4, 2, 1), (8, 3, 2)), hiddens=(16,))
    network = TrainedPolicy(config, Seek().observation_space, Seek().action_space).policy.network
    assert [m.out_channels for m in network.modules() if isinstance(m, torch.nn.Conv2d)] == [4, 8]
    with pytest.raises(ConfigError, match=r"conv_filters=\(\(4, 6, 1\),\): they read more than an image of shape \(5, 5, 1\) has"):
        TrainedPolicy(config.replace(conv_filters=((4, 6, 1),)), Seek().observation_space, Seek().action_space)


@pytest.mark.parametrize("wrong", [(), 3, ((1, 2),), ((1, 2, 0),), ((1, 2, 1.5),), "8"])
def test_conv_filters_are_checked(wrong):
    with pytest.raises(ConfigError, match=r"conv_filters=.*expected layers"):
        fl.PPOConfig(conv_filters=wrong)


def parts_with_gradient(network, loss):
    network.zero_grad()
    loss.backward()
    return {name.partition(".")[0] for name, parameter in network.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize(
    ("share", "by_policy", "by_value"),
    [
        (None, {"encoder", "policy"}, {"encoder", "value"}),
        (False, {"encoder", "policy"}, {"value_encoder", "value"}),
        (True, {"encoder", "trunk", "policy"}, {"encoder", "trunk", "value"}),
    ],
)
def test_what_actor_and_critic_share(share, by_policy, by_value):
    env = Seek()
    config = fl.A2CConfig(env=Seek, vf_share_layers=share, hiddens=(8, 8))
    policy = TrainedPolicy(config, env.observation_space, env.action_space).policy
    network = policy.network
    outputs, values = network(policy.network_input(rows_of(env.observation_space, 3)))
    assert parts_with_gradient(network, outputs.sum()) == by_policy
    outputs, values = network(policy.network_input(rows_of(env.observation_space, 3)))
    assert parts_with_gradient(network, values.sum()) == by_value


def test_shared_layers_act_as_they_learn():
    config = fl.PPOConfig(env="CartPole-v1", vf_share_layers=True, hiddens=(16, 8))
    policy = TrainedPolicy(config, gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(2)).policy
    assert isinstance(policy.network, ActorCritic) and len(policy.network.policy) == len(policy.network.value) == 1
    obs = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    outputs, values = policy.network(policy.network_input(obs))
    actions, columns = policy.act(obs, explore=False)
    assert np.allclose(columns["vf_preds"], values.detach(), atol=1e-5)
    assert actions.tolist() == outputs.argmax(dim=1).tolist()


@pytest.mark.parametrize("config", [fl.PPOConfig, fl.A2CConfig, fl.DQNConfig, fl.ApexConfig])
def test_every_algorithm_trains_on_images_in_a_dict_and_its_policy_comes_back_from_its_files(config, tmp_path):
    settings = {"num_workers": 0} if config is not fl.ApexConfig else {"num_workers": 1, "engine": "serial", "num_replay_buffer_shards": 1}
    replayed = {"learning_starts": 32, "n_step": 2, "buffer_size": 200} if issubclass(config, fl.DQNConfig) else {}
    how = config(env=Seek, num_envs=2, rollout_fragment_length=16, train_batch_size=32, hiddens=(16,), **settings, **replayed)
    with how.replace(min_steps_per_reporting=0).build() as trainer:
        before = trainer.workers.local_worker().get_weights()
        trainer.train_until(num_steps_sampled=256)
        assert any(
            np.any(before[name] != weight)
            for name, weight in trainer.workers.local_worker().get_weights().items()
            if "encoder.images" in name
        )
        trainer.save(tmp_path)
        loaded, env = fl.load_policy(tmp_path), Seek()
        for seed in range(5):
            obs, _ = env.reset(seed=seed)
            assert loaded.compute_action(obs) == trainer.compute_action(obs)


def test_a_q_network_over_an_image_has_the_gradient_of_its_loss():
    config = fl.DQNConfig(env=Seek, hiddens=(8,))
    policy = TrainedPolicy(config, Seek().observation_space, Seek().action_space).policy
    assert isinstance(policy.network, QNetwork)
    obs, new_obs = rows_of(Seek().observation_space, 4), rows_of(Seek().observation_space, 4, seed=1)
    batch = fl.SampleBatch(
        {
            "obs": obs,
            "new_obs": new_obs,
            "actions": [0, 1, 2, 3],
            "rewards": np.ones(4, np.float32),
            "terminateds": [False, True, False, False],
            "discounts": np.full(4, 0.9, np.float32),
        }
    )
    policy.backward(batch)
    by_hand = {name: parameter.grad.clone() for name, parameter in policy.network.named_parameters()}
    policy.network.zero_grad()
    policy.loss(batch)[0].backward()
    assert all(torch.equal(by_hand[name], parameter.grad) for name, parameter in policy.network.named_parameters())
    assert any("encoder" in name and gradient.abs().sum() > 0 for name, gradient in by_hand.items())


# --- actions ----------------------------------------------------------------------------------------------------------

ACTIONS = gym.spaces.Dict(
    {
        "steer": gym.spaces.Box(np.array([-2, 0], np.float32), np.array([2, np.inf], np.float32)),
        "gear": gym.spaces.Tuple([gym.spaces.Discrete(3, start=-1), gym.spaces.MultiBinary(2)]),
        "aim": gym.spaces.MultiDiscrete([2, 3]),
    }
)


@pytest.mark.parametrize("how", ["draw", "likeliest"])
def test_parts_of_an_action_are_in_their_spaces_and_independent(how):
    joint, rng = distribution_for(ACTIONS, initial_log_std=-1.0), np.random.default_rng(0)
    assert isinstance(joint, Joint) and joint.num_outputs == 5 + (3 + 2) + 2
    outputs = rng.standard_normal((200, joint.num_outputs)).astype(np.float32)
    stored, logp = joint.draw(outputs, rng) if how == "draw" else joint.likeliest(outputs)
    assert all(ACTIONS.contains(for_env(ACTIONS)(row)) for row in joint.for_env(stored))
    own_logp, entropies = joint.evaluate(torch.tensor(outputs), stored_tensors(stored))
    assert own_logp.detach().numpy() == pytest.approx(logp, abs=1e-4)
    aim, gaussian = MultiCategorical(ACTIONS["aim"], [2, 3], [0, 0]), Gaussian(ACTIONS["steer"], -1.0)
    of_gear = distribution_for(ACTIONS["gear"]).evaluate(torch.tensor(outputs[:, 5:10]), stored_tensors(stored["gear"]))
    apart = [
        aim.evaluate(torch.tensor(outputs[:, :5]), torch.tensor(stored["aim"])),
        of_gear,
        gaussian.evaluate(torch.tensor(outputs[:, 10:]), torch.tensor(stored["steer"])),
    ]
    assert torch.allclose(own_logp, sum(logp for logp, _ in apart), atol=1e-5)
    assert torch.allclose(entropies, sum(entropy for _, entropy in apart), atol=1e-5)
    assert list(joint.named_parameters()) == ["steer.log_std"]


@pytest.mark.parametrize("config", [fl.DQNConfig, fl.ApexConfig])
def test_q_learning_refuses_actions_of_several_parts_by_name_before_the_first_step(config):
    with pytest.raises(ConfigError, match=r"action space Tuple\(.*expected Discrete.*PPO, A2C"):
        config(env=Echo, env_config={"actions": "tuple"}, num_workers=1, engine="serial").build().train()


@pytest.mark.parametrize("actions", ["numbers", "tuple"])
@pytest.mark.parametrize("config", [fl.PPOConfig, fl.A2CConfig])
def test_parts_of_an_action_are_learned(config, actions):
    more = {"train_batch_size": 512, "rollout_fragment_length": 64} if config is fl.PPOConfig else {"rollout_fragment_length": 16}
    with config(env=Echo, env_config={"actions": actions}, num_envs=8, lr=3e-3, **more).build() as trainer:
        trainer.train_until(num_steps_sampled=30_000)
        assert trainer.evaluate(20)["episode_return_mean"] > 9.0  # by chance 3.6


def test_the_order_of_keys_gives_the_same_run():
    def run(is_reversed):
        config = fl.PPOConfig(
            env=Seek, env_config={"reversed": is_reversed}, num_envs=4, rollout_fragment_length=32, train_batch_size=128, num_sgd_iter=2
        )
        with config.build() as trainer:
            results = [trainer.train() for _ in range(3)]
            return [
                (result["episode_return_mean"], result["info"]["learner"]) for result in results
            ], trainer.workers.local_worker().get_weights()

    (results, weights), (others, other_weights) = run(False), run(True)
    assert results == others
    assert all(np.array_equal(weights[name], other_weights[name]) for name in weights)


def test_nested_fragments_travel(engine):
    config = fl.PPOConfig(env=Seek, num_workers=1, rollout_fragment_length=8, train_batch_size=8, num_sgd_iter=1, hiddens=(8,))
    with config.build() as trainer:
        assert trainer.train()["num_steps_sampled"] == 8
