"""Files that are either whole or absent: written beside their final name, synced, then renamed.

What a killed process has left half written is removed when the same name is written next. Whoever writes holds a lock on the half-written
file, which goes when the process does, so what another process is still writing is left alone.
"""

import ctypes
import errno
import fcntl
import hashlib
import json
import math
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any

from comad import failpoints
from comad.errors import UserError

HALF, KEPT = "half", "kept"
"""Marks in the hidden names of what is being written, and of what is being replaced."""
MOST_JSON = 1 << 28
"""Bytes of a JSON file that are still read; ours are thousands of times smaller."""
_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")
_HERE, _EXCHANGE = -100, 2
"""AT_FDCWD and RENAME_EXCHANGE of Linux."""


def write_bytes(path: Path, data: bytes) -> None:
    """Replace a file in one step: readers see the old content or the new, never a part."""
    if not path.parent.is_dir():
        make_folder(path.parent)
    sweep(path)
    failpoints.reach("before-file")
    handle, temporary = _claimed(path, lambda prefix: tempfile.mkstemp(dir=path.parent, prefix=prefix))
    try:
        with os.fdopen(handle, "wb") as file:
            failpoints.reach("half-file", lambda: os.write(handle, data[: len(data) // 2]))
            file.write(data)
            file.flush()
            # mkstemp makes files private; what we write is as public as the folder it stands in.
            os.chmod(temporary, 0o644)
            os.fsync(file.fileno())  # which syncs the rights too
            failpoints.reach("before-name")
            os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and error.filename is None:
            error.filename = str(path)  # a write that fails does not say where
        raise
    failpoints.reach("after-name")
    sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Plain values, readable by people, in a file that is whole or absent."""
    write_bytes(path, (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """Plain values; a file that is missing or not JSON is the user's to mend."""
    try:
        return parse_json(read_regular(path, MOST_JSON))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read as JSON ({error})") from error


def parse_json(data: bytes) -> Any:
    """Plain values that can be written again: no NaN, no number beyond all bounds, no half of a character; else a ``ValueError``."""
    text = data.decode()
    if _HALF_CHARACTER.search(text):
        json.dumps(json.loads(text), ensure_ascii=False).encode()
    return json.loads(text, parse_float=_finite, parse_constant=_finite)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number


def open_regular(path: Path) -> BufferedReader:
    """Opens a regular file for reading; never follows a link, never waits for a pipe, never touches a device.

    Everything that is read is opened here. A missing file is an ``OSError`` like everywhere, anything but a regular file a ``UserError``.
    """
    _check_regular(path, os.lstat(path).st_mode)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:  # became a link after the first look
            _check_regular(path, stat.S_IFLNK)
        raise
    try:
        _check_regular(path, os.fstat(handle).st_mode)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: Path, most: int | None = None) -> bytes:
    """Reads a regular file whole; one of more than ``most`` bytes is refused before it is read."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if most is not None and size > most:
            raise UserError(f"{path}: is {size} bytes long, and no file of its kind is longer than {most}; it is something else")
        return file.read(size)


def open_to_append(path: Path) -> FileIO:
    """Opens a regular file that exists for appending; a link, a pipe or a device is refused."""
    _check_regular(path, os.lstat(path).st_mode)
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    file = FileIO(handle, "ab")
    _check_regular(path, os.fstat(handle).st_mode)
    return file


def make_folder(path: Path) -> None:
    """Creates a folder and its parents so that they outlast a loss of power.

    Each new name is synced in the folder that holds it before anything is made below it. So is the
    name of the lowest folder that was there: another process may have just made it, and may
    have died before it could sync it.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    lowest = missing[-1].parent if missing else path
    with suppress(PermissionError):  # a folder that is closed to this user holds no names of ours
        sync_folder(lowest.parent)
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


_KINDS: dict[int, str] = {
    stat.S_IFLNK: "a link, which is not followed; put the file itself there",
    stat.S_IFDIR: "a folder, not a file",
    stat.S_IFIFO: "a pipe, not a file",
    stat.S_IFSOCK: "a socket, not a file",
    stat.S_IFCHR: "a device, not a file",
    stat.S_IFBLK: "a device, not a file",
}


def _check_regular(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise UserError(f"{path}: is {_KINDS.get(stat.S_IFMT(mode), 'not a file')}")


def refuse_link(path: Path) -> Path:
    """A file that lies where it seems to: a link in somebody else's folder may lead anywhere."""
    if path.is_symlink():
        raise UserError(f"{path}: is a link, which is not followed; put the file itself there")
    return path


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder that appears under its name only when everything in it has been written; it replaces one that stood there."""
    make_folder(path.parent)
    sweep(path)
    failpoints.reach("before-folder")

    def make(prefix: str) -> tuple[int, str]:
        while True:
            name = tempfile.mkdtemp(dir=path.parent, prefix=prefix)
            with suppress(FileNotFoundError):  # swept before it was opened
                return os.open(name, os.O_RDONLY), name

    handle, name = _claimed(path, make)
    temporary = Path(name)
    try:
        yield temporary
        for file in temporary.iterdir():
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
        os.chmod(temporary, 0o755)
        sync_folder(temporary)
        failpoints.reach("before-folder-name")
        _put_in_place(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    finally:
        os.close(handle)
    sync_folder(path.parent)


def sweep(path: Path) -> None:
    """Remove what killed processes left half written under this name; a folder that one of them was replacing comes back."""
    if not path.parent.is_dir():
        return
    pattern = re.compile(rf"\.{re.escape(path.name)}-({HALF}|{KEPT})-\w{{8}}")
    left = [entry for entry in path.parent.iterdir() if pattern.fullmatch(entry.name)]
    if left:
        # Else a loss of power could take back what made them needless, but not their removal.
        sync_folder(path.parent)
    for found in left:
        try:
            handle = os.open(found, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue  # gone in this very moment, or not ours
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if f"-{KEPT}-" in found.name and not path.exists():
                os.replace(found, path)
            elif found.is_dir():
                shutil.rmtree(found, ignore_errors=True)
            else:
                found.unlink(missing_ok=True)
        except OSError:
            continue  # somebody is writing it
        finally:
            os.close(handle)
    if left:
        # Else a part of a kept folder could come back, and be taken for the whole at a later fault.
        sync_folder(path.parent)


def sha256(path: Path) -> str:
    """Hash of a file's bytes."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _claimed(path: Path, make: Callable[[str], tuple[int, str]]) -> tuple[int, str]:
    """A temporary file or folder beside a name, and a handle that holds it: while it is open, nobody sweeps it away."""
    while True:
        handle, temporary = make(f".{path.name}-{HALF}-")
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.exists(temporary):  # it might have been swept before it was held
            return handle, temporary
        os.close(handle)


def _put_in_place(temporary: Path, path: Path) -> None:
    """Give a finished folder its name; what stood there changes places with it and is removed."""
    if not path.exists():
        os.replace(temporary, path)
        failpoints.reach("after-folder-name")
        return
    if not _exchange(temporary, path):
        old = path.with_name(temporary.name.replace(f"-{HALF}-", f"-{KEPT}-"))
        os.replace(path, old)
        failpoints.reach("while-exchanging")
        os.replace(temporary, path)
        temporary = old
    failpoints.reach("after-folder-name")
    # Else a loss of power could leave the old folder under the name, without what is removed now.
    sync_folder(path.parent)
    if temporary.is_symlink():  # the name was a link; what it led to belongs to somebody else
        temporary.unlink()
    else:  # nobody holds it any more, so another writer may be sweeping it away
        shutil.rmtree(temporary, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Let two names change places in one step, where the system can."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    return rename is not None and rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0


def sync_folder(path: Path) -> None:
    """Returns only when the names in a folder are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
