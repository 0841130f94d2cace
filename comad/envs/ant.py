"""The Ant of multi-agent MuJoCo, each leg an agent with two motors: run in a given direction, or without some of the legs."""

import itertools
import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float64, Int

from comad.envs import scene
from comad.envs.ant_physics import NUM_LEGS, PLACES, SPEEDS, STEP_SECONDS, Motion, simulator
from comad.envs.ant_tokens import LEG, SIGHTS, TORSO, VIEWS, Sight, ally_features, situate, view_name
from comad.envs.base import check_limit, rules_of
from comad.errors import UserError
from comad.types import Continuous, Spec, Step

VERSION = 1
LIMIT = 1000
FULL_REWARD = 5.0
"""Per step: a return of 5000 in the standard 1000 steps is a score of one."""
HEALTHY = (0.2, 1.0)
"""Heights of the torso between which the Ant neither lies nor flies."""
CONTROL_COST, CONTACT_COST = 0.5, 5e-4
LOST = "an Ant's numbers are no longer finite, because of its actions or in MuJoCo: its episode ends here without a reward"
LEGS = {"back": (3,), "diagonal": (1, 3), "front": (1,), "mixed": (2, 3, 4), "right": (2,)}
"""The paper's names for the legs that do not work. Which leg is the right one is a guess: see `docs/worlds.md`."""


class AntWorld(eqx.Module):
    """All that decides what happens next."""

    bodies: Float64[np.ndarray, "*episode number"]
    spots: Float64[np.ndarray, "*episode 2"]
    """Where the torso is on the ground."""
    time: Int[np.ndarray, "*episode"]


@dataclass(frozen=True)
class Ant:
    """Many Ants, each in an episode of its own."""

    direction: float = 0.0
    """Where to run, in degrees: 0 is ahead (+x), 90 left (+y)."""
    disabled: tuple[int, ...] = ()
    """Legs 1 to 4 whose motors do nothing, whatever their agents ask for."""
    sight: Sight = "full"
    limit: int = LIMIT

    def __post_init__(self) -> None:
        if not 0 <= self.direction < 360:
            raise UserError(f"ant: the direction must be from 0 to below 360 degrees, not {self.direction}")
        for leg in self.disabled:
            if not 1 <= leg <= NUM_LEGS:
                raise UserError(f"ant: there is no leg {leg}; the legs are 1 to {NUM_LEGS}")
        if list(self.disabled) != sorted(set(self.disabled)):
            raise UserError(f"ant: give the legs that do not work once each, in order, not {self.disabled}")
        check_limit(self.name, self.limit)

    @cached_property
    def spec(self) -> Spec:
        """The same tokens whatever the task, which they do not tell."""
        return Spec(
            env=self.name,
            version=VERSION,
            rules=self.rules,
            num_agents=NUM_LEGS,
            num_targets=1,
            own=(*LEG, *TORSO),
            ally=ally_features(self.sight),
            target=TORSO,
            state_agent=LEG,
            state_target=TORSO,
            context=(),
            actions=Continuous(("hip", "ankle")),
            limit=self.limit,
            view=view_name(self.sight),
            full_return=FULL_REWARD * self.limit,
        )

    @property
    def rules(self) -> str:
        """Returns what identifies this environment."""
        settings = {
            "direction": self.direction,
            "disabled": self.disabled,
            "sight": self.sight,
            "limit": self.limit,
        }
        return rules_of("ant", VERSION, settings)

    @property
    def name(self) -> str:
        """The name that `make` turns into this world again."""
        angle = np.format_float_positional(self.direction, trim="-")
        known = next((f"ant-dynamics-{word}" for word, legs in LEGS.items() if legs == self.disabled), "")
        without = "-".join(map(str, ("without", *self.disabled)))
        if not self.disabled:
            short = f"ant-reward-{angle}"
        elif self.direction:
            short = f"ant-reward-{angle}-{without}"
        else:
            short = known or f"ant-{without}"
        return short + (f"-{self.sight}" if self.sight != "full" else "") + (f"-{self.limit}t" if self.limit != LIMIT else "")

    @property
    def working(self) -> np.ndarray:
        """Which legs move, as factors [leg, 1] of their torques."""
        return np.array([[leg not in self.disabled] for leg in range(1, NUM_LEGS + 1)], float)

    @property
    def ahead(self) -> np.ndarray:
        """Where to run, as a vector of length one."""
        angle = math.radians(self.direction)
        return np.array([math.cos(angle), math.sin(angle)])

    def beside(self, others: Sequence["Ant"]) -> "Ants":
        """All as one: they share a body, and differ in what is asked of it."""
        return Ants((self, *others))

    def reset_many(self, seeds: np.ndarray) -> tuple[AntWorld, Step]:
        """One Ant per seed, where gymnasium's Ant-v5 would put it."""
        world, motion = begin(seeds)
        nothing = np.zeros(len(seeds))
        return world, self.show(world, motion, nothing, nothing > 0)

    def step_many(self, world: AntWorld, actions: np.ndarray, active: np.ndarray) -> tuple[AntWorld, Step]:
        """A twentieth of a second under constant torques."""
        after, motion, reward, fallen = self.advance(world, actions, active)
        return after, self.show(after, motion, reward, fallen)

    def advance(self, world: AntWorld, actions: np.ndarray, active: np.ndarray) -> tuple[AntWorld, Motion, np.ndarray, np.ndarray]:
        """The same in double precision: the world after it, what moved, the rewards, and whose episode has no future."""
        return advance(world, actions, active, self.ahead, self.working)

    def show(self, world: AntWorld, motion: Motion, reward: np.ndarray, fallen: np.ndarray) -> Step:
        """Tokens and outcomes. Time is no end of value: learners look past the limit."""
        return _show(self.sight, numbers_of(motion), reward, fallen, world.time >= self.limit)

    def scene(self, world: AntWorld) -> scene.Scene:
        """From above, the Ant in the middle and the ground passing below it, half a meter a cell; the dark line points where to run."""
        places = world.bodies[:PLACES]
        middle, far = VIEW / 2 - 0.5, VIEW * 0.45

        def spot(point: np.ndarray) -> tuple[float, float]:
            column, row = (point - places[:2]) / CELL
            return middle - float(row), middle + float(column)

        angle = math.radians(self.direction)
        goal = (middle - far * math.sin(angle), middle + far * math.cos(angle))
        marks = [*_ground(places[:2] / CELL, middle), scene.Mark("line", middle, middle, scene.INK, end=goal)]
        marks.append(scene.Mark("diamond", *goal, scene.DONE, size=0.4))
        for leg, points in enumerate(simulator().joints(places), 1):
            hip, ankle, foot = map(spot, points)
            color = scene.FAINT if leg in self.disabled else scene.AGENT
            pieces = itertools.pairwise(((middle, middle), hip, ankle, foot))
            marks += [scene.Mark("line", *start, color, end=end) for start, end in pieces]
            marks.append(scene.Mark("disc", *foot, color, str(leg), size=0.4))
        marks.append(scene.Mark("disc", middle, middle, scene.GOAL, size=0.5 / CELL))
        x, y = places[:2]
        title = f"{self.name.upper()}   step {int(world.time)} of {self.limit}   at {x:+.1f}, {y:+.1f} m"
        return scene.Scene(VIEW, VIEW, tuple(marks), title, seconds=STEP_SECONDS)


