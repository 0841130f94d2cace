"""Cooperative navigation (CN): as many agents as landmarks on a grid; the team succeeds when everybody has a landmark of their own.

The rules are those of the grid version published with ODIS, which recorded data replays step for step.
"""

import re
from dataclasses import dataclass
from functools import cached_property

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from comad.envs import grid, scene
from comad.envs.base import check_limit, rules_of
from comad.envs.matching import has_perfect_matching
from comad.errors import UserError
from comad.tokens import full_view, other_agents
from comad.types import Actions, Discrete, PRNGKey, Spec, StateTokens, Step, Tokens

VERSION = 1
SIZES = {2: 6, 3: 8, 4: 10, 5: 12, 6: 15, 7: 15, 8: 15, 9: 15, 10: 15, 11: 18, 12: 18, 15: 20}
"""Side of the square field by team size."""
LIMITS = {7: 70, 8: 70, 9: 70, 10: 70, 11: 70, 12: 70, 15: 80}
"""Episode limits other than 50."""


class NavigationWorld(eqx.Module):
    """Where everybody is, and how many steps were taken."""

    agents: Int[Array, "agent 2"]
    landmarks: Int[Array, "agent 2"]
    time: Int[Array, ""]


@dataclass(frozen=True)
class Navigation:
    """CN with any team size and field; the published sizes come by name (`make`)."""

    num_agents: int
    size: int
    limit: int = 50
    reach: int = 2
    """A landmark counts as taken from this many king's moves away."""
    sight: int = 0
    """King's moves an agent can see; 0 sees the whole field."""

    @cached_property
    def spec(self) -> Spec:
        """Tokens are cells only; everything an agent does is decided from its own token."""
        cell = grid.cell_features(self.shape)
        return Spec(
            env=self.name,
            version=VERSION,
            rules=self.rules,
            num_agents=self.num_agents,
            num_targets=self.num_agents,
            own=cell,
            ally=cell,
            target=cell,
            state_agent=cell,
            state_target=cell,
            context=(),
            actions=Discrete(grid.MOVE_NAMES),
            limit=self.limit,
            full_view=self.sees_all,
        )

    @property
    def rules(self) -> str:
        """Returns what identifies this environment."""
        settings = {
            "num_agents": self.num_agents,
            "size": self.size,
            "limit": self.limit,
            "reach": self.reach,
            "sight": self.sight,
        }
        return rules_of("cn", VERSION, settings)

    @property
    def name(self) -> str:
        """The name that `make` turns into this world again."""
        if self == published(self.num_agents):
            return f"cn-{self.num_agents}"
        sight = f"-{self.sight}s" if self.sight else ""
        return f"cn-{self.num_agents}-{self.size}x{self.size}-{self.limit}t-{self.reach}r{sight}"

    @property
    def sees_all(self) -> bool:
        """Whether sight covers the field from every cell."""
        return self.sight == 0 or self.sight >= self.size - 1

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the field."""
        return self.size, self.size

    def reset(self, key: PRNGKey) -> tuple[NavigationWorld, Step]:
        """Agents anywhere on cells of their own, landmarks out of everybody's reach."""
        agent_key, landmark_key = jax.random.split(key)
        everywhere = jnp.ones(self.size**2, bool)
        agents = grid.draw_cells(agent_key, everywhere, self.num_agents, self.shape)
        out_of_reach = (grid.chebyshev(jnp.asarray(grid.board_cells(self.shape)), agents) > self.reach).all(-1)
        landmarks = grid.draw_cells(landmark_key, out_of_reach, self.num_agents, self.shape)
        world = NavigationWorld(agents, landmarks, jnp.int32(0))
        return world, self.show(world, jnp.array(False))

    def step(self, world: NavigationWorld, actions: Actions, key: PRNGKey) -> tuple[NavigationWorld, Step]:
        """Move at once; reward 1 and the end when a one-to-one assignment of landmarks in reach exists."""
        allowed = jnp.take_along_axis(self.available(world), actions[:, None], axis=1)[:, 0]
        wishes = world.agents + jnp.asarray(grid.MOVES)[jnp.where(allowed, actions, 0)]
        world = NavigationWorld(grid.move_together(world.agents, wishes), world.landmarks, world.time + 1)
        success = has_perfect_matching(grid.chebyshev(world.agents, world.landmarks) <= self.reach)
        return world, self.show(world, success)

    def available(self, world: NavigationWorld) -> Bool[Array, "agent 5"]:
        """Every move that stays on the field."""
        return grid.inside(world.agents[:, None] + jnp.asarray(grid.MOVES)[None], self.shape)

    def show(self, world: NavigationWorld, success: Bool[Array, ""]) -> Step:
        """Tokens, mask and outcome of this moment."""
        present = jnp.ones(self.num_agents, bool)
        state = StateTokens(
            agents=grid.scaled_cells(world.agents, self.shape),
            targets=grid.scaled_cells(world.landmarks, self.shape),
            context=jnp.zeros(0),
            agent_present=present,
            target_present=present,
        )
        ended = success | (world.time >= self.limit)
        return Step(
            tokens=self.look(world, full_view(state)),
            state=state,
            available=self.available(world),
            reward=success.astype(jnp.float32),
            ended=ended,
            # The published data marks the time limit as an end like any other, so learners do not look past it.
            terminated=ended,
            success=success,
        )

    def look(self, world: NavigationWorld, tokens: Tokens) -> Tokens:
        """Hide what lies outside an agent's sight."""
        if self.sees_all:
            return tokens
        near = grid.chebyshev(world.agents, world.agents) <= self.sight
        ally_seen = jnp.take_along_axis(near, jnp.asarray(other_agents(self.num_agents)), axis=1)
        target_seen = grid.chebyshev(world.agents, world.landmarks) <= self.sight
        return Tokens(
            own=tokens.own,
            allies=jnp.where(ally_seen[..., None], tokens.allies, 0.0),
            targets=jnp.where(target_seen[..., None], tokens.targets, 0.0),
            ally_seen=ally_seen,
            target_seen=target_seen,
        )

    def scene(self, world: NavigationWorld) -> scene.Scene:
        """Landmarks as diamonds in the middle of the zone that counts, green once anybody is in it; agents as numbered discs."""
        agents, landmarks = np.asarray(world.agents, float), np.asarray(world.landmarks, float)
        in_reach = np.abs(agents[:, None] - landmarks[None]).max(-1) <= self.reach
        colors = [scene.DONE if taken else scene.GOAL for taken in in_reach.any(0)]
        zones = [
            scene.Mark("zone", row, column, color, size=2.0 * self.reach + 1.0)
            for (row, column), color in zip(landmarks, colors, strict=True)
        ]
        diamonds = [scene.Mark("diamond", row, column, color) for (row, column), color in zip(landmarks, colors, strict=True)]
        discs = [scene.Mark("disc", row, column, scene.AGENT, label=str(agent)) for agent, (row, column) in enumerate(agents)]
        title = f"{self.name.upper()}   step {int(world.time)} of {self.limit}"
        return scene.Scene(self.size, self.size, (*zones, *diamonds, *discs), title)


