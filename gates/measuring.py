"""One row with one seed, in a process of its own: `python -m gates.measuring SETTINGS SCORE SEED` prints the outcome as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flowrl.references import find
from flowrl.runs.settings import RunSettings, read_settings
from flowrl.trainer import Trainer

__all__ = ["measure"]

NUM_EPISODES = 100
"""Of the training mean that stops, and of the evaluation."""


def measure(settings: Path, score: str, seed: int) -> dict[str, Any]:
    """Train as the settings say, then evaluate once: what came of it, as JSON can hold it."""
    run = RunSettings.from_dict({**read_settings(settings), "seed": seed})
    began = time.monotonic()
    with run.config.build(run.algorithm.plan) as trainer:
        result, stopped_by = train(trainer, run)
        wall_s = time.monotonic() - began
        evaluation = trainer.evaluate(NUM_EPISODES)
        reached = find(score)(run.config, evaluation, trainer.compute_action)
    return {
        "score": reached,
        "stopped_by": stopped_by,
        "budget": run.stop.steps,
        "num_steps_sampled": result["num_steps_sampled"],
        "training_return_mean": result["episode_return_mean"],
        **{name: evaluation[name] for name in ("episode_return_mean", "episode_return_std", "episode_return_min", "episode_return_max")},
        "wall_s": round(wall_s, 1),
    }


def train(trainer: Trainer, run: RunSettings) -> tuple[Mapping[str, Any], str]:
    """Train to the budget, or until the mean of the last 100 training episodes is reached: the last result, and which it was.

    On Ray results come after so many steps or some more: there the budget is used up where the next result may be beyond it.
    """
    stop = run.stop
    next_steps = 2 * run.config.min_steps_per_reporting if run.config.engine_name == "ray" else 0
    assert stop.steps is not None and stop.mean_return is not None, "a gate's settings have a stop_return and stop_steps"
    while True:
        result = trainer.train()
        steps = result["num_steps_sampled"]
        if steps > stop.steps:
            raise ValueError(f"trained {steps:,} env steps, the budget is {stop.steps:,}: let whole train batches make up the budget")
        if result["episodes_total"] >= NUM_EPISODES and result["episode_return_mean"] >= stop.mean_return:
            return result, "return"
        if steps + next_steps >= stop.steps:
            return result, "budget"


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))))
