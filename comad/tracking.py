"""Trackers: what a run writes down, to be watched in TensorBoard or Weights & Biases.

The journals are the truth. In every sitting a tracker is written anew from their first line, so that it neither holds what a killed run has
lost nor lacks what was learned while nobody tracked.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol

from comad.errors import MALFORMED, UserError
from comad.files import open_regular, parse_json, refuse_link
from comad.runs.folder import JOURNALS, TRACK, JournalName, disk_errors, journal_path
from comad.runs.journal import Record
from comad.runs.record import MODES

Name = Literal["tensorboard", "wandb"]


@dataclass(frozen=True)
class Point:
    """What one line of a journal says in numbers."""

    update: int
    """Updates made until then, over all tasks."""
    values: dict[str, float]


class Tracker(Protocol):
    """Somebody who shows numbers."""

    def show(self, point: Point) -> None:
        """Take in what a line says."""
        ...

    def flush(self) -> None:
        """Let readers see all that was taken in."""
        ...

    def close(self) -> None:
        """There is no more to come."""
        ...


class TensorBoard:
    """Writes an event file."""

    def __init__(self, folder: Path, identity: dict[str, Any]) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog
        from tensorboardX.proto.summary_pb2 import Summary
        from tensorboardX.summary import hparams

        self._event, self._summary = Event, Summary
        place = refuse_link(folder / "tensorboard")
        place.mkdir(parents=True, exist_ok=True)
        for old in place.glob("events.out.tfevents.*"):
            old.unlink()
        # Not the library's usual writer, whose thread and queue would keep a full disk to themselves.
        self._writer = EventsWriter(str(place / "events"))
        # A TensorBoard that has read the old file forgets it: all from step 0 on is told again.
        self._writer.write_event(Event(step=0, wall_time=time.time(), session_log=SessionLog(status=SessionLog.START)))
        experiment, start, _ = hparams(dict(flat(identity)), {f"P-seen/{mode}": 0.0 for mode in MODES})
        for summary in (experiment, start):
            self._writer.write_event(Event(step=0, wall_time=time.time(), summary=summary))

    def show(self, point: Point) -> None:
        """Write one event with all numbers of a line."""
        values = [self._summary.Value(tag=tag, simple_value=value) for tag, value in point.values.items()]
        self._writer.write_event(self._event(step=point.update, wall_time=time.time(), summary=self._summary(value=values)))

    def flush(self) -> None:
        """Write out what is still in memory."""
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


class WeightsAndBiases:
    """Writes a run of Weights & Biases; nothing leaves the machine unless the user has set WANDB_MODE."""

    def __init__(self, folder: Path, identity: dict[str, Any]) -> None:
        # Before the import, which would begin to report home, offline or not.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        mode, number = os.environ.get("WANDB_MODE", "offline"), run_id(identity)
        folder.mkdir(parents=True, exist_ok=True)
        for old in refuse_link(folder / "wandb").glob(f"offline-run-*-{number}"):
            shutil.rmtree(old)
        try:
            self._run = wandb.init(
                dir=str(folder.resolve()),
                project=os.environ.get("WANDB_PROJECT", "comad"),
                id=number,
                group=f"{identity['stream']}-{identity['quality']}",
                name=f"{identity['method']}-seed{identity['seed']}",
                config=identity,
                resume="allow" if mode in ("online", "run") else None,  # "run" is its old word
                settings=wandb.Settings(
                    mode=mode,
                    silent=True,
                    console="off",
                    disable_git=True,
                    disable_code=True,
                    x_disable_stats=True,
                    x_disable_meta=True,
                    x_save_requirements=False,
                ),
            )
        except (wandb.Error, ValueError) as error:
            raise UserError(f"wandb cannot begin in {folder} with WANDB_MODE {mode!r} ({error}); 'offline' needs no network") from error
        # Its own steps count lines, because two lines may be of the same update and must not overwrite each other.
        self._run.define_metric("update")
        self._run.define_metric("*", step_metric="update")
        # Only a server has any: lines of an earlier sitting, which are the same again.
        self._there = self._run.starting_step

    def show(self, point: Point) -> None:
        """Add one row with all numbers of a line."""
        if self._there:
            self._there -= 1
        else:
            self._run.log({"update": point.update, **point.values})

    def flush(self) -> None:
        """Nothing is held back here: rows are handed on at once."""

    def close(self) -> None:
        """End the run, for now."""
        self._run.finish()


LIBRARIES: dict[Name, str] = {"tensorboard": "tensorboardX", "wandb": "wandb"}
TRACKERS: dict[Name, Callable[[Path, dict[str, Any]], Tracker]] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}


def check(names: Sequence[Name]) -> None:
    """Refuse a tracker whose library is not installed."""
    for name in names:
        found = find_spec(LIBRARIES[name])
        # A mere folder of that name, such as the one that wandb leaves wherever it is used, has no origin.
        if found is None or found.origin is None:
            raise UserError(f"--track {name} needs {LIBRARIES[name]}, which is not installed here; pip install 'comad[track]' brings it")


@contextmanager
def following(folder: Path, identity: dict[str, Any], names: Sequence[Name]) -> Iterator[Callable[[], None]]:
    """Trackers of the run in a folder, which this process must hold; call what this gives whenever the journals have grown.

    The first call must come after the run was resumed, for until then journals may hold lines of a lost time.
    """
    with ExitStack() as stack:
        trackers = []
        for name in dict.fromkeys(names):
            with disk_errors(folder):
                trackers.append(TRACKERS[name](refuse_link(folder / TRACK), identity))
            stack.callback(trackers[-1].close)
        tail = Tail(folder, identity)

        def follow() -> None:
            if not trackers:
                return
            with disk_errors(folder):
                points = tail.read()
                for tracker in trackers:
                    for point in points:
                        tracker.show(point)
                    tracker.flush()

        yield follow
        follow()  # a run that was finished already has told nothing on its way


class Tail:
    """Reads the journals of a run piece by piece, each time what was added since the last."""

    def __init__(self, folder: Path, identity: dict[str, Any]) -> None:
        self._folder, self._identity = folder, identity
        self._sizes = dict.fromkeys(JOURNALS, 0)

    def read(self) -> list[Point]:
        """What is new, in the order in which it was written."""
        fresh = [line for name in JOURNALS for line in self._lines(name)]
        fresh.sort(key=lambda line: line[0])
        return [point for _, point in fresh if point.values]

    def _lines(self, name: JournalName) -> list[tuple[tuple[int, int, int], Point]]:
        """Returns when each new line was written, and what it says; damaged lines are left out, for trackers only show."""
        with open_regular(journal_path(self._folder, name)) as file:
            file.seek(self._sizes[name])
            data = file.read()
        lines = data.split(b"\n")[:-1]
        self._sizes[name] += sum(len(line) + 1 for line in lines)
        found = []
        for line in lines:
            with suppress(*MALFORMED):
                record = parse_json(line)
                found.append((moment(self._identity, name, record), describe(self._identity, name, record)))
        return found


def moment(identity: dict[str, Any], journal: JournalName, record: Record) -> tuple[int, int, int]:
    """When a line was written: the task, how many of its updates were made, and the order of lines at the same update."""
    if journal == "heads":
        return (record["task"], 0, 0) if record["when"] == "begin" else (record["task"], identity["budget"]["updates"], 2)
    return record["task"], record["update"], 1 if journal == "logs" else 3


def describe(identity: dict[str, Any], journal: JournalName, record: Record) -> Point:
    """The numbers of a line, by the names under which trackers show them."""
    task, update, _ = moment(identity, journal, record)
    if journal == "scores":
        # With their places, because a stream may come back to a task.
        names = [f"{place}-{each['name']}" for place, each in enumerate(identity["tasks"])]
        values = {f"head-played/{name}": head for name, head in zip(names, record["heads"], strict=True)}
        for mode in MODES:
            scores = record[mode]["score"]
            values |= {f"score-{mode}/{name}": score for name, score in zip(names, scores, strict=True)}
            values[f"P-seen/{mode}"] = sum(scores[: task + 1]) / (task + 1)
    else:
        values = {f"{journal}/{name}": value for name, value in record.items() if name not in ("task", "update") and _is_number(value)}
    return Point(task * identity["budget"]["updates"] + update, {name: float(value) for name, value in values.items()})


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Settings without nesting, each under its path."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else None
    if parts is None:
        yield name, value
        return
    for key, part in parts:
        yield from flat(part, f"{name}.{key}" if name else str(key))


def run_id(identity: dict[str, Any]) -> str:
    """The same for every sitting of a run, and another for every other run."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
