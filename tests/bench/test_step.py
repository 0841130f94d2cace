"""The measure of speed measures what it says: operations are counted, not guessed."""

import os
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest
from ants import ant_named, playable
from jaxtyping import Array
from recorded import record

from comad.bench import step
from comad.bench.step import find_shape, matrix_flop, measure, peak_gigaflops, pin
from comad.datasets import library
from comad.datasets.batches import gather
from comad.errors import UserError
from comad.methods.comad import Comad


def test_operations_are_those_of_matrix_products_in_loops_and_on_the_way_that_is_asked_for() -> None:
    left, right = jnp.ones((3, 4)), jnp.ones((4, 5))

    def once(left: Array, right: Array) -> Array:
        return jnp.tanh(left @ right)

    def looped(left: Array, right: Array) -> Array:
        def body(total: Array, _: None) -> tuple[Array, None]:
            return total + once(left, right), None

        return jax.lax.scan(body, jnp.zeros((3, 5)), length=7)[0]

    def branching(left: Array, right: Array) -> Array:
        return jax.lax.cond(left[0, 0] > 0, lambda: looped(left, right), lambda: once(left, right))

    assert matrix_flop(once, left, right, busiest=True) == 2 * 3 * 4 * 5
    assert matrix_flop(jax.jit(looped), left, right, busiest=True) == 7 * 120
    assert [matrix_flop(branching, left, right, busiest=busiest) for busiest in (True, False)] == [840, 120]
    batched = jax.vmap(jnp.matmul, in_axes=(0, None))
    assert matrix_flop(batched, jnp.ones((6, 3, 4)), right, busiest=True) == 6 * 120


def test_made_up_battles_have_the_shapes_of_battles(tmp_path: Path) -> None:
    shape = find_shape("5m_vs_6m", tmp_path)
    assert (shape.spec.num_agents, shape.spec.num_targets, shape.spec.num_actions) == (5, 6, 12)
    assert shape.packing.padding < 0.06 and 32 * 18 < shape.packing.rows * shape.packing.row_length < 32 * 36
    actions = shape.resident["actions"]
    assert actions.shape == (len(shape.resident["reward"]), 5) and int(actions.max()) == 11
    batch = jax.eval_shape(lambda: gather(shape.spec, shape.resident, shape.packing.index(0, 0, 0)))
    assert batch.tokens.targets.shape[2:4] == (5, 6) and batch.outcome.shape == batch.step.shape


def test_what_cannot_be_measured_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no shape named '3m' and no expert data of such a world in .*; known: lbf, cn-2"):
        next(measure(["3m"], 1, 1.0, tmp_path))
    with pytest.raises(UserError, match="--cores 4096 is not possible here"):
        pin(4096)


def test_a_process_is_kept_on_its_first_cores() -> None:
    before = os.sched_getaffinity(0)
    try:
        pin(1)
        assert os.sched_getaffinity(0) == {min(before)}
    finally:
        os.sched_setaffinity(0, before)
    assert step.SHAPES == ("lbf", "cn-2", "cn-4", "cn-5", "5m_vs_6m", "13m_vs_15m")


def test_the_peak_is_that_of_the_quickest_of_three_products(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([0.0, 4.0, 10.0, 12.0, 20.0, 23.0])
    monkeypatch.setattr(step, "time", SimpleNamespace(perf_counter=lambda: next(looks)))
    monkeypatch.setattr(step, "MATRIX", 10)
    assert peak_gigaflops(0.01) == pytest.approx(2 * 10**3 / 1e9 / 2.0)


@playable
def test_long_episodes_are_cut_as_in_training(tmp_path: Path) -> None:
    record(library.place("ant-reward-0-30t", "expert", tmp_path), ant_named("ant-reward-0-30t"), 20)
    plain, remembering = (find_shape("ant-reward-0-30t", tmp_path, method).packing for method in (None, Comad(recurrent=True)))
    assert (plain.rows, plain.row_length, remembering.rows, remembering.row_length) == (128, 2, 6, 21)
