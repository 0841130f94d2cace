"""Battles for tests: small ones that were played, and situations placed by hand."""

import functools
import importlib
import importlib.util
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from comad.envs import battle
from comad.envs.battle import Battle
from comad.envs.rollout import Player, RandomPlayer, episode_keys, rollout
from comad.envs.smax import STOP, BattleWorld
from comad.types import Actions, PRNGKey, Spec, Step, Tokens

playable = pytest.mark.skipif(importlib.util.find_spec("jaxmarl") is None, reason="needs jaxmarl: pip install 'comad[battle]'")
SMALL = "3m"
"""Compiled in the quick tests; every other battle takes as long again."""
LARGE = [pytest.param(name, marks=pytest.mark.slow) for name in ("2s3z", "5m_vs_6m", "2s1z_vs_3z", "protoss_5v5", "zerg_6v8", "terran_6v4")]


def battle_named(name: str) -> Battle:
    env = battle.make(name)
    assert env is not None
    return env


class Charge(eqx.Module):
    """A team that walks east and shoots at the first enemy in range: it wins some battles of marines and loses others."""

    def start(self, spec: Spec) -> None:
        """Nothing to remember."""

    def act(self, memory: None, tokens: Tokens | None, available: Any, key: PRNGKey) -> tuple[Actions, None]:
        shots = available[:, STOP + 1 :]
        return jnp.where(shots.any(-1), STOP + 1 + shots.argmax(-1), jnp.where(available[:, 1], 1, STOP)), None


def everything(world: Any, step: Step, actions: Actions) -> Any:
    return world, step, actions


def play(env: Battle, player: Player, episodes: int) -> Any:
    """Outcome, worlds, steps and actions of whole episodes, as NumPy arrays."""
    outcome, kept = rollout(env, player, episode_keys(jax.random.key(1), 0, episodes), everything)
    return jax.tree.map(np.asarray, (outcome, *kept))


@functools.cache
def moments(name: str) -> Any:
    """Worlds, steps and actions of all moments that a random team has played, in one row."""
    env = battle_named(name)
    outcome, *kept = play(env, RandomPlayer(env.spec), 24)
    within = np.arange(env.limit + 1)[None] <= outcome.length[:, None]
    return jax.tree.map(lambda leaf: leaf[within], tuple(kept))


def stepped(env: Battle, world: BattleWorld, actions: list[int]) -> tuple[BattleWorld, Step]:
    return step_jitted(env, world, jnp.array(actions), jax.random.key(0))


@functools.partial(jax.jit, static_argnums=0)
def step_jitted(env: Battle, world: BattleWorld, actions: Actions, key: PRNGKey) -> tuple[BattleWorld, Step]:
    return env.step(world, actions, key)


def placed(positions: list[tuple[float, float]], health: list[float], time: int = 0) -> BattleWorld:
    """Marines, three a side."""
    return BattleWorld(
        positions=jnp.array(positions, jnp.float32),
        health=jnp.array(health, jnp.float32),
        kinds=jnp.zeros(6, jnp.int32),
        cooldowns=jnp.zeros(6),
        moves=jnp.zeros((6, 2)),
        attacks=jnp.zeros(6, jnp.int32),
        goals=jnp.full((3, 2), 8.0),
        grudges=jnp.full(3, -1, jnp.int32),
        time=jnp.int32(time),
    )


DUEL = [(8.0, 16.0), (1.5, 1.5), (1.5, 30.5), (11.0, 16.0), (30.5, 1.5), (30.5, 30.5)]
"""The first of each side face each other; the others are far away."""


@functools.partial(jax.jit, static_argnums=0)
def starts(env: Battle, keys: Any) -> BattleWorld:
    return jax.vmap(lambda key: env.reset(key)[0])(keys)


def distances(world: BattleWorld) -> np.ndarray:
    positions = np.asarray(world.positions)
    return np.linalg.norm(positions[:, None] - positions[None], axis=-1)
