"""What runs have recorded, for reports: read without a lock, while they train or long after."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from comad.errors import MALFORMED, UserError
from comad.files import read_json
from comad.runs.folder import (
    PORTRAIT,
    SEAL,
    SET_ASIDE,
    SETTINGS,
    JournalName,
    is_number,
    journal_path,
    read_cost,
    read_settings,
)
from comad.runs.journal import Record, parse_journal, read_diagnostic
from comad.runs.seal import Sealing, check_seal

PORTRAIT_VERSION = 1
Mode = Literal["sampled", "greedy"]
MODES: tuple[Mode, ...] = ("sampled", "greedy")
"""How a team is played: drawing skills and actions, or taking the likeliest."""
Play = Literal["usual", "sampled", "greedy"]
"""Which of the two counts; usually what `usual_mode` says."""


def usual_mode(settings: Mapping[str, Any]) -> Mode:
    """Greedy where actions are vectors, since chance in each of them costs much; drawn elsewhere, where greedy teams get stuck."""
    return "greedy" if settings.get("actions") == "vectors" else "sampled"


@dataclass(frozen=True)
class RunRecord:
    """All that a run has written down."""

    path: Path
    settings: dict[str, Any]
    scores: list[Record]
    heads: list[Record]
    cost: dict[str, Any] | None
    """Seconds and bytes; none for runs that did not count them."""
    legacy: bool = False
    """Made before seals existed: nothing vouches for its records."""
    pending: int = 0
    """Lines of scores and heads that no checkpoint vouches for yet."""

    @property
    def logs(self) -> list[Record]:
        """Means of every loss over a few updates. Read when asked for: they are by far the largest part, and few need them."""
        return read_diagnostic(journal_path(self.path, "logs"))

    @property
    def machines(self) -> list[Any]:
        """The kinds of machine that the run was made on, without repetition, oldest first."""
        made = [launch.get("machine") for launch in (*self.settings.get("earlier", ()), self.settings)]
        return [machine for number, machine in enumerate(made) if machine not in made[:number]]

    def mode(self, play: Play) -> Mode:
        """The way of playing that is meant."""
        return usual_mode(self.settings) if play == "usual" else play

    def score_array(self, play: Play = "usual") -> np.ndarray:
        """The scores ``[task, point, on]`` of a finished run, as `metrics` takes them for one seed; what is missing is an error."""
        if self.pending:
            raise UserError(f"{self.path} is not finished: its last {self.pending} lines are not sealed yet; train it to its end first")
        tasks, points = len(self.settings["identity"]["tasks"]), self.settings["identity"]["budget"]["evaluations"] + 1
        found, mode = {}, self.mode(play)
        for record in self.scores:
            reached = record[mode]["score"]
            sound = len(reached) == tasks and all(is_number(score) and 0 <= score <= 1 for score in reached)
            if not (0 <= record["task"] < tasks and 0 <= record["point"] < points and sound):
                raise UserError(
                    f"{journal_path(self.path, 'scores')} is not of this run: it has {tasks} tasks and {points} evaluations of each"
                )
            if (record["task"], record["point"]) in found:
                where = f"evaluation {record['point']} of task {record['task']}"
                raise UserError(f"{journal_path(self.path, 'scores')} is damaged: it tells {where} twice; restore it from a copy")
            found[record["task"], record["point"]] = reached
        # Nothing as large as the settings claim is made before all of it is known to be there.
        places = ((task, point) for task in range(tasks) for point in range(points))
        if missing := next((place for place in places if place not in found), None):
            task, point = missing
            raise UserError(f"{self.path} is not finished: the evaluation {point} of task {task} is missing; train it to its end first")
        return np.array([[found[task, point] for point in range(points)] for task in range(tasks)], float)

    def growth(self) -> list["Growth"]:
        """How the library grew, task by task; empty for methods without one."""
        try:
            return self._growth()
        except MALFORMED as error:
            raise UserError(f"{journal_path(self.path, 'heads')} does not tell how a library grew ({error!r})") from error

    def routed(self) -> list[tuple[str, int]]:
        """Every task's name, and the head that played it at the last evaluation."""
        try:
            names = [str(task["name"]) for task in self.settings["identity"]["tasks"]]
            return [(name, int(head)) for name, head in zip(names, self.scores[-1].get("heads", ()), strict=False)]
        except MALFORMED as error:
            raise UserError(f"{self.path} does not tell which head plays which task ({error!r})") from error

    def _growth(self) -> list["Growth"]:
        ended = {entry["task"]: entry for entry in self.heads if entry["when"] == "finish"}
        return [
            Growth(
                task=str(entry["name"]),
                head=int(entry["active"]),
                reused=entry["active"] < entry["before"],
                used=int(entry["used"]),
                scores=[_score(score) for score in entry["scores"][: entry["before"]]],
                own=_score(ended[entry["task"]]["own_score"][entry["active"]]) if entry["task"] in ended else None,
                noise=_score(ended[entry["task"]]["noise_score"][entry["active"]]) if entry["task"] in ended else None,
            )
            for entry in self.heads
            if entry["when"] == "begin" and "active" in entry
        ]


