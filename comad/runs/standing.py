"""How far a run is, told by its folder alone: whoever makes it, wherever, writes there."""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comad.errors import MALFORMED, UserError
from comad.runs.folder import SETTINGS, journal_path
from comad.runs.journal import Record, last_record
from comad.runs.record import RunRecord, read_run, usual_mode


@dataclass(frozen=True)
class Standing:
    """How far a run is."""

    done: int
    """Updates made, over all tasks."""
    total: int
    finished: bool
    score: float | None
    """Mean over all tasks at the newest evaluation, in the usual way of playing."""


def look(folder: Path) -> Standing | None:
    """The standing of the run in a folder; none if nothing was written yet. Its records are verified: damage is an error by name."""
    if not os.path.lexists(folder / SETTINGS):
        return None
    try:
        return standing_of(read_run(folder))
    except MALFORMED as error:
        raise UserError(f"{folder} does not describe a training ({error!r})") from error


def standing_of(record: RunRecord) -> Standing:
    """How far a run is, by its verified records."""
    identity = record.settings["identity"]
    num_tasks, budget = len(identity["tasks"]), identity["budget"]
    total, done = num_tasks * budget["updates"], 0
    evaluated = record.scores[-1] if record.scores else None
    score = mean_score(evaluated, record.settings) if evaluated else None
    if evaluated and not record.pending and (evaluated["task"], evaluated["point"]) == (num_tasks - 1, budget["evaluations"]):
        return Standing(int(total), int(total), True, score)
    with suppress(UserError, *MALFORMED):  # logs are diagnostic: without them it is only less clear how far the run is
        learned = last_record(journal_path(record.path, "logs"))
        done = learned["task"] * budget["updates"] + learned["update"] if learned else 0
    return Standing(int(done), int(total), finished=False, score=score)


def mean_score(evaluated: Record, settings: Mapping[str, Any]) -> float:
    """The mean over all tasks at an evaluation, in the usual way of playing."""
    scores = evaluated[usual_mode(settings)]["score"]
    return float(sum(scores) / len(settings["identity"]["tasks"]))
