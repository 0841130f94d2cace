"""What agents make of what they see, some at a time: a layer of a piece fits the cache of a processor, that of a battle does not.

Twenty agents who each see forty others fill 34 megabytes per layer in two episodes, and fetching that from memory takes longer than to
compute it. Who has most to look at is put first and who is not there last: pieces of nobody are passed over, and those of agents who can
aim at few targets only look at these. What gradients need is computed again instead of kept.
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
FEW = 6
"""So many targets are few: in battles of twenty against twenty three in four agents who are there can aim at no more."""


ABSENT = -1
"""The demand of who is not there."""


def piece_by_piece(
    function: Function[Made],
    network: Any,
    made: PyTree,
    recorded: PyTree,
    there: Bool[Array, "row time agent"],
    entities: int,
    lighter: tuple[Function[Made], Int[Array, "row time agent"]] | None = None,
) -> Made:
    """Apply a network to every agent at every moment; a few agents are seen to at once.

    Args:
        function: called with the network, and the leaves of what follows for some agents, as [agents, 1, ...].
        network: gets a gradient.
        made: of earlier parts of the network, [row, time, agent, ...]; gets a gradient.
        recorded: likewise, without a gradient.
        there: who is; whatever is made of the others means nothing.
        entities: how many each agent looks at.
        lighter: another function that makes the same of agents whose demand, given with it, is at most `FEW`.
    """
    size = max(1, ENTITIES // entities)
    if there.size <= 2 * size:
        return function(network, *made, *recorded)
    made, recorded = jax.tree.map(partial(_merge, lead=there.ndim), (made, recorded))
    light, demand = lighter or (None, jnp.zeros(there.shape, jnp.int32))
    functions = (function,) if light is None else (light, function)
    result = _in_pieces(functions, size, network, made, recorded, jnp.where(there, demand, ABSENT).reshape(-1))
    return jax.tree.map(lambda leaf: leaf.reshape(*there.shape, *leaf.shape[1:]), result)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _in_pieces(
    functions: tuple[Function[Made], ...], size: int, network: Any, made: PyTree, recorded: PyTree, demand: Int[Array, " agents"]
) -> Made:
    order, pieces, ways = _divide(demand, size, len(functions))

    def compute(function: Function[Made], piece: Int[Array, " some"]) -> Made:
        return _alone(function, network, *_take((made, recorded), piece))

    def nothing(piece: Int[Array, " some"]) -> Made:
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(partial(compute, functions[0]), piece))

    branches: list[Callable[..., Any]] = [nothing, *(partial(compute, function) for function in functions)]
    return _back(jax.lax.map(lambda now: jax.lax.switch(now[1], branches, now[0]), (pieces, ways)), order)


def _forward(
    functions: tuple[Function[Made], ...], size: int, network: Any, made: PyTree, recorded: PyTree, demand: Int[Array, " agents"]
) -> tuple[Made, tuple[Any, ...]]:
    return _in_pieces(functions, size, network, made, recorded, demand), (network, made, recorded, demand)


def _backward(functions: tuple[Function[Made], ...], size: int, kept: tuple[Any, ...], slope: Made) -> tuple[Any, Any, None, None]:
    network, made, recorded, demand = kept
    order, pieces, ways = _divide(demand, size, len(functions))

    def compute(function: Function[Made], total: Any, piece: Int[Array, " some"]) -> tuple[Any, PyTree]:
        some, seen = _take((made, recorded), piece)
        _, pull_back = jax.vjp(lambda network, some: _alone(function, network, some, seen), network, some)
        of_network, of_made = pull_back(_take(slope, piece))
        return jax.tree.map(jnp.add, total, of_network), of_made

    def nothing(total: Any, piece: Int[Array, " some"]) -> tuple[Any, PyTree]:
        return total, jax.tree.map(jnp.zeros_like, _take(made, piece))

    branches: list[Callable[..., Any]] = [nothing, *(partial(compute, function) for function in functions)]

    def advance(total: Any, now: tuple[Array, Array]) -> tuple[Any, PyTree]:
        return jax.lax.switch(now[1], branches, total, now[0])

    of_network, of_made = jax.lax.scan(advance, jax.tree.map(jnp.zeros_like, network), (pieces, ways))
    return of_network, _back(of_made, order), None, None


_in_pieces.defvjp(_forward, _backward)


def _divide(
    demand: Int[Array, " agents"], size: int, functions: int
) -> tuple[Int[Array, " agents"], Int[Array, "piece some"], Int[Array, " piece"]]:
    """Who demands most first, the same in pieces (the last one filled up with nobody), and what to do with these.

    That is 0 for nothing, where nobody is there, or the number of a function, of which the last does for all and one before it for few.
    """
    order = jnp.argsort(-demand)
    count = math.ceil(len(demand) / size)
    pieces = jnp.pad(order, (0, count * size - len(demand)), constant_values=len(demand)).reshape(count, size)
    most = demand[pieces[:, 0]]
    return order, pieces, jnp.where(most == ABSENT, 0, jnp.where(most <= FEW, 1, functions))


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
