"""The commands and their options. What they do is elsewhere, and loaded when it is asked for: `--help` needs no torch."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from flowrl.cli.failures import run_app
from flowrl.cli.options import engine_name, json_object, number, settings_of, whole_number
from flowrl.errors import ConfigError

__all__ = ["app", "run"]

app = typer.Typer(
    name="flowrl",
    help="Reinforcement learning written as dataflow: train, watch and draw plans.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _parser(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What typer calls to read an option; what is wrong comes as typer's own error, which names the option."""

    def parse(text: Any) -> Any:
        try:
            return read(text)
        except ConfigError as error:
            raise typer.BadParameter(str(error)) from None

    return parse


STOP_RETURN = typer.Option("--stop-return", metavar="R", parser=_parser(number), help="End at this mean return.")
ENV_CONFIG = typer.Option("--env-config", metavar="JSON", parser=_parser(json_object), help="What the env is made with.")
STOP_STEPS = typer.Option("--stop-steps", metavar="N", parser=_parser(whole_number), help="End after so many env steps.")
ENGINE = typer.Option("--engine", metavar="E", parser=_parser(engine_name), help="serial or ray; without: ray where there are workers.")
ALGORITHM = typer.Argument(metavar="ALGO|FILE.py:PLAN", help="An algorithm (`flowrl list`), or a plan function of your own.")
CONFIG = typer.Option("--config", metavar="FILE", help="A settings file (JSON), a run's config.json, or my.py:MyConfig.")
SEED = typer.Option("--seed", metavar="S", parser=_parser(whole_number), help="A whole number; the same seed, the same run.")
SET = typer.Option("--set", metavar="FIELD=VALUE", help="Change a setting: JSON, a Python literal or a text. Repeatable.")
WORKERS = typer.Option(
    "--workers", metavar="N", parser=_parser(whole_number), help="Workers that sample elsewhere; 0: none, all in this process."
)
RUNS = typer.Option("--runs-dir", metavar="FOLDER", help="Where the folders of runs are.")


@app.command()
def train(
    algorithm: Annotated[str | None, ALGORITHM] = None,
    env: Annotated[str | None, typer.Option("--env", metavar="ID", help="A gymnasium id, or my.py:MyEnv.")] = None,
    env_config: Annotated[Any | None, ENV_CONFIG] = None,
    set_: Annotated[list[str] | None, SET] = None,
    config: Annotated[str | None, CONFIG] = None,
    stop_return: Annotated[float | None, STOP_RETURN] = None,
    stop_steps: Annotated[int | None, STOP_STEPS] = None,
    workers: Annotated[int | None, WORKERS] = None,
    engine: Annotated[str | None, ENGINE] = None,
    seed: Annotated[int | None, SEED] = None,
    run: Annotated[str | None, typer.Option("--run", metavar="NAME", help="The run's name; without: algorithm, env and time.")] = None,
    runs_dir: Annotated[Path, RUNS] = Path("runs"),
) -> int:
    """Train, and leave settings, results, learning curve, picture and policy in a folder of the run's own.

    Ends at --stop-return or --stop-steps, whichever comes first, or with Ctrl-C.
    """
    changes = settings_of(
        set_ or [],
        env=env,
        env_config=env_config,
        num_workers=workers,
        engine=engine,
        seed=seed,
        stop_return=stop_return,
        stop_steps=stop_steps,
    )
    return int(import_module("flowrl.cli.train").train(algorithm, config, changes, run, runs_dir))


@app.command("eval")
def evaluate(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's name, or its folder.")],
    episodes: Annotated[int, typer.Option("--episodes", metavar="N", parser=_parser(whole_number), help="How many to play.")] = 100,
    render: Annotated[bool, typer.Option("--render", help="Show the env while it is played.")] = False,
    seed: Annotated[int | None, SEED] = None,
    runs_dir: Annotated[Path, RUNS] = Path("runs"),
) -> int:
    """Play a run's policy, always its likeliest action, in envs of its own; mean, lowest, highest and spread of the returns."""
    return int(import_module("flowrl.cli.evaluate").evaluate(run, episodes, render, seed, runs_dir))


@app.command()
def graph(
    algorithm: Annotated[str | None, ALGORITHM] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help=".svg, .png, .html, .mmd or .dot; without: text on screen.")
    ] = None,
    set_: Annotated[list[str] | None, SET] = None,
    config: Annotated[str | None, CONFIG] = None,
    workers: Annotated[int | None, WORKERS] = None,
) -> int:
    """Draw a plan. Nothing is started for it."""
    changes = settings_of(set_ or [], num_workers=workers)
    return int(import_module("flowrl.cli.graph").graph(algorithm, config, changes, output))


@app.command("list")
def list_() -> int:
    """The algorithms that there are."""
    return int(import_module("flowrl.cli.listing").show_algorithms())


@app.command("check-env")
def check_env(
    env: Annotated[str, typer.Argument(metavar="ID", help="A gymnasium id, or my.py:MyEnv.")],
    env_config: Annotated[Any | None, ENV_CONFIG] = None,
    steps: Annotated[int, typer.Option("--steps", metavar="N", parser=_parser(whole_number), help="Random steps to take.")] = 1000,
) -> int:
    """Whether flowrl can train in an env: made, reset and stepped, its spaces, and gymnasium's own check."""
    return int(import_module("flowrl.cli.check_env").check_env(env, env_config, steps))


def run(arguments: list[str]) -> int:
    """Run a command line; its exit code."""
    return run_app(app, arguments)
