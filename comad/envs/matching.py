"""Does a bipartite graph have a perfect matching? Exact, for every team size, without leaving the device."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

SUBSET_LIMIT = 5
"""All subsets of up to five targets fit into the bits of one uint32."""


def has_perfect_matching(adjacent: Bool[Array, "agent target"]) -> Bool[Array, ""]:
    """Whether every agent can have a target of its own among those it is adjacent to."""
    if adjacent.shape[0] <= SUBSET_LIMIT:
        return match_by_subsets(adjacent)
    return match_by_augmenting(adjacent)


def match_by_subsets(adjacent: Bool[Array, "agent target"]) -> Bool[Array, ""]:
    """Dynamic program over subsets of targets: bit S of a word says that the agents so far can hold exactly the targets in S."""
    size = adjacent.shape[0]
    without = [np.uint32(sum(1 << subset for subset in range(2**size) if not subset >> target & 1)) for target in range(size)]
    reachable = jnp.uint32(1)
    for agent in range(size):
        extended = [
            jnp.where(adjacent[agent, target], (reachable & without[target]) << np.uint32(1 << target), jnp.uint32(0))
            for target in range(size)
        ]
        reachable = jax.tree.reduce(jnp.bitwise_or, extended)
    return (reachable >> np.uint32(2**size - 1)) == 1


def match_by_augmenting(adjacent: Bool[Array, "agent target"]) -> Bool[Array, ""]:
    """Kuhn's algorithm with breadth-first search: give each agent a target in turn, moving earlier agents over where needed."""
    size = adjacent.shape[0]

    def admit(agent: Int[Array, ""], found: tuple[Array, Array]) -> tuple[Array, Array]:
        holder, all_matched = found
        holder, matched = _augment(adjacent, holder, agent)
        return holder, all_matched & matched

    nobody = jnp.full(size, -1)
    return jax.lax.fori_loop(0, size, admit, (nobody, jnp.array(True)))[1]


def _augment(
    adjacent: Bool[Array, "agent target"], holder: Int[Array, " target"], agent: Int[Array, ""]
) -> tuple[Int[Array, " target"], Bool[Array, ""]]:
    size = adjacent.shape[0]
    agents = jnp.arange(size)

    def widen(search: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        frontier, reached, asker, _ = search
        asks = frontier[:, None] & adjacent & ~reached[None]
        new = asks.any(0)
        asker = jnp.where(new, asks.argmax(0), asker)
        asked_holders = jnp.where(new, holder, -1)
        frontier = (asked_holders[None] == agents[:, None]).any(1)
        free_found = (new & (holder < 0)).any()
        return frontier, reached | new, asker, frontier.any() & ~free_found

    start = (agents == agent, jnp.zeros(size, bool), jnp.full(size, -1), jnp.array(True))
    _, reached, asker, _ = jax.lax.while_loop(lambda search: search[-1], widen, start)
    free = reached & (holder < 0)
    held_by = (holder[None] == agents[:, None]).argmax(1)

    def shift(path: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        holder, target, _ = path
        taker = asker[target]
        return holder.at[target].set(taker), held_by[taker], taker != agent

    holder, _, _ = jax.lax.while_loop(lambda path: path[-1], shift, (holder, free.argmax(), free.any()))
    return holder, free.any()
