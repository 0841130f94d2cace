"""Moments that look the same are computed once, and nobody can tell."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from aiming import Aiming
from hypothesis import given, settings
from hypothesis import strategies as st
from learners import KEY, make
from recorded import FULL_VIEW, record

from comad.continual import omiga
from comad.datasets.batches import gather, upload
from comad.datasets.packing import Index, Packing
from comad.datasets.repeats import Repeats, alike
from comad.datasets.store import Dataset
from comad.methods import find
from comad.methods.comad import Comad
from comad.methods.comad_plus import ComadPlus
from comad.repeats import spread
from comad.tokens import draw_available
from comad.types import Actions, Batch, Moments, PRNGKey, Tokens


class Stuck(eqx.Module):
    """Some teams move at random; most, told by where their landmarks lie, never do."""

    def start(self, spec: Any) -> None:
        """Nothing to remember."""

    def act(self, memory: None, tokens: Tokens, available: jax.Array, key: PRNGKey) -> tuple[Actions, None]:
        """Action 0 is to stay."""
        return jnp.where(tokens.targets[0, 0, 0] > tokens.targets[0, 1, 0] + 0.5, draw_available(key, available), 0), None


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return record(tmp_path_factory.mktemp("stuck") / "data", FULL_VIEW, episodes=60, player=Stuck())


def packed(dataset: Dataset) -> Packing:
    return Packing.plan(dataset.starts, dataset.lengths, 8)


def found(dataset: Dataset) -> Repeats:
    repeats = Repeats.find(dataset, packed(dataset))
    assert repeats is not None
    return repeats


def both(dataset: Dataset, update: int = 0) -> tuple[Batch, Batch]:
    """The same batch, plain and with its distinct moments."""
    index = packed(dataset).index(0, 0, update)
    resident, marked = upload(dataset), found(dataset).mark([index])[0]
    assert marked.distinct is not None
    decode = jax.jit(gather, static_argnums=0)
    return decode(dataset.spec, resident, index), decode(dataset.spec, resident, marked)


def test_moments_are_alike_if_and_only_if_agents_see_and_do_the_same(dataset: Dataset) -> None:
    same = alike(dataset)
    assert same is not None
    count = len(same)
    begins = np.zeros((count, 1), bool)
    begins[np.asarray(dataset.starts)] = True
    index = Index(np.arange(count)[:, None], begins, np.ones((count, 1), bool), np.ones((count, 1), bool))
    batch = gather(dataset.spec, upload(dataset), index)
    shown = [np.asarray(leaf).reshape(count, -1) for leaf in jax.tree.leaves((batch.tokens, batch.state, batch.available, batch.actions))]
    _, expected = np.unique(np.concatenate(shown, axis=1), axis=0, return_inverse=True)
    pairs = set(zip(same.tolist(), expected.reshape(-1).tolist(), strict=True))
    assert len(pairs) == len(set(same.tolist())) == len(set(expected.reshape(-1).tolist())) < 0.7 * count


def test_every_moment_finds_what_it_shows_among_the_distinct_ones(dataset: Dataset) -> None:
    for update in range(10):
        plain, marked = both(dataset, update)
        assert marked.place is not None and int(marked.place.max()) < found(dataset).room < plain.step.size
        for ours, theirs in ((marked, plain), (marked.acted, plain.acted), (marked.following, plain.following)):
            handed, there = ours.once(lambda moments: moments), theirs.present
            shown = Moments(theirs.tokens, theirs.state, theirs.available, theirs.actions)
            for one, other in zip(jax.tree.leaves(handed), jax.tree.leaves(shown), strict=True):
                np.testing.assert_array_equal(np.asarray(one)[there], np.asarray(other)[there])


@settings(max_examples=8, deadline=None)
@given(distinct=st.integers(1, 9), rows=st.integers(1, 5), width=st.integers(1, 4), seed=st.integers(0, 99))
def test_the_gradient_of_handing_around_is_the_sum_of_what_comes_back(distinct: int, rows: int, width: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    place, values = random.integers(0, distinct, (rows, 3)), random.normal(size=(distinct, 2, width)).astype(np.float32)
    slope = random.normal(size=(rows, 3, 2, width)).astype(np.float32)
    handed, pull_back = jax.vjp(lambda values: spread(values, jnp.asarray(place)), jnp.asarray(values))
    np.testing.assert_array_equal(handed, values[place])
    expected = np.zeros_like(values)
    np.add.at(expected, place, slope)
    np.testing.assert_allclose(pull_back(jnp.asarray(slope))[0], expected, rtol=1e-5, atol=1e-5)


def test_critics_and_trunks_say_the_same_of_every_moment(dataset: Dataset) -> None:
    plain, marked = both(dataset)
    state = make(find("ft"))

    @jax.jit
    def say(batch: Batch) -> tuple[Any, Any]:
        online = state.net.critics
        return omiga.critic_losses(online, state.targets, batch, 10.0, 0.9), state.net.actor.trunk.look(batch).history

    (*losses, exponent), history = say(plain)
    (*other_losses, other_exponent), other_history = say(marked)
    np.testing.assert_allclose(other_losses, losses, rtol=1e-5)
    step, present = np.asarray(plain.acted.step), np.asarray(plain.present)
    np.testing.assert_allclose(np.asarray(other_exponent)[step], np.asarray(exponent)[step], atol=1e-6)
    np.testing.assert_allclose(np.asarray(other_history)[present], np.asarray(history)[present], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("method", [find("ft"), Comad(), ComadPlus()])
def test_learning_is_the_same_up_to_rounding(dataset: Dataset, method: Any) -> None:
    update, begin, ends = jax.jit(method.update), jax.jit(method.begin), []
    for batch in both(dataset):
        state = begin(make(method), jnp.int32(0), both(dataset)[0], KEY)
        for number in range(3):
            state, logs = update(state, batch, jax.random.fold_in(KEY, number))
        ends.append((state, logs))
    for ours, theirs in zip(*map(jax.tree.leaves, ends), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5)


def test_a_batch_without_room_is_left_as_it_is(dataset: Dataset) -> None:
    indices = [packed(dataset).index(0, 0, update) for update in range(3)]
    assert all(index.distinct is not None for index in found(dataset).mark(indices))
    narrow = Repeats(found(dataset).same, 1)
    assert narrow.mark(indices) == indices and indices[0].distinct is None


def test_what_hardly_repeats_or_is_real_is_left_alone(tmp_path: Path) -> None:
    random = record(tmp_path / "random", FULL_VIEW)
    assert alike(random) is not None and Repeats.find(random, packed(random)) is None
    assert alike(record(tmp_path / "aiming", Aiming(limit=5), episodes=5)) is None
