"""Keeps processes going on this machine, each on cores of its own: the runs of a grid, or any other work."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any, Literal, TypeAlias

from comad import failpoints
from comad.files import make_folder, open_to_append

Work: TypeAlias = Any
"""What a process does, in the caller's terms: a cell of a grid, a job."""

MISUSE = 2
"""The exit code that says: the same again would end the same."""
STARTED_BY = "COMAD_STARTED_BY"
"""The variable in which a run finds the process that started it."""
GRACE = 120.0
"""Seconds in which a run that is asked to stop may save itself."""


@dataclass(frozen=True)
class Started:
    """A run is being made."""

    cell: Work
    attempt: int


@dataclass(frozen=True)
class Ended:
    """A run has ended, as it should or not."""

    cell: Work
    outcome: Literal["finished", "crashed", "failed"]
    """Crashed: it is tried once more. Failed: it is not."""
    why: str = ""


@dataclass(frozen=True)
class Waited:
    """Nothing has happened for a moment."""


Event = Started | Ended | Waited
Command = Callable[[Work], Sequence[str]]


@dataclass
class Worker:
    """A process that makes a run, and the cores it has."""

    cell: Work
    attempt: int
    cores: frozenset[int]
    process: subprocess.Popen[bytes]
    log: Path


@dataclass
class Workshop:
    """Keeps as many runs going as there are places."""

    command: Command
    """The whole command line of a run."""
    log: Callable[[Work], Path]
    """Where what a run says is kept."""
    places: Sequence[frozenset[int]]
    """The cores of each."""
    attempts: int = 2
    pause: float = 0.5
    """Seconds between two looks at the processes."""
    grace: float = GRACE
    """Seconds in which a process that is asked to stop may save itself."""
    workers: list[Worker] = field(default_factory=list)

    def run(self, cells: Sequence[Work]) -> Generator[Event]:
        """Make all runs, telling what happens; if it is abandoned, processes are asked to save themselves and end."""
        waiting = [(cell, 1) for cell in cells]
        try:
            while waiting or self.workers:
                for cores in [place for place in self.places if all(worker.cores != place for worker in self.workers)]:
                    if waiting:
                        cell, attempt = waiting.pop(0)
                        self.workers.append(self.start(cell, attempt, cores))
                        failpoints.reach("run-started")
                        yield Started(cell, attempt)
                time.sleep(self.pause)
                for worker in [worker for worker in self.workers if worker.process.poll() is not None]:
                    self.workers.remove(worker)
                    failpoints.reach("run-ended")
                    ended = judge(worker.cell, worker.process.returncode, last_line(worker.log), worker.attempt < self.attempts)
                    if ended.outcome == "crashed":
                        waiting.insert(0, (worker.cell, worker.attempt + 1))
                    yield ended
                yield Waited()
        finally:
            self.stop()

    def start(self, cell: Work, attempt: int, cores: frozenset[int]) -> Worker:
        """Begin a run, or go on with it."""
        log = self.log(cell)
        make_folder(log.parent)
        with open_log(log) as file, only_on(cores):
            # A group of its own, so that Ctrl-C reaches the grid first, which then asks the runs to save themselves.
            process = subprocess.Popen(
                self.command(cell), stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment(len(cores)), process_group=0
            )
        return Worker(cell, attempt, cores, process, log)

    def stop(self) -> None:
        """Ask all processes to save themselves and end; those that do not listen are ended."""
        for worker in self.workers:
            worker.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + self.grace
        for worker in self.workers:
            try:
                worker.process.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
        self.workers.clear()


def judge(cell: Work, code: int, why: str, again: bool) -> Ended:
    """What the end of a process means: misuse would end the same again, anything else may have been bad luck."""
    if code == 0:
        return Ended(cell, "finished")
    ended = f"ended by signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    # A killed run has not said why; what it said last was about something else.
    said = why if why and code > 0 else ended
    return Ended(cell, "crashed" if again and code != MISUSE else "failed", said)


@contextmanager
def only_on(cores: frozenset[int]) -> Iterator[None]:
    """Has processes that are started in here run on these cores from their first moment on."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def share(cores: Sequence[int], each: int, at_once: int | None = None) -> list[frozenset[int]]:
    """Places for runs of so many cores each, as many as there is room for or fewer if told so; no core has two."""
    room = len(cores) // each
    return [frozenset(cores[place * each : (place + 1) * each]) for place in range(min(at_once or room, room))]


def environment(cores: int) -> dict[str, str]:
    """The process's own, with as many threads as a run has cores; what XLA needs beside that, the run sets itself."""
    threads = {name: str(cores) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    return {**os.environ, **threads, STARTED_BY: str(os.getpid())}


def open_log(path: Path) -> FileIO:
    """Opens what a run says for more of it; a pipe, which would have to be read, is refused."""
    if not os.path.lexists(path):
        path.touch()
    return open_to_append(path)


def this_program() -> list[str]:
    """The command that runs this very package."""
    return [sys.executable, "-m", "comad"]


def last_line(path: Path) -> str:
    """The last thing a run said."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
