"""The folder of a run: what lies in it, and the settings it belongs to."""

import fcntl
import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

from comad import failpoints
from comad.errors import UserError
from comad.files import make_folder, read_json, read_regular, refuse_link, sync_folder, write_bytes, write_json

LOCK, SETTINGS, CHECKPOINTS, SEAL = "lock", "settings.json", "checkpoints", "seal.json"
COST, PORTRAIT, TRACK = "cost.json", "portrait.json", "track"
"""Diagnostics: told of a run without being part of it."""
SET_ASIDE = "set-aside"
"""The folder inside a run's to which files move that the run goes on without; nothing in it is ever deleted."""
JournalName = Literal["logs", "heads", "scores"]
JOURNALS: tuple[JournalName, ...] = get_args(JournalName)
"""In the order in which they are created: a folder with scores has all of them."""
VOUCHED: tuple[JournalName, ...] = ("heads", "scores")
"""The journals that results are made of. The others are diagnostics: damage in them costs nothing else."""

LOOK_AGAIN = 0.2
"""Seconds between two looks at a lock that somebody else holds."""
BEYOND_MEASURE = 1e18
_ABSENT = object()
_TEMPORARY = re.compile(
    rf"\.({re.escape(SETTINGS)}|{re.escape(SEAL)}|{re.escape(COST)}|{re.escape(PORTRAIT)}|({'|'.join(JOURNALS)})\.jsonl)-.*"
)
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
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise UserError(f"{folder / LOCK} is no file, so the run cannot be locked; remove it")
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


def refuse_foreign(folder: Path, fresh: bool = False) -> None:
    """Stop before anything is written into a folder that holds something else than a run."""
    if os.path.lexists(folder / SETTINGS):
        read_settings(folder, damaged=fresh)
        return
    # A run killed in its first moments leaves a lock and half-written files, nothing else.
    if folder.exists() and any(entry.name != LOCK and not _TEMPORARY.fullmatch(entry.name) for entry in folder.iterdir()):
        raise UserError(f"{folder} is not empty and holds no run; choose another folder")


def claim(folder: Path, settings: dict[str, Any], fresh: bool, accept_other_machine: bool = False) -> Path | None:
    """Makes the folder the run of these settings; refuses one that belongs to others.

    A fresh start moves the run that was there aside; the place where it is now is returned.
    """
    if not isinstance(settings.get("identity"), dict) or {"earlier", "seal"} & settings.keys():
        raise ValueError("settings need a dict under 'identity'; 'earlier' and 'seal' are kept for what a run itself notes")
    settings = json.loads(json.dumps(settings, allow_nan=False))
    if not (folder / SETTINGS).exists():
        write_settings(folder, settings)
        return None
    found = read_settings(folder, damaged=fresh)
    if fresh:
        place = set_run_aside(folder)
        write_settings(folder, settings)
        return place
    way_out = "choose another folder or --fresh"
    refuse_another(folder, found["identity"], settings["identity"], way_out)
    if not accept_other_machine and (differing := list(differences(found.get("machine"), settings.get("machine"), "machine"))):
        raise UserError(
            f"{folder} was begun on another machine, and a run of both would have bytes of neither: {', '.join(differing)}; "
            "go on there, with as many --cores, or with --accept-other-machine, which its settings then tell"
        )
    earlier = found.pop("earlier", [])
    if found != settings:
        del found["identity"]
        write_settings(folder, {**settings, "earlier": [*earlier, found]})
    elif not settings_are_sealed(folder):
        write_settings(folder, {**settings, **({"earlier": earlier} if earlier else {})})
    return None


def is_older(identity: Any) -> bool:
    """Tells whether a run's state has the arrays that a method had before 0.2."""
    settings = identity.get("settings") if isinstance(identity, dict) else None
    return isinstance(settings, dict) and "learner" in settings


def refuse_older(folder: Path, identity: Any) -> None:
    """Refuses a run that only comad 0.1 can continue or play."""
    if is_older(identity):
        raise UserError(
            f"{folder} was made by comad 0.1, whose checkpoints hold arrays by other names: "
            "comad 0.1 reads it; 'comad train --fresh' makes the run anew"
        )


def refuse_another(folder: Path, there: Any, here: Any, way_out: str) -> None:
    """Refuses a folder whose run has another identity than wanted here, naming all that differs."""
    refuse_older(folder, there)
    if differing := list(differences(there, here)):
        raise UserError(f"{folder} holds another run: {', '.join(differing)}; {way_out}")


