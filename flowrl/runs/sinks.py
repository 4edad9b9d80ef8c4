"""Where results go: a file of JSON lines, and TensorBoard's events. A sink takes results one by one and is closed at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from flowrl.runs.plain import plain, scalars

__all__ = ["ProgressLines", "Sink", "TensorBoardEvents"]


class Sink(Protocol):
    """Takes results."""

    def write(self, result: Mapping[str, Any]) -> None:
        """Take the next result; it is not changed."""

    def close(self) -> None:
        """No more will come."""


class ProgressLines:
    """Each result as a line of strict JSON, on disk before the next one is asked for."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("x", encoding="utf-8")

    def write(self, result: Mapping[str, Any]) -> None:
        """Write a line."""
        self._file.write(json.dumps(plain(result), allow_nan=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoardEvents:
    """Each finite number of a result as a scalar of TensorBoard, over the env steps sampled so far. For `tensorboard --logdir runs`."""

    def __init__(self, folder: Path) -> None:
        self._writer = EventFileWriter(str(folder))

    def write(self, result: Mapping[str, Any]) -> None:
        """Write its numbers, where TensorBoard sees them at once."""
        values = [Summary.Value(tag=tag, simple_value=number) for tag, number in scalars(result)]
        self._writer.add_event(Event(summary=Summary(value=values), step=int(result.get("num_steps_sampled", 0)), wall_time=time.time()))
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
