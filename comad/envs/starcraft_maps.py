"""The maps of StarCraft micromanagement: two teams by a map's name, and what is told of their units.

The game itself and recordings of it share these definitions. SMAC has fixed teams (`StarcraftMap`); SMACv2 draws the units of a race anew
in every episode (`RaceMap`).
"""

import re
from dataclasses import dataclass
from functools import cached_property

from comad.envs.base import rules_of
from comad.envs.units import check_size
from comad.errors import UserError, unknown
from comad.types import Discrete, Feature, Spec

VERSION = 1
FAMILY = "starcraft"
UNITS = {"m": "marine", "s": "stalker", "z": "zealot"}
"""The letters of map names."""
WITH_SHIELD = {"stalker", "zealot", "colossus"}
"""Protoss units; the others have health only."""
RACES = {
    "protoss": ("stalker", "zealot", "colossus"),
    "terran": ("marine", "marauder", "medivac"),
    "zerg": ("zergling", "hydralisk", "baneling"),
}
"""The units of SMACv2, in the order in which it numbers them."""
SIGHT = 9.0
"""How far units of SMAC see; what an agent sees of others is measured in this. In SMACv2 it is measured in the agent's own sight."""
DIRECTIONS = ("north", "south", "east", "west")
ACTIONS = Discrete(("no-op", "stop", *DIRECTIONS), targeted="attack")
COUNTED = r"(?:0|[1-9]\d*)[a-z]"
PATTERN = re.compile(rf"((?:{COUNTED})+)(?:_vs_((?:{COUNTED})+))?")
RACE_PATTERN = re.compile(r"([a-z]+)_(\d+)v(\d+)")

STOCK_LIMITS = {
    **{"3m": 60, "8m": 120, "25m": 150, "5m_vs_6m": 70, "8m_vs_9m": 120, "10m_vs_11m": 150, "27m_vs_30m": 180},
    **{"2s3z": 120, "3s5z": 150, "3s5z_vs_3s6z": 170, "3s_vs_3z": 150, "3s_vs_4z": 200, "3s_vs_5z": 250, "2m_vs_1z": 150},
}
"""Steps of an episode on the maps that come with SMAC."""
ODIS_LIMITS = {
    **{"4m": 75, "5m": 90, "6m": 100, "7m": 110, "9m": 120, "10m": 120, "11m": 150, "12m": 150},
    **{"4m_vs_5m": 60, "6m_vs_7m": 80, "7m_vs_8m": 90, "9m_vs_10m": 140, "10m_vs_12m": 160, "11m_vs_12m": 160, "13m_vs_15m": 160},
    **{"1s3z": 120, "1s4z": 130, "1s5z": 140, "2s4z": 130, "2s5z": 150, "3s3z": 140, "3s4z": 140, "4s3z": 150, "4s4z": 150, "4s5z": 160},
    **{"4s6z": 170, "3s6z_vs_3s7z": 180, "4s5z_vs_4s6z": 180, "4s6z_vs_4s7z": 200},
    **{"3s_vs_6z": 300, "4s_vs_5z": 200, "4s_vs_6z": 250, "4s_vs_7z": 300},
}
"""The same for the maps that the authors of ODIS added."""
PROPOSED_LIMITS = {"1s1z": 120, "2s1z_vs_3z": 150, "2s2z_vs_4z": 150, "4s4z_vs_8z": 200}
"""Maps of the paper that nobody has published; the limits are guesses from the lengths of recorded episodes."""
LIMITS = STOCK_LIMITS | ODIS_LIMITS | PROPOSED_LIMITS
RACE_LIMIT = 200
RACE_SIZES = ((5, 5), (6, 6), (10, 10), (20, 20), (10, 11), (20, 23))
PAPER_MAPS = (
    *("3m", "4m", "10m", "12m", "5m_vs_6m", "7m_vs_8m", "9m_vs_10m", "13m_vs_15m"),
    *("1s1z", "2s3z", "2s4z", "3s5z", "4s4z", "2s1z_vs_3z", "2s2z_vs_4z", "4s4z_vs_8z"),
    *(f"{race}_{ours}v{theirs}" for race in RACES for ours, theirs in RACE_SIZES),
)
"""The tasks of the paper's streams, in their order."""

Team = tuple[tuple[str, int], ...]
"""Unit types and how many of each, in the order of the map's name."""
Kinds = tuple[Feature, ...]
"""What is told of a unit's kind: its shield, if it has one, and its type, if there are several."""


@dataclass(frozen=True)
class StarcraftMap:
    """A map of SMAC by what decides its arrays; as plain values this is what identifies its rules."""

    map: str
    agents: int
    enemies: int
    agent_units: Team
    enemy_units: Team
    limit: int

    def __post_init__(self) -> None:
        for team in (self.agent_units, self.enemy_units):
            races = {unit in WITH_SHIELD for unit, _ in team}
            if len(races) > 1 or (len(self.agent_units) > 1 and races == {False}):
                raise UserError(f"{self.map}: only teams of marines only, or of stalkers and zealots, have known features; see 3m and 2s3z")

    @cached_property
    def spec(self) -> Spec:
        """Tokens are the blocks of SMAC's vectors; an agent's own one also tells where it can go."""
        kinds = self.kind_features(self.agent_units), self.kind_features(self.enemy_units, enemies=True)
        return _spec(self, kinds, own_place=(), sight=SIGHT)

    @property
    def rules(self) -> str:
        """Returns what identifies this environment."""
        settings = {
            "map": self.map,
            "agents": self.agents,
            "enemies": self.enemies,
            "agent_units": self.agent_units,
            "enemy_units": self.enemy_units,
            "limit": self.limit,
        }
        return rules_of(FAMILY, VERSION, settings)

    def kind_features(self, team: Team, *, enemies: bool = False) -> Kinds:
        """Shield and type of a unit; types are told only where the agents' own team is mixed, as SMAC's registry has it."""
        shield = ("shield",) if team[0][0] in WITH_SHIELD else ()
        types = ("is stalker", "is zealot") if len(self.agent_units) > 1 else ()
        # SMAC numbers agents by its own unit types and enemies by the game's, which have the zealot first.
        return _features(*shield, *(reversed(types) if enemies else types))


