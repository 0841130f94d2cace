"""Every method in every kind of world: actions that are vectors, actions that aim at targets; and several seeds at once."""

from dataclasses import replace
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
    return spec, losing(jax.jit(gather, static_argnums=0)(spec, resident, packing.index(0, 0, 0)))


def losing(batch: Batch, shown: float = 0.0, action: int = 0) -> Batch:
    """The same with two agents that fall in the middle of every row: they can do nothing, and are not looked at by anybody."""
    _, moments, agents = batch.actions.shape
    late = (np.arange(moments) > moments // 2)[:, None] & (np.arange(agents) >= agents - 2)
    fallen = jnp.asarray(np.broadcast_to(late, batch.actions.shape))
    others = np.stack([np.delete(late, agent, axis=1) for agent in range(agents)], 1) | late[..., None]
    ally_seen = batch.tokens.ally_seen & ~jnp.asarray(np.broadcast_to(others, batch.tokens.ally_seen.shape))
    tokens = replace(batch.tokens, own=jnp.where(fallen[..., None], shown, batch.tokens.own), ally_seen=ally_seen)
    state = replace(
        batch.state, agents=jnp.where(fallen[..., None], shown, batch.state.agents), agent_present=batch.state.agent_present & ~fallen
    )
    return replace(batch, tokens=tokens, state=state, actions=jnp.where(fallen, action, batch.actions))


@pytest.mark.parametrize("name", ["ft", "comad", "comad-plus"])
def test_nothing_is_learned_of_the_fallen(name: str) -> None:
    method, (spec, batch) = find(name), aims()
    state = jax.jit(partial(method.init, stream=STREAM, specs=(spec,) * 2, updates=2))(KEY)
    state = jax.jit(method.begin)(state, jnp.int32(0), batch, KEY)
    update = jax.jit(method.update)
    one, other = (update(state, losing(batch, shown, action), KEY)[1] for shown, action in ((0.0, 0), (2.0, 3)))
    for name, value in one.items():
        assert np.isclose(value, other[name], rtol=1e-4, atol=1e-6), name


def legs() -> tuple[Spec, Batch]:
    """A batch of the Ant, whose agents are its legs."""
    spec = envs.find("ant-reward-0-obsk1").spec
    resident, packing = battles.record(spec, 2)
    return spec, jax.jit(gather, static_argnums=0)(spec, resident, packing.index(0, 0, 0))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("world", [vectors, aims, legs])
def test_methods_learn_and_act_in_it(name: str, world: Any) -> None:
    method, (spec, batch) = find(name), world()
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
    method, batch = find(name), small_batch()
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
