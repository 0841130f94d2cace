"""What all verbs share when they speak to a person: tables and JSON on stdout, progress on stderr."""

import json
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from comad.cli.standard_streams import STDOUT
from comad.escaping import harmless

Thing = TypeVar("Thing")
PLAIN_SECONDS, LONGEST_PAUSE = 4.0, 30.0
"""Seconds between two lines of progress where no bar can be drawn: at first, and at most."""
PLAIN_WIDTH = 120
"""Columns when the output is not a terminal, where cutting a name off would lose it."""


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows under a title, columns of numbers to the right."""
    table = Table(title=harmless(title), title_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        numeric = all(_is_number(str(row[index])) for row in rows)
        table.add_column(harmless(column), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*[harmless(str(value)) for value in row])
    with _naming_stdout():
        _console().print(table)


def show_lines(lines: Sequence[str]) -> None:
    """Print lines of text, each in one piece."""
    with _naming_stdout():
        for line in lines:
            _console().print(harmless(line), soft_wrap=True)


def show_json(value: Any) -> None:
    """Print one JSON document and nothing else."""
    with _naming_stdout():
        print(json.dumps(value, indent=2))


@contextmanager
def _naming_stdout() -> Iterator[None]:
    """Tells by the error of a full disk that it was standard output that could not be written."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or STDOUT
        raise


@contextmanager
def progress() -> Iterator[Progress]:
    """A bar with the time left on stderr while something takes long; where that is no terminal, a plain line now and then."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    watched = sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not watched) as bar, _plain_lines(bar, not watched):
        yield bar


def followed(things: Sequence[Thing], what: str) -> Iterator[Thing]:
    """The things, one after another, with progress through them."""
    with progress() as bar:
        # Not the bar's own way of following, which says nothing where no bar is drawn.
        task = bar.add_task(what, total=len(things))
        for thing in things:
            yield thing
            bar.advance(task)


@contextmanager
def _plain_lines(bar: Progress, wanted: bool) -> Iterator[None]:
    """Say how far things are every few seconds, for those who read a log."""
    done, began = threading.Event(), time.monotonic()

    def speak() -> None:
        while not done.wait(pause(time.monotonic() - began)):
            for task in bar.tasks:
                left = f", {task.time_remaining:.0f} s left" if task.time_remaining is not None else ""
                print(f"{harmless(task.description)}: {task.percentage:.0f} %{left}", file=sys.stderr, flush=True)

    speaker = threading.Thread(target=speak, daemon=True)
    if wanted:
        speaker.start()
    try:
        yield
    finally:
        done.set()
        if wanted:
            speaker.join()


def pause(elapsed: float) -> float:
    """Returns the seconds until the next line of progress: few at first, more after minutes."""
    return max(PLAIN_SECONDS, min(LONGEST_PAUSE, elapsed / 30))


def duration(seconds: float) -> str:
    """Returns a time as people say it."""
    minutes, rest = divmod(round(seconds), 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes}:{rest:02} min" if minutes < 10 else f"{seconds / 60:.0f} min"


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[-+]?[\d,]*(\.\d+)?", text) is not None


def _console() -> Console:
    # Markup would take the brackets of comad[dev] for a style.
    return Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else PLAIN_WIDTH)
