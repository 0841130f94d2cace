"""The peer in PyTorch computes what we compute: the same losses on the same episodes, update after update, ours packed and its padded.

Noise is made constant on both sides, because they draw it in different shapes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from recorded import record

from comad import streams
from comad.bench import eager_step
from comad.datasets.batches import gather, upload
from comad.datasets.packing import Packing
from comad.datasets.store import Dataset
from comad.envs.navigation import Navigation
from comad.errors import UserError
from comad.methods.comad import Comad, ComadState
from comad.types import Batch, Continuous, Discrete

torch = pytest.importorskip("torch", reason="PyTorch is in the extra `bench`, not in `dev`")

# Targets follow fast enough for a mistake in it to show within a few updates.
METHOD = Comad(target_rate=0.3, freeze_density=False)
# Short of sight, so that masks matter, and easy, so that some episodes end early.
ENV = Navigation(2, 6, limit=9, sight=2)
SPEC = ENV.spec
UPDATES = 100
KEY = jax.random.key(0)


@dataclass(frozen=True)
class Ours:
    """Our side of the comparison."""

    dataset: Dataset
    episodes: np.ndarray
    batch: Batch
    """Those episodes, packed."""
    update: Any
    states: tuple[ComadState, ComadState]
    """At the start of the first and of the second task."""


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ours]:
    dataset = record(tmp_path_factory.mktemp("data") / "random", ENV)
    index = Packing.plan(dataset.starts, dataset.lengths, 8).index(0, 0, 0)
    episodes = np.searchsorted(dataset.starts, index.moment[index.first])
    assert len(episodes) > len(index.moment), "some row should hold more than one episode"
    batch = jax.jit(gather, static_argnums=0)(SPEC, upload(dataset), index)
    stream = streams.custom(["first", "second", "third"], threshold=1e9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax.random, "normal", lambda key, shape=(): jnp.full(shape, 0.7))
        patch.setattr(torch, "randn_like", lambda like: torch.full_like(like, 0.7))
        begin, update = jax.jit(METHOD.begin), jax.jit(METHOD.update)
        first = begin(jax.jit(partial(METHOD.init, stream=stream, specs=(SPEC,) * 3, updates=UPDATES))(KEY), jnp.int32(0), batch, KEY)
        state = first
        for _ in range(5):
            state, _ = update(state, batch, KEY)
        second = begin(jax.jit(METHOD.finish)(state, jnp.int32(0), batch, KEY), jnp.int32(1), batch, KEY)
        yield Ours(dataset, episodes, batch, update, (first, second))


@pytest.mark.parametrize(("task", "stage"), [(0, 1), (1, 1), (1, 2)])
def test_losses_are_ours_update_after_update(ours: Ours, task: int, stage: Literal[1, 2]) -> None:
    state = replace(ours.states[task], update=jnp.int32(UPDATES // 2 if stage == 2 else 0))
    learner = eager_step.Learner(SPEC, METHOD, task, stage)
    learner.load_weights(state)
    batch = eager_step.load_batch(SPEC, ours.dataset, ours.episodes, SPEC.limit + 1)
    assert not bool(batch.present.all()), "some row should be padded"
    for update in range(5):
        losses = learner.update(batch)
        state, logs = ours.update(state, ours.batch, KEY)
        for name in losses.keys() - {"total"}:
            # Weights that only decay drift by rounding errors, which the anchor and Adam's division then make large.
            tolerance = 1e-2 if name == "drift" else 1e-4
            assert losses[name].item() == pytest.approx(float(logs[name]), rel=tolerance, abs=1e-9), (update, name)


def test_a_prepared_step_learns_and_can_be_timed(ours: Ours) -> None:
    assert eager_step.available()
    step = eager_step.prepare(SPEC, ours.dataset, 4, seed=0)
    before = step()
    assert eager_step.measure(step, seconds=0.01) > 0
    assert step() < before


def test_other_actions_are_refused() -> None:
    for actions in (Continuous(("force",)), Discrete(("stay",), "attack")):
        with pytest.raises(UserError, match="numbered actions without targets"):
            eager_step.Learner(replace(SPEC, actions=actions), METHOD)
