"""StarCraft micromanagement (SMAC) maps as recorded data has them, and the flat vectors of such data, to tokens and back.

There is no simulator here, only the layout: two teams by the map's name, the features of their units, and their order in a vector. Other
worlds have flat vectors too, in the plain order own, allies, targets.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from comad.envs.base import rules_of
from comad.errors import UserError
from comad.tokens import other_agents
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

Values = dict[str, np.ndarray]
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


def widths(spec: Spec) -> tuple[int, int]:
    """Numbers in a flat observation and in a flat state."""
    allies, targets, last_actions = spec.num_agents - 1, spec.num_targets, spec.num_agents * spec.num_actions
    obs = len(spec.own) + allies * len(spec.ally) + targets * len(spec.target)
    state = spec.num_agents * len(spec.state_agent) + targets * len(spec.state_target) + len(spec.context)
    return obs, state + (last_actions if is_starcraft(spec) else 0)


def flatten(spec: Spec, values: Mapping[str, np.ndarray]) -> Values:
    """Every field at every moment, from stored values; features stay in the units they are stored in."""
    lengths = values["episode.length"]
    starts = episode_starts(lengths)
    onehot = np.eye(spec.num_actions, dtype=np.float32)[values["actions"]]
    last_actions = np.roll(onehot, 1, axis=0)
    last_actions[starts] = 0.0
    terminated = np.zeros(len(onehot), bool)
    terminated[starts + lengths - 1] = values["episode.terminated"]
    return {
        "obs": _join_obs(spec, values),
        "state": _join_state(spec, values, last_actions),
        "avail_actions": values["available"],
        "actions": values["actions"][..., None],
        "actions_onehot": onehot,
        "reward": values["reward"][..., None],
        "terminated": terminated[..., None],
        "filled": np.ones((len(onehot), 1), bool),
    }


def episode_starts(lengths: np.ndarray) -> np.ndarray:
    """First moment of every episode, laid end to end."""
    moments = np.asarray(lengths, np.int64) + 1
    return np.cumsum(moments) - moments


def split_obs(spec: Spec, obs: np.ndarray) -> Values:
    """What agents see: an ally is seen if its first feature says so, a target if it has any (one in sight may be out of range)."""
    ally_size, target_size = (spec.num_agents - 1) * len(spec.ally), spec.num_targets * len(spec.target)
    if is_starcraft(spec):
        moves, targets, allies, body = np.split(obs, np.cumsum([len(DIRECTIONS), target_size, ally_size]), axis=-1)
        own = np.concatenate([moves, body], axis=-1)
    else:
        own, allies, targets = np.split(obs, np.cumsum([len(spec.own), ally_size]), axis=-1)
    allies = allies.reshape(*obs.shape[:2], spec.num_agents - 1, len(spec.ally))
    targets = targets.reshape(*obs.shape[:2], spec.num_targets, len(spec.target))
    ally_seen, target_seen = allies[..., 0] > 0, (targets != 0).any(-1)
    return {
        "tokens.own": own,
        "tokens.allies": np.where(ally_seen[..., None], allies, 0),
        "tokens.targets": targets,
        "tokens.ally_seen": ally_seen,
        "tokens.target_seen": target_seen,
    }


def split_state(spec: Spec, state: np.ndarray) -> Values:
    """The whole situation without last actions; who has no health (or, in CN, no row) is absent."""
    agent_size, target_size = spec.num_agents * len(spec.state_agent), spec.num_targets * len(spec.state_target)
    agents, targets, _ = np.split(state, np.cumsum([agent_size, target_size]), axis=-1)
    agents = agents.reshape(-1, spec.num_agents, len(spec.state_agent))
    targets = targets.reshape(-1, spec.num_targets, len(spec.state_target))
    agent_present, target_present = agents[..., 0] > 0, targets[..., 0] > 0
    return {
        "state.agents": np.where(agent_present[..., None], agents, 0),
        "state.targets": np.where(target_present[..., None], targets, 0),
        "state.context": np.zeros((len(state), 0), np.float32),
        "state.agent_present": agent_present,
        "state.target_present": target_present,
    }


def _join_obs(spec: Spec, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Flat observations [moment, agent, feature] from stored values."""
    if spec.full_view:
        agents, targets = values["state.agents"], values["state.targets"][:, None]
        own, allies, targets = agents, agents[:, other_agents(spec.num_agents)], np.repeat(targets, spec.num_agents, axis=1)
    else:
        own, allies, targets = (values[f"tokens.{name}"] for name in ("own", "allies", "targets"))
    allies, targets = (block.reshape(*block.shape[:2], -1) for block in (allies, targets))
    moves, body = np.split(own, [len(DIRECTIONS)], axis=-1)
    return np.concatenate([moves, targets, allies, body] if is_starcraft(spec) else [own, allies, targets], axis=-1)


def _join_state(spec: Spec, values: Mapping[str, np.ndarray], last_actions: np.ndarray) -> np.ndarray:
    """Flat states [moment, feature] from stored values; SMAC's end with everybody's last action, one-hot."""
    parts = [values["state.agents"], values["state.targets"], values["state.context"], *([last_actions] if is_starcraft(spec) else [])]
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=-1)


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
