import json
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
import torch

import flowrl as fl
from flowrl.env import EnvVector
from flowrl.references import find
from flowrl.rollout import Sampler, TrainedPolicy, load_policy
from tests.envs import CountEnv

BOX = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)


class BoundedEnv(CountEnv):
    """A CountEnv of four steps with bounded actions, which it keeps."""

    def __init__(self, env_config=None):
        super().__init__(4)
        self.action_space = gym.spaces.Box(300, 500, (2,), np.float64)
        self.actions = []

    def step(self, action):
        assert self.action_space.contains(action)
        self.actions.append(action.copy())
        return super().step(action)


def trained(action_space=None, **settings) -> TrainedPolicy:
    return TrainedPolicy(fl.PPOConfig(env=BoundedEnv, hiddens=(8,), **settings), BOX, action_space or BoundedEnv().action_space)


def test_one_action_is_what_an_env_would_get_for_the_same_observation():  # K5
    policy, env = trained(), BoundedEnv()
    Sampler(EnvVector([env], np.random.SeedSequence(0)), policy.policy, 4, explore=False).sample()
    alone = [policy.compute_action([0, 0, t]) for t in range(4)]
    assert np.allclose(env.actions, alone)
    assert all(policy.action_space.contains(action) for action in alone)


ACTIONS = [
    gym.spaces.Discrete(3, start=5),
    gym.spaces.MultiDiscrete([2, 3]),
    gym.spaces.MultiBinary(3),
    gym.spaces.Box(-7, -3, (2,), np.int32),
    gym.spaces.Box(0, 1, (2,)),
]


@pytest.mark.parametrize("space", ACTIONS, ids=repr)
@pytest.mark.parametrize("explore", [False, True])
def test_an_action_is_in_the_space_and_can_be_stepped_with(space, explore):
    action = trained(space).compute_action(np.zeros(3), explore)
    assert space.contains(action)
    assert isinstance(action, int) == isinstance(space, gym.spaces.Discrete)


def test_an_action_can_be_changed_without_changing_anything():
    policy = trained()
    policy.compute_action([0, 0, 1])[:] = 0
    assert policy.compute_action([0, 0, 1]).min() >= 300


@pytest.mark.parametrize(
    ("obs", "message"), [(np.zeros((2, 3)), r"shape \(2, 3\): the space says \(3,\)"), ([0, 0, np.nan], "finite"), ("abc", "shape")]
)
def test_an_observation_that_does_not_fit_is_refused(obs, message):
    with pytest.raises(ValueError, match=message):
        trained().compute_action(obs)


def test_evaluating_twice_gives_the_same_and_another_seed_another():
    policy = TrainedPolicy(fl.PPOConfig(env="CartPole-v1"), gym.make("CartPole-v1").observation_space, gym.spaces.Discrete(2))
    first, second, other = policy.evaluate(5), policy.evaluate(5), policy.evaluate(5, seed=9)
    assert first == second != other
    assert first["num_episodes"] == len(first["episode_returns"]) == 5


@pytest.mark.parametrize("num_episodes", [0, -1, 2.5, True])
def test_a_number_of_episodes_that_is_none_is_refused(num_episodes):
    with pytest.raises(fl.ConfigError, match="num_episodes"):
        trained().evaluate(num_episodes)


class Shown(BoundedEnv):
    def __init__(self, env_config):
        super().__init__()
        self.render_mode = env_config.get("render_mode")


def test_rendering_is_asked_of_one_env_and_said_where_there_is_none():
    assert TrainedPolicy(fl.PPOConfig(env=Shown), BOX, Shown({}).action_space).evaluate(2, render_mode="human")["num_episodes"] == 2
    with pytest.raises(fl.ConfigError, match="asked for render_mode='human' and has None"):
        trained().evaluate(2, render_mode="human")


