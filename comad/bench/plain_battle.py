"""Battles as jaxmarl plays them itself, and as we do: random legal actions, and a fresh start wherever a battle has ended."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from comad.envs import smax
from comad.envs.battle import Battle
from comad.envs.units import NUMBERS
from comad.tokens import draw_available
from comad.types import PRNGKey

STEPS_PER_SPAN, SHORTEST_SPAN = 2048, 16
"""About how many steps are timed together, and of each battle at least."""

Spans = Iterator[tuple[int, float]]


def their_spans(env: Battle, num_envs: int) -> Spans:
    """Its own ``step``, which computes a start along with every step."""
    game = stock(env)

    def advance(states: Any, key: PRNGKey) -> tuple[Any, Any]:
        action_key, step_key = jax.random.split(key)
        masks = jax.vmap(game.get_avail_actions)(states)
        actions = draw_available(action_key, jnp.stack([masks[agent] for agent in game.agents], axis=1).astype(bool))
        named = {agent: actions[:, number] for number, agent in enumerate(game.agents)}
        views, states, rewards, _, _ = jax.vmap(game.step)(jax.random.split(step_key, num_envs), states, named)
        return states, used((views, rewards["ally_0"]))

    def play(states: Any, key: PRNGKey) -> tuple[Any, Any]:
        return jax.lax.scan(advance, states, jax.random.split(key, span_length(num_envs)))

    with jax.numpy_rank_promotion("allow"):
        _, states = jax.jit(jax.vmap(game.reset))(jax.random.split(jax.random.key(0), num_envs))
    # Definite types, without which the second call would compile once more.
    return spans(play, jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), states), num_envs)


def our_spans(env: Battle, num_envs: int) -> Spans:
    """As experts are trained: one set of fresh starts serves a whole span."""

    def play(moment: Any, key: PRNGKey) -> tuple[Any, Any]:
        start_key, span_key = jax.random.split(key)
        fresh = start(start_key)

        def advance(moment: Any, key: PRNGKey) -> tuple[Any, Any]:
            action_key, step_key = jax.random.split(key)
            world, step = moment
            actions = draw_available(action_key, step.available)
            moment = jax.vmap(env.step)(world, actions, jax.random.split(step_key, num_envs))
            ended = moment[1].ended

            def choose(new: Array, old: Array) -> Array:
                return jnp.where(ended.reshape(-1, *[1] * (new.ndim - 1)), new, old)

            return jax.tree.map(choose, fresh, moment), used(moment[1])

        return jax.lax.scan(advance, moment, jax.random.split(span_key, span_length(num_envs)))

    start = jax.jit(lambda key: jax.vmap(env.reset)(jax.random.split(key, num_envs)))
    return spans(play, start(jax.random.key(0)), num_envs)


def spans(play: Callable[[Any, PRNGKey], tuple[Any, Any]], moment: Any, num_envs: int) -> Spans:
    """Steps taken and the seconds they took, one span after the other without end."""
    compiled, key = jax.jit(play), jax.random.key(1)
    while True:
        key, span_key = jax.random.split(key)
        begin = time.perf_counter()
        with jax.numpy_rank_promotion("allow"):
            moment, _ = jax.block_until_ready(compiled(moment, span_key))
        yield span_length(num_envs) * num_envs, time.perf_counter() - begin


def span_length(num_envs: int) -> int:
    """Steps of every battle in a span."""
    return max(SHORTEST_SPAN, STEPS_PER_SPAN // num_envs)


def used(shown: Any) -> Any:
    """What a learner would look at, added up, so that the compiler leaves out none of it."""
    return jax.tree.map(jnp.sum, shown)


def stock(env: Battle) -> Any:
    """The simulator as it comes, with its script; units of a race are then of all kinds."""
    module, drawn = smax.load(), not env.units
    kinds = [0] * (env.num_agents + env.num_enemies) if drawn else [NUMBERS[unit] for unit in env.units]
    scenario = module.Scenario(jnp.array(kinds, jnp.uint8), env.num_agents, env.num_enemies, drawn, drawn)
    return module.HeuristicEnemySMAX(scenario=scenario)
