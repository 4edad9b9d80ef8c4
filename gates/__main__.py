"""`python -m gates [ROW ...]`: measures what is not measured yet, writes docs/results.md, and fails where a row does."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from gates.page import page, verdict
from gates.records import ROOT, Outcome, commit, holds, machine, read, settings_key, source_key, versions, write
from gates.table import ROWS, Row

__all__ = ["main"]


class Job(NamedTuple):
    """One row with one seed, to be measured."""

    row: Row
    seed: int


class Measuring:
    """Runs jobs in processes of their own, so many at once, one thread each; leaving the block ends those that still run.

    Those of asynchronous plans come last, one at a time: each is several processes by itself.
    """

    def __init__(self, num_processes: int) -> None:
        self.pool, self.alone = ThreadPoolExecutor(num_processes), ThreadPoolExecutor(1)
        self.processes: list[subprocess.Popen[str]] = []

    def outcomes(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Outcome | str]]:
        """Each job with its outcome, or with what went wrong, as they finish."""
        for pool, are_asynchronous in ((self.pool, False), (self.alone, True)):
            futures = {pool.submit(self._run, job): job for job in jobs if job.row.is_asynchronous == are_asynchronous}
            for future in as_completed(futures):
                yield futures[future], future.result()

    def _run(self, job: Job) -> Outcome | str:
        command = [sys.executable, "-m", "gates.measuring", job.row.settings, job.row.score, str(job.seed)]
        # In a session of its own, so that Ctrl-C comes to this process, which then ends it.
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self.processes.append(process)
        out, errors = process.communicate()
        # Before it there may be what Ray's workers print.
        outcome: Outcome = json.loads(out.splitlines()[-1]) if process.returncode == 0 else {}
        return outcome or errors

    def __enter__(self) -> Measuring:
        return self

    def __exit__(self, *error: object) -> None:
        for pool in (self.pool, self.alone):
            pool.shutdown(wait=False, cancel_futures=True)
        for process in self.processes:
            process.terminate()
            process.wait()


def main(arguments: Sequence[str], rows: Sequence[Row] = ROWS) -> int:
    """What the command line asks for; 0 where all rows asked for pass, else 1."""
    asked = _asked(arguments, rows)
    chosen = [row for row in rows if row.name in asked.rows] if asked.rows else list(rows)
    went_wrong = [] if asked.rewrite else measure_missing(chosen, asked.results, asked.processes)
    outcomes = read(asked.results)
    asked.page.write_text(page(rows, outcomes))
    verdicts = {row.name: verdict(row, outcomes) for row in chosen}
    for name, said in verdicts.items():
        print(f"{name}: {said}")
    print(f"written: {asked.page}")
    return int(bool(went_wrong) or (not asked.rewrite and set(verdicts.values()) != {"passed"}))


def measure_missing(rows: Sequence[Row], results: Path, num_processes: int) -> list[str]:
    """Measure each row and seed that has no outcome that holds; each is kept as soon as it is there. What went wrong."""
    outcomes = read(results)
    same = {"source_key": source_key(), "versions": versions()}
    keys = {row.name: settings_key(ROOT / row.settings) for row in rows}
    missing = [
        Job(row, seed)
        for row in rows
        for seed in row.seeds
        if not holds(outcomes.get((row.name, seed)), {**same, "settings_key": keys[row.name]})
    ]
    print(f"{len(missing)} to measure, {sum(len(row.seeds) for row in rows) - len(missing)} kept from before", flush=True)
    more = {"commit": commit(), "date": time.strftime("%Y-%m-%d"), "machine": machine(), **same}
    went_wrong = []
    with Measuring(num_processes) as measuring:
        for (row, seed), outcome in measuring.outcomes(missing):
            if isinstance(outcome, str):
                went_wrong.append(outcome)
                print(f"{row.name} seed {seed} went wrong:\n{outcome}", flush=True)
                continue
            outcomes[row.name, seed] = {"row": row.name, "seed": seed, **outcome, "settings_key": keys[row.name], **more}
            write(results, outcomes)
            print(_told(row, outcomes[row.name, seed]), flush=True)
    return went_wrong


def _told(row: Row, outcome: Outcome) -> str:
    score, steps, wall_s = outcome["score"], outcome["num_steps_sampled"], outcome["wall_s"]
    ending = "" if row.reaches(score, row.each) else f" FAILED: {row.bar}"
    return f"{row.name} seed {outcome['seed']}: {row.shown(score)} after {steps:,} env steps, {wall_s:.0f} s{ending}"


def _asked(arguments: Sequence[str], rows: Sequence[Row]) -> Any:
    names = [row.name for row in rows]
    parser = argparse.ArgumentParser(prog="python -m gates", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"only these: {', '.join(names)}")
    parser.add_argument("--rewrite", action="store_true", help="only write the page, from what is there")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), metavar="N", help="so many at once; without: one a core")
    parser.add_argument("--results", type=Path, default=ROOT / "gates/results.jsonl", help="where outcomes are kept")
    parser.add_argument("--page", type=Path, default=ROOT / "docs/results.md", help="what is written")
    asked = parser.parse_args(arguments)
    if unknown := [name for name in asked.rows if name not in names]:
        parser.error(f"no row {', '.join(unknown)}; there is {', '.join(names)}")
    return asked


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("\ninterrupted: what was measured is kept, the same command goes on from there")
        sys.exit(130)
