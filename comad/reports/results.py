"""Runs gathered by what they have in common: one result per stream, quality, budget and method, over all its seeds."""

import csv
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np

from comad.errors import MALFORMED, UserError
from comad.metrics import (
    Summary,
    backward_transfer,
    forward_transfer,
    percent,
    performance,
    summarize,
)
from comad.ranges import Seed, Updates, check
from comad.runs.folder import SEAL, SETTINGS, damaged_cost, differences, disk_errors, is_number
from comad.runs.record import MODES, Mode, Play, RunRecord, conditions, find_runs, one_grid, read_portrait, read_run
from comad.runs.standing import Standing, standing_of

Metric = Literal["P", "FwT", "BwT"]
METRICS: tuple[Metric, ...] = ("P", "FwT", "BwT")
Place = tuple[str, str]
"""Stream and quality of the data."""
SCRATCH = "fs"
"""The method whose curves are the reference of forward transfer."""
UNDEFINED: dict[str, tuple[Metric, ...]] = {"mt": ("FwT", "BwT"), SCRATCH: ("FwT",)}
"""What says nothing of a method: MT learns no task after another, and FS is what FwT is measured against."""


@dataclass(frozen=True)
class Flaw:
    """What is wrong with a run."""

    path: Path
    why: str
    standing: Standing | None = None
    """How far it is, if all that it lacks is time."""
    counted: bool = False
    """Whether the run counts all the same."""


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
    changed: tuple[str, ...]
    """The options by which it is not what the method is by itself."""
    tasks: tuple[str, ...]
    records: tuple[RunRecord, ...]
    """In the order of their seeds."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that are there."""
        return tuple(record.settings["identity"]["seed"] for record in self.records)

    def mode(self, play: Play = "usual") -> Mode:
        """The way of playing that is meant, which is the same for all seeds."""
        return self.records[0].mode(play)

    def scores(self, play: Play = "usual") -> np.ndarray:
        """Scores ``[seed, task, point, on]``."""
        return np.stack([record.score_array(play) for record in self.records])


def place_of(result: Result) -> Place:
    """Where a result was reached."""
    return result.stream, result.quality


Departures = Callable[[Mapping[str, Any]], Sequence[str]]
"""From a run's identity to the options by which its method is not what it is by itself."""


def gather(folders: Iterable[Path], departures: Departures = lambda identity: ()) -> tuple[list[Result], list[Flaw]]:
    """The results of all runs in some folders, and the runs that are damaged or not finished."""
    return read_runs(runs_in(folders), departures)


def runs_in(folders: Iterable[Path]) -> list[Path]:
    """Returns the folders of all runs in some folders."""
    return list(dict.fromkeys(path for folder in folders for path in find_runs(folder)))


def vanished(path: Path) -> bool:
    """Whether a run that was listed is none any more: it was removed in the meantime, and is no flaw of anything."""
    return not any(os.path.lexists(path / name) for name in (SETTINGS, SEAL))


def read_runs(paths: Iterable[Path], departures: Departures) -> tuple[list[Result], list[Flaw]]:
    """The results of these runs, and those that are damaged or not finished; what has vanished since it was listed is left out."""
    groups: dict[tuple[str, str, int, str], list[RunRecord]] = {}
    flaws: list[Flaw] = []
    for path in paths:
        try:
            with disk_errors(path):
                record = read_run(path)
                if not (standing := standing_of(record)).finished:
                    flaws.append(Flaw(path, f"{path} is not finished: {standing.done} of {standing.total} updates are made", standing))
                    continue
                key = _key(record, departures)
                flaws += _noticed(record)
        except UserError as error:
            flaws += [] if vanished(path) else [Flaw(path, str(error))]
        except MALFORMED as error:
            flaws.append(Flaw(path, f"{path} does not describe a training ({error!r})"))
        else:
            groups.setdefault(key, []).append(record)
    results = [
        _result(stream, quality, updates, name, some, _changed(some[0], departures))
        for (stream, quality, updates, label), records in sorted(groups.items())
        for name, some in _apart(label, records)
    ]
    return results, flaws


def _key(record: RunRecord, departures: Departures) -> tuple[str, str, int, str]:
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
    check(Updates, "updates", updates)
    check(Seed, "seed", identity["seed"])
    if not isinstance(identity.get("settings", {}), dict):
        raise TypeError("its settings have no names")
    return stream, quality, updates, label_of(record.path, method, updates, _changed(record, departures))


def _changed(record: RunRecord, departures: Departures) -> tuple[str, ...]:
    try:
        return tuple(departures(record.settings["identity"]))
    except (UserError, *MALFORMED):
        return ()  # of a method or a version that nobody here can compare with


