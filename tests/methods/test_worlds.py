"""Every method in every kind of world: actions that are vectors, actions that aim at targets; and several seeds at once."""

from functools import partial
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from learners import KEY, STREAM, make, small_batch, vectors

from comad import envs
from comad.bench import battles
from comad.datasets.batches import gather
from comad.methods import METHODS, find
from comad.types import Batch, Continuous, Spec

pytestmark = pytest.mark.slow


def aims() -> tuple[Spec, Batch]:
    """A batch of battles, in which some actions aim at enemies and teams lose agents."""
    spec, resident, packing = battles.make_up("5m_vs_6m", 2)
    return spec, jax.jit(gather, static_argnums=0)(spec, resident, packing.index(0, 0, 0))


def legs() -> tuple[Spec, Batch]:
    """A batch of the Ant, whose agents are its legs."""
    spec = envs.find("ant-reward-0-obsk1").spec
    resident, packing = battles.record(spec, 2)
    return spec, jax.jit(gather, static_argnums=0)(spec, resident, packing.index(0, 0, 0))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("world", [vectors, aims, legs])
def test_methods_learn_and_act_in_it(name: str, world: Any) -> None:
    method, (spec, batch) = find(name)(), world()
    begin, update, finish = (jax.jit(verb) for verb in (method.begin, method.update, method.finish))
    state = jax.jit(partial(method.init, stream=STREAM, specs=(spec,) * 2, updates=2))(KEY)
    for task in range(2):
        state = begin(state, jnp.int32(task), batch, KEY)
        for number in range(2):
            state, logs = update(state, batch, jax.random.fold_in(KEY, number))
            assert all(np.isfinite(value) for value in logs.values())
        state = finish(state, jnp.int32(task), batch, KEY)
    tokens, available = jax.tree.map(lambda leaf: leaf[0, 0], (batch.tokens, batch.available))
    act = jax.jit(partial(method.act, state, method.start(state, spec.num_agents), tokens, available, jnp.int32(0)))
    for greedy in (True, False):
        actions = act(jnp.array(greedy), KEY)[0]
        if isinstance(spec.actions, Continuous):
            assert actions.shape == (spec.num_agents, 2) and (jnp.abs(actions) <= 1).all()
        else:
            assert jnp.take_along_axis(available, actions[:, None], axis=1).all()


@pytest.mark.parametrize("name", METHODS)
def test_two_seeds_at_once_are_two_seeds_one_after_the_other(name: str) -> None:
    method, batch = find(name)(), small_batch()
    keys = jax.random.split(KEY, 2)

    def learn(key: Any) -> Any:
        state = method.begin(make(method), jnp.int32(0), batch, key)
        for number in range(2):
            state, logs = method.update(state, batch, jax.random.fold_in(key, number))
        return state, logs

    together = jax.jit(jax.vmap(learn))(keys)
    alone = jax.jit(learn)
    for seed, key in enumerate(keys):
        close = jax.tree.map(partial(np.allclose, rtol=1e-3, atol=1e-4), jax.tree.map(itemgetter(seed), together), alone(key))
        assert all(jax.tree.leaves(close))
