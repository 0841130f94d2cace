"""Battles: a team of units against a scripted one, on a laptop. They play in SMAX; `docs/worlds.md` says how StarCraft II differs."""

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from comad.envs import fighters, scene, smax
from comad.envs.base import check_limit, rules_of
from comad.envs.fighters import Fighter
from comad.envs.smax import SIZE, STOP, BattleWorld
from comad.envs.units import (
    COOLDOWN,
    HEALTH,
    KINDS,
    NUMBERS,
    RACES,
    REACH,
    SIGHT,
    TEAM,
    Team,
    check_kinds,
    check_size,
    read_team,
    write_team,
)
from comad.errors import UserError
from comad.tokens import other_agents
from comad.types import Actions, Discrete, Feature, PRNGKey, Spec, StateTokens, Step, Tokens

VERSION = 1
LIMIT = 100
LARGEST_RETURN = 20.0
"""Half of it for all of the enemies' health, half for the victory."""
MOVES = ("north", "east", "south", "west")
FARTHEST = float(SIGHT.max())
"""What distances are measured in: the same for everybody, however far they see themselves."""
KIND_FEATURES = tuple(Feature(f"is {kind.name}") for kind in KINDS)
PLACE = (Feature("x", SIZE), Feature("y", SIZE))
DOINGS = (Feature("moves east"), Feature("moves north"), Feature("attacks"))
OWN = (Feature("health"), *PLACE, Feature("cooldown"), *KIND_FEATURES)
UNIT = (Feature("health"), *PLACE, Feature("cooldown"), *DOINGS, *KIND_FEATURES)
SEEN = (Feature("health"), Feature("east", FARTHEST), Feature("north", FARTHEST), Feature("cooldown"), *DOINGS, *KIND_FEATURES)
AIMED_AT = (*SEEN, Feature("in range"))


