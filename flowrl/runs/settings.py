"""A run's settings as one flat JSON object, the same in a settings file, on a command line and in a run's config.json."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flowrl.config import AlgorithmConfig
from flowrl.errors import ConfigError
from flowrl.references import find, is_reference, load_module, nearest, reference_to
from flowrl.runs.algorithms import Algorithm, find_algorithm, only_config_class, plan_of
from flowrl.runs.plain import plain
from flowrl.runs.stopping import StopConditions

__all__ = ["RESERVED", "RunSettings", "read_settings"]

RESERVED = ("algorithm", "config", "stop_return", "stop_steps")
"""What a settings file holds beside the fields of the config."""


@dataclass(frozen=True)
class RunSettings:
    """Which plan, with which config, until when."""

    algorithm: Algorithm
    config: AlgorithmConfig
    stop: StopConditions

    @property
    def env_name(self) -> str:
        """What the env is called: its gymnasium id, or its class's or function's name."""
        env = self.config.env
        return env if isinstance(env, str) else str(getattr(env, "__name__", type(env).__name__))

    @classmethod
    def resolve(cls, algorithm: str | None, config: str | None, changes: Mapping[str, Any]) -> RunSettings:
        """From what was asked for: an algorithm, where its settings are ("file.json", "file.py:MyConfig") and changes to them."""
        settings: dict[str, Any] = {}
        config_class: type[AlgorithmConfig] | None = None
        if config is not None and _names_code(config):
            config_class, settings = _from_code(config)
            algorithm = algorithm or plan_of(config_class, config if config.endswith(".py") else config.rpartition(":")[0])
        elif config is not None:
            settings = read_settings(Path(config))
        asked = {} if algorithm is None else {"algorithm": algorithm}
        return cls.from_dict({**settings, **changes, **asked}, config_class)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any], config_class: type[AlgorithmConfig] | None = None) -> RunSettings:
        """From one flat mapping, as `to_dict` gives it."""
        name, config, stop_return, stop_steps = (settings.get(key) for key in RESERVED)
        if name is None:
            raise ConfigError('which algorithm? Name one: "ppo", or file.py:execution_plan (`flowrl list` shows what there is)')
        algorithm = find_algorithm(_text("algorithm", name))
        if config_class is None:
            config_class = _config_class(_text("config", config)) if config is not None else algorithm.config_class()
        fields = {key: value for key, value in settings.items() if key not in RESERVED}
        _check_names(config_class, fields)
        stop = StopConditions(_number("stop_return", stop_return), _whole("stop_steps", stop_steps))
        return cls(algorithm, config_class.from_dict(fields), stop)

    def to_dict(self) -> dict[str, Any]:
        """One flat mapping that JSON can hold, and that gives the same run again."""
        own = {} if self.algorithm.is_prebuilt and type(self.config).__module__ == self.algorithm.module.__name__ else self._own_class()
        stop = {"stop_return": self.stop.mean_return, "stop_steps": self.stop.steps}
        given = {name: value for name, value in stop.items() if value is not None}
        return {"algorithm": self.algorithm.name, **own, **given, **plain(self.config.to_dict())}

    def _own_class(self) -> dict[str, str]:
        return {"config": reference_to(type(self.config))}


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a JSON file, or in the config.json of a run's folder."""
    path = path / "config.json" if path.is_dir() else path
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        like = path.parent.glob("*.json") if path.parent.is_dir() else path.parent.parent.glob(f"*/{path.name}")
        beside = sorted(map(str, like))
        raise ConfigError(f"there is no settings file {path}.{' ' + nearest(str(path), beside) if beside else ''}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}: not JSON, {error.msg} at column {error.colno}") from None
    if not isinstance(settings, dict):
        raise ConfigError(f"{path}: expected one JSON object of settings, got {type(settings).__name__}")
    return settings


def _names_code(config: str) -> bool:
    if config.endswith(".py") or Path(config).exists():
        return config.endswith(".py")
    return not config.endswith(".json") and (is_reference(config) or ".py:" in config)


def _from_code(config: str) -> tuple[type[AlgorithmConfig], dict[str, Any]]:
    """The class and the settings that "file.py:MyConfig", "file.py:my_config" (an instance) or "file.py" stands for."""
    if config.endswith(".py"):
        return only_config_class(load_module(config), config), {}
    found = find(config)
    if isinstance(found, AlgorithmConfig):
        return type(found), dict(found)
    return _config_class(config), {}


def _config_class(reference: str) -> type[AlgorithmConfig]:
    found = find(reference)
    if isinstance(found, type) and issubclass(found, AlgorithmConfig):
        return found
    raise ConfigError(f"{reference} is no config: expected a subclass of AlgorithmConfig, or an instance of one")


def _check_names(config_class: type[AlgorithmConfig], fields: Mapping[str, Any]) -> None:
    for name in fields:
        if name not in config_class.__dataclass_fields__ and (near := difflib.get_close_matches(name, RESERVED, n=1, cutoff=0.8)):
            raise ConfigError(f"{config_class.__name__} has no setting {name!r}. Did you mean {near[0]!r}?")


def _text(name: str, value: Any) -> str:
    if isinstance(value, str) and value:
        return value
    raise ConfigError(f"{name}={value!r}: expected a text")


def _number(name: str, value: Any) -> float | None:
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)):
        return value
    raise ConfigError(f"{name}={value!r}: expected a finite number")


def _whole(name: str, value: Any) -> int | None:
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and value >= 1 and float(value).is_integer()):
        return None if value is None else int(value)
    raise ConfigError(f"{name}={value!r}: expected a whole number, 1 or more")
