"""The folder of a run: what lies in it, and the settings it belongs to."""

import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

from comad import failpoints
from comad.errors import UserError
from comad.files import read_json, refuse_link, write_json

LOCK, SETTINGS, CHECKPOINTS = "lock", "settings.json", "checkpoints"
COST, PORTRAIT, TRACK = "cost.json", "portrait.json", "track"
"""What is told of a run without being part of it."""
JournalName = Literal["logs", "heads", "scores"]
JOURNALS: tuple[JournalName, ...] = get_args(JournalName)
"""In the order in which they are created: a folder with scores has all of them."""

LOOK_AGAIN = 0.2
"""Seconds between two looks at a lock that somebody else holds."""
BEYOND_MEASURE = 1e18
_ABSENT = object()
_TEMPORARY = re.compile(rf"\.({re.escape(SETTINGS)}|{re.escape(COST)}|{re.escape(PORTRAIT)}|({'|'.join(JOURNALS)})\.jsonl)-.*")
_CHECKPOINT = re.compile(r"\d{9,}\.(json|safetensors)")
_TEMPORARY_CHECKPOINT = re.compile(rf"\.+{_CHECKPOINT.pattern}.*")


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """What the disk refuses in here is the user's to mend."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{error.filename or folder} cannot be read or written ({error.strerror or error})") from error


@contextmanager
def locked(folder: Path, wait: float = 0.0) -> Iterator[None]:
    """Keep other processes out, after waiting so many seconds for one that is in; the lock goes when this process does, however it ends."""
    with disk_errors(folder):
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        with disk_errors(folder):
            _take(handle, folder, time.monotonic() + wait)
        yield
    finally:
        os.close(handle)


def journal_path(folder: Path, name: JournalName) -> Path:
    """Where a journal of a run lies."""
    return folder / f"{name}.jsonl"


def checkpoint_files(folder: Path, suffix: str) -> list[Path]:
    """The files of checkpoints with this ending, oldest first."""
    found = [path for path in refuse_link(folder / CHECKPOINTS).glob(f"*{suffix}") if _CHECKPOINT.fullmatch(path.name)]
    return sorted(found, key=lambda path: int(path.stem))


def refuse_foreign(folder: Path) -> None:
    """Stop before anything is written into a folder that holds something else than a run."""
    if (folder / SETTINGS).exists():
        read_settings(folder)
        return
    # A run killed in its first moments leaves a lock and half-written files, nothing else.
    if folder.exists() and any(entry.name != LOCK and not _TEMPORARY.fullmatch(entry.name) for entry in folder.iterdir()):
        raise UserError(f"{folder} is not empty and holds no run; choose another folder")


def claim(folder: Path, settings: dict[str, Any], fresh: bool) -> None:
    """Make the folder the run of these settings; refuse one that belongs to others, or empty it if asked for a fresh start."""
    if not isinstance(settings.get("identity"), dict) or "earlier" in settings:
        raise ValueError("settings need a dict under 'identity'; 'earlier' is kept for what changed between sittings")
    path = folder / SETTINGS
    settings = json.loads(json.dumps(settings, allow_nan=False))
    if not path.exists():
        write_json(path, settings)
        return
    found = read_settings(folder)
    if fresh:
        _clear(folder)
        write_json(path, settings)
        return
    if differing := list(differences(found["identity"], settings["identity"])):
        raise UserError(f"{folder} holds another run: {', '.join(differing)}; choose another folder or --fresh")
    earlier = found.pop("earlier", [])
    if found != settings:
        del found["identity"]
        write_json(path, {**settings, "earlier": [*earlier, found]})


def read_settings(folder: Path) -> dict[str, Any]:
    """The settings of the run in a folder; a file that describes something else is refused."""
    if not (folder / SETTINGS).exists():
        raise UserError(f"there is no run in {folder}: it has no {SETTINGS}")
    found = read_json(refuse_link(folder / SETTINGS))
    if not isinstance(found, dict) or not isinstance(found.get("identity"), dict):
        raise UserError(f"{folder / SETTINGS} does not describe a run; choose another folder")
    return found


def read_cost(folder: Path) -> dict[str, Any] | None:
    """What the run in a folder has cost; none if nobody wrote it down."""
    if not (folder / COST).exists():
        return None
    found = read_json(refuse_link(folder / COST))
    if not isinstance(found, dict) or not all(is_number(value) for value in found.values()):
        raise UserError(f"{folder / COST} does not hold numbers by name; delete it, it is only a record")
    return found


def is_number(value: Any) -> bool:
    """Whether something that was read can be counted with: a number, and not beyond all measure."""
    return type(value) in (int, float) and abs(value) < BEYOND_MEASURE


def sweep(folder: Path) -> None:
    """Remove what a killed process left half done: temporary files, and arrays that no checkpoint was committed for."""
    refuse_link(folder / CHECKPOINTS).mkdir(exist_ok=True)
    half_written = [path for path in folder.iterdir() if _TEMPORARY.fullmatch(path.name)]
    half_written += [path for path in (folder / CHECKPOINTS).iterdir() if _TEMPORARY_CHECKPOINT.fullmatch(path.name)]
    uncommitted = [path for path in checkpoint_files(folder, ".safetensors") if not path.with_suffix(".json").exists()]
    for path in half_written + uncommitted:
        path.unlink()


def _take(handle: int, folder: Path, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                holder = os.pread(handle, 20, 0).decode(errors="replace").strip()
                raise UserError(f"{folder} is in use by another process (pid {holder or 'unknown'})") from error
            time.sleep(LOOK_AGAIN)
    os.ftruncate(handle, 0)
    os.write(handle, f"{os.getpid()}\n".encode())


def _clear(folder: Path) -> None:
    """Remove a run but for its settings, which keep the folder recognizable until they are replaced; whatever else lies there stays."""
    for path in checkpoint_files(folder, ".json") + checkpoint_files(folder, ".safetensors"):
        path.unlink()
        failpoints.reach("while-clearing")
    for name in JOURNALS:
        journal_path(folder, name).unlink(missing_ok=True)
    for path in (folder / COST, folder / PORTRAIT):
        path.unlink(missing_ok=True)
    if (folder / TRACK).exists():
        shutil.rmtree(folder / TRACK)


def differences(there: Any, here: Any, name: str = "") -> Iterator[str]:
    """Every setting that differs, by its path, with both values."""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in sorted(there.keys() | here.keys()):
            yield from differences(there.get(key, _ABSENT), here.get(key, _ABSENT), f"{name}.{key}" if name else key)
    elif isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        for index, (old, new) in enumerate(zip(there, here, strict=True)):
            yield from differences(old, new, f"{name}.{index}")
    elif there != here:
        yield f"{name} is {_shown(there)} there and {_shown(here)} here"


def _shown(value: Any) -> str:
    return "absent" if value is _ABSENT else json.dumps(value, ensure_ascii=False)
