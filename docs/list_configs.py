"""Writes docs/configs.md from the config classes: `python docs/list_configs.py`. A test holds the page to it."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from flowrl.config import AlgorithmConfig
from flowrl.runs.algorithms import find_algorithm, known_algorithms

HEAD = """# Settings

A config is a flat, frozen dataclass: `fl.PPOConfig(env="CartPole-v1", lr=1e-3)`. First the settings that every algorithm has, then
what each algorithm adds and which defaults it changes (`python docs/list_configs.py` writes this page from the classes).

```python
import flowrl as fl

config = fl.PPOConfig(env="CartPole-v1", lr=1e-3, lr_schedule=[(0, 1e-3), (100_000, 0.0)], observation_filter="MeanStdFilter")
assert config.lr == config["lr"] == 1e-3  # also a read-only mapping: dict(config), config.get(name), name in config
slower = config.replace(lr=3e-4)  # a new one, checked again; the old one stays

settings = config.to_dict()  # what JSON can hold
assert dict(fl.PPOConfig.from_dict(settings)) == dict(config)
```

The same names everywhere: in a terminal `--set lr=1e-3 --set 'lr_schedule=[[0, 1e-3], [100000, 0]]'`, in a settings file for
`flowrl train --config FILE` one flat JSON object, `{"algorithm": "ppo", "env": "CartPole-v1", "lr": 1e-3, "stop_return": 475}`.
A name or value that is wrong is an error before anything starts:

```python
for wrong in ({"lrr": 1e-3}, {"lr": "fast"}, {"observation_filter": "MeanStd"}):
    try:
        fl.PPOConfig.from_dict(wrong)
    except fl.ConfigError as error:
        print(error)
```

```text
PPOConfig has no setting 'lrr'. Did you mean 'lr'?
lr='fast': expected a finite number, 0.0 or more
observation_filter='MeanStd': expected "NoFilter" or "MeanStdFilter"
```
"""
READ_BY_PLANS = """## What plans read beside them

- `fragment_rows`: rows of a fragment, `num_envs * rollout_fragment_length`.
- `round_rows`: rows of a round, one fragment of each worker: `max(1, num_workers) * fragment_rows`.
- `engine_name`: "serial" or "ray", what the run will be on.
- `replay_settings`, of DQN and Ape-X: `(learning_starts, buffer_size, train_batch_size, alpha, beta, eps, seed)`, as `LocalReplayBuffer`
  takes them, and `ReplayActor` after the number of shards. `alpha` is None without `prioritized_replay`.
- `batches_for(num_sampled)`, of DQN and Ape-X: batches to train on for so many sampled rows by `training_intensity`, a weight for
  `Concurrently`.
"""
OWN_CONFIG = """## A config of your own

