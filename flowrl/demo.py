"""`python -m flowrl.demo`: PPO solves CartPole-v1 on two workers, and leaves the plan's picture beside the learning curve."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from flowrl.algorithms.ppo import PPOConfig, execution_plan
from flowrl.rollout.worker_set import WorkerSet

__all__ = ["main"]

TARGET_RETURN = 475.0
MAX_STEPS = 300_000
CONFIG = PPOConfig(
    env="CartPole-v1",
    num_workers=2,
    num_envs=4,
    rollout_fragment_length=128,
    train_batch_size=1024,
    gamma=0.98,
    lambda_=0.9,
    lr=1e-3,
    num_sgd_iter=10,
    sgd_minibatch_size=128,
    seed=0,
)


def main(runs: Path = Path("runs")) -> None:
    """Train to a mean return of 475 over the last 100 episodes; write everything under `runs`."""
    console = Console(soft_wrap=True)
    folder = new_folder(runs)
    workers = WorkerSet(CONFIG)
    plan = execution_plan(workers, CONFIG)
    plan.draw(folder / "plan.svg")
    (folder / "config.json").write_text(json.dumps(CONFIG.to_dict(), indent=2) + "\n")
    console.print(f"PPO on {CONFIG.env}, {CONFIG.num_workers} workers on Ray; the plan is drawn in {folder / 'plan.svg'}")
    results = train(plan, folder, console)
    draw_curve(results, folder / "curve.png")
    workers.save(folder / "policy.safetensors")
    reached, steps = results[-1]["episode_return_mean"], results[-1]["num_steps_sampled"]
    console.print(
        f"reached a return of {reached:.1f} (mean of the last 100 episodes; solved is {TARGET_RETURN:g}) in {steps:,} env steps, "
        f"{results[-1]['time_s']:.0f} s"
    )
    for name in ("plan.svg", "curve.png", "progress.jsonl", "config.json", "policy.safetensors"):
        console.print(f"  {folder / name}")
    if reached < TARGET_RETURN:
        raise SystemExit(f"not solved within {MAX_STEPS:,} env steps")


def train(plan: Any, folder: Path, console: Console) -> list[dict[str, Any]]:
    """Run the plan until it is solved, with a progress display; each result is a line of progress.jsonl."""
    columns = (
        TextColumn("return {task.fields[mean]:>5.1f}"),
        BarColumn(),
        TextColumn("{task.fields[steps]:>7,} steps, {task.fields[rate]:>6,.0f}/s"),
        TimeElapsedColumn(),
    )
    results = []
    with Progress(*columns, console=console) as progress, (folder / "progress.jsonl").open("w") as lines, plan.run() as stream:
        task = progress.add_task("", total=TARGET_RETURN, mean=0.0, steps=0, rate=0.0)
        for result in stream:
            results.append(result)
            lines.write(json.dumps(without_nan(result)) + "\n")
            lines.flush()
            mean, steps = result["episode_return_mean"], result["num_steps_sampled"]
            progress.update(
                task, completed=0.0 if math.isnan(mean) else min(mean, TARGET_RETURN), mean=mean, steps=steps, rate=result["steps_per_s"]
            )
            if mean >= TARGET_RETURN or steps >= MAX_STEPS:
                break
    return results


def draw_curve(results: list[dict[str, Any]], path: Path) -> None:
    """The learning curve: mean, lowest and highest return against env steps."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    steps = [result["num_steps_sampled"] for result in results]
    axes.fill_between(steps, [r["episode_return_min"] for r in results], [r["episode_return_max"] for r in results], alpha=0.2, linewidth=0)
    axes.plot(
        steps, [result["episode_return_mean"] for result in results], label="PPO, mean of the last 100 episodes (band: lowest to highest)"
    )
    axes.axhline(TARGET_RETURN, linestyle="--", color="grey", linewidth=1, label=f"solved: {TARGET_RETURN:g}")
    axes.set(xlabel="env steps", ylabel="episode return", title=f"{CONFIG.env}", ylim=(0, None))
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(path, dpi=150)


def new_folder(runs: Path) -> Path:
    """A folder of this run's own; nothing is ever overwritten."""
    name = f"ppo-{CONFIG.env}-{time.strftime('%Y%m%d-%H%M%S')}"
    for number in range(1, 1000):
        folder = runs / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise FileExistsError(f"{runs / name} and 998 more are there already: move some away")


def without_nan(value: Any) -> Any:
    """JSON knows no NaN and no infinity: null in their place."""
    if isinstance(value, dict):
        return {name: without_nan(item) for name, item in value.items()}
    if isinstance(value, list):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


if __name__ == "__main__":
    main()
