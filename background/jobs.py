"""The jobs: what is to be done, and by which version of the code. Read from one file."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comad.errors import UserError

REQUIRED = {"about", "name", "command", "minutes", "outputs", "jobs"}
OPTIONAL = {"commit", "progress"}


@dataclass(frozen=True)
class Progress:
    """Where a job writes how far it is."""

    file: str
    """A file of JSON lines in the job's folder; its last line counts."""
    field: str
    total: float
    """The value of the field at the end."""


@dataclass(frozen=True)
class Job:
    """A command that can be killed at any time and goes on when it is started again."""

    name: str
    group: str
    """What its jobs are about; they take similar times for each estimated minute."""
    commit: str
    """The version of the code that the job runs."""
    command: tuple[str, ...]
    """Its words, in which ``{code}`` stands for the folder of that code; it runs in a folder of its own."""
    outputs: tuple[str, ...]
    """Files in the job's folder that exist when it is done."""
    minutes: float
    """A first estimate of the time it takes one core."""
    progress: Progress | None = None


@dataclass(frozen=True)
class Plan:
    """All jobs, in the order in which they begin."""

    setup: tuple[str, ...]
    """The command that prepares the code of a commit, in its folder."""
    jobs: tuple[Job, ...]


def read_plan(path: Path) -> Plan:
    """Reads the file of jobs; an error names the file and what is wrong in it."""
    try:
        found = tomllib.loads(path.read_text())
        groups, commit = found["groups"], found.get("commit", "")
        jobs = tuple(job for group in groups for job in _expand(group, commit))
        plan = Plan(tuple(map(str, found["setup"])), jobs)
    except FileNotFoundError:
        raise UserError(f"there is no file {path}; give one that lists jobs") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} does not describe jobs ({type(error).__name__}: {error})") from error
    names = [job.name for job in plan.jobs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"{path}: two jobs are named {twice!r}; names are folders, so each needs its own")
    return plan


def _expand(group: Mapping[str, Any], commit: str) -> list[Job]:
    """Returns the jobs of a group: its templates, filled in with the values of each."""
    if missing := sorted(REQUIRED - group.keys()):
        raise ValueError(f"a group has no {missing[0]!r}")
    if unknown := sorted(group.keys() - REQUIRED - OPTIONAL):
        raise ValueError(f"a group has an unknown {unknown[0]!r}")
    return [_job(group, commit, values) for values in group["jobs"]]


def _job(group: Mapping[str, Any], commit: str, values: Mapping[str, Any]) -> Job:
    def fill(text: str) -> str:
        return text.format(code="{code}", **values)

    name = fill(group["name"])
    if not name or name.startswith(".") or Path(name).name != name:
        raise ValueError(f"a job is named {name!r}, which is no folder's name")
    minutes = float(values.get("minutes", group["minutes"]))
    if not 0 < minutes < float("inf"):
        raise ValueError(f"{name} takes {minutes} minutes, which is no time")
    told = group.get("progress")
    progress = Progress(fill(told["file"]), told["field"], float(fill(str(told["total"])))) if told else None
    return Job(
        name=name,
        group=str(group["about"]),
        commit=_commit(name, group.get("commit", commit)),
        command=tuple(map(fill, group["command"])),
        outputs=tuple(map(fill, group["outputs"])),
        minutes=minutes,
        progress=progress,
    )


def _commit(name: str, commit: str) -> str:
    if len(commit) != 40 or not set(commit) <= set("0123456789abcdef"):
        raise ValueError(f"{name} names no commit by its 40 digits but {commit!r}")
    return commit
