"""What every registered method owes the training loop, and how the methods relate to each other."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from learners import KEY, learn, make, same, small_batch

from comad import checkpoint
from comad.errors import UserError
from comad.methods import METHODS, find
from comad.methods.base import Lot, Method
from comad.methods.comad import Comad
from comad.methods.ewc import Ewc, fisher
from comad.methods.fs import Fs
from comad.methods.ft import Ft
from comad.methods.mt import Mt
from comad.methods.omiga import acting
from comad.methods.owl import Owl
from comad.methods.plain import PlainActor, PlainWeights
from comad.methods.rehearsal import Rehearsal
from comad.networks.heads import pick
from comad.settings import from_settings, settings
from comad.types import Batch


@pytest.fixture(scope="module")
def batch() -> Batch:
    return small_batch()


@pytest.mark.parametrize("name", METHODS)
def test_a_method_keeps_its_contract(name: str, batch: Batch) -> None:
    method = find(name)()
    assert isinstance(method, Method) and hash(method) == hash(find(name)())
    assert from_settings(find(name), settings(method)) == method
    state, logs = learn(method, 2)
    assert logs and all(np.isfinite(value) and value.shape == () for value in logs.values())
    assert all(isinstance(value, jax.Array) for value in method.describe(state).values())

    # Each agent takes only what is available to it; the likeliest is always the same, what is drawn is not.
    row, time = (index[0] for index in np.nonzero(np.asarray(batch.step)))
    tokens = jax.tree.map(lambda leaf: leaf[row, time], batch.tokens)
    only = jnp.array([[False, False, True, False, False], [True, True, True, True, True]])
    act = jax.jit(jax.vmap(partial(method.act, state, method.start(state, 2), tokens, only), in_axes=(None, None, 0)))
    head = jax.jit(method.route)(state, jnp.int32(0), batch)
    greedy, drawn = (np.asarray(act(head, jnp.array(mode), jax.random.split(KEY, 64))[0]) for mode in (True, False))
    assert set(greedy[:, 0].tolist()) == set(drawn[:, 0].tolist()) == {2}
    assert len(set(greedy[:, 1].tolist())) == 1 < len(set(drawn[:, 1].tolist()))


@pytest.mark.parametrize("name", METHODS)
def test_a_method_stopped_in_the_middle_of_a_task_ends_in_the_same_bytes(
    name: str,
    tmp_path: Path,
) -> None:
    method = find(name)()

    def stop(state: Any) -> Any:
        """Goes on from a file, as a process does that knows nothing but its settings."""
        checkpoint.save(tmp_path / "stopped", state)
        loaded = checkpoint.load(tmp_path / "stopped", make(method))
        assert jax.tree.map(jax.typeof, loaded) == jax.tree.map(jax.typeof, state)
        return loaded

    checkpoint.save(tmp_path / "whole", learn(method, 2)[0])
    checkpoint.save(tmp_path / "resumed", learn(method, 2, pause=stop)[0])
    whole = (tmp_path / "whole").read_bytes()
    assert (tmp_path / "stopped").read_bytes() != whole == (tmp_path / "resumed").read_bytes()


def close(first: Any, second: Any, relative: float, absolute: float) -> bool:
    """Whether two trees of numbers are the same but for rounding."""
    near = partial(np.allclose, rtol=relative, atol=absolute)
    return all(jax.tree.leaves(jax.tree.map(near, first, second)))


def test_comad_without_skills_expansion_guidance_and_anchor_is_fine_tuning() -> None:
    bare = Comad(skill="none", expand=False, stage_two=False, anchor=0.0)
    begun = make(bare).learned
    weights = PlainWeights(
        PlainActor(begun.actor.trunk, jax.tree.map(lambda leaf: leaf[:1], begun.actor.head.policy)),
        begun.critic,
        begun.value,
    )
    theirs = replace(make(Ft()), weights=weights, targets=make(bare).targets)
    ours, our_logs = learn(bare, 2, updates=3)
    theirs, logs = learn(Ft(), 2, updates=3, state=theirs)
    for name in ("q_loss", "v_loss", "policy_loss", "gradient_actor"):
        assert np.allclose(logs[name], our_logs[name], rtol=1e-4)
    mine, other = ours.learned, theirs.weights
    heads = pick(mine.actor.head.policy, 0), pick(other.actor.head, 0)
    pairs = (mine.actor.trunk, other.actor.trunk), heads, (mine.critics, other.critics)
    for pair in (*pairs, (ours.targets, theirs.targets)):
        assert close(*pair, 1e-3, 1e-5)


def weights_after(method: Any, tasks: int) -> Any:
    """What a method has learned from tasks of two updates each."""
    return learn(method, tasks, updates=2)[0].weights


def test_without_their_means_against_forgetting_the_baselines_are_fine_tuning() -> None:
    plain = weights_after(Ft(), 2)
    loose, firm = weights_after(Ewc(strength=0.0), 2), weights_after(Ewc(), 2)
    assert close(plain, loose, 1e-4, 1e-6) and not close(plain.actor, firm.actor, 1e-4, 1e-6)
    # On the first task a head per task is the same as one.
    alone, owl = weights_after(Ft(), 1), weights_after(Owl(), 1)
    assert close(alone.actor.trunk, owl.actor.trunk, 1e-4, 1e-6)
    assert close(alone.critics, owl.critics, 1e-4, 1e-6)


def test_owl_holds_its_trunk_and_leaves_other_heads_alone() -> None:
    first, firm, loose = (
        weights_after(Owl(), 1).actor,
        weights_after(Owl(), 2).actor,
        weights_after(Owl(anchor=0.0), 2).actor,
    )

    def moved(actor: Any) -> float:
        return float(optax.tree.norm(jax.tree.map(jnp.subtract, actor.trunk, first.trunk)))

    assert 0 < moved(firm) < 0.8 * moved(loose)
    assert same(pick(firm.head, 0), pick(first.head, 0)) and not same(pick(firm.head, 1), pick(first.head, 1))


def test_from_scratch_means_a_new_actor_for_every_task_but_the_first(batch: Batch) -> None:
    begin, fresh = jax.jit(Fs().begin), make(Fs())
    first = begin(fresh, jnp.int32(0), batch, KEY)
    second = begin(first, jnp.int32(1), batch, KEY)
    assert same(first.weights.actor, fresh.weights.actor) and same(first.weights.critics, fresh.weights.critics)
    moved = [not same(*pair) for pair in zip(*map(weights_of, (second.weights.actor, first.weights.actor)), strict=True)]
    assert all(moved), "every matrix is another"
    far = optax.tree.norm(jax.tree.map(jnp.subtract, second.weights.critics, first.weights.critics))
    assert 0 < float(far) < 0.1, "critics are only jolted"


def weights_of(tree: Any) -> list[Any]:
    """Its matrices, for shifts begin at zero everywhere."""
    return [leaf for leaf in jax.tree.leaves(tree) if leaf.ndim > 1]


def test_owl_refuses_a_stream_with_more_tasks_than_heads() -> None:
    with pytest.raises(UserError, match="has 2 tasks, and --heads 1 leaves no room"):
        make(Owl(heads=1))
    assert make(Owl(heads=3)).weights.actor.head.base.layers[0].bias.shape[0] == 3


def test_importance_is_the_expected_squared_slope(batch: Batch) -> None:
    # Of the bias before the softmax, a decision's Fisher information is p (1 - p), whatever comes before it.
    actor = make(Ft()).active.actor
    view = actor.trunk.look(batch)
    no_skill = jnp.zeros((*view.history.shape[:-1], 0))
    chance = jax.nn.softmax(actor.head.logits(view, no_skill, batch.available))
    valid = np.asarray(acting(batch))
    expected = np.asarray(chance * (1 - chance))[valid].mean(0)
    keys = jax.random.split(KEY, 200)
    drawn = jax.jit(jax.vmap(lambda key: fisher(actor, batch, key).head.base.layers[-1].bias))(keys)
    assert np.allclose(drawn.mean(0), expected, rtol=0.15)


def test_multi_task_learning_draws_a_task_for_every_update() -> None:
    lots = Mt().schedule(seed=1, task=2, num_tasks=4, update=100, count=400)
    assert sum(lot.count for lot in lots) == 400 and max(lot.count for lot in lots) <= 4
    counts = np.bincount([lot.source for lot in lots for _ in range(lot.count)], minlength=4)
    assert (np.abs(counts - 100) < 40).all()
    # However the time is cut into pieces, an update is on the same task.
    pieces = [Mt().schedule(1, 2, 4, first, 50) for first in range(100, 500, 50)]

    def sources(lots: Any) -> list[int]:
        return [lot.source for lot in lots for _ in range(lot.count)]

    assert [source for piece in pieces for source in sources(piece)] == sources(lots)


def test_rehearsal_adds_an_old_task_at_every_second_step() -> None:
    method = Rehearsal()
    assert method.schedule(1, 0, 4, 0, 50) == [Lot(0, 0, 50)]  # nothing is old yet
    assert Rehearsal(memory=0).schedule(1, 2, 4, 10, 50) == [Lot(2, 10, 50)]  # which is fine-tuning
    lots = method.schedule(1, 3, 4, 10, 50)
    new, old = ([lot for lot in lots if (lot.kept is not None) == kept] for kept in (False, True))
    assert [lot.first for lot in new] == list(range(10, 60, 2)) and all(lot == Lot(3, lot.first, 2) for lot in new)
    assert len(old) == 25 and {lot.source for lot in old} == {0, 1, 2} and {lot.kept for lot in old} == {128 // 3}
    assert [lot for first in range(10, 60, 10) for lot in method.schedule(1, 3, 4, first, 10)] == lots