A subclass of `AlgorithmConfig`, or of an algorithm's config, gains all of the above:
[write_your_own.md](write_your_own.md) makes one.
"""
GROUPS = {
    "The environment": (
        "`env` is a gymnasium id, or a class or function of yours that gets the `env_config` dict; in a terminal and in files "
        '`"my_env.py:MyEnv"`. Observations may be a Box, Discrete, MultiDiscrete or MultiBinary, or a Dict or Tuple of these; actions '
        "Discrete, and for PPO, A2C and A3C also all of the others.",
        ("env", "env_config"),
    ),
    "Where it runs": (
        "Every worker and every env has a seed of its own, made from `seed`. The same settings give the same run on the serial engine, "
        "and for PPO, A2C and DQN, whose rollouts are barriers, on Ray too.",
        ("num_workers", "num_envs", "resources_per_worker", "engine", "seed"),
    ),
    "Batches": (
        "A round of sampling gives `max(1, num_workers) * num_envs * rollout_fragment_length` rows. Rounds are joined until there are "
        "`train_batch_size` of them: where that is no multiple of a round, a train batch is larger. Where rows are replayed (DQN, Ape-X) "
        "or gradients come from the workers (A3C) it is otherwise: see there.",
        ("rollout_fragment_length", "train_batch_size"),
    ),
    "Learning": (
        "A schedule is a list of points. `lr_schedule=[(0, 1e-3), (100_000, 0.0)]` falls in a straight line: 5e-4 after 50,000 env steps, "
        "0 from 100,000 on.",
        ("gamma", "lr", "lr_schedule", "grad_clip", "devices"),
    ),
    "The network, and what it sees": (
        "By default an actor and a critic of their own, each an MLP of `hiddens` with tanh; DQN and Ape-X: Q-values by one with relu. "
        "What `observation_filter` and `normalize_rewards` have learned is part of the weights: all workers share it, and it is saved "
        "with the policy.",
        ("hiddens", "model", "observation_filter", "normalize_rewards"),
    ),
    "Results": (
        "A result comes with the first train batch after which both have passed: so many env steps, and so many seconds.",
        ("min_steps_per_reporting", "min_time_s_per_reporting", "metrics_num_episodes"),
    ),
}
"""Of the settings that all algorithms have: title -> (a word before, names)."""
TABLE = "| setting | default | |\n| --- | --- | --- |"


class Setting(NamedTuple):
    """A field of a config class, with the text below it."""

    name: str
    default: object
    text: str

    def row(self) -> str:
        """Its line in a table."""
        text = self.text.replace("|", "\\|")
        return f"| `{self.name}` | `{self.default!r}` | {text} |".replace("|  |", "| |")


def settings_of(config: type[AlgorithmConfig]) -> dict[str, Setting]:
    """Every setting of a config class, its bases' too; texts are those nearest to the class."""
    texts: dict[str, str] = {}
    for kind in reversed([kind for kind in config.__mro__ if issubclass(kind, AlgorithmConfig)]):
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body  # type: ignore[attr-defined]
        for field, below in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                texts[field.target.id] = " ".join(str(below.value.value).split())  # type: ignore[union-attr]
    return {field.name: Setting(field.name, field.default, texts.get(field.name, "")) for field in dataclasses.fields(config)}


def page() -> str:
    """The whole page."""
    base = settings_of(AlgorithmConfig)
    grouped = [name for _, names in GROUPS.values() for name in names]
    groups = {**GROUPS, "More": ("", [name for name in base if name not in grouped])}
    parts = [HEAD, "## Of every algorithm\n"]
    parts += [_group(f"### {title}", word, [base[name] for name in names]) for title, (word, names) in groups.items() if names]
    parts += [_algorithm(name) for name in known_algorithms()]
    return "\n".join([*parts, READ_BY_PLANS, OWN_CONFIG])


def _algorithm(name: str) -> str:
    """What an algorithm adds to the settings of the one it extends, or of all: new ones, those that say something else, other defaults."""
    config = find_algorithm(name).config_class()
    extended = config.__mro__[1]
    before = settings_of(extended)
    settings = settings_of(config).values()
    own = [setting for setting in settings if setting.name not in before or setting.text != before[setting.name].text]
    changed = [setting for setting in settings if setting not in own and setting.default != before[setting.name].default]
    defaults = ", ".join(f"`{setting.name}={setting.default!r}`" for setting in changed)
    words = [
        f"`fl.{config.__name__}`, `flowrl train {name}`.",
        "" if extended is AlgorithmConfig else f"All settings of `fl.{extended.__name__}`" + (", and these." if own else "."),
        f"Other defaults: {defaults}." if defaults else "",
    ]
    title = known_algorithms()[name].partition(":")[0]
    return _group(f"## {title}", " ".join(filter(None, words)), own)


def _group(title: str, word: str, settings: Sequence[Setting] | Iterable[Setting]) -> str:
    rows = [setting.row() for setting in settings]
    return "\n\n".join(part for part in (title, word, "\n".join([TABLE, *rows]) if rows else "") if part) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("configs.md").write_text(page())
