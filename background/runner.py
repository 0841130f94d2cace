"""The runner: keeps a job going on every core, and does what a person wants of it in between."""

import fcntl
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from background.code import prepare
from background.jobs import Job, Plan
from background.state import State, begin, check, conclude, cpu_seconds, fail, note, spent, standing
from comad.errors import UserError
from comad.files import make_folder, read_json, write_json
from comad.grid.local import Ended, Event, Started, Worker, Workshop, share
from comad.machine import available_cores

Wish = Literal["run", "pause", "stop"]
STARTS_WITHIN = 5.0
"""Seconds in which the lock is tried: those who ask whether a runner works hold it for a moment."""
LAUNCH = Path(__file__).with_name("launch.py")
GRACE = 60.0
"""Seconds in which jobs may save themselves when the runner stops."""
NOTED_EVERY = 15.0
"""Seconds between two notes of what jobs have cost; so much of it is lost when the runner is killed."""


@dataclass
class Runner:
    """Works off a plan."""

    state: State
    plan: Plan
    repository: Path
    pause: float = 0.5
    """Seconds between two looks at jobs and wishes."""
    doing: str = ""
    noted: float = 0.0
    before: dict[str, float] = field(default_factory=dict)
    """Processor seconds of each running job in earlier launches."""

    def run(self) -> None:
        """Works until all jobs are done or failed, or a person wants it to stop."""
        with locked(self.state):
            os.environ["COMAD_CACHE"] = str(self.state.root / "cache")
            self.tell("preparing")
            prepare(self.state, self.plan, self.repository)
            waiting = list(self.unfinished())
            workshop = Workshop(
                self.command, lambda job: self.state.folder(job) / "log", share(available_cores(), 1), pause=self.pause, grace=GRACE
            )
            events = workshop.run(waiting)
            try:
                for event in events:
                    self.notice(event)
                    if self.obey(workshop) == "stop":
                        break
                self.note_costs(workshop.workers)
            finally:
                resume(workshop.workers)  # a process that is halted cannot end
                events.close()
            self.tell("stopped")

    def unfinished(self) -> Iterator[Job]:
        """Yields the jobs that are not done and whose folders are theirs; the others have failed."""
        for job in self.plan.jobs:
            if standing(self.state, job) == "done":
                continue
            try:
                check(self.state, job)
                yield job
            except UserError as error:
                fail(self.state, job, str(error))
                say(f"{job.name} failed: {error}")

    def command(self, job: Job) -> list[str]:
        """Returns the words that start a job, whose folder is ready then."""
        begin(self.state, job)
        words = [word.replace("{code}", str(self.state.code(job.commit))) for word in job.command]
        return [sys.executable, "-S", str(LAUNCH), str(self.state.work(job)), *words]

    def notice(self, event: Event) -> None:
        """Notes what has happened to a job."""
        if isinstance(event, Started):
            self.before[event.cell.name] = spent(self.state, event.cell)["cpu_seconds"]
            say(f"{event.cell.name} {'begins' if event.attempt == 1 else 'is tried again'}")
        if isinstance(event, Ended):
            why = event.why
            if event.outcome == "finished":
                why = conclude(self.state, event.cell)
            elif event.outcome == "failed":
                fail(self.state, event.cell, why)
            say(f"{event.cell.name} {event.outcome}{f': {why}' if why else ''}")

    def obey(self, workshop: Workshop) -> Wish:
        """Does what a person wants; returns it."""
        wish = read_wish(self.state)
        for worker in workshop.workers if wish == "pause" else ():
            send(worker, signal.SIGSTOP)
        if wish == "run" and self.doing == "pause":
            resume(workshop.workers)
        self.tell(wish)
        if time.monotonic() - self.noted > NOTED_EVERY or wish != "run":
            self.note_costs(workshop.workers)
        return wish

    def note_costs(self, workers: Sequence[Worker]) -> None:
        """Notes what running jobs have cost so far."""
        self.noted = time.monotonic()
        for worker in workers:
            seconds = cpu_seconds(worker.process.pid)
            if seconds is not None:
                note(self.state, worker.cell, cpu_seconds=round(self.before.get(worker.cell.name, 0.0) + seconds, 1))

    def tell(self, doing: str) -> None:
        """Notes what the runner does, for those who ask."""
        if doing != self.doing:
            self.doing = doing
            write_json(self.state.runner, {"pid": os.getpid(), "doing": doing})


@contextmanager
def locked(state: State, within: float = STARTS_WITHIN) -> Iterator[None]:
    """Keeps a second runner out; the lock goes when this process does."""
    make_folder(state.root)
    handle = os.open(state.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        deadline = time.monotonic() + within
        while not _taken(handle):
            if time.monotonic() >= deadline:
                raise UserError(f"a runner works in {state.root} already; 'make background-status' shows its jobs")
            time.sleep(0.05)
        yield
    finally:
        os.close(handle)


def is_running(state: State) -> bool:
    """Returns whether a runner works in the folder."""
    try:
        with locked(state, within=0.0):
            return False
    except UserError:
        return True


def read_wish(state: State) -> Wish:
    """Returns what a person wants of the runner: to run, unless told otherwise."""
    try:
        wish: Wish = read_json(state.control)["wish"]
    except (UserError, KeyError, TypeError):
        return "run"
    return wish if wish in ("run", "pause", "stop") else "run"


def wish_for(state: State, wish: Wish) -> None:
    """Tells the runner what is wanted."""
    write_json(state.control, {"wish": wish})


def resume(workers: Sequence[Worker]) -> None:
    """Lets processes go on that were halted."""
    for worker in workers:
        send(worker, signal.SIGCONT)


def send(worker: Worker, what: signal.Signals) -> None:
    """Sends a signal to a job and all that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(worker.process.pid, what)


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def say(line: str) -> None:
    """Writes a line into the runner's log, which is its standard output."""
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}", flush=True)
