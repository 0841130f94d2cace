"""Lists that only grow: run as a program this adds what is new to those beside it.

    PYTHONPATH=.:tests python tests/identities/keeping.py

It refuses to change or to remove what is there, except where it is told to: with the places that
may change as words, such as ``settings.Budget.batch`` or all of ``weights.3m``. Whatever was
written under that name before is then lost to its readers.
"""

import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from identities import LISTS

HERE = Path(__file__).parent
WAY_OUT = (
    "A rename must not change what is written: give the class a WRITTEN entry (comad/settings.py), "
    "or leave the written name where a mapping states it."
)
GROW = "What is new is added by 'PYTHONPATH=.:tests python tests/identities/keeping.py'."


def recorded(name: str) -> Any:
    """Returns what a list says; nothing if there is none yet."""
    path = HERE / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def changes(before: Any, found: Any, place: str) -> tuple[list[str], list[str]]:
    """Returns the places where something is gone or another one, and those of what is new."""
    if isinstance(before, dict) and isinstance(found, dict):
        lost, new = [], []
        for name in sorted(before.keys() | found.keys()):
            inner = f"{place}.{name}"
            if name not in found:
                lost.append(f"{inner} is gone")
            elif name not in before:
                new.append(inner)
            else:
                deeper = changes(before[name], found[name], inner)
                lost, new = lost + deeper[0], new + deeper[1]
        return lost, new
    if isinstance(before, list) and isinstance(found, list):
        return (
            [f"{place}.{name} is gone" for name in before if name not in found],
            [f"{place}.{name}" for name in found if name not in before],
        )
    return ([] if before == found else [f"{place} is {found!r} instead of {before!r}"]), []


def without(value: Any, place: str, allowed: Collection[str]) -> Any:
    """Returns a list without all that may change."""
    if isinstance(value, dict):
        kept = {name: inner for name, inner in value.items() if f"{place}.{name}" not in allowed}
        return {name: without(inner, f"{place}.{name}", allowed) for name, inner in kept.items()}
    if isinstance(value, list):
        return [name for name in value if f"{place}.{name}" not in allowed]
    return value


def text(value: Any, depth: int = 0) -> str:
    """Returns plain values as JSON with a line per entry, sorted."""
    if not isinstance(value, dict):
        return json.dumps(value)
    entries = [(json.dumps(name), text(value[name], depth + 1)) for name in sorted(value)]
    lines = [f"{' ' * (depth + 1)}{name}: {inner}" for name, inner in entries]
    return "{\n" + ",\n".join(lines) + f"\n{' ' * depth}}}" if lines else "{}"


def main(allowed: list[str]) -> int:
    """Adds what is new; refuses if anything else would change."""
    found = {name: made() for name, made in LISTS.items()}
    kept = {name: without(recorded(name), name, allowed) for name in found}
    lost = [line for name, now in found.items() for line in changes(kept[name], now, name)[0]]
    if lost:
        sys.stderr.write("\n".join([*lost, WAY_OUT, ""]))
        return 1
    for name, now in found.items():
        (HERE / f"{name}.json").write_text(text(now) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
