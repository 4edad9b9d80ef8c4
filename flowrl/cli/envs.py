"""Env ids, looked up before anything starts."""

from __future__ import annotations

import difflib
from typing import Any

import gymnasium as gym

from flowrl.errors import ConfigError
from flowrl.references import find, is_reference, load_module

__all__ = ["check_env_id", "env_of"]


def check_env_id(env: Any) -> None:
    """Raise ConfigError where no env is given, or gymnasium knows none of this id; a class or function is taken as it is."""
    if env is None:
        raise ConfigError("which env? Name one: --env CartPole-v1, or --env my.py:MyEnv")
    if not isinstance(env, str):
        if not callable(env):
            raise ConfigError(f"env={env!r:.100}: expected a gymnasium id, or a class or function that makes an env")
        return
    module, _, env_id = env.rpartition(":")
    if module:  # "ale_py:ALE/Pong-v5": importing the module registers its envs
        load_module(module)
    try:
        gym.spec(env_id)
    except gym.error.NamespaceNotFound:
        raise ConfigError(f"gymnasium knows no env {env_id!r}: name also the module that has it, MODULE:{env_id}") from None
    except gym.error.Error:
        raise ConfigError(f"gymnasium knows no env {env_id!r}. {_nearest_id(env_id)}") from None


def env_of(text: str) -> Any:
    """The class or function that "my.py:MyEnv" names, or a gymnasium id that is known."""
    env = find(text) if is_reference(text) or ".py:" in text else text
    check_env_id(env)
    return env


def _nearest_id(env_id: str) -> str:
    known = {name.lower(): name for name in gym.registry}
    near = difflib.get_close_matches(env_id.lower(), known, n=1)
    if near:
        return f"Did you mean {known[near[0]]!r}?"
    return f"It knows {len(known)} (`gymnasium.pprint_registry()` shows them); an env of your own is named my.py:MyEnv."