def write_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Writes the settings of a run, with a digest by which readers notice a change."""
    write_json(folder / SETTINGS, {**settings, "seal": digest(settings)})


def read_settings(folder: Path, damaged: bool = False) -> dict[str, Any]:
    """Reads the settings of the run in a folder; refuses a file that describes something else, or a damaged one unless told otherwise."""
    path = folder / SETTINGS
    if not os.path.lexists(path):
        raise UserError(f"there is no run in {folder}: it has no {SETTINGS}")
    found = read_json(path)
    if not isinstance(found, dict) or not isinstance(found.get("identity"), dict):
        raise UserError(f"{path} does not describe a run; choose another folder")
    seal = found.pop("seal", None)
    if seal is not None and seal != digest(found) and not damaged:
        raise UserError(
            f"{path} is damaged: it is not as it was written (its seal does not fit); "
            "restore it from a copy, or move the run aside with --fresh"
        )
    return found


def settings_are_sealed(folder: Path) -> bool:
    """Whether the settings of a run carry a seal, as all have since seals exist."""
    found = read_json(folder / SETTINGS)
    return isinstance(found, dict) and found.get("seal") is not None


def digest(value: Any) -> str:
    """Returns the SHA-256 of plain values, whatever the order of their names."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, allow_nan=False).encode()).hexdigest()


def read_cost(folder: Path) -> dict[str, Any] | None:
    """What the run in a folder has cost; none if it was not noted, or cannot be read any more: it is only a record (`damaged_cost`)."""
    try:
        return None if damaged_cost(folder) else _read_cost(folder)
    except FileNotFoundError:
        return None


def damaged_cost(folder: Path) -> str | None:
    """What is wrong with the noted cost of a run, if anything."""
    try:
        found = _read_cost(folder)
    except UserError as error:
        return str(error)
    sound = found is None or (isinstance(found, dict) and all(is_number(value) for value in found.values()))
    return None if sound else f"{folder / COST} does not hold numbers by name; it is only a record, and the run counts without it"


def _read_cost(folder: Path) -> Any:
    return read_json(folder / COST) if os.path.lexists(folder / COST) else None


def is_number(value: Any) -> bool:
    """Whether something that was read can be counted with: a number, and not beyond all measure."""
    return type(value) in (int, float) and abs(value) < BEYOND_MEASURE


def sweep(folder: Path) -> None:
    """Removes the temporary files of a killed process."""
    make_folder(refuse_link(folder / CHECKPOINTS))
    half_written = [path for path in folder.iterdir() if _TEMPORARY.fullmatch(path.name)]
    half_written += [path for path in (folder / CHECKPOINTS).iterdir() if _TEMPORARY_CHECKPOINT.fullmatch(path.name)]
    for path in half_written:
        path.unlink()


def sweep_uncommitted(folder: Path) -> None:
    """Removes arrays that a killed process wrote without committing them; they are newer than every checkpoint, and are made again."""
    newest = max((int(path.stem) for path in checkpoint_files(folder, ".json")), default=-1)
    for path in checkpoint_files(folder, ".safetensors"):
        if int(path.stem) > newest:
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


def new_place_aside(folder: Path) -> Path:
    """Creates the next numbered folder for files that a run goes on without."""
    taken = [int(path.name) for path in (folder / SET_ASIDE).glob("[0-9]*") if path.name.isdigit()]
    place = folder / SET_ASIDE / f"{max(taken, default=0) + 1:03d}"
    make_folder(place / CHECKPOINTS)
    return place


def move_checkpoints_aside(folder: Path, place: Path, after: int = -1) -> None:
    """Moves all checkpoints beyond a position, oldest first, the arrays before what describes them."""
    for suffix in (".safetensors", ".json"):
        for path in checkpoint_files(folder, suffix):
            if int(path.stem) > after:
                os.replace(path, place / CHECKPOINTS / path.name)
                failpoints.reach("while-clearing")
        # Each kind for itself: arrays that are left behind without their description are removed.
        sync_folder(place / CHECKPOINTS)
        sync_folder(folder / CHECKPOINTS)


def set_run_aside(folder: Path) -> Path:
    """Moves a run aside; its settings stay to keep the folder recognizable until they are replaced, as does whatever else lies there."""
    place = new_place_aside(folder)
    write_bytes(place / SETTINGS, read_regular(folder / SETTINGS))
    move_checkpoints_aside(folder, place)
    for name in (*(journal_path(folder, name).name for name in JOURNALS), SEAL, COST, PORTRAIT, TRACK):
        if os.path.lexists(folder / name):
            os.replace(folder / name, place / name)
    sync_folder(place)
    sync_folder(folder)  # before the settings of another run take their place
    return place


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
