"""Level-based foraging (LBF): players gather food on a grid, and heavy food needs several of them to load it in the same step.

The rules are those of lbforaging 2.0, which the tests play beside this file step for step.
"""

import hashlib
import re
from dataclasses import dataclass, replace
from functools import cached_property

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from comad.envs import grid, scene
from comad.envs.base import check_limit, rules_of
from comad.errors import UserError
from comad.tokens import full_view, other_agents
from comad.types import Actions, Discrete, Feature, PRNGKey, Spec, StateTokens, Step, Tokens

VERSION = 1
LOAD = len(grid.MOVES)
"""The action that lifts food; those before it are moves."""
CHANGES = np.concatenate([grid.MOVES, grid.MOVES[:1]])
"""Row and column change of every action: who loads stays."""
PENALTY = 0.1
"""What a failed load costs in the worlds named ``-pen``."""
PLACES = {"bottomleft": (3, 1), "bottom": (3, 2), "bottomright": (3, 3), "right": (2, 3), "topright": (1, 3)}
"""Where the food of the five tasks of the paper lies."""


class ForagingWorld(eqx.Module):
    """Where players and food are, their levels, and how many steps were taken."""

    agents: Int[Array, "agent 2"]
    levels: Int[Array, " agent"]
    foods: Int[Array, "food 2"]
    food_levels: Int[Array, " food"]
    """0 once eaten, and for food that found no place."""
    spawned: Int[Array, ""]
    """Sum of the food levels at the start, by which rewards are divided."""
    time: Int[Array, ""]


