"""Whether the records of runs are as they were written: everything that is vouched for, and the diagnostics beside it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from comad.errors import MALFORMED, UserError
from comad.runs import checkpoints
from comad.runs.folder import checkpoint_files, damaged_cost
from comad.runs.record import read_portrait, read_run
from comad.runs.seal import seal_run
from comad.runs.standing import standing_of

State = Literal["sealed", "in progress", "unsealed", "damaged"]


@dataclass(frozen=True)
class Verdict:
    """What was found out about one run."""

    path: Path
    state: State
    notes: tuple[str, ...] = ()
    """What is wrong, and what is worth knowing."""


def verify(path: Path) -> Verdict:
    """Checks every byte of a run that something vouches for."""
    try:
        record = read_run(path)
        standing = standing_of(record)
        for file in checkpoint_files(path, ".json"):
            checkpoints.load(path, file)
        kinds = len(record.machines)
    except UserError as error:
        return Verdict(path, "damaged", (str(error),))
    except MALFORMED as error:
        return Verdict(path, "damaged", (f"{path} does not describe a training ({error!r})",))
    notes = _diagnostics(path)
    if kinds > 1:
        notes.append(f"made on {kinds} kinds of machine")
    if record.legacy:
        return Verdict(path, "unsealed", ("made before seals existed", *notes))
    if not standing.finished:
        pending = [f"{record.pending} lines are not sealed yet"] if record.pending else []
        return Verdict(path, "in progress", (*pending, *notes))
    return Verdict(path, "sealed", tuple(notes))


def seal_legacy(verdict: Verdict) -> Verdict:
    """Seals a run that was made before seals existed, and checks it again; others stay as they are."""
    if verdict.state != "unsealed":
        return verdict
    seal_run(verdict.path)
    return verify(verdict.path)


def _diagnostics(path: Path) -> list[str]:
    """What is wrong with the files that nothing depends on."""
    notes: list[str] = []
    if files := checkpoint_files(path, ".json"):
        newest = checkpoints.load(path, files[-1])
        notes += [f"{name} are damaged ({why})" for name, why in checkpoints.damaged_diagnostics(path, newest).items()]
    if damaged := damaged_cost(path):
        notes.append(damaged)
    try:
        read_portrait(path)
    except UserError as error:
        notes.append(str(error))
    return notes
