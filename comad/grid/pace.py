"""How fast runs go, and how long a grid will still take."""

from collections.abc import Sequence
from dataclasses import dataclass

from comad.runs.standing import Standing


@dataclass(frozen=True)
class Pace:
    """From where a run's speed is told."""

    since: float
    before: int
    """Updates made by then."""
    learns: bool = False
    """Whether it was seen to make updates; starting and compiling tell nothing of what comes."""

    def speed(self, standing: Standing, now: float) -> float:
        """Returns updates per second; zero where nothing can be told yet."""
        made = max(standing.done - self.before, 0) if self.learns else 0
        return made / max(now - self.since, 1.0)


def seconds_left(
    standings: Sequence[Standing | None],
    running: Sequence[tuple[Standing | None, Pace]],
    now: float,
) -> float | None:
    """Returns the seconds until all runs are finished, or None where nothing can be told.

    Args:
        standings: of all runs; None for one that has not begun, taken to be as long as the others.
        running: the standings of those that are being made, and their pace.
        now: the time by the clock of the paces.
    """
    known = [standing for standing in standings if standing]
    speeds = [(standing, pace.speed(standing, now)) for standing, pace in running if standing]
    paced = [(standing, speed) for standing, speed in speeds if speed]
    if not paced:
        return None
    unbegun = (len(standings) - len(known)) * sum(standing.total for standing in known) / len(known)
    remaining = unbegun + sum(standing.total - standing.done for standing in known)
    # All work at the speed of all; but a slow run is not helped by those that end before it.
    slowest = max((standing.total - standing.done) / speed for standing, speed in paced)
    return max(remaining / sum(speed for _, speed in paced), slowest)
