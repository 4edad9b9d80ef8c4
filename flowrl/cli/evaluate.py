"""`flowrl eval`: how good the policy of a run is."""

from __future__ import annotations

from pathlib import Path

from flowrl.cli.envs import check_env_id
from flowrl.errors import ConfigError
from flowrl.runs.folder import find_run
from flowrl.trainer import load_policy

__all__ = ["evaluate"]


def evaluate(run: str, num_episodes: int, render: bool, seed: int | None, runs_dir: Path) -> int:
    """Play so many episodes and print their returns; the exit code."""
    folder = find_run(run, runs_dir)
    if folder.config.is_file() and not folder.policy.is_file():
        raise ConfigError(f"there is no policy in {folder.path}: that run ended before one was written")
    policy = load_policy(folder.path)
    check_env_id(policy.config.env)
    played = policy.evaluate(num_episodes, seed=seed, render_mode="human" if render else None)
    print(f"{folder.path}: {played['num_episodes']} episodes, mean length {played['episode_len_mean']:.1f}")
    for name in ("mean", "min", "max", "std"):
        print(f"  return {name:<4} {played[f'episode_return_{name}']:>12.2f}")
    return 0
