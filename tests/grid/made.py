"""A stand-in for `comad train`: writes a run's folder in a moment, as told by its options; run as a program."""

import os
import sys
import time
from pathlib import Path

from comad.runs.run import open_run


def main(folder: Path, behavior: str) -> int:
    """Make a run of two tasks; "crash once", "crash", "misuse", "slow" and "slow once" are what they say."""
    if behavior == "misuse":
        print("comad: this cannot be", file=sys.stderr)
        return 2
    budget = {"updates": 10, "evaluations": 1, "episodes": 1, "batch": 1}
    identity = {"tasks": [{"name": "a"}, {"name": "b"}], "budget": budget}
    parent = os.getppid()
    with open_run(folder, {"identity": identity}, wait=30.0) as run:
        begun = run.resume()
        for task in range(2):
            for update in (5, 10):
                run.append("logs", {"task": task, "update": update})
                if update == 5 and behavior.startswith("crash") and not (behavior == "crash once" and begun):
                    run.save((begun.position if begun else 0) + 1, lambda path: path.write_bytes(b"half"))
                    print("something broke")
                    return 1
            if behavior == "slow" or (behavior == "slow once" and not begun):
                run.save(task + 1, lambda path: path.write_bytes(b"half"))
                deadline = time.monotonic() + 60
                while time.monotonic() < deadline:
                    time.sleep(0.2)
                    if os.getppid() != parent:  # as 'comad train --with-parent' does
                        return 1
            run.append("scores", {"task": task, "point": 1, "sampled": {"score": [0.5, 1.0]}})
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