def published(num_agents: int) -> Navigation | None:
    """The field and limit published for a team size, if there are any."""
    if num_agents not in SIZES:
        return None
    return Navigation(num_agents, SIZES[num_agents], LIMITS.get(num_agents, 50))


NAMES = tuple(f"cn-{num_agents}" for num_agents in SIZES)
PATTERN = re.compile(r"cn-(?P<agents>\d+)(-(?P<size>\d+)x(?P=size)(-(?P<limit>\d+)t)?(-(?P<reach>\d+)r)?(-(?P<sight>\d+)s)?)?")


def make(name: str) -> Navigation | None:
    """``cn-4``, or a field of one's own: ``cn-4-9x9``, with ``-60t`` for the limit, ``-1r`` for the reach, ``-3s`` for the sight."""
    match = PATTERN.fullmatch(name)
    if not match:
        return None
    given = {part: int(number) for part, number in match.groupdict().items() if number}
    if "size" not in given:
        return published(given["agents"])
    env = Navigation(given["agents"], given["size"], given.get("limit", 50), given.get("reach", 2), sight=given.get("sight", 0))
    check_limit(name, env.limit)
    if not 1 <= env.num_agents <= env.size**2 // 2:
        raise UserError(f"{name}: needs 1 to {env.size**2 // 2} agents on a {env.size}x{env.size} field")
    return env
