"""A job that counts. Killed at any time it goes on, and its result depends on every step. The runner's tests run it as a program."""

import hashlib
import json
import os
import sys
import time
from pathlib import Path


def main(name: str, steps: int, seconds: float) -> int:
    """Counts to the end, a step every so many seconds; "missing" is no job, "idle" writes no result."""
    if name == "missing":
        print("comad: there is no task named 'missing'; did you mean 'cn-2'?", file=sys.stderr)
        return 2
    with Path("launches").open("a") as launches:
        launches.write(f"{os.getpid()}\n")
    state = Path("state.json")
    step, value = json.loads(state.read_text()) if state.exists() else (0, name)
    while step < steps:
        time.sleep(seconds)
        step, value = step + 1, hashlib.sha256(f"{value} {step}".encode()).hexdigest()
        state.with_suffix(".half").write_text(json.dumps([step, value]))
        os.replace(state.with_suffix(".half"), state)
        with Path("progress.jsonl").open("a") as progress:
            progress.write(json.dumps({"step": step}) + "\n")
    if name != "idle":
        with Path("result").open("x") as result:  # an error if it is done twice
            result.write(value)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