def _noticed(record: RunRecord) -> list[Flaw]:
    """What is worth knowing of a run that counts all the same."""
    path, said = record.path, []
    if record.legacy:
        said.append(f"{path} was made before seals existed, so nothing vouches for its scores; 'comad verify --seal' seals it as it is")
    if len(record.machines) > 1:
        one, other = record.machines[-2:]
        said.append(f"{path} was made on {len(record.machines)} kinds of machine: {', '.join(differences(one, other, 'machine'))}")
    said += [why for why in (damaged_cost(path),) if why]
    try:
        read_portrait(path)
    except UserError as error:
        said.append(str(error))
    return [Flaw(path, why, counted=True) for why in said]


def label_of(path: Path, method: str, updates: int, changed: Sequence[str]) -> str:
    """What a run's row is called: the variant's name if its folder says one, else the method and whatever was changed in it."""
    name = _stem(path).removesuffix(f"-{updates}")
    return name if name.startswith(f"{method}-") else " ".join((method, *changed))


def _stem(path: Path) -> str:
    return re.sub(r"-seed\d+$", "", path.resolve().name)


def _apart(label: str, records: Sequence[RunRecord]) -> list[tuple[str, Sequence[RunRecord]]]:
    """Runs of one label; if a seed is there twice, each folder's name by itself."""
    stems = dict.fromkeys(_stem(record.path) for record in records)
    if len(stems) == 1 or len({_seed(record) for record in records}) == len(records):
        return [(label, records)]
    return [(f"{label} ({stem})", [record for record in records if _stem(record.path) == stem]) for stem in stems]


def _result(stream: str, quality: str, updates: int, label: str, records: Sequence[RunRecord], changed: tuple[str, ...]) -> Result:
    records = sorted(records, key=lambda record: record.settings["identity"]["seed"])
    first, *others = records
    for before, after in zip(records, others, strict=False):
        if _seed(before) == _seed(after):
            raise UserError(f"{before.path} and {after.path} are both seed {_seed(after)} of {label} on {stream}; leave one of them out")
    for other in others:
        ours, theirs = ({**record.settings["identity"], "seed": None} for record in (first, other))
        if differing := next(differences(ours, theirs), None):
            raise UserError(f"{first.path} and {other.path} have one name but differ: {differing}; give them names of their own")
    identity = first.settings["identity"]
    tasks = tuple(task["name"] for task in identity["tasks"])
    return Result(stream, quality, updates, label, identity["method"], changed, tasks, tuple(records))


def _seed(record: RunRecord) -> int:
    seed: int = record.settings["identity"]["seed"]
    return seed


def per_seed(result: Result, results: Sequence[Result], play: Play = "usual") -> dict[Metric, np.ndarray]:
    """Each metric by seed, times 100; without forward transfer where nobody learned the same from scratch."""
    scores = result.scores(play)
    found: dict[Metric, np.ndarray] = {"P": percent(performance(scores))}
    if reference := from_scratch(result, results):
        found["FwT"] = percent(forward_transfer(scores, reference.scores(play)))
    if len(result.tasks) > 1:
        found["BwT"] = percent(backward_transfer(scores))
    return {name: values for name, values in found.items() if name not in UNDEFINED.get(result.method, ())}


def from_scratch(result: Result, results: Sequence[Result]) -> Result | None:
    """Who learned the same from scratch: with the changes of this result if somebody did, such as its learning rate, and with no other."""
    same = (other for other in results if other.method == SCRATCH and one_grid(identity_of(other), identity_of(result)))
    return max((other for other in same if set(other.changed) <= set(result.changed)), key=lambda other: len(other.changed), default=None)


def summaries(result: Result, results: Sequence[Result], play: Play = "usual") -> dict[Metric, Summary]:
    """Each metric over seeds."""
    bounds: dict[Metric, tuple[float, float]] = {"P": (0.0, 100.0)}
    return {name: summarize(values, *bounds.get(name, ())) for name, values in per_seed(result, results, play).items()}


def identity_of(result: Result) -> dict[str, Any]:
    """What the runs of a result are, but for the seed: that of the first."""
    identity: dict[str, Any] = result.records[0].settings["identity"]
    return identity


def unequal(results: Sequence[Result]) -> list[str]:
    """Where results stand in one table that differ in more than the method: for people to compare with care."""
    first: dict[tuple[str, str, int], Result] = {}
    said = []
    for result in results:
        base = first.setdefault((result.stream, result.quality, result.updates), result)
        if differing := next(differences(conditions(identity_of(base)), conditions(identity_of(result))), None):
            said.append(f"{result.label} on {result.stream}, {result.quality}, beside {base.label}: {differing}")
    return said


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
