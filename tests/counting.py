"""A training that only counts, yet whose every state depends on all before it. Run as a script, it is what tests kill."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from comad.failpoints import VARIABLE
from comad.runs.run import Run, open_run

PROJECT = Path(__file__).parents[1]
STEPS, EVERY, MILESTONE = 14, 2, 4
SETTINGS: dict[str, Any] = {"identity": {"steps": STEPS, "seed": 0}, "libraries": {"counting": "1.0"}}


def train(folder: Path, until: int = STEPS, fresh: bool = False) -> tuple[int, dict[str, str]]:
    """Count to the end, or stop in the middle as if killed; tells where it began and which checkpoints it could not rely on."""
    with open_run(folder, SETTINGS, fresh=fresh) as run:
        found = run.resume()
        began = found.position if found else 0
        state = found.path.read_bytes() if found else b"nothing"
        for step in range(began + 1, until + 1):
            state = hashlib.sha256(state + bytes([step])).digest()
            run.append("logs", {"step": step, "loss": state[0] / 7})
            run.append("scores", {"step": step, "score": state.hex()})
            if step % 5 == 0:
                run.append("heads", {"step": step, "name": "Kopf für Übergänge"})
            if step % EVERY == 0:
                _save(run, step, state)
        return began, run.skipped


def train_in_process(folder: Path, failpoint: str, *options: str) -> int:
    """The same in a process of its own, which dies at a failpoint; tells its exit code."""
    # Without installed packages (-S) it starts in half the time: a run needs none.
    command = [sys.executable, "-S", __file__, str(folder), *options]
    environment = {**os.environ, VARIABLE: failpoint, "PYTHONPATH": str(PROJECT)}
    return subprocess.run(command, env=environment, check=False).returncode


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a run but its lock, which names a process."""
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "lock"
    }


def put(folder: Path, files: dict[str, bytes]) -> None:
    """The reverse of ``content``."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def commits(files: dict[str, bytes]) -> dict[int, str]:
    """The committed checkpoints among the files of a run, oldest first."""
    return {int(Path(name).stem): name for name in sorted(files) if name.startswith("checkpoints/") and name.endswith(".json")}


def no_sync(fd: object) -> None:
    """In place of ``os.fsync``: what a killed process has written is there without, and tests need not wait for the disk."""


def _save(run: Run, step: int, state: bytes) -> None:
    run.save(step, lambda path: path.write_bytes(state), milestone=step % MILESTONE == 0)


if __name__ == "__main__":
    os.fsync = no_sync
    train(Path(sys.argv[1]), fresh="--fresh" in sys.argv)
