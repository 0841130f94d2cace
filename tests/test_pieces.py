"""Some agents at a time, and nobody who is not there: nobody can tell."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jaxtyping import Array
from recorded import record

from comad import pieces, streams
from comad.datasets.batches import gather, upload
from comad.datasets.packing import Packing
from comad.datasets.store import Dataset
from comad.envs import make
from comad.methods import find
from comad.methods.comad import Comad
from comad.pieces import piece_by_piece
from comad.types import Batch

KEY = jax.random.key(0)


def squeeze(network: Array, made: Array, recorded: Array) -> tuple[Array, Array]:
    """Something to differentiate; never zero, even of nothing."""
    return jnp.tanh(made @ network) + recorded, jnp.cos(made.sum(-1) * recorded.sum(-1))


def numbers(*shape: int) -> Array:
    return jnp.asarray(np.random.default_rng(len(shape)).normal(size=shape), jnp.float32)


def by(entities: int, monkeypatch: pytest.MonkeyPatch, there: Array, lighter: Any = None) -> tuple[Any, Any]:
    """What is made of every agent, and the slopes of what counts in it, in pieces of a size."""
    monkeypatch.setattr(pieces, "ENTITIES", entities)
    shape = there.shape

    def total(network: Array, made: Array) -> tuple[Array, Any]:
        result = piece_by_piece(squeeze, network, (made,), (numbers(*shape, 3, 1)[..., 0],), there, 2, lighter)
        counting = [jnp.where(there.reshape(*shape, *[1] * (leaf.ndim - 3)), jnp.sin(leaf), 0.0).sum() for leaf in result]
        return counting[0] + counting[1], result

    slopes, result = jax.jit(jax.grad(total, argnums=(0, 1), has_aux=True))(numbers(4, 3), numbers(*shape, 4))
    return result, slopes


@settings(max_examples=12, deadline=None)
@example(gone=0.0, size=7, agents=2, seed=0)  # the last of three pieces is filled up with nobody
@given(gone=st.floats(0, 1), size=st.sampled_from([1, 2, 3]), agents=st.integers(1, 4), seed=st.integers(0, 99))
def test_pieces_make_the_same_of_who_is_there_and_so_do_their_slopes(gone: float, size: int, agents: int, seed: int) -> None:
    there = jnp.asarray(np.random.default_rng(seed).random((2, 4, agents)) >= gone)
    with pytest.MonkeyPatch.context() as patch:
        (plain, plain_slopes), (ours, our_slopes) = by(1000, patch, there), by(2 * size, patch, there)
    for one, other in zip(plain, ours, strict=True):
        np.testing.assert_allclose(np.asarray(other)[there], np.asarray(one)[there], rtol=1e-5, atol=1e-6)
    for one, other in zip(plain_slopes, our_slopes, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)


def test_pieces_of_nobody_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    there = jnp.zeros((1, 6, 2), bool).at[0, 1].set(True)
    (_, whole), _ = by(1000, monkeypatch, there)
    (_, cut), slopes = by(4, monkeypatch, there)  # two agents to a piece: those of moment 1 are alone in theirs
    assert (np.asarray(whole) != 0).all() and (np.asarray(cut) != 0).sum() == 2
    assert (np.asarray(slopes[1])[~there] == 0).all()


def test_who_demands_little_is_seen_to_by_what_does_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    demand = jnp.array([[[0, 9], [pieces.FEW, pieces.FEW + 1], [3, 1]]])
    there = jnp.ones((1, 3, 2), bool).at[0, 2, 1].set(False)

    def light(*arguments: Array) -> tuple[Array, Array]:
        return jax.tree.map(lambda leaf: leaf + 100.0, squeeze(*arguments))

    (_, plain), _ = by(2, monkeypatch, there)
    (_, ours), _ = by(2, monkeypatch, there, (light, demand))  # one agent to a piece
    lightened = np.asarray(ours) - np.asarray(plain) > 50
    np.testing.assert_array_equal(lightened, [[[True, False], [True, False], [True, False]]])
    # Two to a piece: one that holds anybody who demands more is computed in full.
    (_, pairs), _ = by(4, monkeypatch, jnp.ones((1, 3, 2), bool), (light, jnp.array([[[0, 9], [9, 9], [1, 2]]])))
    assert (np.asarray(pairs) > 50).sum() == 2


def test_few_are_not_cut_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "_in_pieces", None)
    by(8, monkeypatch, jnp.ones((1, 4, 2), bool))
    with pytest.raises(TypeError):
        by(6, monkeypatch, jnp.ones((1, 4, 2), bool))


@pytest.fixture(scope="module")
def battle(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, Batch]:
    """A few episodes in which some fall."""
    pytest.importorskip("jaxmarl")
    dataset = record(tmp_path_factory.mktemp("battle") / "data", make("3m"), episodes=8)
    index = Packing.plan(dataset.starts, dataset.lengths, 4).index(0, 0, 0)
    batch = jax.jit(gather, static_argnums=0)(dataset.spec, upload(dataset), index)
    assert not batch.state.agent_present[batch.present].all()
    return dataset, batch


@pytest.mark.slow
@pytest.mark.parametrize("method", [find("owl"), Comad()], ids=["owl", "comad"])
def test_learning_is_the_same_up_to_rounding(battle: tuple[Dataset, Batch], method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, batch = battle
    stream, ends = streams.custom(["3m", "3m"], threshold=1e9), []
    for entities in (10**6, 60):
        monkeypatch.setattr(pieces, "ENTITIES", entities)
        state = jax.jit(lambda: method.init(KEY, stream, (dataset.spec,) * 2, 2))()
        state = method.begin(state, jnp.int32(1), batch, KEY)
        update = jax.jit(lambda state, key: method.update(state, batch, key))
        for number in range(2):
            state, logs = update(state, jax.random.fold_in(KEY, number))
        ends.append((state, logs))
    assert ends[0][1]["log_probability_prior" if isinstance(method, Comad) else "log_probability"] < 0
    for ours, theirs in zip(*map(jax.tree.leaves, ends), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5)
