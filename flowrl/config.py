"""What every algorithm can be told: the base of all configs. An algorithm's own settings are in its own file.

A config is plain data: it holds no env, no network and no engine, and importing it loads neither torch nor gymnasium.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import FrozenInstanceError, dataclass, fields, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self, dataclass_transform

import numpy as np

from flowrl.errors import ConfigError
from flowrl.references import find, is_reference, nearest, reference_to
from flowrl.schedules import Schedule, checked_schedule

if TYPE_CHECKING:
    from flowrl.iter.iterators import LocalIterator
    from flowrl.policy.policy import Policy

__all__ = ["AlgorithmConfig"]

ELSEWHERE = {
    "learning_rate": "lr",
    "n_envs": "num_envs",
    "n_steps": "rollout_fragment_length",
    "num_steps": "rollout_fragment_length",
    "n_epochs": "num_sgd_iter",
    "num_epochs": "num_sgd_iter",
    "update_epochs": "num_sgd_iter",
    "batch_size": "sgd_minibatch_size",
    "minibatch_size": "sgd_minibatch_size",
    "gae_lambda": "lambda_",
    "clip_range": "clip_param",
    "clip_coef": "clip_param",
    "ent_coef": "entropy_coeff",
    "vf_coef": "vf_loss_coeff",
    "max_grad_norm": "grad_clip",
    "net_arch": "hiddens",
    "target_kl": "max_kl",
}
"""What settings are called in Stable-Baselines3, in today's RLlib and in CleanRL."""
REFERENCES = ("env", "model", "before_learn_on_batch")
"""Settings that may be a class or function; a settings file names it "module:name" or "path/to/file.py:name"."""


