"""From what a config calls its env to the envs of one worker. Nothing here resets or steps an env."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import gymnasium as gym
import numpy as np

from flowrl.env.vector import EnvVector
from flowrl.errors import ConfigError
from flowrl.references import is_reference, nearest

__all__ = ["EnvContext", "vectorize"]

_DICT_NAMES = ("env_config", "config", "context")


class EnvContext(dict[str, Any]):
    """The `env_config` that an env's class or function gets: a dict that also knows whose env it is for.

    `worker_index` counts workers (0 is the local one), `vector_index` the envs of that worker.
    """

    def __init__(self, env_config: Mapping[str, Any], worker_index: int, vector_index: int) -> None:
        super().__init__(_copied(env_config))
        self.worker_index = worker_index
        self.vector_index = vector_index


def vectorize(
    env: str | Callable[..., Any] | None,
    env_config: Mapping[str, Any] | None = None,
    num_envs: int = 1,
    seed: np.random.SeedSequence | None = None,
    worker: int = 0,
) -> EnvVector:
    """`num_envs` envs, made but not yet reset, each with a seed of its own spawned from `seed`.

    >>> envs = vectorize("CartPole-v1", num_envs=2, seed=np.random.SeedSequence(0))
    >>> envs.num_envs, envs.observation_space.shape, int(envs.action_space.n)
    (2, (4,), 2)
    >>> envs.close()

    A gymnasium id is made with `env_config` as keywords. A class or function is called with an `EnvContext`, the dict itself, where its
    first parameter is a must (and none of its keys) or is called env_config, config or context; else with its items as keywords, as
    gymnasium's classes take them.
    """
    made = []
    with ExitStack() as on_error:
        for index in range(num_envs):
            made.append(_make(env, EnvContext(env_config or {}, worker, index)))
            on_error.callback(made[-1].close)
        envs = EnvVector(made, seed or np.random.SeedSequence(), worker)
        on_error.pop_all()
    return envs


def _make(env: str | Callable[..., Any] | None, context: EnvContext) -> Any:
    if isinstance(env, str):
        if is_reference(env) or "<" in env:  # what a saved policy was trained in
            raise ConfigError(f"env={env!r} cannot be found again: name a gymnasium id, an env class or a function that makes an env")
        try:
            # The checker warns once and costs time at every reset; the vector checks what it needs itself.
            return gym.make(env, disable_env_checker=True, **context)
        except gym.error.UnregisteredEnv as error:
            said = str(error).partition(" Did you mean")[0]
            raise ConfigError(f"env={env!r}: {said} {nearest(env, list(gym.registry))}") from None
        except gym.error.Error as error:
            raise ConfigError(f"env={env!r}: {error}") from None
        except TypeError as error:
            if "unexpected keyword argument" not in str(error):
                raise
            raise ConfigError(f"env={env!r} does not take this env_config: {error}") from error
    if env is None:
        raise ConfigError("env=None: name a gymnasium id, an env class or a function that makes an env in the config")
    made = env(context) if _takes_a_dict(env, context) else _with_keywords(env, context)
    if not isinstance(made, gym.Env):
        raise ConfigError(
            f"{env!r} made {type(made).__name__}: expected a gymnasium.Env, return one (a vector of envs is what num_envs is for)"
        )
    return made


def _copied(value: Any) -> Any:
    """Dicts and lists anew, so that an env that changes its env_config changes nobody else's."""
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def _with_keywords(env: Callable[..., Any], context: EnvContext) -> Any:
    try:
        inspect.signature(env).bind(**context)
    except TypeError as error:
        raise ConfigError(f"env={env!r:.100} does not take env_config={dict(context)!r:.200}: {error}") from None
    return env(**context)


def _takes_a_dict(env: Callable[..., Any], env_config: Mapping[str, Any]) -> bool:
    """Whether an env class or function takes its env_config as one dict; else it takes keywords."""
    try:
        parameters = list(inspect.signature(env).parameters.values())
    except (TypeError, ValueError):  # written in C
        return True
    first = next((each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)), None)
    if first is None or first.name in env_config:
        return False
    return first.default is first.empty or first.name in _DICT_NAMES
