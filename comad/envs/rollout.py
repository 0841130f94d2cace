"""Play whole episodes, many at once: one compiled program for worlds in JAX, one loop for simulators outside it."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import PyTreeDef
from jaxtyping import Array, Bool, Float, Int, Key

from comad.envs.base import Env, HostEnv, Lanes, Scarce, SimulatorError, Sociable
from comad.tokens import complete, draw_available, no_actions
from comad.types import Actions, Continuous, PRNGKey, Spec, Step, Tokens

Record = Callable[[Any, Step, Actions], Any]
"""What to keep of each moment: picks from the world, the step it shows and the actions chosen there, whatever their leading axes."""


@runtime_checkable
class Player(Protocol):
    """A team that acts in one episode. A pytree, so that its weights are arguments and not constants of the compiled program."""

    def start(self, spec: Spec) -> Any:
        """The memory with which an episode begins."""
        ...

    def act(self, memory: Any, tokens: Tokens, available: Bool[Array, "agent action"], key: PRNGKey) -> tuple[Actions, Any]:
        """Actions from completed tokens, each agent from its own row, and the memory for the next step."""
        ...


class Outcome(eqx.Module):
    """How episodes went."""

    total: Float[Array, " episode"]
    """Sum of team rewards."""
    length: Int[Array, " episode"]
    success: Bool[Array, " episode"]


class RandomPlayer(eqx.Module):
    """Every agent draws uniformly among its available actions."""

    spec: Spec = eqx.field(static=True)

    def start(self, spec: Spec) -> None:
        """Nothing to remember."""

    def act(self, memory: None, tokens: Tokens, available: Bool[Array, "agent action"], key: PRNGKey) -> tuple[Actions, None]:
        """Uniform over what is available."""
        if isinstance(self.spec.actions, Continuous):
            return jax.random.uniform(key, (self.spec.num_agents, len(self.spec.actions.components)), minval=-1.0), None
        return draw_available(key, available), None


def episode_keys(key: PRNGKey, first: int, count: int) -> Key[Array, " episode"]:
    """Keys of episodes ``first`` onwards. Episode n is the same one however many are played beside it."""
    return jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(first, first + count))


def rollout(
    env: Env[Any] | HostEnv[Any], player: Player, keys: Key[Array, " episode"], record: Record | None = None
) -> tuple[Outcome, Any]:
    """Play one episode per key to its end.

    Args:
        env: a world, in JAX or outside it.
        player: who acts.
        keys: one per episode; they alone decide what happens.
        record: kept for every moment 0..length of every episode, the last one included, as arrays [episode, time, ...] with
            ``limit + 1`` moments. What lies beyond an episode's length has no meaning. Nothing is kept if left out.
    """
    if isinstance(env, HostEnv):
        return _rollout_on_host(env, player, keys, record)
    return _rollout_in_jax(env, player, keys, record)


def rollout_all(
    envs: Sequence[Env[Any] | HostEnv[Any]], players: Sequence[Player], keys: Sequence[Key[Array, " episode"]]
) -> list[Outcome]:
    """Play several worlds, each with its player and as many episodes; all together where the worlds allow it.

    Outside JAX a decision for a handful of episodes costs hardly less than one for hundreds. Players are of one kind; the
    arrays that are the very same in all of them, such as the weights of one learned state, are not copied.
    """
    first, *others = envs
    if not isinstance(first, Sociable) or any(env.spec.shape != first.spec.shape for env in others):
        return [rollout(env, player, some)[0] for env, player, some in zip(envs, players, keys, strict=True)]
    outcome, _ = _try_again(first.beside(others), players, jnp.concatenate(keys), None)
    parts = [jnp.split(leaf, len(envs)) for leaf in (outcome.total, outcome.length, outcome.success)]
    return [Outcome(*part) for part in zip(*parts, strict=True)]


class _Moment(NamedTuple):
    """Everything that changes while episodes are played."""

    world: Any
    step: Step
    last_actions: Actions
    memory: Any
    outcome: Outcome
    time: Any
    finished: Any
    """Every episode had ended before this moment, so that each one's last moment has been recorded."""


@partial(jax.jit, static_argnames=("env", "record"))
def _rollout_in_jax(env: Env[Any], player: Player, keys: Key[Array, " episode"], record: Record | None) -> tuple[Outcome, Any]:
    num_episodes = keys.shape[0]
    moment = _first_moment(env.spec, player, num_episodes, *jax.vmap(env.reset)(_named(keys, 0)))

    def decide(moment: _Moment) -> tuple[Actions, Any]:
        return _decide(env.spec, jax.vmap(player.act), moment, _named(keys, 2 * moment.time + 1))

    def advance(carry: tuple[_Moment, Any]) -> tuple[_Moment, Any]:
        moment, kept = carry
        actions, memory = decide(moment)
        if record is not None:
            now = jax.vmap(record)(moment.world, moment.step, actions)
            kept = jax.tree.map(lambda buffer, value: buffer.at[moment.time].set(value), kept, now)
        world, step = jax.vmap(env.step)(moment.world, actions, _named(keys, 2 * moment.time + 2))
        return _next_moment(moment, world, step, actions, memory), kept

    kept = None
    if record is not None:
        shapes = jax.eval_shape(lambda moment: jax.vmap(record)(moment.world, moment.step, decide(moment)[0]), moment)
        kept = jax.tree.map(lambda leaf: jnp.zeros((env.spec.limit + 1, *leaf.shape), leaf.dtype), shapes)
    moment, kept = jax.lax.while_loop(lambda carry: ~carry[0].finished, advance, (moment, kept))
    return moment.outcome, jax.tree.map(lambda buffer: jnp.swapaxes(buffer, 0, 1), kept)


