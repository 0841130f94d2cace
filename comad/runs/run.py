"""A run that is being trained: journals to append to, checkpoints to save and to go on from."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from comad import failpoints
from comad.errors import UserError
from comad.files import make_folder, read_regular, write_bytes, write_json
from comad.runs import checkpoints
from comad.runs.checkpoints import Checkpoint
from comad.runs.folder import (
    COST,
    JOURNALS,
    SET_ASIDE,
    JournalName,
    claim,
    disk_errors,
    journal_path,
    locked,
    move_checkpoints_aside,
    new_place_aside,
    read_cost,
    read_settings,
    refuse_foreign,
    sweep,
    sweep_uncommitted,
)
from comad.runs.journal import Journal, Record
from comad.runs.seal import remove_seal, write_seal

UNSAVED = 2
"""Most evaluations that a run can have noted before its first checkpoint; more say that it had some, which did not come along."""


class Run:
    """A run that this process alone writes; ``open_run`` makes it."""

    def __init__(self, folder: Path, identity: dict[str, Any], aside: Path | None = None) -> None:
        self.folder = folder
        self.skipped: dict[str, str] = {}
        """Checkpoints that ``resume`` could not rely on, by file name, each with the reason."""
        self.found: Checkpoint | None = None
        """The one that it relied on."""
        self.damaged: dict[JournalName, str] = {}
        """Diagnostic journals that are not as they were written, each with the reason."""
        self.aside = aside
        """Where files are now that the run goes on without."""
        self._identity = identity
        self._journals: dict[JournalName, Journal] = {}
        self._position: int | None = None

    def resume(self) -> Checkpoint | None:
        """Go back to the newest checkpoint that can be relied on, or to the very beginning: journals forget all that came later.

        Call it first, also in a new folder. A run of which nothing can be relied on is left as it is and refused. Where only the newest
        checkpoints cannot be relied on, they move aside.
        """
        self.close()
        with disk_errors(self.folder):
            found, self.skipped = checkpoints.newest(self.folder)
            if found is None and self.skipped:
                raise checkpoints.refuse_to_start_over(self.folder, self.skipped)
            if found is None:
                self._refuse_to_forget()
            sweep_uncommitted(self.folder)
            if found is None:
                remove_seal(self.folder)
            else:
                self.damaged = checkpoints.damaged_diagnostics(self.folder, found)
                if self.skipped:
                    self.aside = self._keep_later(found)
                write_seal(self.folder, self._identity, found.journals)  # before the lines that it no longer names are cut
            for name in JOURNALS:
                self._journals[name] = Journal(journal_path(self.folder, name), found.journals[name].size if found else 0)
                failpoints.reach("after-truncation")
            if found:
                checkpoints.delete_older(self.folder, found.position)
        self._position, self.found = found.position if found else -1, found
        return found

    def notices(self) -> list[str]:
        """For people, what ``resume`` found wrong and where it is kept."""
        lines = checkpoints.describe_skipped(self.skipped)
        lines += [f"{journal_path(self.folder, name)} is damaged ({why}); only the record suffers" for name, why in self.damaged.items()]
        if self.aside:
            lines.append(f"what the run goes on without is kept in {self.aside}")
        return lines

    def _keep_later(self, found: Checkpoint) -> Path:
        """Copies the journals and moves the later checkpoints aside: parts of them may be sound."""
        place = new_place_aside(self.folder)
        for path in (journal_path(self.folder, name) for name in JOURNALS):
            if path.exists():
                write_bytes(place / path.name, read_regular(path))
        move_checkpoints_aside(self.folder, place, after=found.position)
        return place

    def _refuse_to_forget(self) -> None:
        """Stop before records are cut that were kept without their checkpoints."""
        scores = journal_path(self.folder, "scores")
        if os.path.lexists(scores) and read_regular(scores).count(b"\n") > UNSAVED:
            raise UserError(
                f"{self.folder} keeps the records of a run without its checkpoints; train elsewhere, "
                f"or start over with --fresh, which moves what is there to {SET_ASIDE}"
            )

    def append(self, journal: JournalName, record: Record) -> None:
        """Add a line to a journal. It lasts from the next checkpoint on."""
        self._check_resumed()
        with disk_errors(self.folder):
            self._journals[journal].append(record)

    def save(self, position: int, write: Callable[[Path], object], milestone: bool = False) -> Checkpoint:
        """Save a checkpoint; only when it can be relied on, older ones are deleted.

        Args:
            position: how far the run is; must grow from one checkpoint to the next.
            write: writes the arrays to the path it is given.
            milestone: keep this one for good.
        """
        last = self._check_resumed()
        if position <= last:
            raise ValueError(f"a checkpoint at {position} cannot follow one at {last}")
        with disk_errors(self.folder):
            path = checkpoints.write_arrays(self.folder, position, write)
            for journal in self._journals.values():
                journal.sync()
            marks = {name: journal.mark for name, journal in self._journals.items()}
            damaged = tuple(name for name in JOURNALS if name in self.damaged)
            saved = Checkpoint(position, path, milestone, checkpoints.measure(path), marks, damaged)
            write_seal(self.folder, self._identity, marks)
            checkpoints.commit(self.folder, saved)
            self._position = position
            checkpoints.delete_older(self.folder, position)
        return saved

    def cost(self) -> dict[str, Any] | None:
        """What the run has cost so far, as it was last noted."""
        return read_cost(self.folder)

    def note_cost(self, cost: dict[str, float]) -> None:
        """Write down what the run has cost so far. Not a journal: it differs each time, and no checkpoint vouches for it."""
        self._check_resumed()
        with disk_errors(self.folder):
            write_json(self.folder / COST, cost)

    def close(self) -> None:
        """Close the journals."""
        for journal in self._journals.values():
            journal.close()

    def _check_resumed(self) -> int:
        if self._position is None:
            raise RuntimeError("call resume() before anything is written: until then the journals may hold lines of a lost time")
        return self._position


@contextmanager
def open_run(
    path: Path, settings: dict[str, Any], fresh: bool = False, wait: float = 0.0, accept_other_machine: bool = False
) -> Iterator[Run]:
    """Hold the run in a folder, new or begun, for this process alone.

    Args:
        path: the folder.
        settings: what lies under "identity" must be the same whenever the run is opened; the rest, such as library versions, is recorded.
        fresh: move the run that is in the folder aside first.
        wait: seconds to wait for another process that holds it.
        accept_other_machine: go on with a run that was begun on another kind of machine, which its settings then say.
    """
    with disk_errors(path):
        refuse_foreign(path, fresh)
        make_folder(path)
    with locked(path, wait):
        with disk_errors(path):
            failpoints.reach("after-lock")
            aside = claim(path, settings, fresh, accept_other_machine)
            failpoints.reach("after-settings")
            sweep(path)
            run = Run(path, read_settings(path)["identity"], aside)
        try:
            yield run
        finally:
            run.close()
