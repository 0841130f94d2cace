"""Weights of all heads: what is shared is there once; writing one head leaves the others alone."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from learners import KEY, matrices, same
from recorded import FULL_VIEW

from comad.continual.net import Heads, Net

CAPACITY = 3
PARTS: dict[str, Callable[[Net], tuple[Any, ...]]] = {
    "nothing": lambda net: (),
    "head": lambda net: (net.actor.head,),
    "trunk": lambda net: (net.actor.trunk,),
    "actor": lambda net: (net.actor,),
    "head and density": lambda net: (net.actor.head, net.density),
}


def heads_with(name: str) -> Heads:
    """Returns fresh heads in which some parts are each head's own."""
    return Heads.create(
        KEY,
        FULL_VIEW.spec,
        capacity=CAPACITY,
        per_head=PARTS[name],
        skill="gaussian",
        skill_size=3,
        density=True,
        recurrent=True,
    )


@pytest.mark.parametrize("name", PARTS)
def test_writing_a_head_changes_what_is_shared_and_no_bit_of_another_head(name: str) -> None:
    heads = heads_with(name)
    moved = jax.tree.map(lambda leaf: leaf + 1.0, heads.net(1))
    for number in (1, jnp.int32(1)):
        after = heads.write(number, moved)
        assert same(after.net(1), moved)
        for other in (0, 2):
            assert same(PARTS[name](after.net(other)), PARTS[name](heads.net(other)))
        assert same(after.shared, jax.tree.map(lambda leaf: leaf + 1.0, heads.shared))
        assert jax.tree.map(jax.typeof, after) == jax.tree.map(jax.typeof, heads)


@pytest.mark.parametrize("name", PARTS)
def test_every_array_is_either_shared_or_of_each_head(name: str) -> None:
    heads = heads_with(name)
    alone, whole = jax.tree.leaves(heads.per_head), jax.tree.leaves(heads.net(0))
    assert len(jax.tree.leaves(heads.shared)) + len(alone) == len(whole)
    assert len(alone) == len(jax.tree.leaves(PARTS[name](heads.net(0))))
    assert {leaf.shape[0] for leaf in alone} <= {CAPACITY}
    stacked = heads.stacked(lambda net: net.actor)
    assert len(jax.tree.leaves(stacked)) == len(jax.tree.leaves(heads.net(0).actor))


def test_trunks_of_their_own_are_drawn_for_each_head_and_the_first_is_as_if_shared() -> None:
    shared, own = heads_with("head"), heads_with("trunk")
    assert same(own.net(0).actor.trunk, shared.net(0).actor.trunk)
    first, second, third = (matrices(own.net(number).actor.trunk) for number in range(CAPACITY))
    for one, other in ((first, second), (second, third), (first, third)):
        assert all(not np.array_equal(*pair) for pair in zip(one, other, strict=True))
    # Heads are drawn in the same way, whether trunks are shared or not.
    apart, heads = heads_with("actor"), heads_with("head")
    for number in range(CAPACITY):
        assert same(apart.net(number).actor.head, heads.net(number).actor.head)


def test_more_room_leaves_the_first_heads_as_they_were() -> None:
    few, many = heads_with("nothing"), heads_with("actor")
    assert same(few.net(0), many.net(0))