@dataclass(frozen=True)
class Growth:
    """What a task did to the library."""

    task: str
    head: int
    reused: bool
    used: int
    """Heads in all."""
    scores: list[float]
    """Familiarity of its data to the heads there were before."""
    own: float | None
    """Familiarity of its data to its own head, when it had been learned; none while it is learned."""
    noise: float | None
    """And of that data with noise."""


def _score(value: Any) -> float:
    if not is_number(value):
        raise TypeError(f"{value!r} is no score")
    return float(value)


def read_run(path: Path) -> RunRecord:
    """Reads a run and verifies what its seal vouches for; whatever is damaged is an error by name."""
    sealing, data = check_seal(path)
    return RunRecord(
        path=path,
        settings=read_settings(path),
        scores=_records(path, "scores", data, sealing),
        heads=_records(path, "heads", data, sealing),
        cost=read_cost(path),
        legacy=sealing.legacy,
        pending=sealing.pending(data),
    )


def _records(
    path: Path,
    name: JournalName,
    data: Mapping[JournalName, bytes],
    sealing: Sealing,
) -> list[Record]:
    """Parses the lines that are vouched for, and those after them as far as they can be read.

    A loss of power may have left anything after what is vouched for. The run that goes on cuts it.
    """
    file, vouched = journal_path(path, name), sealing.vouched(name, data)
    records = parse_journal(file, data[name][:vouched])
    with suppress(UserError):
        for line in data[name][vouched:].split(b"\n")[:-1]:
            records += parse_journal(file, line + b"\n")
    return records


def flat(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Settings and those inside them, by the one name that the command line has for each."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value)
        else:
            yield name, value


def one_grid(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two runs, by their identities, learned the same tasks from the same data in the same time: their curves can be subtracted."""
    return conditions(one) == conditions(other)


def conditions(identity: Mapping[str, Any]) -> dict[str, Any]:
    """What must be the same in two runs for their scores to be compared."""
    return {name: identity.get(name) for name in ("tasks", "quality", "datasets", "budget")}


def read_portrait(path: Path) -> dict[str, Any] | None:
    """Replays, skills and re-use of a run, as 'comad portrait' keeps them; none if nobody asked for it."""
    if not os.path.lexists(path / PORTRAIT):
        return None
    found = read_json(path / PORTRAIT)
    if not _is_portrait(found):
        raise UserError(f"{path / PORTRAIT} is not a portrait of version {PORTRAIT_VERSION}; 'comad portrait {path}' makes it again")
    return found


def _is_portrait(found: Any) -> bool:
    """Whether all parts are there and of their kinds, so that whoever draws it need not ask."""
    try:
        replays = all({"task", "head", "palette", "rewards", "familiarity"} <= one.keys() and one["frames"] for one in found["replays"])
        skills = found["skills"] is None or all({"after", "task", "head", "time"} <= one.keys() for one in found["skills"]["stages"])
        reuse = found["reuse"] is None or all(one["weights"][0] for one in found["reuse"])
        return found["version"] == PORTRAIT_VERSION and replays and skills and reuse
    except MALFORMED:
        return False


def find_runs(folder: Path) -> list[Path]:
    """The folders of all runs in a folder, itself included, at any depth."""
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}")
    found = []
    for place, folders, files in os.walk(folder):  # a folder that vanishes meanwhile is left out
        folders[:] = [name for name in folders if name != SET_ASIDE]
        # What is sealed was a run, even if it has lost its settings.
        if (SETTINGS in files and _may_be_run(Path(place))) or (SETTINGS not in files and SEAL in files):
            found.append(Path(place))
    return sorted(found)


def _may_be_run(folder: Path) -> bool:
    """Whether settings are those of a run, perhaps a damaged one; trainings of experts keep settings and scores too, but learn no tasks."""
    scored = journal_path(folder, "scores").exists()
    try:
        identity = read_settings(folder, damaged=True)["identity"]
    except UserError:
        return scored
    return "tasks" in identity or (scored and "trainer" not in identity)