@dataclass(frozen=True)
class Ants:
    """Episodes of several Ant worlds of one shape, moved and shown together; each has an equal share of them."""

    worlds: tuple[Ant, ...]

    @property
    def spec(self) -> Spec:
        """The first one's."""
        return self.worlds[0].spec

    def reset_many(self, seeds: np.ndarray) -> tuple[AntWorld, Step]:
        """One Ant per seed; they begin alike whatever the world."""
        return self.worlds[0].reset_many(seeds)

    def step_many(self, world: AntWorld, actions: np.ndarray, active: np.ndarray) -> tuple[AntWorld, Step]:
        """A twentieth of a second."""
        ahead, working = (np.repeat(parts, len(active) // len(self.worlds), axis=0) for parts in self.demands)
        after, motion, reward, fallen = advance(world, actions, active, ahead, working)
        return after, self.worlds[0].show(after, motion, reward, fallen)

    @cached_property
    def demands(self) -> tuple[np.ndarray, np.ndarray]:
        """Where to run, and which legs move, by world."""
        return np.stack([env.ahead for env in self.worlds]), np.stack([env.working for env in self.worlds])


def begin(seeds: np.ndarray) -> tuple[AntWorld, Motion]:
    """Fresh Ants; whatever is asked of them, they begin alike."""
    motion = simulator().begin(seeds)
    return AntWorld(motion.bodies, motion.spots, np.zeros(len(seeds), np.int32)), motion


def advance(
    world: AntWorld, actions: np.ndarray, active: np.ndarray, ahead: np.ndarray, working: np.ndarray
) -> tuple[AntWorld, Motion, np.ndarray, np.ndarray]:
    """Move Ants that are asked to run ahead with the legs that work, the same for all or given by episode."""
    torques = np.clip(np.asarray(actions, float), -1.0, 1.0) * working
    motion = simulator().move(world.bodies, world.spots, torques, np.flatnonzero(active))
    if motion.broken.any():
        warnings.warn(LOST, RuntimeWarning, stacklevel=3)
    healthy = is_healthy(motion.bodies)
    forward = ((motion.spots - world.spots) * ahead).sum(-1) / STEP_SECONDS
    costs = CONTROL_COST * np.square(torques).sum((1, 2)) + CONTACT_COST * np.square(motion.forces.clip(-1.0, 1.0)).sum(1)
    reward = np.where(motion.broken | ~active, 0.0, forward + healthy - costs)
    return AntWorld(motion.bodies, motion.spots, world.time + active.astype(np.int32)), motion, reward, motion.broken | ~healthy


def is_healthy(bodies: np.ndarray) -> np.ndarray:
    """Whose torso is at a height between lying and flying."""
    low, high = HEALTHY
    return (bodies[:, 2] >= low) & (bodies[:, 2] <= high)


def numbers_of(motion: Motion) -> np.ndarray:
    """What gymnasium's Ant-v5 observes: places without where on the ground, speeds, and contact forces cut to [-1, 1]."""
    return np.concatenate([motion.bodies[:, 2 : PLACES + SPEEDS], motion.forces.clip(-1.0, 1.0)], axis=1)


@partial(jax.jit, static_argnums=0)
def _show(
    sight: Sight,
    numbers: Float[Array, "episode 105"],
    reward: Float[Array, " episode"],
    fallen: Bool[Array, " episode"],
    late: Bool[Array, " episode"],
) -> Step:
    state = situate(numbers)
    tokens, available = jax.vmap(VIEWS[view_name(sight)])(state)
    return Step(tokens, state, available, reward, ended=fallen | late, terminated=fallen, success=jnp.zeros_like(fallen))


CELL, VIEW = 0.5, 8
"""Meters per cell of a picture, and cells a side."""


def _ground(center: np.ndarray, middle: float) -> list[scene.Mark]:
    """Tiles of two cells, every other one shaded."""
    marks = []
    first_column, first_row = (int(number) for number in np.floor((center - VIEW) / 2))
    for column in range(first_column, first_column + VIEW + 1):
        for row in range(first_row, first_row + VIEW + 1):
            if (row + column) % 2 == 0:
                right, up = np.array([2 * column + 1, 2 * row + 1]) - center
                if max(abs(right), abs(up)) < VIEW / 2 + 1:
                    marks.append(scene.Mark("zone", middle - float(up), middle + float(right), scene.INK, size=2.0))
    return marks


NAMES = (*(f"ant-reward-{angle}" for angle in range(0, 360, 45)), *(f"ant-dynamics-{word}" for word in LEGS))
NAME = re.compile(
    r"ant(?:-reward-(?P<angle>-?[^-]+))?(?:-dynamics-(?P<word>[^-]+)|-without-(?P<legs>.+?))?"
    rf"(?:-(?P<sight>{'|'.join(SIGHTS)}))?(?:-(?P<limit>\d+)t)?"
)


def make(name: str) -> Ant | None:
    """``ant-reward-30`` (degrees), ``ant-dynamics-back``, ``ant-without-1-3`` (legs); with ``-obsk1`` or ``-obsk0``, ``-500t`` (limit)."""
    match = NAME.fullmatch(name)
    if match is None:
        return None
    disabled = read_legs(name, match["legs"]) if match["legs"] else read_word(name, match["word"] or "normal")
    sight: Sight = next((sight for sight in SIGHTS if sight == match["sight"]), "full")
    return Ant(read_angle(name, match["angle"] or "0"), disabled, sight, int(match["limit"] or LIMIT))


def read_angle(name: str, text: str) -> float:
    """Degrees, brought to the range from 0 to below 360."""
    if not re.fullmatch(r"-?\d{1,9}(\.\d{1,9})?", text):
        raise UserError(f"{name}: {text!r} is not a number of degrees; give a direction such as ant-reward-45 or ant-reward-22.5")
    return float(text) % 360.0


def read_word(name: str, word: str) -> tuple[int, ...]:
    """The legs that do not work, by one of the paper's words."""
    known = {**LEGS, "normal": ()}
    if word not in known:
        raise UserError(f"{name}: {word!r} stands for no legs; known: {', '.join(known)}, or give their numbers as in ant-without-1-3")
    return known[word]


def read_legs(name: str, text: str) -> tuple[int, ...]:
    """The legs that do not work, by number."""
    legs = text.split("-")
    wrong = [leg for leg in legs if leg not in map(str, range(1, NUM_LEGS + 1))]
    if wrong:
        raise UserError(f"{name}: there is no leg {wrong[0]!r}; the legs are 1 to {NUM_LEGS}, as in ant-without-1-3")
    return tuple(sorted(set(map(int, legs))))
