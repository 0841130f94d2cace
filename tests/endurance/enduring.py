"""A long training of CN-3 that watches itself: run as a program, it prints what it held after every evaluation."""

import gc
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from comad import envs, streams
from comad.datasets import library
from comad.datasets.collect import collect
from comad.experts.library import get
from comad.methods import find
from comad.runs.run import open_run
from comad.training.lessons import prepare
from comad.training.loop import Budget, Evaluated, train
from comad.training.provenance import identify

STREAM = streams.custom(["cn-3"])


def held() -> dict[str, int]:
    """Bytes of memory, open files and threads of this process."""
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    tasks = len(os.listdir("/proc/self/task"))
    return {"bytes": resident, "files": len(os.listdir("/proc/self/fd")), "threads": tasks, "python_threads": threading.active_count()}


def endure(folder: Path, budget: Budget, method: Any) -> None:
    """Train, and say after every evaluation what is held."""
    env = envs.make("cn-3")
    for _ in collect(library.place("cn-3", "expert", folder / "data"), env, get(env, "expert")[0], "expert", 500, 0, {}):
        pass
    lessons = prepare(STREAM, "expert", budget.batch, folder / "data")
    with open_run(folder / "run", identify("ft", method, STREAM, "expert", lessons, 0, budget)) as run:
        for event in train(method, STREAM, lessons, 0, budget, run):
            if isinstance(event, Evaluated):
                sys.stdout.write(json.dumps({"point": event.point, **held()}) + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    updates, evaluations = map(int, sys.argv[2:4])
    endure(Path(sys.argv[1]), Budget(updates=updates, evaluations=evaluations, episodes=4, batch=4), find("ft"))
