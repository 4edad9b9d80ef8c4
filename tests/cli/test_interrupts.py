"""Ctrl-C, by real signals."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from flowrl.cli.interrupts import Interrupts

ROOT = Path(__file__).resolve().parents[2]
OWN = ["train", "my.py", "--env", "my.py:Five"]


# --- in this process ---


def test_the_first_one_is_raised_where_it_is_allowed():
    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt), interrupts.allowed():
        signal.raise_signal(signal.SIGINT)
    assert interrupts.count == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_a_batch_system_or_a_closed_terminal_sends_is_the_same(number):
    before = signal.getsignal(number)
    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt), interrupts.allowed():
        signal.raise_signal(number)
    assert signal.getsignal(number) is before


def test_elsewhere_it_waits_until_it_is_allowed():
    seen = []
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        seen.append("a file is written to its end")
        with pytest.raises(KeyboardInterrupt), interrupts.allowed():
            seen.append("never")
    assert seen == ["a file is written to its end"]


def test_afterwards_ctrl_c_is_what_it_was_before():
    before = signal.getsignal(signal.SIGINT)
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_where_ctrl_c_is_ignored_it_stays_so(monkeypatch):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts, interrupts.allowed():
            signal.raise_signal(signal.SIGINT)
        assert interrupts.count == 0
    finally:
        signal.signal(signal.SIGINT, before)


# --- in a process of its own ---


def descendants_of(pid):
    """All processes below one."""
    children = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            children.setdefault(int(stat.read_text().rpartition(")")[2].split()[1]), []).append(int(stat.parent.name))
    found = [pid]
    for known in found:
        found += children.get(known, [])
    return found[1:]


def wait_until_gone(pids):
    """Wait for processes that nobody here is the parent of; a zombie is gone."""
    for pid in pids:
        with contextlib.suppress(OSError):
            while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                threading.Event().wait(0.05)


class Session:
    """A command in a session of its own, as a shell starts it: its Ctrl-C goes to every process in it."""

    def __init__(self, *arguments, stdout=subprocess.PIPE):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "flowrl", *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"},
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ctrl_c(self):
        os.killpg(self.process.pid, signal.SIGINT)

    def line_with(self, text):
        """The next line of its output with this text."""
        for line in self.process.stdout:
            if text in line:
                return line
        raise AssertionError(f"ended without {text!r}: {self.process.stderr.read()}")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


def is_complete(folder):
    names = {path.name for path in folder.iterdir()}
    curve, lines = folder / "curve.png", (folder / "progress.jsonl").read_text()
    return {"policy.safetensors", "policy.json", "config.json", "plan.svg"} <= names and curve.stat().st_size > 0 and lines.endswith("}\n")


@pytest.mark.parametrize("workers", ["0", "2"])
def test_ctrl_c_writes_all_files_and_leaves_no_process(workers, here):
    with Session(*OWN, "--workers", workers, "--run", "x") as session:
        session.line_with("steps/s")
        started = descendants_of(session.process.pid)
        session.ctrl_c()
        out, err = session.process.communicate(timeout=60)
        assert session.process.returncode == 130, err
    assert len(started) > 3 or workers == "0"  # Ray's own processes and the workers
    wait_until_gone(started)
    assert "stopped by Ctrl-C: a mean return of 5.0" in out
    assert "Traceback" not in err
    assert is_complete(here / "runs" / "x")


def test_a_second_ctrl_c_ends_it_at_once_and_gives_the_cursor_back(here):
    """The env's `close` never returns, so the run would never end by itself; on a terminal, with the live display."""
    ours, theirs = pty.openpty()
    with Session(*OWN, "--set", 'env_config={"never_closes": True}', "--run", "x", stdout=theirs) as session:
        os.close(theirs)
        seen = b""
        while b"env steps" not in seen:
            seen += os.read(ours, 10_000)
        session.ctrl_c()
        while b"closing" not in seen:
            seen += os.read(ours, 10_000)
        session.ctrl_c()
        assert session.process.wait(timeout=10) == 130
    with contextlib.suppress(OSError):  # all is read
        while True:
            seen += os.read(ours, 10_000)
    os.close(ours)
    assert seen.rindex(b"\x1b[?25h") > seen.rindex(b"\x1b[?25l")
    assert (here / "runs" / "x" / "policy.safetensors").exists()
    assert (here / "runs" / "x" / "progress.jsonl").read_text().endswith("}\n")
