"""The folder of a run: where it lies, what it may be called, and which files are in it. Nothing is ever overwritten."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flowrl.errors import ConfigError
from flowrl.references import nearest

__all__ = ["RunFolder", "default_name", "find_run"]

_ALLOWED = re.compile(r"\w[\w.+=@-]{0,99}")
_MOST_OF_ONE_NAME = 1000


@dataclass(frozen=True)
class RunFolder:
    """A run's folder, which is there."""

    path: Path

    @property
    def config(self) -> Path:
        """The settings: what `flowrl train --config` takes."""
        return self.path / "config.json"

    @property
    def progress(self) -> Path:
        """Each result, one a line."""
        return self.path / "progress.jsonl"

    @property
    def plan(self) -> Path:
        """The plan's picture."""
        return self.path / "plan.svg"

    @property
    def curve(self) -> Path:
        """The learning curve."""
        return self.path / "curve.png"

    @property
    def policy(self) -> Path:
        """The policy's weights; how it is made is in policy.json beside them."""
        return self.path / "policy.safetensors"

    @classmethod
    def create(cls, runs: Path, name: str | None, otherwise: str) -> RunFolder:
        """A new folder `runs/name`; without a name `runs/otherwise`, with a number added where that is taken."""
        if name is not None:
            _check_name(name)
        for number in range(1, _MOST_OF_ONE_NAME):
            path = runs / (name or (otherwise if number == 1 else f"{otherwise}-{number}"))
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                if name is not None:
                    raise ConfigError(
                        f"--run {name}: {path} is there already and nothing is overwritten: choose another name, or move it away"
                    ) from None
            except OSError as error:
                raise ConfigError(f"cannot make the folder {path}: {error.strerror or error}") from None
            else:
                return cls(path)
        raise ConfigError(f"{runs / otherwise} and {_MOST_OF_ONE_NAME - 2} more are there already: name the run with --run")

    def remove(self) -> None:
        """Take the folder away again, of a run that never began."""
        shutil.rmtree(self.path)


def find_run(text: str, runs: Path) -> RunFolder:
    """The run of this name under `runs`, or in this folder; a folder that `trainer.save` wrote will do."""
    for path in (runs / text, Path(text)):
        if any((path / name).is_file() for name in ("config.json", "policy.json")):
            return RunFolder(path)
    there = sorted(path.parent.name for path in runs.glob("*/config.json"))
    if (runs / text).is_dir() or Path(text).is_dir():
        raise ConfigError(f"{text} is no run: it has no config.json, and no policy.json")
    hint = nearest(text, there) if there else f"There are none in {runs}."
    raise ConfigError(f"there is no run {text!r} in {runs}. {hint}")


def default_name(algorithm: str, env_name: str, now: Callable[[str], str] = time.strftime) -> str:
    """What a run is called that was given no name: algorithm, env and time, in characters that any file system takes.

    >>> default_name("ppo", "ALE/Pong-v5", now=lambda _: "20260131-120000")
    'ppo-ALE-Pong-v5-20260131-120000'
    """
    words = re.findall(r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*", f"{algorithm} {env_name}")
    return f"{'-'.join(words)[:60].strip('-.')}-{now('%Y%m%d-%H%M%S')}"


def _check_name(name: str) -> None:
    if not _ALLOWED.fullmatch(name) or ".." in name:
        raise ConfigError(
            f"--run {name!r}: expected a plain name, letters and digits first, then also . _ - + = @, no '..' and no '/', "
            "100 characters at most (the folder above it is --runs-dir)"
        )
