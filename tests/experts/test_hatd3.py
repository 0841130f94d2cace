"""Agents that learn in turns under one pair of critics."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from aiming import Aiming

from comad.experts import training
from comad.experts.base import Trainer
from comad.experts.hatd3 import Hatd3, Hatd3Learner, joint_actions, put_part, take_turns
from comad.experts.joint import Tower, Transition, descend
from comad.networks.heads import pick

ENV = Aiming()
TINY = Hatd3(width=16, num_worlds=4, rounds=1, capacity=4000, batch=16, warm_up=32, steps=192)
RATE = jnp.float32(0.01)


@pytest.fixture(scope="module")
def learner() -> Hatd3Learner:
    return jax.jit(lambda key: TINY.create(ENV.spec, key))(jax.random.key(0))


@pytest.fixture(scope="module")
def seen() -> Any:
    return jax.random.normal(jax.random.key(1), (32, 3))


def test_the_goal_is_the_lower_value_of_what_the_slow_actors_would_do_with_some_noise(learner: Hatd3Learner, seen: Any) -> None:
    key, reward, discount = jax.random.key(4), jnp.arange(32.0), jnp.linspace(0.0, 0.95, 32)
    batch = Transition(seen, jnp.zeros((32, 2)), reward, seen, discount, jnp.ones(32, bool))
    found = TINY.goal(learner, batch, key)
    noise = np.clip(0.2 * np.asarray(jax.random.normal(key, (32, 2))), -0.5, 0.5)
    actions = np.concatenate([np.asarray(jnp.tanh(pick(learner.slow_actors, agent)(seen))) for agent in range(2)], axis=1)
    said = [np.asarray(value) for value in learner.slow_critics(seen, jnp.asarray(np.clip(actions + noise, -1, 1)))]
    np.testing.assert_allclose(found, reward + discount * np.minimum(*said), rtol=1e-4, atol=1e-5)
    assert found[0] == 0.0  # discounted to nothing: only the reward is left


def step_of(learner: Hatd3Learner, seen: Any, agent: int, actions: Any) -> Tower:
    """One step of one actor, given what the others do."""

    def loss(actor: Tower) -> Any:
        parts = [jnp.tanh(actor(seen)) if other == agent else actions[:, other : other + 1] for other in range(2)]
        return -learner.critics(seen, jnp.concatenate(parts, axis=1))[0].mean()

    actor = pick(learner.actors, agent)
    return descend(actor, jax.grad(loss)(actor), pick(learner.actor_optimizer, agent), RATE)[0]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_who_comes_later_reckons_with_what_the_earlier_ones_do_now(learner: Hatd3Learner, seen: Any, order: tuple[int, int]) -> None:
    earlier, later = order
    before = joint_actions(learner.actors, seen)
    moved = step_of(learner, seen, earlier, before)
    after = before.at[:, earlier : earlier + 1].set(jnp.tanh(moved(seen)))
    expected, blind = (step_of(learner, seen, later, actions) for actions in (after, before))
    found, _ = take_turns(learner.actors, learner.actor_optimizer, learner.critics, seen, jnp.array(order), RATE)
    for agent, wanted in ((earlier, moved), (later, expected)):
        close = jax.tree.map(lambda one, two: np.allclose(one, two, atol=1e-5), pick(found, agent), wanted)
        assert all(jax.tree.leaves(close))
    assert not all(jax.tree.leaves(jax.tree.map(lambda one, two: np.allclose(one, two, atol=1e-5), pick(found, later), blind)))


def test_an_agents_part_is_put_in_its_place() -> None:
    found = put_part(jnp.zeros((1, 6)), jnp.int32(1), jnp.array([[7.0, 8.0]]), 3)
    assert found.tolist() == [[0, 0, 7, 8, 0, 0]]


@pytest.mark.slow
def test_two_agents_learn_in_turns_what_to_say(tmp_path: Path) -> None:
    trainer = Hatd3(width=32, num_worlds=4, batch=64, warm_up=200, capacity=8000, critic_rate=3e-3, actor_rate=2e-3, steps=6000)
    assert isinstance(trainer, Trainer)
    *_, last = training.train(ENV, trainer, 0, tmp_path, every=3000, episodes=32)
    assert last.total > 0.95 * ENV.limit
    chosen = training.choose_teams(ENV, trainer, tmp_path, num_episodes=32)
    assert float(chosen["expert"][2].total.mean()) > 0.95 * ENV.limit