def _rollout_on_host(env: HostEnv[Any], player: Player, keys: Key[Array, " episode"], record: Record | None) -> tuple[Outcome, Any]:
    """In turns, if not all can be played at once."""
    at_once = env.at_once if isinstance(env, Scarce) else len(keys)
    turns = []
    for first in range(0, len(keys), at_once):
        turns.append(_try_again(env, [player], keys[first : first + at_once], record))
    outcomes, kept = zip(*turns, strict=True)
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *outcomes), jax.tree.map(lambda *leaves: np.concatenate(leaves), *kept)


def _try_again(env: Lanes[Any], players: Sequence[Player], keys: Key[Array, " episode"], record: Record | None) -> tuple[Outcome, Any]:
    try:
        return _play_on_host(env, players, keys, record)
    except SimulatorError:
        # Once is an accident of the simulator, from which hours of recording should not suffer.
        return _play_on_host(env, players, keys, record)


def _play_on_host(env: Lanes[Any], players: Sequence[Player], keys: Key[Array, " episode"], record: Record | None) -> tuple[Outcome, Any]:
    """Each player has an equal share of the episodes."""
    seeds = np.asarray(jax.vmap(jax.random.bits)(_named(keys, 0)))
    moment = _first_moment(env.spec, players[0], len(seeds), *env.reset_many(seeds))
    # A learned state has hundreds of arrays in nested records, which are taken apart once and not at every step.
    arrays, axes = _cast(players, len(seeds) // len(players))
    decide = _decider(env.spec.shape, jax.tree.structure(players[0]), axes)
    kept = []
    while not moment.finished:
        actions, memory = decide(arrays, moment._replace(world=None), keys)
        if record is not None:
            kept.append(jax.tree.map(np.asarray, record(moment.world, moment.step, actions)))
        world, step = env.step_many(moment.world, np.asarray(actions), ~np.asarray(moment.step.ended))
        moment = _next_moment_jitted(moment._replace(world=None), None, step, actions, memory)._replace(world=world)
    if record is None:
        return moment.outcome, None
    padding = env.spec.limit + 1 - len(kept)
    return moment.outcome, jax.tree.map(lambda *values: np.stack(values + values[-1:] * padding, axis=1), *kept)


def _first_moment(spec: Spec, player: Player, num_episodes: int, world: Any, step: Step) -> _Moment:
    def repeat(leaf: Array) -> Array:
        return jnp.broadcast_to(leaf, (num_episodes, *jnp.shape(leaf)))

    outcome = Outcome(jnp.zeros(num_episodes), jnp.zeros(num_episodes, jnp.int32), jnp.zeros(num_episodes, bool))
    last_actions, memory = jax.tree.map(repeat, (no_actions(spec), player.start(spec)))
    return _Moment(world, step, last_actions, memory, outcome, jnp.int32(0), jnp.array(False))


def _decide(spec: Spec, act: Callable[..., tuple[Actions, Any]], moment: _Moment, keys: Key[Array, " episode"]) -> tuple[Actions, Any]:
    """What is done in every episode, by a player's verb over all of them."""
    return act(moment.memory, complete(moment.step.tokens, moment.last_actions, spec), moment.step.available, keys)


def _cast(players: Sequence[Player], episodes: int) -> tuple[list[Array], tuple[int | None, ...]]:
    """The arrays of players of one kind: those that all share as they are, the others by episode; and where episodes are in each."""
    arrays, axes = [], []
    for parts in zip(*map(jax.tree.leaves, players), strict=True):
        shared = all(part is parts[0] for part in parts)
        arrays.append(parts[0] if shared else jnp.repeat(jnp.stack(parts), episodes, axis=0))
        axes.append(None if shared else 0)
    return arrays, tuple(axes)


@lru_cache(maxsize=32)
def _decider(
    spec: Spec, structure: PyTreeDef, axes: tuple[int | None, ...]
) -> Callable[[list[Array], _Moment, Key[Array, " episode"]], tuple[Actions, Any]]:
    """The compiled decision of a kind of player that is given as its arrays."""

    def act(arrays: list[Array], *seen: Any) -> tuple[Actions, Any]:
        player: Player = jax.tree.unflatten(structure, arrays)
        return player.act(*seen)

    @jax.jit
    def decide(arrays: list[Array], moment: _Moment, keys: Key[Array, " episode"]) -> tuple[Actions, Any]:
        return _decide(spec, partial(jax.vmap(act, in_axes=(list(axes), 0, 0, 0, 0)), arrays), moment, _named(keys, 2 * moment.time + 1))

    return decide


def _next_moment(moment: _Moment, world: Any, step: Step, actions: Actions, memory: Any) -> _Moment:
    ended = moment.step.ended

    def freeze(old: Array, new: Array) -> Array:
        return jnp.where(ended.reshape(-1, *[1] * (new.ndim - 1)), old, new)

    outcome = Outcome(
        total=moment.outcome.total + jnp.where(ended, 0.0, step.reward),
        length=moment.outcome.length + ~ended,
        success=moment.outcome.success | (step.success & ~ended),
    )
    if world is not None:
        world = jax.tree.map(freeze, moment.world, world)
    step, last_actions, memory = jax.tree.map(freeze, (moment.step, moment.last_actions, moment.memory), (step, actions, memory))
    return _Moment(world, step, last_actions, memory, outcome, moment.time + 1, ended.all())


_next_moment_jitted = jax.jit(_next_moment)


def _named(keys: Key[Array, " episode"], use: Any) -> Key[Array, " episode"]:
    """The keys of one use within each episode: 0 for the reset, then two per step, one to act and one for the world."""
    return jax.vmap(lambda key: jax.random.fold_in(key, use))(keys)
