"""The learner: it knows no method, and its skills, schedules and strategies go together."""

import ast
import inspect
import re
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from learners import KEY, learn, make, same, small_batch

from comad.continual import learner
from comad.continual.learner import Continual
from comad.continual.schedules import AllTasks, OwnTask, Rehearse
from comad.methods import METHODS, find, name_of, summary
from comad.methods.ewc import Ewc
from comad.networks.skills import Kind

SOURCE = inspect.getsource(learner)
ON_THE_LEARNER = [name for name, method in METHODS.items() if isinstance(method, Continual)]


def test_the_learner_is_short_and_knows_no_method() -> None:
    assert SOURCE.count("\n") <= 200
    tree = ast.parse(SOURCE)
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    whole = [node.names for node in ast.walk(tree) if isinstance(node, ast.Import)]
    modules += [alias.name for names in whole for alias in names]
    assert "comad.continual.net" in modules
    assert not [name for name in modules if name.startswith("comad.methods")]
    called = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not called & {"isinstance", "issubclass", "type"}
    words = set(re.findall(r"\w+", re.sub(r"\bcomad\.", "", SOURCE)))
    kinds = {type(find(name).strategy).__name__ for name in ON_THE_LEARNER}
    assert len(kinds) >= 5 and not words & {*kinds, *METHODS, *(name.upper() for name in METHODS)}


def test_methods_on_the_learner_are_told_apart_by_strategy_and_data() -> None:
    assert {"ft", "ft-snapshots", "fs", "ewc", "owl", "mt", "rehearsal"} <= set(ON_THE_LEARNER)
    assert {name_of(method) for method in METHODS.values()} == METHODS.keys()
    assert name_of(Continual(Ewc(strength=3.0), learning_rate=0.1)) == "ewc"
    kinds = {name: type(METHODS[name].data) for name in ON_THE_LEARNER}
    assert kinds.pop("mt") is AllTasks and kinds.pop("rehearsal") is Rehearse
    assert set(kinds.values()) == {OwnTask}
    assert len({summary(name) for name in METHODS}) == len(METHODS)


def test_without_boundaries_tasks_do_not_begin() -> None:
    begin, state = jax.jit(find("mt").begin), learn(find("mt"), 1)[0]
    assert same(begin(state, jnp.int32(1), small_batch(), KEY), state)
    begun = jax.jit(find("ft").begin)(state, jnp.int32(1), small_batch(), KEY)
    assert int(begun.clock.task) == 1 and not same(begun.net.critics, state.net.critics)
    assert same(begun.targets, begun.net.critics)
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(begun.optimizer))


def parts_that_learn(method: Continual) -> tuple[Any, Any, Any]:
    """Returns before and after an update of a task, with what it logs."""
    state = jax.jit(method.begin)(make(method), jnp.int32(0), small_batch(), KEY)
    after, logs = jax.jit(method.update)(state, small_batch(), KEY)
    return state.net.actor, after.net.actor, logs


def without_decay(skill: Kind) -> Continual:
    """Returns the learner with a skill, in which only gradients move weights."""
    return Continual(skill=skill, weight_decay=0.0)


@pytest.mark.parametrize("skill", ["gaussian", "categorical"])
def test_a_skill_adds_prior_posterior_and_divergence(skill: Kind) -> None:
    before, after, logs = parts_that_learn(without_decay(skill))
    assert logs["kl"] > 0.0 and logs["kl_loss"] == logs["kl"]
    for name in ("prior", "posterior", "policy"):
        assert not same(getattr(before.head, name), getattr(after.head, name))
    assert not same(before.posterior, after.posterior)


def test_the_divergence_reaches_the_posterior_only_where_it_is_let() -> None:
    actor, batch = make(without_decay("gaussian")).net.actor, small_batch().acted

    def divergence(posterior: Any, into: bool) -> Any:
        return replace(actor, posterior=posterior).imitate(batch, into, KEY)[1].mean()

    moves = [jax.grad(partial(divergence, into=into))(actor.posterior) for into in (True, False)]
    found = [any(np.asarray(leaf).any() for leaf in jax.tree.leaves(move)) for move in moves]
    assert found == [True, False]


@pytest.mark.slow
@pytest.mark.parametrize("skill", ["gaussian", "categorical"])
@pytest.mark.parametrize("name", ON_THE_LEARNER)
def test_every_strategy_learns_and_acts_through_a_skill(name: str, skill: Kind) -> None:
    method = replace(find(name), skill=skill)
    state, logs = learn(method, 2)
    assert all(np.isfinite(value) for value in logs.values())
    batch = small_batch()
    tokens, available = jax.tree.map(lambda leaf: leaf[0, 0], (batch.tokens, batch.available))
    carry, head = method.start(state, 2), method.route(state, jnp.int32(0), batch)
    actions, _ = jax.jit(method.act)(state, carry, tokens, available, head, jnp.array(True), KEY)
    assert jnp.take_along_axis(available, actions[:, None], axis=1).all()
