import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comad.datasets.packing import Index, Packing, Pieces
from comad.errors import UserError


def plan(lengths: list[int], batch: int) -> Packing:
    steps = np.array(lengths, np.int32)
    return Packing.plan(np.concatenate([[0], np.cumsum(steps + 1)[:-1]]), steps, batch)


def episodes_of(packing: Packing, index: Index) -> list[int]:
    owner = np.repeat(np.arange(len(packing.lengths)), np.array(packing.lengths) + 1)
    return owner[np.asarray(index.moment)[np.asarray(index.first)]].tolist()


recordings = st.lists(st.integers(1, 50), min_size=64, max_size=400)


@settings(max_examples=40, deadline=None)
@given(lengths=recordings, seed=st.integers(0, 2**20), update=st.integers(0, 500))
def test_a_batch_holds_whole_episodes_each_once(lengths: list[int], seed: int, update: int) -> None:
    packing = plan(lengths, batch=16)
    index = packing.index(seed, 1, update)
    moment, first, step, present = (np.asarray(part) for part in (index.moment, index.first, index.step, index.present))
    found = episodes_of(packing, index)
    assert len(found) == len(set(found))
    whole = [np.arange(packing.starts[episode], packing.starts[episode] + lengths[episode] + 1) for episode in found]
    assert sorted(moment[present].tolist()) == sorted(np.concatenate(whole).tolist() if whole else [])
    # What follows a step is its successor in the recording, and never the start of another episode.
    rows, times = np.nonzero(step)
    assert (moment[rows, times + 1] == moment[rows, times] + 1).all() and not first[rows, times + 1].any()
    assert present[rows, times + 1].all() and not step[~present].any() and not first[~present].any()
    assert int((present & ~step).sum()) == len(found)


@settings(max_examples=20, deadline=None)
@given(lengths=recordings, seed=st.integers(0, 2**20))
def test_batches_hold_the_batch_size_on_average_and_every_episode_comes(lengths: list[int], seed: int) -> None:
    packing = plan(lengths, batch=16)
    epochs = 4 * packing.batches_per_epoch
    counts = np.bincount(
        np.concatenate([episodes_of(packing, packing.index(seed, 0, update)) for update in range(epochs)]), minlength=len(lengths)
    )
    # A few episodes fall out of an epoch, with the rows that fill no last batch; none does so again and again.
    assert counts.sum() / epochs == pytest.approx(16, rel=0.08)
    assert counts.max() <= 4 and (counts == 0).mean() < 0.05


def test_rows_that_would_hold_too_few_episodes_are_passed_over() -> None:
    packing = plan([50] * 100 + [2] * 44, 32)
    assert packing.placed > 0.9 and packing.rows * packing.row_length * packing.batches_per_epoch >= 0.8 * (100 * 51 + 44 * 3)


@settings(max_examples=40, deadline=None)
@given(long=st.integers(1, 60), short=st.integers(1, 60), batch=st.integers(1, 4), seed=st.integers(0, 2**20))
def test_no_batch_is_empty_however_unequal_episodes_are(long: int, short: int, batch: int, seed: int) -> None:
    packing = plan([50] * long + [1] * short, min(batch, long + short))
    for epoch in (0, 1):
        updates = range(epoch * packing.batches_per_epoch, (epoch + 1) * packing.batches_per_epoch)
        found = [episodes_of(packing, packing.index(seed, 0, update)) for update in updates]
        together = [episode for batch in found for episode in batch]
        assert all(found) and len(set(together)) == len(together)


def test_a_batch_depends_on_seed_task_and_update_only() -> None:
    packing, again = plan(list(range(1, 65)), 8), plan(list(range(1, 65)), 8)
    later = [packing.index(3, 1, update) for update in range(20)][17]
    assert (np.asarray(later.moment) == np.asarray(again.index(3, 1, 17).moment)).all()
    for other in (packing.index(4, 1, 17), packing.index(3, 2, 17), packing.index(3, 1, 18)):
        assert (np.asarray(other.moment) != np.asarray(later.moment)).any()


@pytest.mark.parametrize(
    "lengths",
    [
        np.clip(np.random.default_rng(0).poisson(2, 2000), 1, 6),
        np.where(np.random.default_rng(1).random(2000) < 0.95, 50, 20),
        np.where(np.random.default_rng(2).random(2000) < 0.1, 50, np.random.default_rng(3).integers(3, 8, 2000)),
    ],
    ids=["expert", "nearly all at the limit", "a few at the limit"],
)
def test_rows_are_well_filled(lengths: np.ndarray) -> None:
    packing = plan(lengths.tolist(), 32)
    filled = [np.asarray(packing.index(0, 0, update).present).mean() for update in range(packing.batches_per_epoch)]
    assert 1 - np.mean(filled) == pytest.approx(packing.padding, abs=0.02)
    assert packing.padding < 0.07


def test_a_batch_larger_than_the_dataset_is_refused() -> None:
    with pytest.raises(UserError, match="a batch of 32 episodes cannot be drawn from 3"):
        plan([1, 2, 3], 32)


@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=40), window=st.integers(1, 7), seed=st.integers(0, 2**20))
def test_pieces_hold_every_step_once_with_the_moment_after_it(lengths: list[int], window: int, seed: int) -> None:
    starts = np.concatenate([[0], np.cumsum(np.array(lengths) + 1)[:-1]])
    packing = Pieces(tuple(starts.tolist()), tuple(lengths), batch=window, window=window)  # one row per batch
    assert packing.rows == 1 and packing.row_length == window + 1
    taken: list[int] = []
    for update in range(packing.batches_per_epoch):
        index = packing.index(seed, 1, update)
        moment, step, present, first = (np.asarray(part)[0] for part in (index.moment, index.step, index.present, index.first))
        assert (np.diff(moment[present]) == 1).all() and step.sum() == present.sum() - 1 and not step[-1]
        assert first.any() == (moment[0] in starts) and not first[1:].any()
        taken += moment[step].tolist()
    steps = [start + step for start, length in zip(starts.tolist(), lengths, strict=True) for step in range(length)]
    assert sorted(taken) == steps
    filled = len(steps) + packing.batches_per_epoch
    assert packing.padding == pytest.approx(1 - filled / (packing.batches_per_epoch * (window + 1)))


def test_pieces_of_some_episodes_are_of_these_only() -> None:
    packing = Pieces((0, 11, 22), (10, 10, 10), batch=64, window=1)
    index = packing.only(np.array([1])).index(0, 0, 5)
    # Fewer steps than a batch holds: they come again and again.
    assert index.moment.shape == (64, 2) and set(np.asarray(index.moment)[:, 0].tolist()) == set(range(11, 21))
