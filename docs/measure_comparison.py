"""Runs the snippets of comparison.md with seeds 0, 1, 2, one library after another in turn, and writes the table of what they took.

    python docs/measure_comparison.py --sb3 PYTHON --rllib PYTHON --peers benchmarks/peers

`PYTHON` is an interpreter that has that library; flowrl's is this one. CPU seconds are those of the training process from the line
that begins training to its end, with one thread of torch: they hardly depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).with_name("comparison.md")
TABLE = re.compile(r"<!-- measured -->.*?<!-- end -->", re.DOTALL)
SEEDS = (0, 1, 2)
LIMIT_S = 120
MOST_STEPS = 100_000


class Peer(NamedTuple):
    """A library on the page: the line that begins training, where its steps are read, the distributions whose versions count."""

    title: str
    begins: str
    steps: str
    versions: Sequence[str]


PEERS = {
    "sb3": Peer("Stable-Baselines3", "model.learn(", "model.num_timesteps", ("stable-baselines3", "torch", "gymnasium")),
    "rllib": Peer("RLlib", "algo = ", "steps", ("ray", "torch", "gymnasium")),
    "flowrl": Peer("flowrl", "with config.build()", "trainer.last_result['num_steps_sampled']", ("flowrl-dataflow", "torch", "gymnasium")),
}
CLEANRL = shlex.split(
    "--envs 8 --steps 32 --epochs 20 --mb 1 --lr 1e-3 --gamma .98 --lam .8 --ent 0 --anneal 100000 --target 475 --max 110 --seed"
)


def snippet(title: str) -> str:
    """The code below a library's name."""
    section = PAGE.read_text().split(f"**{title}**")[1].split("\n**")[0]
    return "\n".join(re.findall(r"^```py(?:thon)?\n(.*?)^```", section, re.DOTALL | re.MULTILINE))


def script(peer: Peer, seed: int) -> str:
    """The snippet with this seed, which prints what it took."""
    code = snippet(peer.title).replace("seed=0", f"seed={seed}")
    begin = code.index(f"\n{peer.begins}") + 1
    versions = "{name: version(name) for name in " + repr(tuple(peer.versions)) + "}"
    return "\n".join(
        [
            "import json, time\nfrom importlib.metadata import version\nimport torch\ntorch.set_num_threads(1)",
            code[:begin],
            "began = time.process_time()",
            code[begin:],
            f"print(json.dumps({{'steps': int({peer.steps}), 'cpu_s': time.process_time() - began, 'versions': {versions}}}))",
        ]
    )


def run(command: Sequence[str], folder: str) -> dict[str, object]:
    """The last line that a command prints, as JSON."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "BENCH_OUT": folder}
    done = subprocess.run(["nice", "-n", "10", *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode:
        raise SystemExit(done.stderr)
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def table(took: dict[str, list[dict[str, object]]]) -> str:
    """What each took, in Markdown."""
    rows = ["| | env steps to 475, seeds 0, 1, 2 | CPU seconds, median |", "| --- | --- | --- |"]
    for name, runs in took.items():
        steps = ", ".join(f"{run['steps']:,}" if run["steps"] < MOST_STEPS else "not reached" for run in runs)  # type: ignore[operator]
        seconds = [run["cpu_s"] for run in runs if run["cpu_s"] is not None]
        rows.append(f"| {name} | {steps} | {f'{statistics.median(seconds):.0f}' if seconds else '-'} |")  # type: ignore[type-var]
    return "\n".join(rows)


def main() -> None:
    """Measure, and write the table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    for name in ("sb3", "rllib", "peers"):
        arguments.add_argument(f"--{name}", required=True)
    given = arguments.parse_args()
    pythons = {"sb3": given.sb3, "rllib": given.rllib, "flowrl": sys.executable}
    took: dict[str, list[dict[str, object]]] = {}
    versions: dict[str, object] = {}
    for seed in SEEDS:
        for name, peer in PEERS.items():
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "snippet.py").write_text(script(peer, seed))
                result = run([pythons[name], "snippet.py"], folder)
            took.setdefault(peer.title, []).append(result)
            versions[peer.title] = result["versions"]
        with tempfile.TemporaryDirectory() as folder:
            file = str(Path(given.peers, "peer_cleanrl.py").resolve())
            result = run([given.sb3, file, *CLEANRL, str(seed)], folder)
        took.setdefault("a file after CleanRL's", []).append({"steps": result["steps"], "cpu_s": None})
    said = "; ".join(f"{name}: " + ", ".join(f"{key} {value}" for key, value in known.items()) for name, known in versions.items())  # type: ignore[attr-defined]
    machine = f"Python {platform.python_version()}, {os.cpu_count()} cores ({platform.machine()}), one thread of torch"
    about = f"{datetime.date.today()}, {machine}. {said}."
    PAGE.write_text(TABLE.sub(lambda _: f"<!-- measured -->\n{table(took)}\n\n{about}\n<!-- end -->", PAGE.read_text()))


if __name__ == "__main__":
    main()
