"""Cost grows at most linearly with tasks, and stage 2 can be bounded."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from learners import KEY, small_batch
from recorded import FULL_VIEW
from reliability import tried

from comad import streams
from comad.bench.scaling import WORLDS, full, order
from comad.bench.step import matrix_flop
from comad.methods.comad import Comad
from comad.settings import identifying, settings


def test_a_long_stream_holds_every_world_equally_often_in_many_orders() -> None:
    names = order(64)
    assert all(names.count(world) == 16 for world in WORLDS) and len({tuple(names[turn : turn + 4]) for turn in range(0, 64, 4)}) > 8
    assert order(3) == names[:3]


def state_of(method: Comad, num_tasks: int) -> Any:
    stream = streams.custom([f"task-{number}" for number in range(num_tasks)], threshold=1e9)
    return jax.jit(partial(method.init, stream=stream, specs=(FULL_VIEW.spec,) * num_tasks, updates=4))(KEY)


@pytest.mark.slow
@pytest.mark.promise("linear")
def test_operations_grow_linearly_and_not_at_all_when_bounded() -> None:
    batch, sizes = small_batch(), (1, 2, 4, 8, 16, 32, 64)

    def count(method: Comad, size: int, busiest: bool) -> float:
        tried()
        return matrix_flop(method.update, state_of(method, size), batch, KEY, busiest=busiest)

    assert len({count(Comad(), size, busiest=False) for size in sizes}) == 1, "stage 1 costs the same with any number of heads"
    guided = np.array([count(Comad(), size, busiest=True) for size in sizes])
    per_head = np.diff(guided) / np.diff(sizes)
    assert np.allclose(per_head, per_head[0], rtol=1e-9), "stage 2 costs the same for every head that is heard"
    bounded = {count(Comad(guides=4), size, busiest=True) for size in sizes if size > 4}
    assert len(bounded) == 1 and bounded == {guided[sizes.index(4)]}
    chosen = [matrix_flop(Comad().route, state_of(Comad(), size), jnp.int32(0), batch, busiest=True) for size in sizes]
    assert np.allclose(np.diff(chosen) / np.diff(sizes), (chosen[1] - chosen[0]), rtol=1e-9)
    tried(len(sizes))


@pytest.mark.slow
def test_heads_that_are_not_heard_say_nothing() -> None:
    batch = small_batch()
    state = full(state_of(Comad(), 3))  # the third learns; all were equally unfamiliar, so the first is heard before the second
    loud = jax.tree.map(lambda leaf: leaf.at[1].add(1.0), state.snapshot.head)
    other = eqx.tree_at(lambda state: state.snapshot.head, state, loud)
    for guides, differs in ((0, True), (3, True), (2, False)):
        guide = jax.jit(Comad(guides=guides).guide)
        assert bool((guide(state, batch, KEY) != guide(other, batch, KEY)).any()) == differs


def test_a_setting_that_came_later_and_is_at_rest_does_not_make_another_run() -> None:
    assert not {"guides", "hears_itself"} & identifying(Comad()).keys()
    moved = Comad(guides=4, hears_itself="always")
    assert identifying(moved) == settings(moved)
