"""ODIS and HiSSD: what learns when, and what stays exactly as it was."""

import itertools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from learners import KEY, make, same, small_batch
from recorded import FULL_VIEW

from comad import streams
from comad.continual.schedules import DataBlock
from comad.errors import UserError
from comad.methods.hissd import Hissd, draw_moments
from comad.methods.odis import Odis
from comad.types import Batch


@pytest.fixture(scope="module")
def batch() -> Batch:
    return small_batch()


def follow(method: Any, batch: Batch, tasks: int, updates: int) -> list[list[Any]]:
    """States after begin and after each update, task by task."""
    begin, update = jax.jit(method.begin), jax.jit(method.update)
    state, history = make(method), []
    for task in range(tasks):
        state = begin(state, jnp.int32(task), batch, KEY)
        states = [state]
        for number in range(updates):
            state, logs = update(state, batch, jax.random.fold_in(KEY, number))
            assert all(np.isfinite(value) for value in logs.values())
            states.append(state)
        history.append(states)
    return history


def test_odis_discovers_in_the_first_half_of_the_first_task_and_coordinates_ever_after(batch: Batch) -> None:
    first, second = follow(Odis(), batch, tasks=2, updates=4)  # as many as `make` announces
    for before, after in itertools.pairwise(first[:3]):
        assert not same(before.discovery, after.discovery) and same(before.coordinator, after.coordinator)
    for states in (first[2:], second):
        for before, after in itertools.pairwise(states):
            assert same(before.discovery, after.discovery) and not same(before.coordinator, after.coordinator)


@pytest.mark.slow
def test_odis_learns_all_tasks_at_once_in_halves_of_all_updates(batch: Batch) -> None:
    first, second = follow(Odis(multi_task=True, target_every=1), batch, tasks=2, updates=4)
    assert same(first[0].coordinator, first[-1].coordinator) and same(second[0].discovery, second[-1].discovery)
    assert not same(first[-2].discovery, first[-1].discovery) and not same(second[0].coordinator, second[1].coordinator)
    assert same(second[-1].target, second[-1].coordinator) and same(first[-1].target, first[0].target)  # replaced at every update made
    blocks = Odis(multi_task=True).data.blocks(0, 0, 3, 4, 5)
    assert [block.source for block in blocks] == [1, 2, 0, 1, 2] and len({block.first for block in blocks}) == 5
    assert Odis().data.blocks(0, 1, 3, 4, 5) == [DataBlock(1, 4, 5)]


@pytest.mark.slow
def test_hissd_freezes_policy_and_task_skills_from_the_third_task_on(batch: Batch) -> None:
    first, second, third = follow(Hissd(), batch, tasks=3, updates=1)
    for begun, ended in (first, second):
        assert not same(begun.policy.executor, ended.policy.executor) and not same(begun.policy.task, ended.policy.task)
    begun, ended = third
    assert same(begun.policy.executor, ended.policy.executor) and same(begun.policy.task, ended.policy.task)
    assert not same(begun.policy.planner, ended.policy.planner) and not same(begun.team, ended.team)
    assert same(begun.codes, ended.codes)
    data = Hissd().data
    assert [block.source for block in data.blocks(0, 1, 4, 0, 4)] == [0, 1, 0, 1]
    assert data.blocks(0, 2, 4, 3, 9) == [DataBlock(2, 3, 9)]


@pytest.mark.slow
def test_hissd_contrasts_with_other_tasks_only(batch: Batch) -> None:
    method = Hissd()
    state = jax.jit(method.begin)(make(method), jnp.int32(0), batch, KEY)
    update = jax.jit(method.update)
    state, logs = update(state, batch, KEY)
    assert logs["contrastive_loss"] == 0.0 and state.coded.tolist() == [True, False]  # nothing to contrast with yet
    state, logs = update(state, batch, KEY)
    assert logs["contrastive_loss"] > 0.0 and state.coded.tolist() == [True, True]


def test_moments_are_drawn_among_steps_only(batch: Batch) -> None:
    drawn = draw_moments(KEY, batch.step, 2000)
    steps = np.flatnonzero(np.asarray(batch.step))
    assert set(drawn.tolist()) <= set(steps.tolist()) and len(set(drawn.tolist())) > 0.9 * len(steps)


@pytest.mark.slow
def test_hissd_learns_nothing_of_its_tasks_from_the_fallen(batch: Batch) -> None:
    method = Hissd()
    state = jax.jit(method.begin)(make(method), jnp.int32(0), batch, KEY)
    state = replace(state, codes=jnp.ones_like(state.codes), coded=jnp.ones_like(state.coded))
    # The second agent falls in the middle of every row, or was never there.
    later = jnp.arange(batch.step.shape[1]) >= batch.step.shape[1] // 2
    fallen = jnp.broadcast_to(later[None, :, None] & jnp.array([False, True])[None, None], batch.state.agent_present.shape)

    def without(gone: Any, value: float) -> Batch:
        """These agents are gone, and whoever looks at them sees some value."""
        own = jnp.where(gone[..., None], value, batch.tokens.own)
        present = replace(batch.state, agent_present=batch.state.agent_present & ~gone)
        return replace(batch, tokens=replace(batch.tokens, own=own), state=present)

    @jax.jit
    def learn(batch: Batch, key: Any) -> Any:
        loss = method.contrastive_loss(state.policy.task, state.policy.task(batch.tokens), state, batch, key)
        return loss, method.remember(state, batch, key)[0]

    for number in range(4):
        key = jax.random.fold_in(KEY, number)
        assert same(learn(without(fallen, 0.0), key), learn(without(fallen, 3.0), key))
    assert not same(learn(without(fallen, 0.0), KEY), learn(batch, KEY))
    alone = jnp.zeros_like(fallen).at[..., 1].set(True)
    assert float(learn(without(alone, 0.0), KEY)[0]) == 0.0, "nobody to be alike with"


def test_hissd_needs_two_tasks() -> None:
    with pytest.raises(UserError, match=r"needs a stream of 2 tasks or more.*has 1"):
        Hissd().init(KEY, streams.custom(["cn-2"]), (FULL_VIEW.spec,), 4)
