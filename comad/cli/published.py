"""Tables of published datasets, to show one's own beside."""

import csv
import io
from pathlib import Path

from comad import streams
from comad.errors import UserError
from comad.files import read_regular

COLUMNS = ("stream", "task", "quality", "avg_length", "avg_return")
"""That a published table must have."""
MOST_CSV = 1 << 24
"""Bytes of a published table that are still read; the paper's has a hundred rows."""


def read_published(path: Path) -> dict[tuple[str, str], dict[str, str]]:
    """Published rows by world and quality."""
    try:
        text = read_regular(path, MOST_CSV).decode("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        names, rows = reader.fieldnames or (), list(reader)
    except (OSError, ValueError, csv.Error) as error:
        said = f"cannot be read as a table ({_reason(error)})"
        raise UserError(f"{path}: {said}; give a CSV file in UTF-8") from error
    wanted = f"a published table has the columns {', '.join(COLUMNS)}"
    if missing := [name for name in COLUMNS if name not in names]:
        raise UserError(f"{path}: has no column {missing[0]!r}; {wanted}")
    if not rows:
        raise UserError(f"{path}: has no row below its header; {wanted} and a row per dataset")
    for number, row in enumerate(rows, start=1):
        if empty := [name for name in COLUMNS if row[name] is None]:
            raise UserError(f"{path}: row {number} ends before its column {empty[0]!r}; {wanted}")
    pairs = ((stream, task) for stream in streams.STREAMS.values() for task in stream.tasks)
    worlds = {_published_name(stream.name, task.name): task.env for stream, task in pairs}
    known = [(worlds.get(_published_name(row["stream"], row["task"])), row) for row in rows]
    return {(env, row["quality"]): row for env, row in known if env}


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _published_name(stream: str, task: str) -> tuple[str, str]:
    """A task as tables call it: with or without its stream, and the Ant's without the Ant."""
    family = stream.lower().removeprefix("ant-")
    return family, task.lower().replace("-", "_").removeprefix(f"{family}_")
