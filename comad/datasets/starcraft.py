"""StarCraft micromanagement (SMAC) maps as recorded data has them: two teams by the map's name, and the features of their units.

There is no simulator here, only what names and sizes the recorded numbers.
"""

import re
from dataclasses import dataclass
from functools import cached_property

from comad.envs.base import rules_of
from comad.errors import UserError
from comad.types import Discrete, Feature, Spec

VERSION = 1
FAMILY = "starcraft"
UNITS = {"m": "marine", "s": "stalker", "z": "zealot"}
"""The letters of map names."""
WITH_SHIELD = {"stalker", "zealot"}
"""Protoss units; the others have health only."""
SIGHT = 9.0
"""How far units see; what an agent sees of others is measured in this."""
DIRECTIONS = ("north", "south", "east", "west")
TEAM = r"(?:[1-9]\d?[a-z])+"
PATTERN = re.compile(rf"({TEAM})(?:_vs_({TEAM}))?")

Team = tuple[tuple[str, int], ...]
"""Unit types and how many of each, in the order of the map's name."""


@dataclass(frozen=True)
class StarcraftMap:
    """A map by what decides its arrays; as plain values this is what identifies its rules."""

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
        seen = (Feature("distance", SIGHT), Feature("east", SIGHT), Feature("north", SIGHT))
        agent_kind, enemy_kind = self.kind_features(self.agent_units), self.kind_features(self.enemy_units, enemies=True)
        place = _features("x", "y")
        return Spec(
            env=f"{FAMILY}-{self.map}",
            version=VERSION,
            rules=rules_of(FAMILY, VERSION, self),
            num_agents=self.agents,
            num_targets=self.enemies,
            own=(*_features(*(f"can go {direction}" for direction in DIRECTIONS)), *_features("health"), *agent_kind),
            ally=(*_features("visible"), *seen, *_features("health"), *agent_kind),
            target=(*_features("in range"), *seen, *_features("health"), *enemy_kind),
            state_agent=(*_features("health", "cooldown"), *place, *agent_kind),
            state_target=(*_features("health"), *place, *enemy_kind),
            context=(),
            actions=Discrete(("no-op", "stop", *DIRECTIONS), targeted="attack"),
            limit=self.limit,
        )

    def kind_features(self, team: Team, *, enemies: bool = False) -> tuple[Feature, ...]:
        """Shield and type of a unit; types are told only where the agents' own team is mixed, as SMAC's registry has it."""
        shield = ("shield",) if team[0][0] in WITH_SHIELD else ()
        types = ("stalker", "zealot") if len(self.agent_units) > 1 else ()
        # SMAC numbers agents by its own unit types and enemies by the game's, which have the zealot first.
        return _features(*shield, *(reversed(types) if enemies else types))


def starcraft_map(name: str, limit: int) -> StarcraftMap:
    """``3m``, ``2s3z``, ``5m_vs_6m``: how many of which unit, with equal teams unless the name says otherwise."""
    match = PATTERN.fullmatch(name.removeprefix(f"{FAMILY}-"))
    if not match:
        raise UserError(f"no recorded layout is known for task {name!r}; give a CN name such as cn-4 or a SMAC map such as 3m or 5m_vs_6m")
    agents = _team(name, match[1])
    enemies = _team(name, match[2]) if match[2] else agents
    return StarcraftMap(match[0], sum(count for _, count in agents), sum(count for _, count in enemies), agents, enemies, limit)


def is_starcraft(spec: Spec) -> bool:
    """Whether a world is one of these maps."""
    return spec.env.startswith(f"{FAMILY}-")


def _team(name: str, text: str) -> Team:
    counts: dict[str, int] = {}
    for number, letter in re.findall(r"(\d+)([a-z])", text):
        if letter not in UNITS:
            known = ", ".join(f"{letter} = {unit}" for letter, unit in UNITS.items())
            raise UserError(f"{name}: {number}{letter} stands for no unit whose features are known; known: {known}")
        counts[UNITS[letter]] = counts.get(UNITS[letter], 0) + int(number)
    return tuple(counts.items())


def _features(*names: str) -> tuple[Feature, ...]:
    return tuple(map(Feature, names))