class _Frozen:
    """What cannot be changed, and says what to do instead."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenInstanceError(f"a config never changes: config.replace({name}=...) gives a changed copy")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"a config never changes: {name!r} cannot be deleted")


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=False)
@dataclass(frozen=True, kw_only=True, eq=False)
class AlgorithmConfig(_Frozen, Mapping[str, Any]):
    """Settings of a run: a frozen dataclass, and a read-only mapping of its fields.

    >>> config = AlgorithmConfig(env="CartPole-v1", num_workers=2)
    >>> config.num_workers, config["gamma"], config.get("beta"), "lr" in config, config.engine_name
    (2, 0.99, None, True, 'ray')
    >>> config["num_worker"]
    Traceback (most recent call last):
    KeyError: "AlgorithmConfig has no setting 'num_worker'. Did you mean 'num_workers'?"

    A subclass is such a dataclass by itself: its annotated names are settings. It says which policy it trains by `make_policy` and
    with which plan by `make_plan`, and checks its own settings in `__post_init__` after `super().__post_init__()`. A setting that does
    not fit raises `ConfigError`, a ValueError.
    """

    env: str | Callable[[dict[str, Any]], Any] | None = None
    """A gymnasium id, or a class or function that makes an env from `env_config`."""
    env_config: Mapping[str, Any] | None = None
    """What the env is made with: keywords for a gymnasium id; for a class or function one dict, or keywords where it takes none
    (its first parameter has a default, as in gymnasium's classes). None: empty."""
    num_workers: int = 0
    """Workers that sample elsewhere; 0: the local worker samples."""
    num_envs: int = 1
    """Envs a worker, served by one forward pass."""
    resources_per_worker: Mapping[str, Any] | None = None
    """What each remote worker takes of the cluster, as for `ray.remote`: `{"num_cpus": 1}`. None: nothing."""
    engine: str | None = None
    """"serial" or "ray"; None: serial without workers, else Ray."""
    seed: int = 0
    """Of everything random: the same seed, the same run (plans with barriers only; times apart)."""
    rollout_fragment_length: int = 200
    """Env steps that one `sample()` takes in each env: a fragment holds `num_envs * rollout_fragment_length` rows."""
    train_batch_size: int = 4000
    """Rows of a train batch, at least."""
    gamma: float = 0.99
    """Discount a step."""
    lr: float = 3e-4
    """Learning rate."""
    lr_schedule: Schedule | None = None
    """Learning rate by env steps: points `(env steps, value)`, straight lines between them, the last value after them. None: `lr`."""
    hiddens: tuple[int, ...] = (64, 64)
    """Units of each hidden layer of the actor and of the critic."""
    conv_filters: tuple[tuple[int, int, int], ...] | None = None
    """Convolutions that read an image (an observation of three dimensions, also inside a Dict or Tuple) before the hidden layers: of each
    layer (filters, width of the kernel, stride). None: by its size, those of DQN (Mnih et al., 2015) from 36 x 36 on, else MinAtar's."""
    model: Callable[[Any, int], Any] | None = None
    """A network of your own in place of the two MLPs: a class or function `model(observation_space, num_outputs)` that makes an
    `nn.Module`, which gives `(outputs [N, num_outputs], values [N])` for float observations `[N, *shape]`. It is always in evaluation
    mode: dropout and batch normalisation act alike in sampling and learning."""
    observation_filter: str = "NoFilter"
    """"MeanStdFilter": the network sees observations with running mean 0 and standard deviation 1, cut at +-10; "NoFilter": as they are."""
    normalize_rewards: bool = False
    """Divide rewards by the running standard deviation of the discounted return, cut at +-10. Reported returns stay the env's own.
    DQN and Ape-X refuse it."""
    grad_clip: float | None = None
    """Highest global norm of a gradient; None: as it comes."""
    devices: tuple[str, ...] = ()
    """Devices that the learner splits each minibatch over, `("cuda:0", "cuda:1")` say; empty: where the policy is."""
    min_steps_per_reporting: int = 1000
    """Sampled env steps between two results, at least."""
    min_time_s_per_reporting: float = 0.0
    """Seconds between two results, at least."""
    metrics_num_episodes: int = 100
    """A result's episode statistics are those of so many last finished episodes."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        dataclass(frozen=True, kw_only=True, eq=False)(cls)
        # `_Frozen` does it; and a class that has these of its own could not be decorated once more by its author.
        for name in ("__setattr__", "__delattr__"):
            delattr(cls, name)

    def __new__(cls, *arguments: Any, **settings: Any) -> Self:
        if arguments:
            raise TypeError(f"{cls.__name__}({arguments[0]!r:.100}): settings are keywords, {cls.__name__}(env='CartPole-v1') say")
        for name in settings:
            if name not in cls.__dataclass_fields__:
                raise TypeError(cls._no_such(name))
        return super().__new__(cls)

    def __post_init__(self) -> None:
        units = "a tuple of numbers of units, each 1 or more"
        self.check_is("env", self.env is None or isinstance(self.env, str) or callable(self.env), "a gymnasium id, a class or a function")
        self.check_is("env_config", isinstance(self.env_config, Mapping | None), "a dict, or None for an empty one")
        self.check_is("engine", self.engine in (None, "serial", "ray"), '"serial", "ray" or None')
        self.check_is("hiddens", isinstance(self.hiddens, list | tuple), units)
        self.check_is("hiddens", all(_is_whole(width) and width > 0 for width in self.hiddens), units)
        names = 'a tuple of names of devices, ("cuda:0", "cuda:1") say'
        self._check_conv_filters()
        self.check_is("devices", isinstance(self.devices, list | tuple) and all(map(_is_device_name, self.devices)), names)
        self.check_is("resources_per_worker", isinstance(self.resources_per_worker, Mapping | None), "a dict as for ray.remote, or None")
        self.check_is("seed", not _is_whole(self.seed) or self.seed < 1 << 63, "a whole number below 2**63")
        object.__setattr__(self, "env_config", dict(self.env_config or {}))
        object.__setattr__(self, "devices", tuple(self.devices))
        object.__setattr__(self, "hiddens", tuple(int(width) for width in self.hiddens))
        for name in ("num_workers", "seed", "min_steps_per_reporting"):
            self.check_whole(name, least=0)
        for name in ("num_envs", "rollout_fragment_length", "train_batch_size", "metrics_num_episodes"):
            self.check_whole(name, least=1)
        self.check_number("gamma", 0.0, 1.0)
        self.check_number("lr", 0.0)
        self.check_schedule("lr_schedule", 0.0)
        self.check_is("model", self.model is None or callable(self.model), "a class or function `model(observation_space, num_outputs)`")
        self.check_is("observation_filter", self.observation_filter in ("NoFilter", "MeanStdFilter"), '"NoFilter" or "MeanStdFilter"')
        self.check_is("normalize_rewards", isinstance(self.normalize_rewards, bool), "true or false")
        self.check_number("min_time_s_per_reporting", 0.0)
        if self.grad_clip is not None:
            self.check_number("grad_clip", 0.0)
            self.check_is("grad_clip", self.grad_clip > 0, "more than 0, or None for no clipping")

    @property
    def engine_name(self) -> str:
        """The engine that the config asks for: `engine`, else "serial" without workers and "ray" with some."""
        return self.engine or ("ray" if self.num_workers else "serial")

    @property
    def fragment_rows(self) -> int:
        """Rows of a fragment: `num_envs * rollout_fragment_length`."""
        return self.num_envs * self.rollout_fragment_length

    @property
    def round_rows(self) -> int:
        """Rows of a round, one fragment of each worker (without workers, of the local one): `max(1, num_workers) * fragment_rows`."""
        return max(1, self.num_workers) * self.fragment_rows

    def make_policy(self, observation_space: Any, action_space: Any, seed: np.random.SeedSequence) -> Policy:
        """The policy to train. Its initial weights come from the config's own seed, its random choices from `seed`, a worker's own."""
        raise NotImplementedError(f"{type(self).__name__} names no policy: define make_policy(observation_space, action_space, seed) in it")

    def make_plan(self, workers: Any) -> LocalIterator[Any]:
        """The algorithm's plan over these workers, as `execution_plan(workers, config)` gives it."""
        raise NotImplementedError(
            f"{type(self).__name__} names no plan: pass build(execution_plan=...), or define make_plan(self, workers) in it"
        )

    def build(self, execution_plan: Callable[[Any, Any], Any] | None = None) -> Any:
        """A `flowrl.trainer.Trainer` of this config's plan, or of `execution_plan(workers, config)`. Nothing starts until it trains."""
        return import_module("flowrl.trainer").Trainer(self, execution_plan)

    def replace(self, **changes: Any) -> Self:
        """A config with these settings changed, checked again."""
        for name in changes:
            if name not in self.__dataclass_fields__:
                raise TypeError(self._no_such(name))
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """The settings as JSON can hold them; an env or model class or function becomes "module:name" or "file.py:name"."""
        return {name: _plain(value) for name, value in self.items()}

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """The config of these settings, as `to_dict` gives them: a text in `env` or `model` that names a class or function becomes it.

        >>> AlgorithmConfig.from_dict({"env": "CartPole-v1", "hiddens": [32]}).hiddens
        (32,)
        >>> AlgorithmConfig.from_dict({"lrr": 1e-3})
        Traceback (most recent call last):
        flowrl.errors.ConfigError: AlgorithmConfig has no setting 'lrr'. Did you mean 'lr'?
        """
        for name in settings:
            if name not in cls.__dataclass_fields__:
                raise ConfigError(cls._no_such(name))
        named = {name: _found(settings[name]) for name in REFERENCES if name in settings}
        whole = {
            name: int(value)  # 1e5 in a settings file
            for name, value in settings.items()
            if isinstance(value, float) and value.is_integer() and cls.__dataclass_fields__[name].type in ("int", int)
        }
        return cls(**{**settings, **named, **whole})

    def _check_conv_filters(self) -> None:
        filters = self.conv_filters
        if filters is None:
            return
        are_layers = isinstance(filters, list | tuple) and len(filters) > 0 and all(isinstance(layer, list | tuple) for layer in filters)
        fits = are_layers and all(len(layer) == 3 and all(_is_whole(number) and number > 0 for number in layer) for layer in filters)
        self.check_is("conv_filters", fits, "layers (filters, width of the kernel, stride): ((16, 3, 1), (32, 3, 2)), say; or None")
        object.__setattr__(self, "conv_filters", tuple(tuple(int(number) for number in layer) for layer in filters))

    def check_is(self, name: str, fits: bool, expected: str) -> None:
        """Raise ConfigError where a setting does not fit: the value got, and what was expected."""
        if not fits:
            raise ConfigError(f"{name}={getattr(self, name)!r}: expected {expected}")

    def check_whole(self, name: str, least: int) -> None:
        """The setting has to be a whole number, `least` or more."""
        value = getattr(self, name)
        self.check_is(name, _is_whole(value) and bool(value >= least), f"a whole number, {least} or more")

    def check_number(self, name: str, least: float, most: float = math.inf) -> None:
        """The setting has to be a finite number from `least` to `most`."""
        value = getattr(self, name)
        is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool) and math.isfinite(value)
        expected = f"a number from {least} to {most}" if most < math.inf else f"a finite number, {least} or more"
        self.check_is(name, is_number and bool(least <= value <= most), expected)

    def check_schedule(self, name: str, least: float, most: float = math.inf) -> None:
        """The setting has to be None, or points (env steps, value) in rising order of steps with values from `least` to `most`."""
        points = getattr(self, name)
        if points is not None:
            schedule = checked_schedule(points)
            fits = schedule is not None and all(least <= value <= most for _, value in schedule)
            limit = f"from {least} to {most}" if most < math.inf else f"of {least} or more"
            self.check_is(
                name, fits, f"points (env steps, value) in rising order of steps, values {limit}: ((0, 1e-3), (100_000, 0.0)), say"
            )
            object.__setattr__(self, name, schedule)

    def __getitem__(self, name: str) -> Any:
        if name in self.__dataclass_fields__:
            return getattr(self, name)
        raise KeyError(self._no_such(name))

    def __iter__(self) -> Iterator[str]:
        return (field.name for field in fields(self))

    def __len__(self) -> int:
        return len(fields(self))

    @classmethod
    def _no_such(cls, name: str) -> str:
        same = ELSEWHERE.get(str(name))
        hint = f"It is called {same!r} here." if same in cls.__dataclass_fields__ else nearest(str(name), list(cls.__dataclass_fields__))
        return f"{cls.__name__} has no setting {name!r}. {hint}"


for _name in ("__setattr__", "__delattr__"):
    delattr(AlgorithmConfig, _name)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_device_name(value: Any) -> bool:
    """Whether it reads like one. Only the worker that learns knows whether there is such a device: this module loads no torch."""
    return isinstance(value, str) and re.fullmatch(r"[a-z]+(:\d+)?", value) is not None


def _found(value: Any) -> Any:
    """What a text names: the class or function of "module:name"; any other text (a gymnasium id, "module:Id-v0" too) stays."""
    if isinstance(value, str) and ":" in value and "<" in value:
        raise ConfigError(f"{value!r} cannot be found again: name a class or function at the top of a module or file")
    return find(value) if isinstance(value, str) and (is_reference(value) or ".py:" in value) else value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if value is None or isinstance(value, str | int | float):
        return value
    if callable(value) and hasattr(value, "__qualname__"):
        return reference_to(value)
    return repr(value)
