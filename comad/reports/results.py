"""Runs gathered by what they have in common: one result per stream, quality, budget and method, over all its seeds."""

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np

from comad.errors import MALFORMED, UserError
from comad.metrics import Summary, backward_transfer, forward_transfer, performance, summarize
from comad.runs.folder import is_number
from comad.runs.record import RunRecord, find_runs, one_grid, read_portrait, read_run
from comad.runs.standing import Standing, look

Metric = Literal["P", "FwT", "BwT"]
METRICS: tuple[Metric, ...] = ("P", "FwT", "BwT")
Mode = Literal["sampled", "greedy"]
Place = tuple[str, str]
"""Stream and quality of the data."""
MODES: tuple[Mode, ...] = ("sampled", "greedy")
SCRATCH = "fs"
"""The method whose curves are the reference of forward transfer."""
UNDEFINED: dict[str, tuple[Metric, ...]] = {"mt": ("FwT", "BwT"), SCRATCH: ("FwT",)}
"""What says nothing of a method: MT learns no task after another, and FS is what FwT is measured against."""


@dataclass(frozen=True)
class Flaw:
    """A run that cannot be counted."""

    path: Path
    why: str
    standing: Standing | None = None
    """How far it is, if all that it lacks is time."""


@dataclass(frozen=True)
class Result:
    """All finished runs of one method on one stream, which differ in nothing but the seed."""

    stream: str
    quality: str
    updates: int
    """Per task."""
    label: str
    """The method, and the variant's name if it is one."""
    method: str
    tasks: tuple[str, ...]
    records: tuple[RunRecord, ...]
    """In the order of their seeds."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that are there."""
        return tuple(record.settings["identity"]["seed"] for record in self.records)

    def scores(self, mode: Mode = "sampled") -> np.ndarray:
        """Scores ``[seed, task, point, on]``."""
        return np.stack([record.score_array(mode) for record in self.records])


def place_of(result: Result) -> Place:
    """Where a result was reached."""
    return result.stream, result.quality


def gather(folders: Iterable[Path]) -> tuple[list[Result], list[Flaw]]:
    """The results of all runs in some folders, and the runs that are damaged or not finished."""
    groups: dict[tuple[str, str, int, str], list[RunRecord]] = {}
    flaws: list[Flaw] = []
    for path in dict.fromkeys(path for folder in folders for path in find_runs(folder)):
        try:
            record = read_run(path)
            if (standing := look(path)) and not standing.finished:
                flaws.append(Flaw(path, f"{path} is not finished: {standing.done} of {standing.total} updates are made", standing))
                continue
            key = _key(record)
            flaws += _flawed_portrait(path)
        except UserError as error:
            flaws.append(Flaw(path, str(error)))
        except MALFORMED as error:
            flaws.append(Flaw(path, f"{path} does not describe a training ({error!r})"))
        else:
            groups.setdefault(key, []).append(record)
    return [_result(*key, records) for key, records in sorted(groups.items())], flaws


def _key(record: RunRecord) -> tuple[str, str, int, str]:
    """What a run has in common with those of other seeds; whatever is needed of it later fails here, if it must."""
    for mode in MODES:
        record.score_array(mode)
    record.growth()
    identity = record.settings["identity"]
    stream, quality, method = (identity[name] for name in ("stream", "quality", "method"))
    updates = identity["budget"]["updates"]
    texts = (stream, quality, method, *(task["name"] for task in identity["tasks"]))
    if not (all(isinstance(text, str) for text in texts) and type(identity["seed"]) is type(updates) is int and is_number(updates)):
        raise TypeError("a name is no text, or a number no number")
    if not isinstance(identity.get("settings", {}), dict):
        raise TypeError("its settings have no names")
    return stream, quality, updates, label_of(record.path, updates) or method


def _flawed_portrait(path: Path) -> list[Flaw]:
    """What is wrong with a run's portrait, without which it counts all the same."""
    try:
        read_portrait(path)
    except UserError as error:
        return [Flaw(path, str(error))]
    return []


def label_of(path: Path, updates: int) -> str:
    """What a run is called without its seed, and without its budget where that is part of the name."""
    return re.sub(r"-seed\d+$", "", path.resolve().name).removesuffix(f"-{updates}")


def _result(stream: str, quality: str, updates: int, label: str, records: Sequence[RunRecord]) -> Result:
    records = sorted(records, key=lambda record: record.settings["identity"]["seed"])
    first, *others = records
    for before, after in zip(records, others, strict=False):
        if _seed(before) == _seed(after):
            raise UserError(f"{before.path} and {after.path} are both seed {_seed(after)} of {label} on {stream}; leave one of them out")
    for other in others:
        ours, theirs = ({**record.settings["identity"], "seed": None} for record in (first, other))
        if differing := [name for name in sorted(ours.keys() | theirs.keys()) if ours.get(name) != theirs.get(name)]:
            raise UserError(f"{first.path} and {other.path} have one name but differ in their {differing[0]}; give them names of their own")
    identity = first.settings["identity"]
    tasks = tuple(task["name"] for task in identity["tasks"])
    return Result(stream, quality, updates, label, identity["method"], tasks, tuple(records))


def _seed(record: RunRecord) -> int:
    seed: int = record.settings["identity"]["seed"]
    return seed


def per_seed(result: Result, results: Sequence[Result], mode: Mode = "sampled") -> dict[Metric, np.ndarray]:
    """Each metric by seed, times 100; without forward transfer where nobody learned the same from scratch."""
    scores = result.scores(mode)
    found: dict[Metric, np.ndarray] = {"P": 100 * performance(scores)}
    reference = next((other for other in results if other.label == SCRATCH and one_grid(_identity(other), _identity(result))), None)
    if reference is not None:
        found["FwT"] = 100 * forward_transfer(scores, reference.scores(mode))
    if len(result.tasks) > 1:
        found["BwT"] = 100 * backward_transfer(scores)
    return {name: values for name, values in found.items() if name not in UNDEFINED.get(result.method, ())}


def summaries(result: Result, results: Sequence[Result], mode: Mode = "sampled") -> dict[Metric, Summary]:
    """Each metric over seeds."""
    return {name: summarize(values) for name, values in per_seed(result, results, mode).items()}


def _identity(result: Result) -> dict[str, Any]:
    identity: dict[str, Any] = result.records[0].settings["identity"]
    return identity


@cache
def published() -> dict[tuple[str, str, str, str], tuple[float, float]]:
    """Means and deviations of the paper's tables by stream, quality, method and metric."""
    with (files("comad.reports") / "published.csv").open() as file:
        return {
            (row["stream"], row["quality"], row["method"], row["metric"]): (float(row["mean"]), float(row["std"] or "nan"))
            for row in csv.DictReader(file)
        }


def published_growth(stream: str, quality: str) -> list[dict[str, str]]:
    """How the paper's library grew on a stream, task by task; empty where it does not say."""
    with (files("comad.reports") / "growth.csv").open() as file:
        return [row for row in csv.DictReader(file) if (row["stream"], row["quality"]) == (stream, quality)]
