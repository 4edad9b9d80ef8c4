"""A policy out of training: it acts, is evaluated, saved and loaded, without workers or a plan."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from flowrl.batch import Array
from flowrl.config import AlgorithmConfig
from flowrl.env.fitting import fitted
from flowrl.env.making import vectorize
from flowrl.env.spaces import for_env, space_from_json, space_to_json
from flowrl.errors import ConfigError
from flowrl.policy.networks import seeded
from flowrl.policy.policy import Policy, checked_policy
from flowrl.references import find, reference_to
from flowrl.rollout.evaluation import play, summary_of

__all__ = ["TrainedPolicy", "load_policy", "load_weights"]

FORMAT = 1
WEIGHTS_FILE, POLICY_FILE = "policy.safetensors", "policy.json"
ACTING, EVALUATION = (1 << 20, 0), (1 << 20, 1)
"""Places in the config's seed that no worker has."""
MOST_ENVS = 10


class TrainedPolicy:
    """The policy of a config with the weights that training gave it.

    >>> from flowrl.algorithms.ppo import PPOConfig
    >>> box, two = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(2)
    >>> policy = TrainedPolicy(PPOConfig(env="CartPole-v1"), box, two)
    >>> policy.compute_action([0.0, 0.1, 0.0, 0.0]) in two
    True
    """

    def __init__(self, config: AlgorithmConfig, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        self.config = config
        self.observation_space, self.action_space = observation_space, action_space
        self.policy = self._made(np.random.SeedSequence(config.seed, spawn_key=ACTING))

    def compute_action(self, obs: Any, explore: bool = False) -> Any:
        """The action for one observation, as the env takes it: the likeliest, or drawn with `explore`.

        `obs` is what the env gives, one observation of `observation_space`. An int for Discrete actions, else an array, a dict or a tuple.
        """
        row = fitted(obs, self.observation_space, remedy="pass one observation, as the env gives it")
        action = self.policy.act(row[None], explore)[0][0]
        return for_env(self.action_space)(action)

    def evaluate(
        self, num_episodes: int = 100, explore: bool = False, seed: int | None = None, render_mode: str | None = None
    ) -> dict[str, Any]:
        """Whole episodes in envs of their own: `episode_return_mean|std|min|max`, `episode_len_mean`, `num_episodes`, `episode_returns`.

        Envs and draws begin with seeds from `seed` (None: the config's) each time, so that two calls with the same weights give the same.
        With a `render_mode` it is one env. Never ends where an episode never does.
        """
        num_episodes = _whole("num_episodes", num_episodes, least=1)
        seed = self.config.seed if seed is None else _whole("seed", seed, least=0)
        env_seeds, policy_seed = np.random.SeedSequence(seed, spawn_key=EVALUATION).spawn(2)
        policy = self._made(policy_seed)
        policy.set_weights(self.policy.get_weights())
        num_envs = 1 if render_mode else min(MOST_ENVS, num_episodes)
        more = {"render_mode": render_mode} if render_mode else {}
        envs = vectorize(self.config.env, {**(self.config.env_config or {}), **more}, num_envs, env_seeds)
        if render_mode and envs.envs[0].render_mode != render_mode:
            envs.close()
            raise ConfigError(f"{envs.envs[0]} was asked for render_mode={render_mode!r} and has {envs.envs[0].render_mode!r}")
        try:
            return summary_of(play(policy, envs, num_episodes, explore))
        finally:
            envs.close()

    def _made(self, seed: np.random.SeedSequence) -> Policy:
        config = self.config
        return seeded(config.seed, lambda: checked_policy(config.make_policy(self.observation_space, self.action_space, seed)))

    def __repr__(self) -> str:
        return f"TrainedPolicy({type(self.config).__name__}, {self.observation_space} -> {self.action_space})"

    def set_weights(self, weights: Mapping[str, Array]) -> None:
        """Act with these weights, copied."""
        self.policy.set_weights(weights)

    def save(self, path: str | Path) -> Path:
        """Write it into the folder `path`: `policy.safetensors` and `policy.json`; the folder."""
        folder = Path(path)
        if folder.exists() and not folder.is_dir():
            raise ConfigError(f"{folder} is a file: give the folder to save the policy in")
        folder.mkdir(parents=True, exist_ok=True)
        about = {
            "format": FORMAT,
            "config": reference_to(type(self.config)),
            "settings": self.config.to_dict(),
            "observation_space": space_to_json(self.observation_space),
            "action_space": space_to_json(self.action_space),
        }
        weights = {name: np.array(weight, order="C") for name, weight in self.policy.get_weights().items()}
        (folder / f"{WEIGHTS_FILE}.new").write_bytes(save(weights))
        (folder / f"{POLICY_FILE}.new").write_text(json.dumps(about, indent=2) + "\n")
        for name in (WEIGHTS_FILE, POLICY_FILE):
            (folder / f"{name}.new").replace(folder / name)
        return folder


def load_policy(path: str | Path) -> TrainedPolicy:
    """The policy that `save` wrote into the folder `path`.

    The config class, and an env or model class, are found by their names: loading the policy of an algorithm of your own
    imports its file. Where the env cannot be found again (a lambda, say) the policy still acts. Nothing is unpickled.
    """
    about = _about(path)
    config_class = find(about["config"])
    if not (isinstance(config_class, type) and issubclass(config_class, AlgorithmConfig)):
        raise ConfigError(f"{Path(path) / POLICY_FILE} names the config {about['config']!r}, which is no AlgorithmConfig")
    config = _config(config_class, about["settings"])
    policy = TrainedPolicy(config, space_from_json(about["observation_space"]), space_from_json(about["action_space"]))
    policy.set_weights(load_weights(path))
    return policy


def _config(config_class: type[AlgorithmConfig], settings: Mapping[str, Any]) -> AlgorithmConfig:
    not_for_acting = dict.fromkeys(settings.keys() & {"env", "before_learn_on_batch"})
    config = config_class.from_dict({**settings, **not_for_acting})
    try:
        return config_class.from_dict(settings)
    except ConfigError:
        return config.replace(env=settings["env"])  # its text: who evaluates is told that there is no such env


def load_weights(path: str | Path) -> dict[str, Array]:
    """The weights that `save` wrote into the folder `path`."""
    _about(path)
    try:
        weights: dict[str, Array] = load_file(str(Path(path) / WEIGHTS_FILE))
    except SafetensorError as error:
        raise ConfigError(f"{Path(path) / WEIGHTS_FILE} is no whole safetensors file ({error}): save the policy again") from None
    return weights


def _about(path: str | Path) -> dict[str, Any]:
    folder = Path(path)
    missing = [name for name in (POLICY_FILE, WEIGHTS_FILE) if not (folder / name).is_file()]
    if missing:
        raise ConfigError(f"there is no policy in {folder}: {' and '.join(missing)} missing, give a folder that trainer.save(...) wrote")
    try:
        about = json.loads((folder / POLICY_FILE).read_text())
    except ValueError as error:
        raise ConfigError(f"{folder / POLICY_FILE} is no JSON ({error}): give a folder that trainer.save(...) wrote") from None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        found = about.get("format") if isinstance(about, dict) else type(about).__name__
        raise ConfigError(f"{folder / POLICY_FILE} has format {found!r}, this flowrl reads {FORMAT}")
    if missing := [name for name in ("config", "settings", "observation_space", "action_space") if name not in about]:
        raise ConfigError(f"{folder / POLICY_FILE} lacks {', '.join(missing)}: give a folder that trainer.save(...) wrote")
    return about


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= least:
        return int(value)
    raise ConfigError(f"{name}={value!r}: expected a whole number, {least} or more")