@dataclass(frozen=True)
class RaceMap:
    """A battle of SMACv2: two teams of one race, drawn anew in every episode, on open ground."""

    race: str
    agents: int
    enemies: int
    limit: int = RACE_LIMIT

    def __post_init__(self) -> None:
        if self.race not in RACES:
            raise unknown("race", self.race, RACES)
        for count in (self.agents, self.enemies):
            check_size(self.map, count)
        if self.heals and self.agents > self.enemies:
            # SMACv2 then has more aimed actions than there are enemies, and no token would stand for the last ones.
            raise UserError(f"{self.map}: medivacs reach allies by the numbers of enemies, so there must be at least {self.agents} enemies")

    @property
    def rules(self) -> str:
        """Returns what identifies this environment."""
        settings = {
            "race": self.race,
            "agents": self.agents,
            "enemies": self.enemies,
            "limit": self.limit,
        }
        return rules_of(FAMILY, VERSION, settings)

    @property
    def map(self) -> str:
        """How its name spells it."""
        return f"{self.race}_{self.agents}v{self.enemies}"

    @property
    def heals(self) -> bool:
        """Whether some units aim at allies."""
        return "medivac" in RACES[self.race]

    @cached_property
    def spec(self) -> Spec:
        """As of SMAC's maps, with the agent's own place; both sides have the same features. A medivac's targets are its allies."""
        kinds = _features(*(["shield"] if self.race == "protoss" else []), *(f"is {kind}" for kind in RACES[self.race]))
        return _spec(self, (kinds, kinds), own_place=_features("x", "y"), sight=1.0)


Rules = StarcraftMap | RaceMap


def starcraft_map(name: str, limit: int) -> StarcraftMap:
    """``3m``, ``2s3z``, ``5m_vs_6m``: how many of which unit, with equal teams unless the name says otherwise."""
    match = PATTERN.fullmatch(name.removeprefix(f"{FAMILY}-"))
    if not match:
        raise UserError(f"no recorded layout is known for task {name!r}; give a CN name such as cn-4 or a SMAC map such as 3m or 5m_vs_6m")
    agents = _team(name, match[1])
    enemies = _team(name, match[2]) if match[2] else agents
    return StarcraftMap(match[0], sum(count for _, count in agents), sum(count for _, count in enemies), agents, enemies, limit)


def find_map(name: str) -> Rules:
    """The map that a world's name stands for, with the limit that its authors gave it."""
    map_name = name.removeprefix(f"{FAMILY}-")
    if match := RACE_PATTERN.fullmatch(map_name):
        return RaceMap(match[1], int(match[2]), int(match[3]))
    if not PATTERN.fullmatch(map_name):
        raise unknown("StarCraft map", map_name, {*LIMITS, *PAPER_MAPS})
    found = starcraft_map(name, LIMITS.get(map_name, 1))
    for count in (found.agents, found.enemies):
        check_size(name, count)
    if map_name not in LIMITS:
        raise unknown("StarCraft map", map_name, LIMITS)
    return found


def is_starcraft(spec: Spec) -> bool:
    """Whether a world is one of these maps."""
    return spec.env.startswith(f"{FAMILY}-")


def _team(name: str, text: str) -> Team:
    counts: dict[str, int] = {}
    for number, letter in re.findall(r"(\d+)([a-z])", text):
        if letter not in UNITS:
            known = ", ".join(f"{letter} = {unit}" for letter, unit in UNITS.items())
            raise UserError(f"{name}: {number}{letter} stands for no unit whose features are known; known: {known}")
        if int(number) == 0:
            raise UserError(f"{name}: 0{letter} is no unit at all; leave it out or give a number from 1")
        counts[UNITS[letter]] = counts.get(UNITS[letter], 0) + int(number)
    return tuple(counts.items())


def _spec(
    layout: Rules,
    kinds: tuple[Kinds, Kinds],
    own_place: tuple[Feature, ...],
    sight: float,
) -> Spec:
    """What both games tell, in the order in which they tell it: of an own unit's kind, its shield comes before the place."""
    seen = (Feature("distance", sight), Feature("east", sight), Feature("north", sight))
    health, place = _features("health"), _features("x", "y")
    shield = tuple(feature for feature in kinds[0] if feature.name == "shield")
    return Spec(
        env=f"{FAMILY}-{layout.map}",
        version=VERSION,
        rules=layout.rules,
        num_agents=layout.agents,
        num_targets=layout.enemies,
        own=(*_features(*(f"can go {way}" for way in DIRECTIONS)), *health, *shield, *own_place, *kinds[0][len(shield) :]),
        ally=(*_features("visible"), *seen, *health, *kinds[0]),
        target=(*_features("in range"), *seen, *health, *kinds[1]),
        state_agent=(*health, *_features("cooldown"), *place, *kinds[0]),
        state_target=(*health, *place, *kinds[1]),
        context=(),
        actions=ACTIONS,
        limit=layout.limit,
        metric="success",
    )


def _features(*names: str) -> tuple[Feature, ...]:
    return tuple(map(Feature, names))
