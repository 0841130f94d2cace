"""A stand-in for `comad train` that writes a run's folder in a moment; run as a program, its options name its behavior."""

import os
import sys
import time
from pathlib import Path

from comad.grid.local import STARTED_BY
from comad.runs.run import Run, open_run

SAFETY = 600.0
"""Seconds after which a slow run gives up, in case that nothing ends it."""


def main(folder: Path, behavior: str) -> int:
    """Makes a run of two tasks; "crash once", "crash", "misuse", "slow" and "slow once" are what they say."""
    if behavior == "misuse":
        print("comad: this cannot be", file=sys.stderr)
        return 2
    budget = {"updates": 10, "evaluations": 1, "episodes": 1, "batch": 1}
    identity = {"tasks": [{"name": "a"}, {"name": "b"}], "budget": budget}
    with open_run(folder, {"identity": identity}, wait=SAFETY) as run:
        begun = run.resume()
        interrupted = not (behavior.endswith("once") and begun)
        for task in range(2):
            for update in (5, 10):
                run.append("logs", {"task": task, "update": update})
                if update == 5 and behavior.startswith("crash") and interrupted:
                    save_next(run)
                    print("something broke")
                    return 1
            if behavior.startswith("slow") and interrupted:
                save_next(run)
                return wait_to_be_ended()
            run.append("scores", {"task": task, "point": 1, "sampled": {"score": [0.5, 1.0]}})
        save_next(run)
    return 0


def save_next(run: Run) -> None:
    """Saves the checkpoint that follows the one from which the run went on."""
    run.save((run.found.position if run.found else 0) + 1, lambda path: path.write_bytes(b"half"))


def wait_to_be_ended() -> int:
    """Waits until the process that started this one is gone, as `comad train --with-parent` does, unless a signal comes first."""
    parent = int(os.environ.get(STARTED_BY, os.getppid()))
    deadline = time.monotonic() + SAFETY
    while os.getppid() == parent and time.monotonic() < deadline:
        time.sleep(0.05)
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
