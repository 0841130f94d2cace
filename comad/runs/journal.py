"""Journals: files of JSON lines that only grow, and can be cut back to where a checkpoint was."""

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comad import failpoints
from comad.errors import UserError
from comad.files import open_regular, open_to_append, parse_json, read_regular, write_bytes

Record = dict[str, Any]
REACH = 4096
"""Bytes from the end of a journal in which its last record is looked for at first."""


@dataclass(frozen=True)
class Mark:
    """How many bytes of a file have been written, and their hash."""

    size: int
    sha256: str


class Journal:
    """A journal open for writing, cut to its first bytes; it knows its mark up to now."""

    def __init__(self, path: Path, size: int) -> None:
        if not os.path.lexists(path):
            write_bytes(path, b"")  # rather than by opening, so that the folder is synced
        self._file = open_to_append(path)
        # One that lost its end, which only a diagnostic journal may have, goes on in a line of its own.
        found = read_regular(path)[:size]
        self._file.truncate(len(found))
        if found and not found.endswith(b"\n"):
            self._write(b"\n")
            found += b"\n"
        self.sync()
        self._size = len(found)
        self._hash = hashlib.sha256(found)

    @property
    def mark(self) -> Mark:
        """Length and hash of all that was appended."""
        return Mark(self._size, self._hash.hexdigest())

    def append(self, record: Record) -> None:
        """Add one line, for readers to see at once; NaN and infinity are refused."""
        line = line_of(record)
        failpoints.reach("half-line", lambda: self._write(line[: len(line) // 2]))
        try:
            self._write(line)
        except BaseException:
            # On a full disk a part may have been written, which would spoil the next line.
            self._file.truncate(self._size)
            raise
        self._size += len(line)
        self._hash.update(line)

    def sync(self) -> None:
        """Return only when everything appended is on the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Give the file back."""
        self._file.close()

    def _write(self, data: bytes) -> None:
        while data:
            data = data[self._file.write(data) :]


def mark_of(data: bytes) -> Mark:
    """Returns the mark of these bytes."""
    return Mark(len(data), hashlib.sha256(data).hexdigest())


def line_of(record: Record) -> bytes:
    """Returns a record as it is written: what marks and seals are made of."""
    return (json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n").encode()


def read_journal(path: Path) -> list[Record]:
    """All records of a journal. A last line without an end is one that is, or was, being written: it is left out."""
    try:
        return parse_journal(path, read_regular(path))
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})") from error


def read_diagnostic(path: Path) -> list[Record]:
    """All records of a journal that can be read; the others are left out, for nothing else depends on them."""
    found = []
    for number, line in enumerate(read_regular(path).split(b"\n") if os.path.lexists(path) else [], start=1):
        with suppress(UserError):
            found.append(_parse(path, number, line))
    return found


def parse_journal(path: Path, data: bytes) -> list[Record]:
    """All records in the bytes of a journal."""
    return [_parse(path, number, line) for number, line in enumerate(data.split(b"\n")[:-1], start=1)]


def last_record(path: Path) -> Record | None:
    """The newest whole record, without reading what came before it; none if there is none yet."""
    try:
        with open_regular(path) as file:
            size, reach = file.seek(0, os.SEEK_END), REACH
            while True:
                file.seek(max(size - reach, 0))
                lines = file.read(min(size, reach)).split(b"\n")[:-1]
                # The first piece may be the end of a line, unless it is the start of the file.
                if len(lines) > 1 or (lines and reach >= size):
                    return _parse(path, 0, lines[-1])
                if reach >= size:
                    return None
                reach *= 4
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})") from error


def _parse(path: Path, number: int, line: bytes) -> Record:
    try:
        record = parse_json(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}, {_which(number)}: damaged ({error})") from error
    if not isinstance(record, dict):
        raise UserError(f"{path}, {_which(number)}: not a record")
    return record


def _which(number: int) -> str:
    return f"line {number}" if number else "last line"
