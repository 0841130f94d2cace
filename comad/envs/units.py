"""Who fights in battles: the kinds of units, and the teams that a battle's name stands for."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from comad.errors import UserError, unknown

LARGEST_TEAM = 32


@dataclass(frozen=True)
class Kind:
    """What all units of a kind have in common, in cells and seconds."""

    name: str
    letter: str
    """How it is called in the names of battles and in pictures."""
    race: str
    health: float
    sight: float
    reach: float
    """How far it shoots."""
    cooldown: float
    """Seconds from one shot to the next."""
    radius: float


KINDS = (
    Kind("marine", "m", "terran", 45.0, 9.0, 5.0, 0.61, 0.375),
    Kind("marauder", "a", "terran", 125.0, 10.0, 6.0, 1.07, 0.5625),
    Kind("stalker", "s", "protoss", 160.0, 10.0, 6.0, 1.87, 0.625),
    Kind("zealot", "z", "protoss", 150.0, 9.0, 2.0, 0.86, 0.5),
    Kind("zergling", "g", "zerg", 35.0, 8.0, 2.0, 0.5, 0.375),
    Kind("hydralisk", "h", "zerg", 80.0, 9.0, 5.0, 0.59, 0.625),
)
"""In the order in which SMAX numbers them, with its numbers; health includes what StarCraft II counts as shields."""
BY_LETTER = {kind.letter: kind.name for kind in KINDS}
NUMBERS = {kind.name: number for number, kind in enumerate(KINDS)}
RACES = {race: tuple(kind.name for kind in KINDS if kind.race == race) for race in ("protoss", "terran", "zerg")}
HEALTH, SIGHT, REACH, COOLDOWN = (
    np.array([getattr(kind, what) for kind in KINDS], np.float32) for what in ("health", "sight", "reach", "cooldown")
)
"""By the number of the kind."""

TEAM = r"(?:\d+[a-z]+)+"
"""How names spell a team: ``2s3z`` is two stalkers and three zealots."""

Team = tuple[str, ...]
"""The kind of every unit."""


def read_team(battle: str, text: str) -> Team:
    """The units that a part of a battle's name stands for."""
    groups = [(int(count), letter) for count, letter in re.findall(r"(\d+)([a-z]+)", text)]
    for count, letter in groups:
        if letter not in BY_LETTER:
            known = ", ".join(f"{letter} {name}" for letter, name in BY_LETTER.items())
            raise UserError(f"{battle}: {letter!r} stands for no unit; known: {known}")
        if count == 0:
            raise UserError(f"{battle}: 0{letter} is no unit at all; leave it out or give a number from 1")
    check_size(battle, sum(count for count, _ in groups))
    return tuple(BY_LETTER[letter] for count, letter in groups for _ in range(count))


def write_team(units: Team) -> str:
    """The shortest spelling of a team that `read_team` understands."""
    letters = [KINDS[NUMBERS[unit]].letter for unit in units]
    return "".join(f"{len(list(group))}{letter}" for letter, group in itertools.groupby(letters))


def check_size(battle: str, count: int) -> None:
    """Refuse teams that nobody can lead."""
    if not 1 <= count <= LARGEST_TEAM:
        raise UserError(f"{battle}: a team has 1 to {LARGEST_TEAM} units, not {count}")


def check_kinds(race: str, units: Sequence[str]) -> None:
    """Refuse races and units that there are not."""
    if race and race not in RACES:
        raise unknown("race", race, RACES)
    for unit in units:
        if unit not in NUMBERS:
            raise unknown("unit", unit, NUMBERS)
