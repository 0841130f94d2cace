"""Strategies that keep nothing but actors: fine-tuning, from scratch, and snapshots."""

from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from learners import KEY, STREAM, learn, make, matrices, same, small_batch

from comad.continual.learner import Continual
from comad.continual.net import Heads
from comad.continual.strategy import State, Strategy
from comad.methods import find
from comad.methods.ewc import Ewc, fisher
from comad.methods.fine_tuning import FineTuning


def verbs(kind: type[Strategy]) -> set[str]:
    """Returns what a strategy decides."""
    return {name for name, value in vars(kind).items() if callable(value) and name[0] != "_"}


def test_the_defaults_of_a_strategy_are_fine_tuning() -> None:
    assert len(verbs(Strategy)) == 11 and verbs(FineTuning) == set()
    plain, state = Strategy(), make(find("ft"))
    net = state.net
    assert plain.capacity(STREAM) == 1 and plain.per_head(net) == () and not plain.density
    assert plain.init(state.heads, STREAM) is None is plain.finish(state, small_batch(), KEY)
    assert plain.begin(state, small_batch(), KEY) is state and plain.after_update(state, {}) is None
    assert plain.log_weight(state, small_batch(), KEY) is None
    assert plain.terms(net, state, small_batch(), KEY) == ({}, {})
    assert plain.freeze(net, net, state) is net
    assert plain.route(state, jnp.int32(1), small_batch()) == 0 and plain.describe(state) == {}
    assert same(learn(Continual(), 2)[0], learn(find("ft"), 2)[0])


def actors(heads: Heads, count: int = 2) -> list[Any]:
    """Returns the actor of every head."""
    return [heads.net(number).actor for number in range(count)]


def test_from_scratch_every_actor_is_its_own_and_the_first_is_that_of_fine_tuning() -> None:
    fresh = make(find("fs"))
    assert same(actors(fresh.heads)[0], make(find("ft")).net.actor)
    for one, other in combinations(actors(fresh.heads), 2):
        pairs = zip(matrices(one), matrices(other), strict=True)
        assert all(not np.array_equal(*pair) for pair in pairs)
    first, second = learn(find("fs"), 1)[0], learn(find("fs"), 2)[0]
    # The second actor begins as it was drawn, and learns alone.
    assert same(actors(first.heads)[1], actors(fresh.heads)[1])
    assert not same(actors(second.heads)[1], actors(fresh.heads)[1])
    assert same(actors(second.heads)[0], actors(first.heads)[0])
    assert [routed(find("fs"), second, task) for task in (0, 1)] == [1, 1]


def test_snapshots_keep_the_actor_of_every_task_and_are_told_which_to_play() -> None:
    method = find("ft-snapshots")
    first = learn(method, 1)[0]
    begun = jax.jit(method.begin)(first, jnp.int32(1), small_batch(), KEY)
    old, new = actors(begun.heads)
    assert same(old, new) and same(old, first.net.actor), "goes on with a copy"
    second = learn(method, 2)[0]
    old, new = actors(second.heads)
    assert same(old, first.net.actor) and not same(old, new)
    assert [routed(method, second, task) for task in (0, 1)] == [0, 1]
    assert [routed(method, first, task) for task in (0, 1)] == [0, 0], "tasks to come: the newest"


def routed(method: Any, state: State, task: int) -> int:
    """Returns the head that plays a task."""
    return int(method.route(state, jnp.int32(task), small_batch()))


def test_of_skills_the_prior_matters_by_what_the_skill_does_to_actions() -> None:
    method = Continual(Ewc(), skill="gaussian")
    state, logs = learn(method, 2)
    assert logs["penalty"] > 0.0
    found = fisher(state.net.actor, small_batch(), KEY)
    assert all(np.asarray(leaf).any() for leaf in jax.tree.leaves(found.head.prior))
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(found.posterior))
