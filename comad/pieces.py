"""What agents make of what they see, some at a time: a layer of a piece fits the cache of a processor, that of a battle does not.

Twenty agents who each see forty others fill 34 megabytes per layer in two episodes, and fetching that from memory takes longer than to
compute it. Whoever is not there is put behind the others, and pieces of nobody are passed over. What gradients need is computed again
instead of kept.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree

Made = TypeVar("Made")
Function = Callable[..., Made]
"""From a network, what was made so far and what was recorded, of agents that each are a team of one, to something for each."""

ENTITIES = 4096
"""So many are looked at in one piece: a layer of them takes a megabyte."""


def piece_by_piece(
    function: Function[Made], network: Any, made: PyTree, recorded: PyTree, there: Bool[Array, "row time agent"], entities: int
) -> Made:
    """Apply a network to every agent at every moment; a few agents are seen to at once.

    Args:
        function: called with the network, and the leaves of what follows for some agents, as [agents, 1, ...].
        network: gets a gradient.
        made: of earlier parts of the network, [row, time, agent, ...]; gets a gradient.
        recorded: likewise, without a gradient.
        there: who is; whatever is made of the others means nothing.
        entities: how many each agent looks at.
    """
    size = max(1, ENTITIES // entities)
    if there.size <= 2 * size:
        return function(network, *made, *recorded)
    made, recorded = jax.tree.map(partial(_merge, lead=there.ndim), (made, recorded))
    result = _in_pieces(function, size, network, made, recorded, there.reshape(-1))
    return jax.tree.map(lambda leaf: leaf.reshape(*there.shape, *leaf.shape[1:]), result)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _in_pieces(function: Function[Made], size: int, network: Any, made: PyTree, recorded: PyTree, there: Bool[Array, " agents"]) -> Made:
    order, pieces, anybody = _divide(there, size)

    def compute(piece: Int[Array, " some"]) -> Made:
        return _alone(function, network, *_take((made, recorded), piece))

    def nothing(piece: Int[Array, " some"]) -> Made:
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(compute, piece))

    result = jax.lax.map(lambda now: jax.lax.cond(now[1], compute, nothing, now[0]), (pieces, anybody))
    return _back(result, order)


def _forward(
    function: Function[Made], size: int, network: Any, made: PyTree, recorded: PyTree, there: Bool[Array, " agents"]
) -> tuple[Made, tuple[Any, ...]]:
    return _in_pieces(function, size, network, made, recorded, there), (network, made, recorded, there)


def _backward(function: Function[Made], size: int, kept: tuple[Any, ...], slope: Made) -> tuple[Any, Any, None, None]:
    network, made, recorded, there = kept
    order, pieces, anybody = _divide(there, size)

    def compute(total: Any, piece: Int[Array, " some"]) -> tuple[Any, PyTree]:
        some, seen = _take((made, recorded), piece)
        _, pull_back = jax.vjp(lambda network, some: _alone(function, network, some, seen), network, some)
        of_network, of_made = pull_back(_take(slope, piece))
        return jax.tree.map(jnp.add, total, of_network), of_made

    def nothing(total: Any, piece: Int[Array, " some"]) -> tuple[Any, PyTree]:
        return total, jax.tree.map(jnp.zeros_like, _take(made, piece))

    def advance(total: Any, now: tuple[Array, Array]) -> tuple[Any, PyTree]:
        return jax.lax.cond(now[1], compute, nothing, total, now[0])

    of_network, of_made = jax.lax.scan(advance, jax.tree.map(jnp.zeros_like, network), (pieces, anybody))
    return of_network, _back(of_made, order), None, None


_in_pieces.defvjp(_forward, _backward)


def _divide(there: Bool[Array, " agents"], size: int) -> tuple[Int[Array, " agents"], Int[Array, "piece some"], Bool[Array, " piece"]]:
    """Who is there before who is not, the same in pieces (the last one filled up with nobody), and in which of these anybody is there."""
    order = jnp.argsort(~there)
    count = math.ceil(len(there) / size)
    pieces = jnp.pad(order, (0, count * size - len(there)), constant_values=len(there)).reshape(count, size)
    return order, pieces, jnp.arange(count) * size < there.sum()


def _alone(function: Function[Made], network: Any, made: PyTree, recorded: PyTree) -> Made:
    """Every agent as a team of one."""
    teams = jax.tree.map(lambda leaf: leaf[:, None], (made, recorded))
    return jax.tree.map(lambda leaf: leaf[:, 0], function(network, *teams[0], *teams[1]))


def _take(things: PyTree, piece: Int[Array, " some"]) -> PyTree:
    """Those of a piece; of nobody zeros, so that nobody has a slope."""
    return jax.tree.map(lambda leaf: leaf.at[piece].get(mode="fill", fill_value=0), things)


def _back(pieces: Made, order: Int[Array, " agents"]) -> Made:
    """What was made of pieces, in the order in which agents were given."""
    inverse = jnp.argsort(order)
    return jax.tree.map(lambda leaf: _merge(leaf, 2)[inverse], pieces)


def _merge(leaf: Array, lead: int) -> Array:
    """The first axes as one."""
    return leaf.reshape(math.prod(leaf.shape[:lead]), *leaf.shape[lead:])
