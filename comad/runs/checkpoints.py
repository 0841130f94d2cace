"""Checkpoints of a run: arrays in one file, and a second file that makes them count and says what everything must look like."""

import hashlib
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comad import failpoints
from comad.errors import MALFORMED, UserError
from comad.files import open_regular, read_json, sync_folder, write_json
from comad.runs.folder import CHECKPOINTS, JOURNALS, SET_ASIDE, VOUCHED, JournalName, checkpoint_files, journal_path
from comad.runs.journal import Mark, mark_of
from comad.settings import settings

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
    damaged: tuple[JournalName, ...] = ()
    """Diagnostic journals that were found damaged before this moment, and were kept as they are."""


def write_arrays(folder: Path, position: int, write: Callable[[Path], object]) -> Path:
    """Have the arrays written under a temporary name, then give them their own."""
    path = folder / CHECKPOINTS / f"{position:09d}.safetensors"
    temporary = path.with_name(f".{path.name}")
    failpoints.reach("before-arrays")
    try:
        write(temporary)
        failpoints.reach("after-arrays")
        with open_regular(temporary) as file:
            os.fchmod(file.fileno(), 0o644)  # as public as what is written beside it
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    # Else a loss of power could leave the description, which follows, without the arrays.
    sync_folder(path.parent)
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


def marks(folder: Path) -> Mapping[JournalName, Mark]:
    """Returns how far the newest checkpoint that can be read vouches for the journals, whatever became of its arrays."""
    for path in reversed(checkpoint_files(folder, ".json")):
        with suppress(UserError):
            return _parse(path).journals
    return {}


def describe_skipped(skipped: Mapping[str, str]) -> list[str]:
    """For people, which checkpoints could not be used and why; an earlier one was used instead."""
    return [f"checkpoint {name} could not be used ({reason}); an earlier one was" for name, reason in skipped.items()]


def refuse_to_start_over(folder: Path, skipped: Mapping[str, str]) -> UserError:
    """Returns the error for a run of which nothing can be relied on."""
    name, reason = next(iter(skipped.items()))
    count = f"none of its {len(skipped)} checkpoints" if len(skipped) > 1 else "its only checkpoint"
    return UserError(
        f"{folder}: {count} can be relied on ({name}: {reason}); nothing was changed; restore the folder from a copy, "
        f"or start over with --fresh, which moves what is there to {SET_ASIDE}"
    )


def load(folder: Path, path: Path) -> Checkpoint:
    """A checkpoint of which every byte that results depend on is as it was saved; an error says what is not."""
    found = _parse(path)
    _check(found.path, found.arrays, may_have_grown=False)
    for name in VOUCHED:
        if (mark := found.journals[name]).size:  # one that was still empty may even be missing
            _check(journal_path(folder, name), mark, may_have_grown=True)
    return found


def damaged_diagnostics(folder: Path, checkpoint: Checkpoint) -> dict[JournalName, str]:
    """Which journals that nothing depends on are not as they were at a checkpoint, each with the reason."""
    found: dict[JournalName, str] = dict.fromkeys(checkpoint.damaged, "they were found damaged at an earlier launch")
    for name in (name for name in JOURNALS if name not in VOUCHED and checkpoint.journals[name].size):
        try:
            _check(journal_path(folder, name), checkpoint.journals[name], may_have_grown=True)
        except UserError as error:
            found[name] = str(error)
    return found


def delete_older(folder: Path, position: int) -> None:
    """Delete what a reliable checkpoint at this position makes needless: all but the last ones and the milestones."""
    until_now = [path for path in checkpoint_files(folder, ".json") if int(path.stem) <= position]
    _delete([path for path in until_now[:-KEPT] if not _may_be_milestone(path)])


def measure(path: Path) -> Mark:
    """The mark of a whole file."""
    with open_regular(path) as file:
        return Mark(os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest())


def _delete(needless: list[Path]) -> None:
    failpoints.reach("before-deletion")
    # The arrays first: arrays that nothing describes could be those of a checkpoint whose
    # description was lost.
    for path in needless:
        path.with_suffix(".safetensors").unlink(missing_ok=True)
        failpoints.reach("while-deleting")
    if needless:
        # Else a loss of power could bring the arrays back, but not the descriptions.
        sync_folder(needless[0].parent)
    for path in needless:
        path.unlink()


def _as_json(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "position": checkpoint.position,
        "milestone": checkpoint.milestone,
        "arrays": {"name": checkpoint.path.name, **settings(checkpoint.arrays)},
        "journals": {name: settings(mark) for name, mark in checkpoint.journals.items()},
        **({"damaged": list(checkpoint.damaged)} if checkpoint.damaged else {}),
    }


def _parse(path: Path) -> Checkpoint:
    value = read_json(path)
    try:
        journals = {name: _mark(value["journals"][name]) for name in JOURNALS}
        arrays = path.with_suffix(".safetensors")
        damaged = tuple(name for name in JOURNALS if name in value.get("damaged", ()))
        found = Checkpoint(int(path.stem), arrays, bool(value["milestone"]), _mark(value["arrays"]), journals, damaged)
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
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size < mark.size or (size > mark.size and not may_have_grown):
                raise UserError(f"{path.name} has {size} bytes instead of {mark.size}")
            same = mark_of(file.read(mark.size)) == mark
    except OSError as error:
        raise UserError(f"{path.name} cannot be read ({error.strerror})") from error
    if not same:
        raise UserError(f"{path.name} is damaged: its first {mark.size} bytes are not those that were written")