@dataclass(frozen=True)
class Battle:
    """A battle of any two teams; the published ones come by name (`make`)."""

    num_agents: int
    num_enemies: int
    units: Team = ()
    """The kind of every unit, ours first. If left out, each is one of its race's two, drawn anew in every episode."""
    race: str = ""
    limit: int = LIMIT

    def __post_init__(self) -> None:
        check_kinds(self.race, self.units)
        for count in (self.num_agents, self.num_enemies):
            check_size(self.name, count)
        if bool(self.units) == bool(self.race) or (self.units and len(self.units) != self.num_agents + self.num_enemies):
            raise UserError(f"{self.name}: give the kind of each of the {self.num_agents + self.num_enemies} units, or a race to draw them")
        check_limit(self.name, self.limit)

    @cached_property
    def spec(self) -> Spec:
        """Every battle has the same tokens, so that one network plays them all; what is aimed at is decided from the target's token."""
        return Spec(
            env=self.name,
            version=VERSION,
            rules=self.rules,
            num_agents=self.num_agents,
            num_targets=self.num_enemies,
            own=OWN,
            ally=SEEN,
            target=AIMED_AT,
            state_agent=UNIT,
            state_target=UNIT,
            context=(),
            actions=Discrete((*MOVES, "stop"), targeted="attack"),
            limit=self.limit,
            view="battle",
            metric="success",
        )

    @property
    def rules(self) -> str:
        """Returns what identifies this environment."""
        settings = {
            "num_agents": self.num_agents,
            "num_enemies": self.num_enemies,
            "units": self.units,
            "race": self.race,
            "limit": self.limit,
        }
        return rules_of("battle", VERSION, settings)

    @property
    def name(self) -> str:
        """The name that `make` turns into this world again."""
        return self.short_name + (f"-{self.limit}t" if self.limit != LIMIT else "")

    @property
    def short_name(self) -> str:
        """The name without the limit."""
        if not self.units:
            return f"{self.race}_{self.num_agents}v{self.num_enemies}"
        ours, theirs = write_team(self.units[: self.num_agents]), write_team(self.units[self.num_agents :])
        return ours if ours == theirs else f"{ours}_vs_{theirs}"

    @property
    def game(self) -> Any:
        """The simulator."""
        kinds = tuple(NUMBERS[unit] for unit in self.units) or (0,) * (self.num_agents + self.num_enemies)
        return smax.simulator(kinds, self.num_agents, scattered=not self.units)

    def reset(self, key: PRNGKey) -> tuple[BattleWorld, Step]:
        """Two camps face each other; teams of a race start anywhere, mirrored, or one of them surrounded."""
        start_key, kind_key = jax.random.split(key)
        world = smax.begin(self.game, start_key)
        if self.race:
            world = smax.recast(self.game, world, self.draw_kinds(kind_key))
        return world, self.show(world, jnp.float32(0.0))

    def draw_kinds(self, key: PRNGKey) -> Int[Array, " unit"]:
        """Either kind of the race with the same chance; enemies are what their opposite numbers are, those without one are drawn."""
        pair = jnp.array([NUMBERS[unit] for unit in RACES[self.race]], jnp.int32)
        drawn = pair[jax.random.bernoulli(key, shape=(max(self.num_agents, self.num_enemies),)).astype(jnp.int32)]
        return jnp.concatenate([drawn[: self.num_agents], drawn[: self.num_enemies]])

    def step(self, world: BattleWorld, actions: Actions, key: PRNGKey) -> tuple[BattleWorld, Step]:
        """Half a second in which all do what they chose; the enemies follow their script."""
        available = look(self.situation(world))[1]
        allowed = jnp.take_along_axis(available, actions[:, None], axis=1)[:, 0]
        world, reward = smax.advance(self.game, world, jnp.where(allowed, actions, STOP), key)
        return world, self.show(world, LARGEST_RETURN / 2 * reward)

    def situation(self, world: BattleWorld) -> StateTokens:
        """Everything about everybody who is alive, except what the enemies' script remembers."""
        cooldowns = jnp.clip(world.cooldowns / jnp.asarray(COOLDOWN)[world.kinds], 0.0, 1.0)
        features = [
            (world.health / jnp.asarray(HEALTH)[world.kinds])[:, None],
            world.positions * PLACE[0].scale,
            cooldowns[:, None],
            world.moves,
            (world.attacks > STOP).astype(jnp.float32)[:, None],
            jax.nn.one_hot(world.kinds, len(KINDS)),
        ]
        units = jnp.where(world.alive[:, None], jnp.concatenate(features, axis=-1), 0.0)
        ours, theirs = slice(self.num_agents), slice(self.num_agents, None)
        return StateTokens(units[ours], units[theirs], jnp.zeros(0), world.alive[ours], world.alive[theirs])

    def show(self, world: BattleWorld, reward: Float[Array, ""]) -> Step:
        """Tokens, mask and outcome of this moment."""
        state = self.situation(world)
        tokens, available = look(state)
        defeated, lost = ~state.target_present.any(), ~state.agent_present.any()
        ended = defeated | lost | (world.time >= self.limit)
        return Step(
            tokens=tokens,
            state=state,
            available=available,
            reward=reward,
            ended=ended,
            # StarCraft data marks the time limit as an end like any other, so learners do not look past it.
            terminated=ended,
            success=defeated & ~lost,
        )

    def scene(self, world: BattleWorld) -> scene.Scene:
        """Units as discs with the letter of their kind and a bar of health above, ours blue and theirs red; shots as lines."""
        alive, kinds, health = np.asarray(world.health) > 0, np.asarray(world.kinds), np.asarray(world.health, float)
        columns, rows = np.asarray(world.positions, float)[:, 0] - 0.5, SIZE - np.asarray(world.positions, float)[:, 1] - 0.5
        lines, units = [], []
        for unit in np.flatnonzero(alive).tolist():
            kind, row, column = KINDS[kinds[unit]], float(rows[unit]), float(columns[unit])
            units.append(Fighter(row, column, unit < self.num_agents, kind.letter, kind.radius, float(health[unit]) / kind.health))
            hit = self.victim(world, unit)
            if hit is not None:
                lines.append(scene.Mark("line", row, column, units[-1].color, end=(float(rows[hit]), float(columns[hit]))))
        title = f"{self.name.upper()}   step {int(world.time)} of {self.limit}"
        return scene.Scene(int(SIZE), int(SIZE), (*lines, *fighters.draw(units)), title)

    def victim(self, world: BattleWorld, unit: int) -> int | None:
        """Whom a unit has shot in the step that led here, as far as its cooldown tells."""
        target = int(world.attacks[unit]) - STOP - 1
        full = KINDS[int(world.kinds[unit])].cooldown
        if target < 0 or float(world.cooldowns[unit]) < full - smax.STEP_SECONDS:
            return None
        return self.num_agents + target if unit < self.num_agents else self.num_agents - 1 - target


