"""Checkpoints of a run: arrays in one file, and a second file that makes them count and says what everything must look like."""

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from comad import failpoints
from comad.errors import MALFORMED, UserError
from comad.files import read_json, refuse_link, sha256, write_json
from comad.runs.folder import CHECKPOINTS, JOURNALS, JournalName, checkpoint_files, journal_path
from comad.runs.journal import Mark

KEPT = 2
"""So many of the newest checkpoints are kept, besides the milestones."""


@dataclass(frozen=True)
class Checkpoint:
    """A moment of a run that it can go on from."""

    position: int
    path: Path
    """The file of arrays."""
    milestone: bool
    """Kept for good."""
    arrays: Mark
    journals: dict[JournalName, Mark]


def write_arrays(folder: Path, position: int, write: Callable[[Path], object]) -> Path:
    """Have the arrays written under a temporary name, then give them their own."""
    path = folder / CHECKPOINTS / f"{position:09d}.safetensors"
    temporary = path.with_name(f".{path.name}")
    failpoints.reach("before-arrays")
    try:
        write(temporary)
        failpoints.reach("after-arrays")
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path


def commit(folder: Path, checkpoint: Checkpoint) -> None:
    """Make a checkpoint count, in one step, and make sure that it can be read back."""
    path = checkpoint.path.with_suffix(".json")
    failpoints.reach("before-commit")
    write_json(path, _as_json(checkpoint))
    failpoints.reach("after-commit")
    try:
        load(folder, path)
    except UserError as error:
        raise UserError(f"{path} was written but cannot be relied on: {error}; the checkpoints before it are kept") from error


def newest(folder: Path) -> tuple[Checkpoint | None, dict[str, str]]:
    """The newest checkpoint that can be relied on, and by file name why newer ones cannot."""
    skipped: dict[str, str] = {}
    for path in reversed(checkpoint_files(folder, ".json")):
        try:
            return load(folder, path), skipped
        except UserError as error:
            skipped[path.name] = str(error)
    return None, skipped


def describe_skipped(skipped: Mapping[str, str], found: Checkpoint | None) -> list[str]:
    """For people, which checkpoints could not be used and why, and what was instead."""
    instead = "an earlier one was" if found else "there is no earlier one, so all is made again"
    return [f"checkpoint {name} could not be used ({reason}); {instead}" for name, reason in skipped.items()]


def load(folder: Path, path: Path) -> Checkpoint:
    """A checkpoint of which every byte is as it was saved, journals included; an error says what is not."""
    found = _parse(path)
    _check(found.path, found.arrays, may_have_grown=False)
    for name, mark in found.journals.items():
        if mark.size:  # one that was still empty may even be missing
            _check(journal_path(folder, name), mark, may_have_grown=True)
    return found


def delete_older(folder: Path, position: int) -> None:
    """Delete what a reliable checkpoint at this position makes needless: all but the last ones and the milestones."""
    until_now = [path for path in checkpoint_files(folder, ".json") if int(path.stem) <= position]
    _delete([path for path in until_now[:-KEPT] if not _may_be_milestone(path)])


def delete_later(folder: Path, position: int) -> None:
    """Delete checkpoints beyond this position: a run that went back behind them, because they were damaged, makes them anew."""
    _delete([path for path in checkpoint_files(folder, ".json") if int(path.stem) > position])


def measure(path: Path) -> Mark:
    """The mark of a whole file."""
    return Mark(path.stat().st_size, sha256(path))


def _delete(needless: list[Path]) -> None:
    failpoints.reach("before-deletion")
    for path in needless:
        path.unlink()
        failpoints.reach("while-deleting")
        path.with_suffix(".safetensors").unlink(missing_ok=True)


def _as_json(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "position": checkpoint.position,
        "milestone": checkpoint.milestone,
        "arrays": {"name": checkpoint.path.name, **asdict(checkpoint.arrays)},
        "journals": {name: asdict(mark) for name, mark in checkpoint.journals.items()},
    }


def _parse(path: Path) -> Checkpoint:
    value = read_json(refuse_link(path))
    try:
        journals = {name: _mark(value["journals"][name]) for name in JOURNALS}
        arrays = path.with_suffix(".safetensors")
        found = Checkpoint(int(path.stem), arrays, bool(value["milestone"]), _mark(value["arrays"]), journals)
    except MALFORMED as error:
        raise UserError(f"it does not describe a checkpoint ({error!r})") from error
    # Nothing in the file is taken on trust, such as a name that leads out of the folder.
    if _as_json(found) != value:
        raise UserError("it does not describe the checkpoint of its name")
    return found


def _mark(value: Any) -> Mark:
    return Mark(int(value["size"]), str(value["sha256"]))


def _may_be_milestone(path: Path) -> bool:
    try:
        return _parse(path).milestone
    except UserError:
        return True


def _check(path: Path, mark: Mark, may_have_grown: bool) -> None:
    """Refuse a file that is shorter, longer or other than it was."""
    try:
        size = refuse_link(path).stat().st_size
        if size < mark.size or (size > mark.size and not may_have_grown):
            raise UserError(f"{path.name} has {size} bytes instead of {mark.size}")
        with path.open("rb") as file:
            same = hashlib.sha256(file.read(mark.size)).hexdigest() == mark.sha256
    except OSError as error:
        raise UserError(f"{path.name} cannot be read ({error.strerror})") from error
    if not same:
        raise UserError(f"{path.name} is damaged: its first {mark.size} bytes are not those that were written")
