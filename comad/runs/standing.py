"""How far a run is, told by its folder alone: whoever makes it, wherever, writes there."""

from dataclasses import dataclass
from pathlib import Path

from comad.errors import MALFORMED, UserError
from comad.runs.folder import SETTINGS, journal_path, read_settings
from comad.runs.journal import last_record
from comad.runs.record import usual_mode


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
    """The standing of the run in a folder; none if nothing was written yet."""
    if not (folder / SETTINGS).exists():
        return None
    try:
        return _look(folder)
    except MALFORMED as error:
        raise UserError(f"{folder} does not describe a training ({error!r})") from error


def _look(folder: Path) -> Standing:
    settings = read_settings(folder)
    identity = settings["identity"]
    num_tasks, budget = len(identity["tasks"]), identity["budget"]
    learned, evaluated = (last_record(journal_path(folder, name)) for name in ("logs", "scores"))
    done = learned["task"] * budget["updates"] + learned["update"] if learned else 0
    total = num_tasks * budget["updates"]
    if evaluated is None:
        return Standing(int(done), int(total), finished=False, score=None)
    finished = (evaluated["task"], evaluated["point"]) == (num_tasks - 1, budget["evaluations"])
    return Standing(int(done), int(total), finished, float(sum(evaluated[usual_mode(settings)]["score"]) / num_tasks))