@pytest.mark.parametrize("settings", [{}, {"observation_filter": "MeanStdFilter", "normalize_rewards": True}], ids=["plain", "normalised"])
def test_a_saved_policy_comes_back_with_config_spaces_and_weights(settings, tmp_path):
    policy = trained(**settings)
    policy.set_weights({name: np.abs(weight) + 0.5 for name, weight in policy.policy.get_weights().items()})
    assert policy.save(tmp_path / "deep" / "folder") == tmp_path / "deep" / "folder"
    assert {file.name for file in (tmp_path / "deep" / "folder").iterdir()} == {"policy.safetensors", "policy.json"}
    again = load_policy(tmp_path / "deep" / "folder")
    assert (again.observation_space, again.action_space, dict(again.config)) == (
        policy.observation_space,
        policy.action_space,
        dict(policy.config),
    )
    weights = policy.policy.get_weights()
    assert all(np.array_equal(weight, weights[name]) for name, weight in again.policy.get_weights().items())
    assert np.array_equal(again.compute_action([0, 0, 1]), policy.compute_action([0, 0, 1]))


def test_saving_again_replaces_what_was_saved(tmp_path):
    policy = trained()
    policy.save(tmp_path)
    policy.set_weights({name: weight + 1 for name, weight in policy.policy.get_weights().items()})
    policy.save(tmp_path)
    assert np.array_equal(load_policy(tmp_path).compute_action([0, 0, 1]), policy.compute_action([0, 0, 1]))


def spoil(folder, **changes):
    about = json.loads((folder / "policy.json").read_text())
    (folder / "policy.json").write_text(json.dumps(about | changes))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "policy.json").unlink(), "policy.json missing"),
        (lambda folder: (folder / "policy.json").write_text("{"), "is no JSON"),
        (lambda folder: (folder / "policy.json").write_text("[]"), "has format 'list'"),
        (lambda folder: spoil(folder, format=99), "has format 99, this flowrl reads 1"),
        (lambda folder: spoil(folder, config="collections:OrderedDict"), "which is no AlgorithmConfig"),
        (lambda folder: spoil(folder, config="tests.nothing:Config"), "there is no module"),
        (lambda folder: spoil(folder, settings={"lrr": 1}), "no setting 'lrr'. Did you mean 'lr'"),
    ],
)
def test_a_folder_without_a_whole_policy_says_what_is_wrong(change, message, tmp_path):
    trained().save(tmp_path)
    change(tmp_path)
    with pytest.raises(fl.ConfigError) as caught:
        load_policy(tmp_path)
    assert message in str(caught.value)


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "here").write_text("")
    with pytest.raises(fl.ConfigError, match="is a file"):
        trained().save(tmp_path / "here")


OWN = """
from dataclasses import dataclass
import gymnasium as gym, numpy as np, torch
import flowrl as fl
from flowrl.algorithms.ppo import PPOPolicy

class MyEnv(gym.Env):
    def __init__(self, env_config):
        self.observation_space, self.action_space, self.t = gym.spaces.Box(0, 9, (1,)), gym.spaces.Discrete(2), 0
    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(1, np.float32), {}
    def step(self, action):
        self.t += 1
        return np.full(1, self.t, np.float32), 1.0, self.t == 3, False, {}

class MyNet(torch.nn.Module):
    def __init__(self, observation_space, num_outputs):
        super().__init__()
        self.out = torch.nn.Linear(1, num_outputs + 1)
    def forward(self, obs):
        out = self.out(obs)
        return out[:, :-1], out[:, -1]

@dataclass(frozen=True, kw_only=True, eq=False)
class MyConfig(fl.PPOConfig):
    mine: float = 0.5
"""


def test_workers_elsewhere_get_a_users_file_and_what_lies_beside_it_by_value(on_ray, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "beside_own.py").write_text("PAYS = 2.0\n")
    file = tmp_path / "own_on_ray.py"
    file.write_text("from beside_own import PAYS\n" + OWN.replace("1.0, self.t", "PAYS, self.t"))
    settings = {"env": f"{file}:MyEnv", "model": f"{file}:MyNet", "num_workers": 1, "train_batch_size": 50, "rollout_fragment_length": 50}
    with find(f"{file}:MyConfig").from_dict(settings).build() as trainer:
        assert trainer.train()["episode_return_mean"] == 6.0


