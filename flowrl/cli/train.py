"""`flowrl train`: run a plan until it has done enough, and leave its files complete however it ends."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from flowrl.cli.display import Display, display_for, duration
from flowrl.cli.envs import check_env_id
from flowrl.cli.interrupts import INTERRUPTED, Interrupts
from flowrl.errors import PlanError
from flowrl.runs.folder import RunFolder, default_name
from flowrl.runs.recording import Recording
from flowrl.runs.settings import RunSettings
from flowrl.runs.stopping import StopConditions
from flowrl.trainer import Trainer

__all__ = ["train"]

_END = object()
_ENDED = {"interrupted": "stopped by Ctrl-C", "plan": "the plan came to its end", "return": "reached", "steps": "all env steps taken"}


def train(algorithm: str | None, config: str | None, changes: Mapping[str, Any], run: str | None, runs_dir: Path) -> int:
    """Train with these settings into a folder of the run's own; the exit code."""
    settings = RunSettings.resolve(algorithm, config, changes)
    check_env_id(settings.config.env)
    trainer = settings.config.build(settings.algorithm.plan)
    trainer.plan.check()
    folder = RunFolder.create(runs_dir, run, default_name(settings.algorithm.short_name, settings.env_name))
    print(f"{_title(settings)}, until {settings.stop}", flush=True)
    with Interrupts() as interrupts:
        recording: Recording | None = None
        try:
            recording = Recording(folder, settings, trainer.plan)
            with recording, display_for(Console(), settings.stop) as display:
                try:
                    how = _run(trainer, settings.stop, recording, display, interrupts)
                finally:
                    _leave(trainer, folder)
        except BaseException as error:
            if (recording is None or recording.last is None) and isinstance(error, Exception):
                folder.remove()  # nothing was learned: the name is free again for the next try
            else:
                print(_where(folder), flush=True)
            raise
        print(_reached(how, recording.last, settings.stop), _where(folder), sep="\n", flush=True)
    return INTERRUPTED if how == "interrupted" else 0


def _run(trainer: Trainer, stop: StopConditions, recording: Recording, display: Display, interrupts: Interrupts) -> str:
    """Train; how it came to its end: "return", "steps", "plan" (no more results) or "interrupted"."""
    while True:
        try:
            with interrupts.allowed():
                result = next(trainer.stream, _END)
        except KeyboardInterrupt:
            return "interrupted"
        if result is _END:
            return "plan"
        if not isinstance(result, Mapping):
            raise PlanError(f"the plan gives {type(result).__name__}, no results: end it with `return StandardMetricsReporting(...)`")
        recording.write(result)
        display.update(result)
        if (met := stop.met_by(result)) is not None:
            return met


def _leave(trainer: Trainer, folder: RunFolder) -> None:
    """Save what was learned; stop all that runs."""
    try:
        if trainer.workers.is_open:
            trainer.save(folder.path)
    finally:
        trainer.close()


def _title(settings: RunSettings) -> str:
    config = settings.config
    workers = {0: "no workers", 1: "1 worker"}.get(config.num_workers, f"{config.num_workers} workers")
    return f"{settings.algorithm.name} on {settings.env_name}, {workers}, engine {config.engine_name}"


def _reached(how: str, last: Mapping[str, Any] | None, stop: StopConditions) -> str:
    ended = _ENDED[how]
    if last is None:
        return f"{ended}, before the first result"
    mean = last.get("episode_return_mean", math.nan)
    returns = "no episode finished" if math.isnan(mean) else f"a mean return of {mean:.1f}"
    asked = f" ({stop.mean_return:g} was asked for)" if stop.mean_return is not None and how != "return" else ""
    return f"{ended}: {returns}{asked} after {last.get('num_steps_sampled', 0):,} env steps, {duration(last.get('time_s', 0))}"


def _where(folder: RunFolder) -> str:
    """The files of a run, each with what it is for."""
    path = folder.path
    about = {
        "config.json": f"its settings: flowrl train --config {folder.config} repeats it",
        "progress.jsonl": "each result, one a line",
        "curve.png": "the learning curve",
        "plan.svg": "the plan",
        "policy.safetensors": f"the policy: flowrl eval {path} plays it",
        "events.out.*": f"for TensorBoard: tensorboard --logdir {path}",
    }
    return "\n".join([f"{path} holds", *(f"  {name:<18}  {text}" for name, text in about.items() if any(path.glob(name)))])
