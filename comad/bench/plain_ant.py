"""The Ant as gymnasium-robotics plays it, and as we do: random actions, and a fresh start wherever an episode has ended."""

import importlib
import itertools
import time
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from comad.envs.ant import Ant, AntWorld, begin
from comad.types import Step

STEPS_PER_SPAN = 512
"""About how many steps are timed together."""

Spans = Iterator[tuple[int, float]]


def their_spans() -> Spans:
    """One Ant; its legs see what `obsk1` shows. Starts are not timed."""
    game, random = stock(), np.random.default_rng(0)
    for seed in itertools.count():
        game.reset(seed=seed)
        steps, ended = 0, False
        start = time.perf_counter()
        while not ended:
            actions = random.uniform(-1.0, 1.0, (len(game.possible_agents), 2))
            _, _, fallen, late, _ = game.step(dict(zip(game.possible_agents, actions, strict=True)))
            steps, ended = steps + 1, fallen["agent_0"] or late["agent_0"]
        yield steps, time.perf_counter() - start


def our_spans(env: Ant, num_envs: int) -> Spans:
    """Many Ants; starts are timed."""
    random, everyone = np.random.default_rng(0), np.ones(num_envs, bool)
    seeds = itertools.count()
    world, _ = env.reset_many(np.arange(num_envs, dtype=np.uint32))
    while True:
        start = time.perf_counter()
        for _ in range(max(1, STEPS_PER_SPAN // num_envs)):
            actions = random.uniform(-1.0, 1.0, (num_envs, env.spec.num_agents, 2)).astype(np.float32)
            world, step = env.step_many(world, actions, everyone)
            world = restart(world, step, seeds)
        jax.block_until_ready(step)
        yield max(1, STEPS_PER_SPAN // num_envs) * num_envs, time.perf_counter() - start


def restart(world: AntWorld, step: Step, seeds: Iterator[int]) -> AntWorld:
    """A fresh start wherever an episode has ended. It is not shown: that would be compiled anew for every number of them."""
    ended = np.flatnonzero(np.asarray(step.ended))
    if not len(ended):
        return world
    fresh, _ = begin(np.fromiter(seeds, np.uint32, len(ended)))

    def put(old: np.ndarray, new: np.ndarray) -> np.ndarray:
        changed = old.copy()
        changed[ended] = new
        return changed

    return jax.tree.map(put, world, fresh)


def stock(sight: int = 1) -> Any:
    """The world as it comes, with what agents see of their neighbors given as a number of joints."""
    with warnings.catch_warnings():
        # Importing it warns of parts that have nothing to do with the Ant.
        warnings.simplefilter("ignore")
        return importlib.import_module("gymnasium_robotics").mamujoco_v1.parallel_env("Ant", "4x2", agent_obsk=sight)
