"""Ways to spoil a file, chosen by a stream of numbers: bits, cuts, repeats, and, of what is JSON, any value in place of any other."""

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from readers import ODD, Reader

from comad.errors import UserError

Choose = Callable[[int], int]
"""A number from zero up to, but without, another."""


def spoil_bytes(data: bytes, choose: Choose) -> bytes:
    """Change a few bytes, cut, repeat or insert some."""
    for _ in range(1 + choose(3)):
        at = choose(len(data) + 1)
        kind = choose(5)
        if kind == 0:
            data = data[:at]
        elif kind == 1 and at < len(data):
            data = data[:at] + bytes([data[at] ^ 1 << choose(8)]) + data[at + 1 :]
        elif kind == 2:
            data = data[:at] + bytes(choose(256) for _ in range(1 + choose(8))) + data[at:]
        elif kind == 3:
            data = data[:at] + data[at : at + choose(64)] * (1 + choose(3)) + data[at:]
        else:
            data = data[:at] + data[at + choose(64) :]
    return data


def spoil_value(value: Any, choose: Choose) -> Any:
    """The same with something else in one place, or without it."""
    if isinstance(value, dict) and value and choose(6):
        name = list(value)[choose(len(value))]
        if choose(8) == 0:
            return {other: kept for other, kept in value.items() if other != name}
        return {**value, name: spoil_value(value[name], choose)}
    if isinstance(value, list) and value and choose(6):
        place = choose(len(value))
        if choose(8) == 0:
            return value[:place] + value[place + 1 :]
        return [*value[:place], spoil_value(value[place], choose), *value[place + 1 :]]
    return ODD[choose(len(ODD))]


def spoil_file(path: Path, choose: Choose) -> None:
    """Change a file in one of the ways that suit it."""
    data = path.read_bytes()
    try:
        if choose(4) == 0:
            raise ValueError
        if path.suffix == ".json":
            path.write_text(json.dumps(spoil_value(json.loads(data), choose)))
            return
        if path.suffix == ".jsonl":
            lines = data.decode().splitlines()
            place = choose(len(lines))
            lines[place] = json.dumps(spoil_value(json.loads(lines[place]), choose))
            path.write_text("\n".join(lines) + "\n")
            return
    except (ValueError, ZeroDivisionError):
        pass
    path.write_bytes(spoil_bytes(data, choose))


def attack(reader: Reader, sound: Path, choose: Choose) -> str:
    """Spoil a file of a sound folder and let it be read: what it was refused with, if anything. Whatever else is raised is a fault."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(shutil.copytree(sound, Path(temporary) / "copy"))
        files = sorted(path for pattern in reader.files for path in folder.glob(pattern) if path.is_file() and path.name != "lock")
        for _ in range(1 + choose(2)):
            spoil_file(files[choose(len(files))], choose)
        reader.mend(folder)
        try:
            reader.read(folder)
        except UserError as error:
            str(error).encode()
            return str(error) or "nothing said"
        except SystemExit as stop:  # from tyro, which has said why
            assert stop.code == 2
            return "misuse"
    return ""