@dataclass(frozen=True)
class Foraging:
    """LBF with any team, board and levels; the defaults are those of lbforaging's registered worlds, which come by name (`make`)."""

    num_agents: int
    num_foods: int
    rows: int
    columns: int
    limit: int = 50
    sight: int = 0
    """King's moves an agent can see; 0 sees the whole board."""
    force_coop: bool = False
    """Every food is as heavy as it may be."""
    min_player_level: int = 1
    max_player_level: int = 2
    min_food_level: int = 1
    max_food_level: int = 0
    """0 stands for the sum of the three lowest player levels of the episode."""
    penalty: float = 0.0
    """What every player pays who loads in vain."""
    food_cells: tuple[tuple[int, int], ...] = ()
    """Fixed row and column of each food; if left out they are drawn, off the border."""

    def __post_init__(self) -> None:
        cells = np.array(self.food_cells, int).reshape(-1, 2)
        too_close = np.abs(cells[:, None] - cells[None]).sum(-1) <= 2
        lightest_maximum = self.max_food_level or self.min_player_level * min(3, self.num_agents)
        players, foods = (self.min_player_level, self.max_player_level), (self.min_food_level, lightest_maximum)
        problems = (
            (not 3 <= min(self.shape) <= max(self.shape) <= 255, "a board has 3 to 255 rows and columns"),
            (self.num_agents < 1 or self.num_foods < 1, "needs at least one player and one food"),
            (self.num_agents + self.num_foods > self.rows * self.columns, "the board is too small for so many players and foods"),
            (min(self.sight, self.penalty) < 0, f"sight {self.sight} and penalty {self.penalty} must be at least 0"),
            (not 1 <= players[0] <= players[1], f"player levels must rise from at least 1, not from {players[0]} to {players[1]}"),
            (not 1 <= foods[0] <= foods[1], f"food levels must rise from at least 1, not from {foods[0]} to {foods[1]}"),
            (self.largest_level > 255, f"levels go up to 255, not {self.largest_level}"),
            (len(cells) not in (0, self.num_foods), f"needs one food cell for each food, not {self.food_cells}"),
            (((cells < 0) | (cells >= self.shape)).any(), f"food cells must lie on the board, not at {self.food_cells}"),
            (too_close.sum() > len(cells), f"food cells must be three moves apart, not at {self.food_cells}"),
        )
        for wrong, sentence in problems:
            if wrong:
                raise UserError(f"{self.short_name}: {sentence}")
        check_limit(self.short_name, self.limit)

    @cached_property
    def spec(self) -> Spec:
        """Players and food are a cell and a level each; everything an agent does is decided from its own token."""
        token = (*grid.cell_features(self.shape), self.level_feature)
        return Spec(
            env=self.name,
            version=VERSION,
            rules=self.rules,
            num_agents=self.num_agents,
            num_targets=self.num_foods,
            own=token,
            ally=token,
            target=token,
            state_agent=token,
            state_target=token,
            context=(),
            actions=Discrete((*grid.MOVE_NAMES, "load")),
            limit=self.limit,
            full_view=self.sees_all,
        )

    @property
    def rules(self) -> str:
        """Returns what identifies this environment."""
        settings = {
            **{"num_agents": self.num_agents, "num_foods": self.num_foods},
            **{"rows": self.rows, "columns": self.columns, "limit": self.limit},
            **{"sight": self.sight, "force_coop": self.force_coop, "penalty": self.penalty},
            "min_player_level": self.min_player_level,
            "max_player_level": self.max_player_level,
            "min_food_level": self.min_food_level,
            "max_food_level": self.max_food_level,
            "food_cells": self.food_cells,
        }
        return rules_of("lbf", VERSION, settings)

    @property
    def name(self) -> str:
        """The name that `make` turns into this world again; settings that have none get one that tells them apart."""
        for name in (*NAMES, self.short_name):
            if self == make(name):
                return name
        return f"{self.short_name}-{hashlib.sha256(self.rules.encode()).hexdigest()[:6]}"

    @property
    def short_name(self) -> str:
        """What lbforaging's names tell of a world."""
        options = (f"-{self.sight}s" if self.sight else "") + ("-coop" if self.force_coop else "") + ("-pen" if self.penalty else "")
        return f"lbf-{self.rows}x{self.columns}-{self.num_agents}p-{self.num_foods}f{options}"

    @property
    def sees_all(self) -> bool:
        """Whether sight covers the board from every cell."""
        return self.sight == 0 or self.sight >= max(self.shape) - 1

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the board."""
        return self.rows, self.columns

    @property
    def level_feature(self) -> Feature:
        """Levels over the largest one."""
        return Feature("level", float(self.largest_level), integral=True)

    @property
    def largest_level(self) -> int:
        """The highest level that a player or food can have."""
        return max(self.max_player_level, self.max_food_level or self.max_player_level * min(3, self.num_agents))

    def reset(self, key: PRNGKey) -> tuple[ForagingWorld, Step]:
        """Players anywhere on cells of their own, food where nobody stands and nobody can reach two at once."""
        agent_key, food_key, level_key = jax.random.split(key, 3)
        fixed = np.array(self.food_cells, np.int32).reshape(-1, 2)
        without_food = (grid.board_cells(self.shape)[:, None] != fixed[None]).any(-1).all(-1)
        agents = grid.draw_cells(agent_key, jnp.asarray(without_food), self.num_agents, self.shape)
        foods, placed = (jnp.asarray(fixed), jnp.ones(len(fixed), bool)) if self.food_cells else self.place_foods(food_key, agents)
        # One draw for all levels, because each further one makes compilation notably longer.
        chances = jax.random.uniform(level_key, (self.num_agents + self.num_foods,))
        spread = self.max_player_level + 1 - self.min_player_level
        levels = self.min_player_level + (chances[: self.num_agents] * spread).astype(jnp.int32)
        heaviest = self.max_food_level or jnp.sort(levels)[:3].sum()
        lightest = heaviest if self.force_coop else self.min_food_level
        food_levels = jnp.where(placed, lightest + (chances[self.num_agents :] * (heaviest + 1 - lightest)).astype(jnp.int32), 0)
        world = ForagingWorld(agents, levels, foods, food_levels, food_levels.sum(), jnp.int32(0))
        return world, self.show(world, jnp.float32(0.0))

    def place_foods(self, key: PRNGKey, agents: Int[Array, "agent 2"]) -> tuple[Int[Array, "food 2"], Bool[Array, " food"]]:
        """One food after the other on any cell that is still allowed, and whether there was one."""
        board = jnp.asarray(grid.board_cells(self.shape))
        # One shuffle serves all: among the cells that earlier food leaves, its order is still as good as new.
        order = jax.random.uniform(key, (len(board),))

        def place(allowed: Bool[Array, " cell"], _: None) -> tuple[Bool[Array, " cell"], tuple[Int[Array, "2"], Bool[Array, ""]]]:
            food = board[jnp.where(allowed, order, -1.0).argmax()]
            return allowed & (steps_between(board, food[None])[:, 0] > 2), (food, allowed.any())

        off_border = grid.inside(board - 1, (self.rows - 2, self.columns - 2))
        allowed = off_border & (steps_between(board, agents) > 0).all(-1)
        return jax.lax.scan(place, allowed, length=self.num_foods)[1]

    def step(self, world: ForagingWorld, actions: Actions, key: PRNGKey) -> tuple[ForagingWorld, Step]:
        """Move at once; food goes to the players next to it who load now, if their levels add up to its own."""
        wishes = world.agents + jnp.asarray(CHANGES)[actions]
        wishes = jnp.where(self.enterable(world, wishes)[:, None], wishes, world.agents)
        loading = next_to_food(world) & (actions == LOAD)[:, None]
        strength = jnp.where(loading, world.levels[:, None], 0).sum(0)
        eaten = loading.any(0) & (strength >= world.food_levels)
        # lbforaging shares out a food's level among its loaders by their levels; the team gets it whole.
        earned = jnp.where(eaten, world.food_levels, 0).sum() / jnp.maximum(world.spawned, 1)
        reward = earned - self.penalty * (loading & ~eaten[None]).sum()
        agents, food_levels = grid.move_together(world.agents, wishes), jnp.where(eaten, 0, world.food_levels)
        world = replace(world, agents=agents, food_levels=food_levels, time=world.time + 1)
        return world, self.show(world, reward)

    def enterable(self, world: ForagingWorld, cells: Int[Array, "cell 2"]) -> Bool[Array, " cell"]:
        """Cells of the board without food."""
        on_food = (steps_between(cells, world.foods) == 0) & (world.food_levels > 0)[None]
        return grid.inside(cells, self.shape) & ~on_food.any(-1)

    def available(self, world: ForagingWorld) -> Bool[Array, "agent 6"]:
        """Every move to a cell of the board without food, and loading beside food."""
        wishes = world.agents[:, None] + jnp.asarray(grid.MOVES)[None]
        moves = self.enterable(world, wishes.reshape(-1, 2)).reshape(-1, LOAD)
        return jnp.concatenate([moves, next_to_food(world).any(-1, keepdims=True)], axis=-1)

    def show(self, world: ForagingWorld, reward: Float[Array, ""]) -> Step:
        """Tokens, mask and outcome of this moment."""
        present = world.food_levels > 0
        state = StateTokens(
            agents=self.token(world.agents, world.levels),
            targets=jnp.where(present[:, None], self.token(world.foods, world.food_levels), 0.0),
            context=jnp.zeros(0),
            agent_present=jnp.ones(self.num_agents, bool),
            target_present=present,
        )
        cleared = ~present.any()
        ended = cleared | (world.time >= self.limit)
        return Step(
            tokens=self.look(world, full_view(state)),
            state=state,
            available=self.available(world),
            reward=reward,
            ended=ended,
            # lbforaging ends an episode at the limit like any other, so learners do not look past it.
            terminated=ended,
            success=cleared & (world.spawned > 0),
        )

    def token(self, cells: Int[Array, "entity 2"], levels: Int[Array, " entity"]) -> Float[Array, "entity 3"]:
        """Cell and level of players or food as features."""
        return jnp.concatenate([grid.scaled_cells(cells, self.shape), levels[:, None] * self.level_feature.scale], axis=-1)

    def look(self, world: ForagingWorld, tokens: Tokens) -> Tokens:
        """Hide what lies outside an agent's sight."""
        if self.sees_all:
            return tokens
        # In lbforaging the upper and left border cut the window in which food is seen, but shift the one in which players are seen.
        corner = jnp.maximum(world.agents - self.sight, 0)
        offsets = world.agents[None] - corner[:, None]
        near = ((offsets >= 0) & (offsets <= 2 * self.sight)).all(-1)
        ally_seen = jnp.take_along_axis(near, jnp.asarray(other_agents(self.num_agents)), axis=1)
        target_seen = tokens.target_seen & (grid.chebyshev(world.agents, world.foods) <= self.sight)
        allies = jnp.where(ally_seen[..., None], tokens.allies, 0.0)
        targets = jnp.where(target_seen[..., None], tokens.targets, 0.0)
        return Tokens(tokens.own, allies, targets, ally_seen, target_seen)

    def scene(self, world: ForagingWorld) -> scene.Scene:
        """Food as squares and players as discs, each with its level."""
        foods = zip(np.asarray(world.foods, float).tolist(), np.asarray(world.food_levels).tolist(), strict=True)
        agents = zip(np.asarray(world.agents, float).tolist(), np.asarray(world.levels).tolist(), strict=True)
        squares = [scene.Mark("square", row, column, scene.FOOD, label=str(level)) for (row, column), level in foods if level > 0]
        discs = [scene.Mark("disc", row, column, scene.AGENT, label=str(level)) for (row, column), level in agents]
        title = f"{self.spec.env.upper()}   step {int(world.time)} of {self.limit}"
        return scene.Scene(self.rows, self.columns, (*squares, *discs), title)