def look(state: StateTokens) -> tuple[Tokens, Bool[Array, "agent action"]]:
    """What every agent sees and can do. It follows from the state alone, so whoever has that need not keep this."""
    num_agents = state.agents.shape[0]
    units = jnp.concatenate([state.agents, state.targets])
    alive = jnp.concatenate([state.agent_present, state.target_present])
    places, kinds = units[:, 1:3] * SIZE, state.agents[:, -len(KINDS) :]
    offsets = places[None] - places[:num_agents, None]
    distances = jnp.sqrt(jnp.square(offsets).sum(-1))
    # The dead are of no kind: they see and reach nothing.
    seen = alive[None] & (distances < (kinds @ SIGHT)[:, None])
    in_range = alive[None] & (distances < (kinds @ REACH)[:, None])
    others = jnp.broadcast_to(units, (num_agents, *units.shape))
    views = jnp.concatenate([others[..., :1], offsets * SEEN[1].scale, others[..., 3:], in_range[..., None]], axis=-1)
    views = jnp.where(seen[..., None], views, 0.0)
    allies = jnp.asarray(other_agents(num_agents))
    tokens = Tokens(
        own=jnp.concatenate([state.agents[:, :4], kinds], axis=-1),
        allies=jnp.take_along_axis(views[..., :-1], allies[..., None], axis=1),
        targets=views[:, num_agents:],
        ally_seen=jnp.take_along_axis(seen, allies, axis=1),
        target_seen=seen[:, num_agents:],
    )
    moves = jnp.repeat(state.agent_present[:, None], len(MOVES), axis=1)
    return tokens, jnp.concatenate([moves, jnp.ones((num_agents, 1), bool), in_range[:, num_agents:]], axis=-1)


RACE_SIZES = ((5, 5), (6, 6), (10, 10), (20, 20), (10, 11), (20, 23))
NAMES = (
    *("3m", "4m", "10m", "12m", "5m_vs_6m", "7m_vs_8m", "9m_vs_10m", "13m_vs_15m"),
    *("1s1z", "2s3z", "2s4z", "3s5z", "4s4z", "2s1z_vs_3z", "2s2z_vs_4z", "4s4z_vs_8z"),
    *(f"{race}_{ours}v{theirs}" for race in RACES for ours, theirs in RACE_SIZES),
)
LIMIT_PART = r"(?:-(?P<limit>\d+)t)?"
TEAMS = re.compile(rf"(?P<ours>{TEAM})(?:_vs_(?P<theirs>{TEAM}))?{LIMIT_PART}")
RACE = re.compile(rf"(?P<race>[a-z]+)_(?P<ours>\d+)v(?P<theirs>\d+){LIMIT_PART}")


def make(name: str) -> Battle | None:
    """``5m_vs_6m``, ``2s3z`` (letters: a, g, h, m, s, z) or, with units drawn, ``zerg_5v6``; with ``-60t`` for the limit."""
    if match := TEAMS.fullmatch(name):
        ours = read_team(name, match["ours"])
        theirs = read_team(name, match["theirs"]) if match["theirs"] else ours
        battle = Battle(len(ours), len(theirs), (*ours, *theirs))
    elif match := RACE.fullmatch(name):
        battle = Battle(int(match["ours"]), int(match["theirs"]), race=match["race"])
    else:
        return None
    return replace(battle, limit=int(match["limit"])) if match["limit"] else battle
