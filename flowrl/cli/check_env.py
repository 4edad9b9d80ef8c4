"""`flowrl check-env`: whether flowrl can train in an env, and what is wrong with it if not."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium.utils.env_checker import check_env as gymnasiums_check

from flowrl.batch import EpisodeStats
from flowrl.cli.envs import env_of
from flowrl.cli.failures import is_a_wrong_name
from flowrl.cli.tracebacks import is_in_users_code, user_traceback
from flowrl.env import EnvVector, vectorize
from flowrl.errors import ConfigError

__all__ = ["check_env"]

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def check_env(text: str, env_config: Mapping[str, Any] | None, num_steps: int) -> int:
    """Make the env, look at its spaces, step it, let gymnasium check it; 0 where all went well, else 1."""
    if num_steps < 1:
        raise ConfigError(f"--steps {num_steps}: expected 1 or more")
    env = env_of(text)
    print(f"{text}:")
    made: list[EnvVector] = []
    if not _passes("made", lambda: made.append(vectorize(env, env_config, seed=np.random.SeedSequence(0)))):
        return 1
    (envs,) = made
    try:
        _say("ok", "spaces", f"observations {envs.observation_space}, actions {envs.action_space}")
        steps_pass = _passes("steps", lambda: _step(envs, num_steps))
        gymnasium_passes = _passes("gymnasium's check", lambda: _gymnasiums(envs))
    finally:
        envs.close()
    return 0 if steps_pass and gymnasium_passes else 1


def _passes(name: str, check: Callable[[], Any]) -> bool:
    """Whether a check went well, and what is to be said of it."""
    try:
        said = check()
    except Exception as error:
        kind = "" if is_a_wrong_name(error) else f"{type(error).__name__}: "
        _say("FAIL", name, kind + " ".join(str(error).split()))
        if is_in_users_code(error):
            print(user_traceback(error), end="")
        else:
            print("".join(f"      {note}\n" for note in getattr(error, "__notes__", ())), end="")
        return False
    _say("ok", name, said or "")
    return True


def _step(envs: EnvVector, num_steps: int) -> str:
    episodes: list[EpisodeStats] = []
    for _ in range(num_steps):
        envs.reset_ended()
        envs.step(np.stack([envs.action_space.sample()]))
        episodes += envs.take_finished()
    if not episodes:
        return f"{num_steps:,} with random actions; no episode ended in them, and there is no mean return before one has"
    returns = [episode.episode_return for episode in episodes]
    mean_length = sum(episode.length for episode in episodes) / len(episodes)
    return (
        f"{num_steps:,} with random actions: {len(episodes)} episodes, {mean_length:.1f} steps each, "
        f"returns {min(returns):.4g} to {max(returns):.4g}"
    )


def _gymnasiums(envs: EnvVector) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gymnasiums_check(envs.envs[0].unwrapped, skip_render_check=True, skip_close_check=True)
    said = [" ".join(_COLOURS.sub("", str(warning.message)).split()) for warning in caught]
    return "\n      ".join(["it warns", *said]) if said else ""


def _say(verdict: str, name: str, about: str) -> None:
    print(f"{verdict:<4}  {name}{': ' if about else ''}{about}")
