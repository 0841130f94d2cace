"""Ants for tests."""

import importlib.util
from typing import Any

import numpy as np
import pytest

from comad.envs import ant
from comad.envs.ant import Ant, AntWorld

playable = pytest.mark.skipif(importlib.util.find_spec("mujoco") is None, reason="needs mujoco: pip install 'comad[ant]'")
compared = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("mujoco", "gymnasium_robotics")),
    reason="needs its like by others: pip install 'comad[ant]' gymnasium-robotics",
)


def ant_named(name: str) -> Ant:
    env = ant.make(name)
    assert env is not None
    return env


def seeds(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.uint32)


def draw(random: np.random.Generator, count: int) -> np.ndarray:
    return random.uniform(-1.0, 1.0, (count, 4, 2)).astype(np.float32)


def play(env: Ant, count: int, steps: int, world: AntWorld | None = None) -> tuple[AntWorld, list[Any]]:
    """Random play in which nobody stops."""
    random = np.random.default_rng(0)
    world = env.reset_many(seeds(count))[0] if world is None else world
    shown = []
    for _ in range(steps):
        world, step = env.step_many(world, draw(random, count), np.ones(count, bool))
        shown.append(step)
    return world, shown
