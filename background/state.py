"""What is known of jobs from one launch to the next, in a folder outside of every checkout."""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from background.jobs import Job
from comad.errors import UserError
from comad.files import make_folder, read_json, sha256, write_json
from comad.machine import processor
from comad.runs.journal import last_record

VARIABLE = "COMAD_BACKGROUND"
"""Names the folder instead of the default one."""
Standing = Literal["done", "failed", "begun", "waiting"]


@dataclass(frozen=True)
class State:
    """The folder, and what lies where."""

    root: Path

    @property
    def control(self) -> Path:
        """What a person wants of the runner."""
        return self.root / "control.json"

    @property
    def runner(self) -> Path:
        """What the runner does."""
        return self.root / "runner.json"

    @property
    def log(self) -> Path:
        """What the runner says."""
        return self.root / "runner.log"

    def code(self, commit: str) -> Path:
        """Returns the folder of the code of a commit."""
        return self.root / "code" / commit

    def folder(self, job: Job) -> Path:
        """Returns the folder of a job: what is known of it, and its work."""
        return self.root / "jobs" / job.name

    def work(self, job: Job) -> Path:
        """Returns the folder in which a job runs."""
        return self.folder(job) / "work"


def find_state(root: Path | None = None) -> State:
    """Returns the folder that is given, else that of the environment, else the one in the home folder."""
    default = Path.home() / ".local" / "state" / "comad" / "background"
    return State((root or Path(os.environ.get(VARIABLE) or default)).resolve())


def machine() -> dict[str, Any]:
    """Returns what a job's bytes may depend on: a job that meets another machine starts over."""
    return {"processor": processor(), "cores": os.cpu_count()}


def identity(job: Job) -> dict[str, Any]:
    """Returns what tells a job from another one of the same name."""
    return {"commit": job.commit, "command": list(job.command)}


def standing(state: State, job: Job) -> Standing:
    """Returns how far a job is: done once all its outputs are there."""
    if (state.folder(job) / "done.json").exists():
        return "done"
    if (state.folder(job) / "failed.json").exists():
        return "failed"
    return "begun" if (state.folder(job) / "job.json").exists() else "waiting"


def check(state: State, job: Job) -> None:
    """Makes sure that a job can begin or go on: one of another machine moves aside, a folder of another job is refused."""
    noted = state.folder(job) / "job.json"
    if noted.exists():
        found = read_json(noted)
        if (there := {name: found.get(name) for name in identity(job)}) != identity(job):
            raise UserError(f"{noted.parent} holds another job ({_difference(there, identity(job))}); give this one another name")
        if found.get("machine") != machine():
            _set_aside(state, job)
    (state.folder(job) / "failed.json").unlink(missing_ok=True)


def begin(state: State, job: Job) -> None:
    """Prepares the folder of a job for its first launch, and counts every launch."""
    noted = state.folder(job) / "job.json"
    if not noted.exists():
        make_folder(state.work(job))
        write_json(noted, {**identity(job), "machine": machine(), "cpu_seconds": 0.0, "launches": 0})
    note(state, job, launches=spent(state, job)["launches"] + 1)


def spent(state: State, job: Job) -> dict[str, Any]:
    """Returns what is noted of a job that has begun."""
    return dict(read_json(state.folder(job) / "job.json"))


def note(state: State, job: Job, **values: Any) -> None:
    """Notes values of a job that has begun."""
    write_json(state.folder(job) / "job.json", {**spent(state, job), **values})


def conclude(state: State, job: Job) -> str:
    """Notes that a job is done, with the hashes of its outputs; returns what is missing, if anything."""
    missing = [name for name in job.outputs if not (state.work(job) / name).is_file()]
    if missing:
        why = f"it ended well but did not write {missing[0]}"
        fail(state, job, why)
        return why
    hashes = {name: sha256(state.work(job) / name) for name in job.outputs}
    write_json(state.folder(job) / "done.json", {"outputs": hashes})
    return ""


def fail(state: State, job: Job, why: str) -> None:
    """Notes why a job failed; it is tried again when the runner starts the next time."""
    make_folder(state.folder(job))
    write_json(state.folder(job) / "failed.json", {"why": why})


def outputs(state: State, job: Job) -> dict[str, Path]:
    """Returns the outputs of a job that is done; one that is not as it was written is refused."""
    noted = read_json(state.folder(job) / "done.json")["outputs"]
    for name, wanted in noted.items():
        if sha256(state.work(job) / name) != wanted:
            raise UserError(f"{state.work(job) / name} is not as the job wrote it (SHA-256 differs)")
    return {name: state.work(job) / name for name in noted}


def fraction(state: State, job: Job) -> float | None:
    """Returns how much of a job is done, as far as it tells."""
    if job.progress is None:
        return None
    try:
        found = last_record(state.work(job) / job.progress.file)
        return min(float(found[job.progress.field]) / job.progress.total, 1.0) if found else 0.0
    except (UserError, KeyError, TypeError, ValueError):
        return None


def hours_left(state: State, jobs: Sequence[Job]) -> float:
    """Returns the core-hours that all jobs still need, from what done and begun ones took for each estimated minute."""
    took: dict[str, tuple[float, float]] = {}
    for job in jobs:
        share = 1.0 if standing(state, job) == "done" else fraction(state, job)
        if share and (state.folder(job) / "job.json").exists():
            seconds, minutes = took.get(job.group, (0.0, 0.0))
            took[job.group] = (seconds + spent(state, job)["cpu_seconds"], minutes + share * job.minutes)
    overall = _rate(list(took.values()))
    left = 0.0
    for job in jobs:
        if standing(state, job) != "done":
            rate = _rate([took[job.group]]) if job.group in took else overall
            left += job.minutes * rate * (1.0 - (fraction(state, job) or 0.0))
    return left / 3600


def cpu_seconds(pid: int) -> float | None:
    """Returns the processor time of a process, or nothing where that cannot be read."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rate(pairs: Sequence[tuple[float, float]]) -> float:
    """Returns seconds for each estimated minute; the estimate itself where nothing was measured."""
    seconds, minutes = (sum(pair[index] for pair in pairs) for index in (0, 1))
    return seconds / minutes if seconds and minutes else 60.0


def _set_aside(state: State, job: Job) -> None:
    """Moves the folder of a job away, whole: nothing is deleted."""
    place = state.root / "aside"
    make_folder(place)
    os.replace(state.folder(job), place / f"{job.name}-{time.time_ns()}")


def _difference(there: dict[str, Any], here: dict[str, Any]) -> str:
    name = next(name for name in here if there[name] != here[name])
    return f"its {name} is {json.dumps(there[name])}, not {json.dumps(here[name])}"
