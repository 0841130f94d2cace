"""The Ant turned and reflected: one team plays every world that is the same problem seen from another side.

A quarter turn makes legs 1, 2, 3, 4 legs 2, 3, 4, 1, and a reflection in the x axis exchanges 1 and 4, 2 and 3. Both only reorder the
numbers that a team sees and does, and change some of their signs. Data of such worlds come from one training, and are not independent.

The ground hardly has directions either: a team that takes another direction for the x axis runs that way. Not quite the same is friction,
which MuJoCo bounds by a pyramid with edges along x and y, and the start, where the Ant does not face the way it is to run. The team
with four legs was found to run there as well as where it learned, a team short of a leg was not (docs/decisions.md).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from comad.envs.ant import LIMIT, Ant
from comad.envs.ant_physics import NUM_LEGS
from comad.experts.joint import JointTeam

QUARTERS = 4
LEG_NUMBERS = 4
"""Of a leg a team sees the angles of hip and ankle, then their speeds."""
TORSO_TURNED = np.array((0, 1, 3, 2, 4, 6, 5, 7, 9, 8, 10))
"""Where each number of the torso comes from after a quarter turn: height, rotation wxyz, speed xyz, spin xyz."""
TORSO_TURNED_SIGNS = (1, 1, -1, 1, 1, -1, 1, 1, -1, 1, 1)
TORSO_MIRRORED_SIGNS = (1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1)
ANKLES_TURNED = (1, -1, 1, -1)
"""Signs of the ankles of legs 1 to 4 after a quarter turn."""


@dataclass(frozen=True)
class Symmetry:
    """First a reflection or none, then some quarter turns to the left, then any turn of the ground alone."""

    mirrored: bool = False
    quarters: int = 0
    ground: float = 0.0
    """Degrees to the left that directions are turned while the Ant stays what it is: nearly, not exactly, the same problem."""

    def world(self, env: Ant) -> Ant:
        """The world in which everything is as in another, seen from this side."""
        direction, legs = env.direction, set(env.disabled)
        if self.mirrored:
            direction, legs = -direction, {NUM_LEGS + 1 - leg for leg in legs}
        legs = {(leg - 1 + self.quarters) % NUM_LEGS + 1 for leg in legs}
        return replace(env, direction=(direction + 90.0 * self.quarters + self.ground) % 360.0, disabled=tuple(sorted(legs)))

    def legs(self, values: Float[Array, "*batch leg number"]) -> Float[Array, "*batch leg number"]:
        """Numbers of legs, hip and ankle in turn, as they are from this side."""
        pairs = values.shape[-1] // 2
        if self.mirrored:
            values = _times(values[..., ::-1, :], np.tile((-1, 1), pairs))
        for _ in range(self.quarters):
            values = _times(jnp.roll(values, 1, axis=-2), np.tile(np.stack([np.ones(NUM_LEGS), ANKLES_TURNED], axis=-1), pairs))
        return values

    def torso(self, values: Float[Array, "*batch number"]) -> Float[Array, "*batch number"]:
        """The torso's numbers, contacts left out, as they are from this side."""
        if self.mirrored:
            values = _times(values, np.array(TORSO_MIRRORED_SIGNS))
        for _ in range(self.quarters):
            values = _times(values[..., TORSO_TURNED], np.array(TORSO_TURNED_SIGNS))
        return _on_turned_ground(values, math.radians(self.ground)) if self.ground else values

    @property
    def back(self) -> "Symmetry":
        """What undoes it: a reflection with turns undoes itself."""
        return self if self.mirrored else Symmetry(False, -self.quarters % QUARTERS, -self.ground)


def _times(values: Float[Array, "..."], signs: np.ndarray) -> Float[Array, "..."]:
    return values * signs.reshape(*[1] * (values.ndim - signs.ndim), *signs.shape).astype(np.float32)


def _on_turned_ground(torso: Float[Array, "*batch number"], angle: float) -> Float[Array, "*batch number"]:
    """Rotation and speed in other directions; height, and spin, which the torso feels along its own axes, are as they were."""
    height, w, x, y, z, along, across, *others = (torso[..., place] for place in range(torso.shape[-1]))
    cos, sin, half_cos, half_sin = math.cos(angle), math.sin(angle), math.cos(angle / 2), math.sin(angle / 2)
    rotation = (half_cos * w - half_sin * z, half_cos * x - half_sin * y, half_cos * y + half_sin * x, half_cos * z + half_sin * w)
    return jnp.stack([height, *rotation, cos * along - sin * across, sin * along + cos * across, *others], axis=-1)


def twins(env: Ant) -> Iterator[tuple[Ant, Symmetry]]:
    """Every world whose team can play this one, and from which side; first of all itself.

    A team with one mind sees what its legs see together, whatever each of them does, and does not know how long it has been running.
    Worlds that are exactly the same problem come first, then those along x that are nearly so after a turn of the ground.
    """
    plain = replace(env, sight="full", limit=LIMIT)
    exact = [Symmetry(mirrored, quarters) for mirrored in (False, True) for quarters in range(QUARTERS)]
    # Between half a turn to the right and half a turn to the left, the smallest first.
    turned = [replace(symmetry, ground=(plain.direction - 90.0 * symmetry.quarters + 180.0) % 360.0 - 180.0) for symmetry in exact]
    for symmetry in (*exact, *sorted(turned, key=lambda symmetry: abs(symmetry.ground))):
        yield symmetry.back.world(plain), symmetry


class TurnedTeam(eqx.Module):
    """A team in a world that it learned to play from another side."""

    team: Any
    symmetry: Symmetry = eqx.field(static=True)

    def decide(self, seen: Float[Array, "*batch number"]) -> Float[Array, "*batch motor"]:
        """See it as the team knows it, then do what it would do."""
        team: JointTeam = self.team
        lead, split = seen.shape[:-1], NUM_LEGS * LEG_NUMBERS
        legs = self.symmetry.back.legs(seen[..., :split].reshape(*lead, NUM_LEGS, LEG_NUMBERS))
        torso = self.symmetry.back.torso(seen[..., split:])
        decided = team.decide(jnp.concatenate([legs.reshape(*lead, -1), torso], axis=-1))
        return self.symmetry.legs(decided.reshape(*lead, NUM_LEGS, -1)).reshape(*lead, -1)
