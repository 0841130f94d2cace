"""Journals: files of JSON lines that only grow, and can be cut back to where a checkpoint was."""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comad import failpoints
from comad.errors import UserError
from comad.files import parse_json, refuse_link, write_bytes

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
        if not refuse_link(path).exists():
            write_bytes(path, b"")  # rather than by opening, so that the folder is synced
        self._file = path.open("ab", buffering=0)
        self._file.truncate(size)
        self.sync()
        self._size = size
        self._hash = hashlib.sha256(path.read_bytes())

    @property
    def mark(self) -> Mark:
        """Length and hash of all that was appended."""
        return Mark(self._size, self._hash.hexdigest())

    def append(self, record: Record) -> None:
        """Add one line, for readers to see at once; NaN and infinity are refused."""
        line = (json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n").encode()
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


def read_journal(path: Path) -> list[Record]:
    """All records of a journal. A last line without an end is one that is, or was, being written: it is left out."""
    try:
        lines = refuse_link(path).read_bytes().split(b"\n")[:-1]
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})") from error
    return [_parse(path, number, line) for number, line in enumerate(lines, start=1)]


def last_record(path: Path) -> Record | None:
    """The newest whole record, without reading what came before it; none if there is none yet."""
    try:
        with refuse_link(path).open("rb") as file:
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
