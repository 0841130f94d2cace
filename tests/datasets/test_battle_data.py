"""Battles are recorded without what agents see, which follows from the state."""

from pathlib import Path

import h5py
import jax
import numpy as np
import pytest
from battles import SMALL, battle_named, moments, playable
from recorded import record

from comad.datasets.batches import gather, upload
from comad.datasets.hdf5 import export_hdf5
from comad.datasets.packing import Packing


@playable
@pytest.mark.slow
def test_what_agents_see_is_made_from_the_recorded_state_as_it_was_shown(tmp_path: Path) -> None:
    env = battle_named(SMALL)
    dataset = record(tmp_path / "data", env, episodes=24, seed=1)
    assert not any(name.startswith("tokens") for name in dataset.arrays)
    _, shown, actions = moments(SMALL)  # the same 24 episodes, end to end
    assert (dataset.read("actions") == actions).all() and (dataset.read("available") == shown.available).all()

    index = Packing.plan(dataset.starts, dataset.lengths, 8).index(0, 0, 0)
    batch = jax.jit(gather, static_argnums=0)(dataset.spec, upload(dataset), index)
    at = np.asarray(index.moment)
    own, aimed = len(env.spec.own), len(env.spec.target)
    np.testing.assert_allclose(batch.tokens.own[..., :own], shown.tokens.own[at], atol=1e-6)
    np.testing.assert_allclose(batch.tokens.targets[..., :aimed], shown.tokens.targets[at], atol=1e-6)
    np.testing.assert_allclose(batch.tokens.allies, shown.tokens.allies[at], atol=1e-6)
    assert (np.asarray(batch.tokens.ally_seen) == shown.tokens.ally_seen[at]).all()
    assert (np.asarray(batch.tokens.target_seen) == shown.tokens.target_seen[at]).all()

    with h5py.File(export_hdf5(dataset, tmp_path / "battle.h5")) as file:
        flat = np.concatenate(
            [part.reshape(len(actions), 3, -1) for part in (shown.tokens.own, shown.tokens.allies, shown.tokens.targets)], -1
        )
        np.testing.assert_allclose(file["obs"][:][file["filled"][..., 0] == 1], flat, atol=1e-6)
