"""Seals: what a run vouches for once its checkpoints have gone, so that every reader can tell its records from changed ones.

A seal names the run by a digest of its identity, and its journals of results by the size and SHA-256 of their lines in their written form
(``journal.line_of``). It does not depend on file names, so the lines of many runs can lie in one file, each with its seal.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comad import failpoints
from comad.errors import MALFORMED, UserError
from comad.files import read_json, read_regular, sync_folder, write_json
from comad.runs.checkpoints import marks
from comad.runs.folder import (
    SEAL,
    VOUCHED,
    JournalName,
    checkpoint_files,
    digest,
    journal_path,
    read_settings,
    settings_are_sealed,
    write_settings,
)
from comad.runs.journal import Mark, mark_of
from comad.settings import settings

VERSION = 1
LOOKS = 5
"""A run that is being written may change its seal while it is read; so often it is read again before it counts as damaged."""


@dataclass(frozen=True)
class Seal:
    """What a run vouches for."""

    identity: str
    """Digest of the settings that make the run this one."""
    journals: dict[JournalName, Mark]


@dataclass(frozen=True)
class Sealing:
    """How far the records of a run are vouched for."""

    seal: Seal | None
    legacy: bool = False
    """The run was made before seals existed: nothing vouches for it."""

    def vouched(self, name: JournalName, data: Mapping[JournalName, bytes]) -> int:
        """Counts the bytes of a journal that must be as they were written.

        These are all of a run from before seals existed, and none before the first checkpoint.
        """
        if self.legacy:
            return len(data[name])
        return self.seal.journals[name].size if self.seal else 0

    def pending(self, data: Mapping[JournalName, bytes]) -> int:
        """Counts the lines of scores and heads that are newer than the seal."""
        return sum(data[name][self.vouched(name, data) :].count(b"\n") for name in VOUCHED)


def write_seal(folder: Path, identity: Mapping[str, Any], journals: Mapping[JournalName, Mark]) -> None:
    """Seals the records of a run as far as these marks reach; an equal seal is left as it is."""
    value = as_json(Seal(digest(identity), {name: journals[name] for name in VOUCHED}))
    path = folder / SEAL
    if os.path.lexists(path) and _read(path) == value:
        return
    failpoints.reach("before-seal")
    write_json(path, value)


def remove_seal(folder: Path) -> None:
    """Removes the seal of a run that goes back to its very beginning."""
    if os.path.lexists(folder / SEAL):
        (folder / SEAL).unlink()
        sync_folder(folder)  # before the lines that it names are cut


def seal_run(folder: Path) -> None:
    """Seals a run that was made before seals existed, just as its records are now."""
    described = read_settings(folder)
    marks = {name: mark_of(_journal_bytes(folder, name)) for name in VOUCHED}
    write_seal(folder, described["identity"], marks)
    write_settings(folder, described)


def check_seal(folder: Path) -> tuple[Sealing, dict[JournalName, bytes]]:
    """Returns how far a run is vouched for, and the bytes of the journals that were checked; whatever does not fit is an error by name."""
    for _ in range(LOOKS):
        before = _seal_bytes(folder)
        try:
            return _check(folder)
        except UserError:
            if _seal_bytes(folder) == before:
                raise
    return _check(folder)


def _check(folder: Path) -> tuple[Sealing, dict[JournalName, bytes]]:
    described, sealed = read_settings(folder), settings_are_sealed(folder)
    path = folder / SEAL
    # The seal before the journals: a run that goes on meanwhile only makes them longer.
    seal = parse(path, read_json(path)) if os.path.lexists(path) else None
    begins = sealed and seal is None  # then a journal may not be there yet
    data = {name: b"" if begins and not journal_path(folder, name).exists() else _journal_bytes(folder, name) for name in VOUCHED}
    if seal is None:
        if sealed and checkpoint_files(folder, ".json"):
            raise UserError(
                f"{path} is missing, so nothing vouches for the scores of the run; 'comad train' makes them again from a checkpoint"
            )
        _refuse_changed(folder, data, {} if sealed else marks(folder))
        return Sealing(None, legacy=not sealed), data
    if not sealed:
        raise UserError(f"{folder / 'settings.json'} has lost its seal, though {SEAL} is there; restore it from a copy")
    if seal.identity != digest(described["identity"]):
        raise UserError(f"{path} belongs to a run of other settings than {folder / 'settings.json'} describes; restore both from a copy")
    _refuse_changed(folder, data, seal.journals)
    return Sealing(seal), data


def _refuse_changed(folder: Path, data: Mapping[JournalName, bytes], journals: Mapping[JournalName, Mark]) -> None:
    for name in VOUCHED:
        if (mark := journals.get(name)) and mark_of(data[name][: mark.size]) != mark:
            raise UserError(f"{journal_path(folder, name)} is damaged: its first {mark.size} bytes are not those that were written")


def as_json(seal: Seal) -> dict[str, Any]:
    """Returns a seal as plain values."""
    journals: dict[str, Any] = {name: settings(mark) for name, mark in seal.journals.items()}
    return {"version": VERSION, "identity": seal.identity, **journals}


def parse(path: Path, value: Any) -> Seal:
    """Reads a seal from plain values; anything missing, left over or of another kind is an error."""
    try:
        journals = {name: Mark(int(value[name]["size"]), str(value[name]["sha256"])) for name in VOUCHED}
        found = Seal(str(value["identity"]), journals)
    except MALFORMED as error:
        raise UserError(f"{path} is not a seal ({error!r}); restore it from a copy") from error
    if as_json(found) != value or any(mark.size < 0 for mark in journals.values()):
        raise UserError(f"{path} is not a seal of version {VERSION}; restore it from a copy")
    return found


def _read(path: Path) -> Any:
    try:
        return read_json(path)
    except UserError:
        return None


def _seal_bytes(folder: Path) -> bytes:
    try:
        return read_regular(folder / SEAL)
    except FileNotFoundError:
        return b""


def _journal_bytes(folder: Path, name: JournalName) -> bytes:
    path = journal_path(folder, name)
    try:
        return read_regular(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})") from error
