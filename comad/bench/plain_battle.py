"""Battles as jaxmarl plays them itself: its own ``step``, observations and all, with a fresh start wherever one has ended."""

import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from comad.envs import smax
from comad.envs.battle import Battle
from comad.envs.units import NUMBERS
from comad.tokens import draw_available
from comad.types import PRNGKey

STEPS_PER_SPAN = 2048
"""About how many steps are timed together."""


def battle_spans(env: Battle, num_envs: int) -> Iterator[tuple[int, float]]:
    """Steps taken with random legal actions and the seconds they took, one span after the other without end."""
    game, length = stock(env), max(1, STEPS_PER_SPAN // num_envs)

    def advance(states: Any, key: PRNGKey) -> tuple[Any, Any]:
        action_key, step_key = jax.random.split(key)
        masks = jax.vmap(game.get_avail_actions)(states)
        actions = draw_available(action_key, jnp.stack([masks[agent] for agent in game.agents], axis=1).astype(bool))
        named = {agent: actions[:, number] for number, agent in enumerate(game.agents)}
        views, states, rewards, _, _ = jax.vmap(game.step)(jax.random.split(step_key, num_envs), states, named)
        # A learner would look at all of it, so none of it may be left out as unused.
        return states, (jax.tree.map(jnp.sum, views), rewards["ally_0"].sum())

    play = jax.jit(lambda states, key: jax.lax.scan(advance, states, jax.random.split(key, length)))
    with jax.numpy_rank_promotion("allow"):
        _, states = jax.jit(jax.vmap(game.reset))(jax.random.split(jax.random.key(0), num_envs))
    # Definite types, without which the second call would compile once more.
    states, key = jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), states), jax.random.key(1)
    while True:
        key, span_key = jax.random.split(key)
        start = time.perf_counter()
        with jax.numpy_rank_promotion("allow"), jax.debug_nans(False):
            states, _ = jax.block_until_ready(play(states, span_key))
        yield length * num_envs, time.perf_counter() - start


def stock(env: Battle) -> Any:
    """The simulator as it comes, with its script; units of a race are then of all kinds."""
    module, drawn = smax.load(), not env.units
    kinds = [0] * (env.num_agents + env.num_enemies) if drawn else [NUMBERS[unit] for unit in env.units]
    scenario = module.Scenario(jnp.array(kinds, jnp.uint8), env.num_agents, env.num_enemies, drawn, drawn)
    return module.HeuristicEnemySMAX(scenario=scenario)
