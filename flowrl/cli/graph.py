"""`flowrl graph`: a plan as a picture or as text. Nothing is started."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flowrl.errors import ConfigError, PlanError
from flowrl.runs.settings import RunSettings

__all__ = ["graph"]


def graph(algorithm: str | None, config: str | None, changes: Mapping[str, Any], output: Path | None) -> int:
    """Draw the plan with these settings into a file, or print it; the exit code."""
    settings = RunSettings.resolve(algorithm, config, changes)
    plan = settings.config.build(settings.algorithm.plan).plan
    if output is None:
        plan.check()
        print(plan.explain())
        return 0
    try:
        print(f"{settings.algorithm.name} is drawn in {plan.draw(output)}")
    except PlanError:
        raise
    except ValueError as error:  # a suffix that no picture has
        raise ConfigError(str(error)) from None
    except OSError as error:
        raise ConfigError(f"cannot write {output}: {error.strerror or error}") from None
    return 0
