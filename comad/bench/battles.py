"""Made-up battles: tokens of the size and number that StarCraft-like tasks have, to measure learning on them without the game."""

import jax.numpy as jnp
import numpy as np

from comad.datasets.batches import Resident
from comad.datasets.layout import columns, episode_starts
from comad.datasets.packing import Packing
from comad.types import Discrete, Feature, Spec

SHAPES = {"5m_vs_6m": (5, 6), "13m_vs_15m": (13, 15)}
"""Agents and enemies."""
EPISODES, SHORTEST, LONGEST = 256, 18, 34


def features(count: int) -> tuple[Feature, ...]:
    """Features without a meaning."""
    return tuple(Feature(f"feature {number}") for number in range(count))


def battle(num_agents: int, num_enemies: int) -> Spec:
    """A world of marines, by its shapes."""
    return Spec(
        env="",
        version=0,
        rules="",
        num_agents=num_agents,
        num_targets=num_enemies,
        own=features(9),
        ally=features(6),
        target=features(6),
        state_agent=features(6),
        state_target=features(5),
        context=features(1),
        actions=Discrete(("nothing", "stop", "north", "south", "east", "west"), "attack"),
        limit=70,
    )


def make_up(name: str, batch: int) -> tuple[Spec, Resident, Packing]:
    """A battle's spec, random recordings of it as they lie on the device, and how they are packed."""
    spec = battle(*SHAPES[name])
    return spec, *record(spec, batch)


def record(spec: Spec, batch: int) -> tuple[Resident, Packing]:
    """Random recordings of any world, and how they are packed."""
    random = np.random.default_rng(0)
    lengths = random.integers(SHORTEST, LONGEST, EPISODES)
    moments = int(lengths.sum()) + EPISODES
    resident = {}
    for column in columns(spec):
        shape = (moments, *column.stored_shape)
        if column.kind == "bits":
            resident[column.name] = jnp.full(shape, 255, jnp.uint8)
        elif column.kind == "actions" and spec.num_actions:
            resident[column.name] = jnp.asarray(random.integers(spec.num_actions, size=shape), jnp.uint8)
        else:
            resident[column.name] = jnp.asarray(random.uniform(size=shape), jnp.float32)
    starts = episode_starts(lengths)
    terminated = np.zeros(moments, bool)
    terminated[starts + lengths - 1] = True
    per_moment = {"terminated": jnp.asarray(terminated), "outcome": jnp.zeros(moments)}
    return {**resident, **per_moment}, Packing.plan(starts, lengths, batch)