def test_a_policy_of_a_users_own_file_is_found_again_in_another_process(tmp_path, monkeypatch, python):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own.py").write_text(OWN)
    config = find("own.py:MyConfig").from_dict({"env": "own.py:MyEnv", "model": "own.py:MyNet", "mine": 0.75, "train_batch_size": 200})
    with config.build() as trainer:
        trainer.train()
        trainer.save("saved")
        action = trainer.compute_action([1.0])
    said = python(
        """
        import os, sys
        os.chdir(sys.argv[1])
        import flowrl as fl
        policy = fl.load_policy("saved")
        print(policy.config.mine, policy.compute_action([1.0]), policy.evaluate(4)["episode_return_mean"])
        """,
        str(tmp_path),
    )
    assert said.split() == ["0.75", str(action), "3.0"]


class WithScalars(torch.nn.Module):
    """A learned scalar, and batch normalisation, whose count has no axis either."""

    def __init__(self, observation_space, num_outputs):
        super().__init__()
        self.scale, self.norm = torch.nn.Parameter(torch.tensor(2.0)), torch.nn.BatchNorm1d(3)
        self.out = torch.nn.Linear(3, num_outputs + 1)

    def forward(self, obs):
        out = self.out(self.norm(obs)) * self.scale
        return out[:, :-1], out[:, -1]


def test_numbers_without_an_axis_are_saved_and_loaded(tmp_path):
    policy = trained(model=WithScalars)
    policy.save(tmp_path)
    assert load_policy(tmp_path).policy.get_weights()["scale"].shape == ()


def test_exploring_evaluations_are_the_same_again_and_leave_acting_alone():
    policy = TrainedPolicy(fl.PPOConfig(env="CartPole-v1"), gym.make("CartPole-v1").observation_space, gym.spaces.Discrete(2))
    other = TrainedPolicy(fl.PPOConfig(env="CartPole-v1"), policy.observation_space, policy.action_space)
    assert policy.evaluate(5, explore=True) == policy.evaluate(5, explore=True) != policy.evaluate(5)
    obs = np.zeros(4)
    assert [policy.compute_action(obs, explore=True) for _ in range(20)] == [other.compute_action(obs, explore=True) for _ in range(20)]


@pytest.mark.parametrize("seed", [-1, 1.5, "x"])
def test_a_seed_that_is_none_is_refused(seed):
    with pytest.raises(fl.ConfigError, match="seed="):
        trained().evaluate(1, seed=seed)


def test_whole_numbers_are_taken_whatever_their_type():
    assert trained().evaluate(np.int64(2), seed=np.int32(3))["num_episodes"] == 2
    policy = TrainedPolicy(fl.PPOConfig(), gym.spaces.Box(0, 255, (3,), np.uint8), gym.spaces.Discrete(2))
    assert policy.compute_action([1, 2, 3]) in (0, 1)
    with pytest.raises(ValueError, match="does not fit into uint8"):
        policy.compute_action([1, 2, 300])


def test_a_cut_weights_file_and_a_policy_file_that_lacks_something_are_told(tmp_path):
    trained().save(tmp_path)
    whole = (tmp_path / "policy.safetensors").read_bytes()
    (tmp_path / "policy.safetensors").write_bytes(whole[:-10])
    with pytest.raises(fl.ConfigError, match="no whole safetensors file"):
        load_policy(tmp_path)
    (tmp_path / "policy.safetensors").write_bytes(whole)
    (tmp_path / "policy.json").write_text('{"format": 1, "settings": {}}')
    with pytest.raises(fl.ConfigError, match="lacks config, observation_space, action_space"):
        load_policy(tmp_path)


SCRIPT = """
import sys
{own}
if __name__ == "__main__":
    with MyConfig(env=MyEnv, model=MyNet, train_batch_size=50, rollout_fragment_length=50).build() as trainer:
        trainer.train()
        trainer.save("saved")
    print(fl.load_policy("saved").evaluate(2)["episode_return_mean"])
"""


def test_what_a_script_saved_is_loaded_there_and_elsewhere(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT.format(own=OWN))
    load = "import flowrl as fl; print(fl.load_policy('saved').evaluate(2)['episode_return_mean'])"
    for arguments in (["script.py"], ["-c", load]):
        done = subprocess.run([sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.stdout.strip() == "3.0", done.stderr