def steps_between(first: Int[Array, "entity 2"], second: Int[Array, "other 2"]) -> Int[Array, "entity other"]:
    """Moves needed from one cell to another on an empty board."""
    return jnp.abs(first[:, None] - second[None]).sum(-1)


def next_to_food(world: ForagingWorld) -> Bool[Array, "agent food"]:
    """Which food each player could load: at most one, because no two lie closer than three moves."""
    return (steps_between(world.agents, world.foods) == 1) & (world.food_levels > 0)[None]


def published(place: str) -> Foraging:
    """A task of the paper: two players of level 1 who must load together."""
    return Foraging(2, 1, 5, 5, force_coop=True, max_player_level=1, food_cells=(PLACES[place],))


NAMES = tuple(f"lbf-{place}" for place in PLACES)
PATTERN = re.compile(
    r"lbf-(?P<rows>\d+)x(?P<columns>\d+)-(?P<agents>\d+)p-(?P<foods>\d+)f(-(?P<sight>\d+)s)?(?P<coop>-coop)?(?P<pen>-pen)?"
)


def make(name: str) -> Foraging | None:
    """``lbf-bottom`` and its like, or ``lbf-8x8-2p-1f``, with ``-2s`` for the sight, ``-coop`` and ``-pen`` as lbforaging has them."""
    if name in NAMES:
        return published(name.removeprefix("lbf-"))
    match = PATTERN.fullmatch(name)
    if not match:
        return None
    agents, foods, rows, columns, sight = (int(match[part] or 0) for part in ("agents", "foods", "rows", "columns", "sight"))
    return Foraging(agents, foods, rows, columns, sight=sight, force_coop=bool(match["coop"]), penalty=PENALTY if match["pen"] else 0.0)
