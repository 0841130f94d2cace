"""A grid whose whole tree of processes is killed: started again, it makes what is missing, and the end is the same."""

import itertools
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from recorded import record

from comad import envs, streams
from comad.datasets import library
from comad.files import sha256
from comad.runs.standing import look

UPDATES = 300
OPTIONS = (
    f"--streams lbf --qualities random --methods ft owl --seeds 0 --updates {UPDATES} --evaluations 3 --episodes 4 --batch 4 --at-once 1"
)
RUNS = ("ft-seed0", "owl-seed0")


def start(folder: Path, out: str) -> "subprocess.Popen[str]":
    arguments = ["bench", "grid", *OPTIONS.split(), "--data", str(folder / "data"), "--out", str(folder / out)]
    environment = {**os.environ, "COMAD_CACHE": str(folder / "cache"), "COLUMNS": "200"}
    return subprocess.Popen([sys.executable, "-m", "comad", *arguments], env=environment, stdout=subprocess.PIPE, text=True)


def table(process: "subprocess.Popen[str]") -> list[str]:
    """The rows of the final table, without where it lies."""
    out, _ = process.communicate()
    assert process.returncode == 0
    return [line for line in out.splitlines() if line.startswith("│")]


def contents(folder: Path) -> dict[str, str]:
    return {path.name: sha256(path) for path in sorted(folder.glob("*.jsonl"))}


def finished(run: Path) -> bool:
    standing = look(run)
    return standing is not None and standing.finished


def kill_tree(process: int) -> None:
    """Kill a process before those that it started, so that it can neither do anything about them nor start another."""
    with suppress(ProcessLookupError, FileNotFoundError):  # it may have ended by itself
        os.kill(process, signal.SIGSTOP)
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        os.kill(process, signal.SIGKILL)
        for child in children:
            kill_tree(int(child))


@pytest.mark.slow
@pytest.mark.promise("killed-grid")
def test_no_finished_run_is_made_again_and_the_table_is_the_same(tmp_path: Path) -> None:
    for task in streams.find("lbf").tasks:
        record(library.place(task.env, "random", tmp_path / "data"), envs.make(task.env))
    whole = table(start(tmp_path, "whole"))

    for out in (f"killed{number}" for number in itertools.count()):
        first, second = (tmp_path / out / "lbf-random" / name for name in RUNS)
        killed = start(tmp_path, out)
        while killed.poll() is None and not ((standing := look(second)) and standing.done > UPDATES):
            time.sleep(0.05)
        kill_tree(killed.pid)
        killed.communicate()
        if killed.returncode == -signal.SIGKILL and not finished(second):
            break  # else it was quicker than the look at it: once more
    before = {path: path.stat().st_mtime_ns for path in first.rglob("*") if path.name != "lock"}

    assert table(start(tmp_path, out)) == whole
    assert {path: path.stat().st_mtime_ns for path in first.rglob("*") if path.name != "lock"} == before
    for name in RUNS:
        assert contents(tmp_path / out / "lbf-random" / name) == contents(tmp_path / "whole" / "lbf-random" / name)
