from pathlib import Path

import jax
import numpy as np
import pytest
from aiming import Aiming
from recorded import FULL_VIEW, SHORT_SIGHT, record

from comad.datasets.batches import gather, upload
from comad.datasets.packing import Packing, Pieces
from comad.datasets.store import Dataset
from comad.envs.navigation import Navigation
from comad.types import Batch


def batch_of(dataset: Dataset) -> tuple[Batch, np.ndarray]:
    index = Packing.plan(dataset.starts, dataset.lengths, 8).index(0, 0, 3)
    return jax.jit(gather, static_argnums=0)(dataset.spec, upload(dataset), index), np.asarray(index.moment)


@pytest.mark.parametrize("env", [FULL_VIEW, SHORT_SIGHT], ids=["full view", "short sight"])
def test_a_batch_says_what_the_dataset_says(tmp_path: Path, env: Navigation) -> None:
    dataset = record(tmp_path / "data", env)
    batch, moment = batch_of(dataset)
    assert (np.asarray(batch.state.agents) == dataset.read("state.agents")[moment]).all()
    assert (np.asarray(batch.state.target_present) == dataset.read("state.target_present")[moment]).all()
    assert (np.asarray(batch.available) == dataset.read("available")[moment]).all()
    assert (np.asarray(batch.actions) == dataset.read("actions")[moment]).all()
    assert batch.tokens.own.shape[-1] == env.spec.own_size
    if not env.spec.full_view:
        assert (np.asarray(batch.tokens.targets) == dataset.read("tokens.targets")[moment]).all()
        assert (np.asarray(batch.tokens.ally_seen) == dataset.read("tokens.ally_seen")[moment]).all()


def test_rewards_and_ends_stand_with_the_steps_that_earned_them(tmp_path: Path) -> None:
    batch, _ = batch_of(record(tmp_path / "data"))
    step, terminated, reward = (np.asarray(part) for part in (batch.step, batch.terminated, batch.reward))
    assert not reward[~step].any() and not terminated[~step].any()
    # In CN every episode ends for good, and only its last step can earn anything.
    assert terminated.sum() == np.asarray(batch.first).sum()
    assert not reward[~terminated].any() and reward.any()


def test_the_last_action_is_the_one_before_and_none_at_the_start(tmp_path: Path) -> None:
    batch, _ = batch_of(record(tmp_path / "data"))
    told, first, present = np.asarray(batch.tokens.own)[..., -5:], np.asarray(batch.first), np.asarray(batch.present)
    assert not told[first].any()
    rows, times = np.nonzero(present & ~first)
    assert (told[rows, times].argmax(-1) == np.asarray(batch.actions)[rows, times - 1]).all()
    assert (told[rows, times].sum(-1) == 1).all()


def test_an_outcome_is_its_episodes_return_in_standard_deviations(tmp_path: Path) -> None:
    dataset = record(tmp_path / "data")
    batch, moment = batch_of(dataset)
    reward, episode = dataset.read("reward"), np.repeat(np.arange(len(dataset.lengths)), np.asarray(dataset.lengths) + 1)
    totals = np.bincount(episode, reward)
    assert totals.std() > 0
    expected = ((totals - totals.mean()) / totals.std())[episode[moment]] * np.asarray(batch.present)
    assert np.allclose(batch.outcome, expected, atol=1e-5) and np.asarray(batch.outcome).any()


def test_a_piece_knows_what_was_done_before_it_and_that_value_lies_beyond_a_limit(tmp_path: Path) -> None:
    dataset = record(tmp_path / "data", Aiming(limit=5, edge=1.6), episodes=30)
    packing = Pieces(tuple(dataset.starts.tolist()), tuple(dataset.lengths.tolist()), 32, window=1)
    index = packing.index(0, 0, 1)
    batch = jax.jit(gather, static_argnums=0)(dataset.spec, upload(dataset), index)
    moment, first, actions = np.asarray(index.moment), np.asarray(index.first)[:, 0], dataset.read("actions")
    told = np.asarray(batch.tokens.own)[..., -1:]
    assert first.any() and not first.all()
    np.testing.assert_array_equal(told[:, 0][first], 0.0)
    np.testing.assert_array_equal(told[:, 0][~first], actions[moment[:, 0] - 1][~first])
    np.testing.assert_array_equal(told[:, 1], actions[moment[:, 0]])
    # The last step of an episode is terminal where it fell, and not where time was up.
    ends = dict(zip((np.asarray(dataset.starts) + dataset.lengths - 1).tolist(), dataset.read("episode.terminated").tolist(), strict=True))
    assert np.asarray(batch.terminated)[:, 0].tolist() == [ends.get(at, False) for at in moment[:, 0].tolist()]
    assert len(set(ends.values())) == 2
