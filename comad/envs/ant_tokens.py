"""The Ant's 105 numbers as tokens: four legs and a torso, and what a leg may see of the others."""

import functools
from typing import Literal, get_args

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from comad.envs.ant_physics import NUM_LEGS
from comad.tokens import other_agents
from comad.types import Feature, StateTokens, Tokens

Sight = Literal["full", "obsk1", "obsk0"]
SIGHTS: tuple[Sight, ...] = get_args(Sight)
"""What a leg sees besides itself and the torso: all of the other legs, the angles of their hips, or nothing."""

SPIN, SPEED = 10.0, 5.0
"""Radians per second of a joint, and meters or radians per second of the torso, that count as one."""
PUSHES = tuple(f"{kind} {axis}" for kind in ("torque", "force") for axis in "xyz")
HIP = Feature("hip angle")
LEG = (
    *(HIP, Feature("ankle angle"), Feature("hip speed", SPIN), Feature("ankle speed", SPIN)),
    *(Feature(f"{part} {push}") for part in ("mount", "thigh", "shin") for push in PUSHES),
)
TORSO = (
    *(Feature("height"), *(Feature(f"rotation {part}") for part in "wxyz")),
    *(Feature(f"{kind} {axis}", SPEED) for kind in ("speed", "spin") for axis in "xyz"),
    *(Feature(push) for push in PUSHES),
)
LEG_NUMBERS = np.array([[5 + 2 * leg, 6 + 2 * leg, 19 + 2 * leg, 20 + 2 * leg, *range(33 + 18 * leg, 51 + 18 * leg)] for leg in range(4)])
"""Where each leg's features stand among the numbers of gymnasium's Ant-v5: 13 places, 14 speeds, 13 x 6 contact forces."""
TORSO_NUMBERS = np.array([*range(5), *range(13, 19), *range(27, 33)])
LEG_SCALES = np.array([feature.scale for feature in LEG])
TORSO_SCALES = np.array([feature.scale for feature in TORSO])


def situate(numbers: Float[Array, "episode 105"]) -> StateTokens:
    """Many situations as tokens. The torso is the one thing that is not an agent, so it takes the place of a target."""
    there = jnp.ones((len(numbers), NUM_LEGS + 1), bool)
    return StateTokens(
        agents=numbers[:, LEG_NUMBERS] * LEG_SCALES[None, None],
        targets=numbers[:, None, TORSO_NUMBERS] * TORSO_SCALES[None, None],
        context=jnp.zeros((len(numbers), 0)),
        agent_present=there[:, :NUM_LEGS],
        target_present=there[:, NUM_LEGS:],
    )


def look(sight: Sight, state: StateTokens) -> tuple[Tokens, Bool[Array, "agent 0"]]:
    """What every leg sees, itself and the torso in its own token, and that nothing is ever forbidden."""
    torso = jnp.broadcast_to(state.targets, (NUM_LEGS, *state.targets.shape))
    allies = state.agents[other_agents(NUM_LEGS)]
    if sight != "full":
        allies = allies[..., : len(ally_features(sight))]
    seen = sight != "obsk0"
    tokens = Tokens(
        own=jnp.concatenate([state.agents, torso[:, 0]], axis=-1),
        allies=allies if seen else jnp.zeros_like(allies),
        targets=torso,
        ally_seen=jnp.full(allies.shape[:-1], seen),
        target_seen=jnp.ones((NUM_LEGS, 1), bool),
    )
    return tokens, jnp.ones((NUM_LEGS, 0), bool)


def ally_features(sight: Sight) -> tuple[Feature, ...]:
    """Of another leg."""
    return LEG if sight == "full" else (HIP,)


def view_name(sight: Sight) -> str:
    """What a spec calls it (`Spec.view`)."""
    return f"ant-{sight}"


VIEWS = {view_name(sight): functools.partial(look, sight) for sight in SIGHTS}
