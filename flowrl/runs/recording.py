"""All files of one run: settings and picture when it begins, each result as it comes, the curve when it is over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from flowrl.runs.curve import CurveFile
from flowrl.runs.folder import RunFolder
from flowrl.runs.settings import RunSettings
from flowrl.runs.sinks import ProgressLines, Sink, TensorBoardEvents

__all__ = ["Recording"]


class Recording:
    """Writes a run into its folder: `with Recording(folder, settings, plan) as recording: recording.write(result)`.

    However the block is left, the files are complete: each result that was written is in them.
    """

    def __init__(self, folder: RunFolder, settings: RunSettings, plan: Any) -> None:
        self.folder = folder
        self.last: Mapping[str, Any] | None = None
        folder.config.write_text(json.dumps(settings.to_dict(), indent=2, allow_nan=False) + "\n", encoding="utf-8")
        plan.draw(folder.plan)
        label = f"mean of the last {settings.config.metrics_num_episodes} episodes (band: lowest to highest)"
        title = f"{settings.algorithm.short_name} on {settings.env_name}"
        self._sinks: list[Sink] = [
            ProgressLines(folder.progress),
            TensorBoardEvents(folder.path),
            CurveFile(folder.curve, title, label, settings.stop.mean_return),
        ]

    def write(self, result: Mapping[str, Any]) -> None:
        """Write the next result everywhere."""
        self.last = result
        for sink in self._sinks:
            sink.write(result)

    def close(self) -> None:
        """Complete every file, also where one fails."""
        errors: list[Exception] = []
        for sink in self._sinks:
            try:
                sink.close()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
