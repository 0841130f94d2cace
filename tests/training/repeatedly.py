"""Kills a real training again and again, each time going on from what is there. Run as a program.

The program imports everything once and copies itself for every launch, which saves the time of importing; JAX starts afresh in every copy.
Prints, as JSON, how many launches were killed, how many of them had saved something by then, and whether the end is that of a run in peace.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from comad.cli import main as comad
from comad.files import sha256
from comad.runs import checkpoints

OPTIONS = ["--quality", "random", "--updates", "300", "--evaluations", "6", "--episodes", "4", "--batch", "4", "--cores", "1"]


def launch(arguments: list[str]) -> int:
    """Starts a training in a copy of this process; returns its process number."""
    child = os.fork()
    if child == 0:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        os._exit(comad(arguments))
    return child


def ended(child: int, seconds: float) -> bool:
    """Whether a training ends by itself within so many seconds; it must end well."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            assert os.waitstatus_to_exitcode(status) == 0
            return True
        time.sleep(0.01)
    return False


def final(folder: Path) -> dict[str, str]:
    """The bytes that a run ends in."""
    found, skipped = checkpoints.newest(folder)
    assert found is not None and skipped == {} and not (folder / "set-aside").exists()
    names = ("scores.jsonl", "heads.jsonl", "logs.jsonl", "seal.json", "settings.json")
    return {path.name: sha256(path) for path in (found.path, *(folder / name for name in names))}


def main(method: str, folder: Path, kills: int, seed: int, tasks: list[str]) -> dict[str, object]:
    """Trains once in peace, then so that it is killed so many times in all."""

    def arguments(name: str) -> list[str]:
        return ["train", method, "--tasks", *tasks, *OPTIONS, "--data", str(folder / "data"), "--out", str(folder / name)]

    for name in ("warm", "whole"):  # the first fills the cache of compiled programs
        begun = time.monotonic()
        assert ended(launch(arguments(name)), 600.0)
    whole, moments, killed, saved, runs = time.monotonic() - begun, random.Random(seed), 0, 0, 0
    wanted = final(folder / "whole")
    while killed < kills:
        name = f"killed{runs}"
        child = launch(arguments(name))
        if ended(child, moments.uniform(0.2, 1.0) * whole):
            assert final(folder / name) == wanted, name
            runs += 1
            continue
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        killed += 1
        saved += any((folder / name / "checkpoints").glob("*.json"))
    assert ended(launch(arguments(name)), 600.0)
    return {"killed": killed, "saved": saved, "runs": runs + 1, "same": final(folder / name) == wanted, "seconds": whole}


if __name__ == "__main__":
    method, folder, kills, seed, *tasks = sys.argv[1:]
    sys.stdout.write(json.dumps(main(method, Path(folder), int(kills), int(seed), tasks)) + "\n")
