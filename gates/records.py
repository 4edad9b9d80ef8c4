"""What was measured, kept: one JSON line for each row and seed, and what has to be the same for it to hold still."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

__all__ = ["Outcome", "Outcomes", "commit", "holds", "machine", "read", "settings_key", "source_key", "versions", "write"]

Outcome: TypeAlias = Mapping[str, Any]
Outcomes: TypeAlias = dict[tuple[str, int], Outcome]
"""By row and seed."""

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("flowrl/**/*.py", "tests/envs.py", "gates/measuring.py", "gates/scores.py")
"""What decides an outcome, beside settings and versions."""
WRITTEN = ("docs/results.md", "gates/results.jsonl")
"""What the program itself writes: it makes no tree dirty."""
PACKAGES = ("gymnasium", "numpy", "ray", "torch")


def read(path: Path) -> Outcomes:
    """The outcomes in a file; none where there is no file."""
    lines = path.read_text().splitlines() if path.exists() else []
    outcomes = [json.loads(line) for line in lines]
    return {(outcome["row"], outcome["seed"]): outcome for outcome in outcomes}


def write(path: Path, outcomes: Outcomes) -> None:
    """The outcomes as a file, in one go: a kill leaves the file before or the file after."""
    lines = [json.dumps(outcome) + "\n" for _, outcome in sorted(outcomes.items())]
    new = path.with_suffix(".new")
    new.write_text("".join(lines))
    new.replace(path)


def holds(outcome: Outcome | None, now: Mapping[str, Any]) -> bool:
    """Whether an outcome is of these settings, this source and these versions, so that measuring again would only repeat it."""
    return outcome is not None and all(outcome[name] == now[name] for name in ("settings_key", "source_key", "versions"))


def settings_key(settings: Path) -> str:
    """A short hash of what a settings file says, however it is laid out."""
    return _hash([json.dumps(json.loads(settings.read_text()), sort_keys=True).encode()])


def source_key() -> str:
    """A short hash of the code that decides an outcome."""
    paths = sorted(path for pattern in SOURCES for path in ROOT.glob(pattern))
    return _hash(part for path in paths for part in (path.relative_to(ROOT).as_posix().encode(), path.read_bytes()))


def versions() -> dict[str, str]:
    """Of Python and of the packages that an outcome depends on."""
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def machine() -> str:
    """The processor and its cores."""
    info = Path("/proc/cpuinfo")
    names = (
        [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    )
    return f"{os.cpu_count()} cores of {names[0] if names else platform.machine()}, {platform.system()}"


def commit() -> str:
    """The commit of the working tree, with a "+" where something in it is not committed."""
    changes = _git("status", "--porcelain", "--", ".", *(f":!{path}" for path in WRITTEN))
    return _git("rev-parse", "--short", "HEAD") + ("+" if changes else "")


def _git(*args: str) -> str:
    return subprocess.run(["git", *args], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def _hash(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:12]
