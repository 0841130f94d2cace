"""What every registered method owes the training loop, and how the methods relate to each other."""

from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from learners import KEY, make, same, small_batch

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
from comad.methods.rehearsal import Rehearsal
from comad.networks.heads import pick
from comad.settings import from_settings, settings
from comad.types import Batch


@pytest.fixture(scope="module")
def batch() -> Batch:
    return small_batch()


# The first two take most to compile, FS is FT with another beginning, EWC and OWL are FT with a penalty, and COMAD and COMAD-plus are
# compiled by their own tests.
SLOW = {"hissd", "odis", "fs", "ewc", "owl", "comad", "comad-plus"}
EACH = [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in METHODS]


@pytest.mark.parametrize("name", EACH)
def test_a_method_keeps_its_contract(name: str, batch: Batch, tmp_path: Path) -> None:
    method = find(name)()
    assert isinstance(method, Method) and hash(method) == hash(find(name)())
    assert from_settings(find(name), settings(method)) == method
    begin, update, finish, route = (jax.jit(verb) for verb in (method.begin, method.update, method.finish, method.route))
    state = make(method)
    for task in range(2):
        state = begin(state, jnp.int32(task), batch, KEY)
        for number in range(2):
            state, logs = update(state, batch, jax.random.fold_in(KEY, number))
        assert all(np.isfinite(value) and value.shape == () for value in logs.values())
        state = finish(state, jnp.int32(task), batch, KEY)
    assert all(isinstance(value, jax.Array) for value in method.describe(state).values())

    # What is saved and loaded goes on to the same bits.
    checkpoint.save(tmp_path / "state.safetensors", state)
    loaded = checkpoint.load(tmp_path / "state.safetensors", make(method))
    assert same(update(state, batch, KEY), update(loaded, batch, KEY))

    # Each agent takes only what is available to it; the likeliest is always the same, what is drawn is not.
    row, time = (index[0] for index in np.nonzero(np.asarray(batch.step)))
    tokens = jax.tree.map(lambda leaf: leaf[row, time], batch.tokens)
    only = jnp.array([[False, False, True, False, False], [True, True, True, True, True]])
    act = jax.jit(jax.vmap(partial(method.act, state, method.start(state, 2), tokens, only), in_axes=(None, None, 0)))
    head = route(state, jnp.int32(0), batch)
    greedy, drawn = (np.asarray(act(head, jnp.array(mode), jax.random.split(KEY, 64))[0]) for mode in (True, False))
    assert set(greedy[:, 0].tolist()) == set(drawn[:, 0].tolist()) == {2}
    assert len(set(greedy[:, 1].tolist())) == 1 < len(set(drawn[:, 1].tolist()))


@pytest.mark.slow
def test_comad_without_skills_expansion_guidance_and_anchor_is_fine_tuning(batch: Batch) -> None:
    bare = Comad(skill="none", expand=False, stage_two=False, anchor=0.0)
    ours, theirs = make(bare), make(Ft())
    actor = ours.learned.actor
    theirs = eqx.tree_at(
        lambda state: (state.weights.actor.trunk, state.weights.actor.head, state.weights.critic, state.weights.value, state.targets),
        theirs,
        (
            actor.trunk,
            jax.tree.map(lambda leaf: leaf[:1], actor.head.policy),
            ours.learned.critic,
            ours.learned.value,
            ours.targets,
        ),
    )
    for method, state in ((bare, ours), (Ft(), theirs)):
        begin, update = jax.jit(method.begin), jax.jit(method.update)
        for task in range(2):
            state = begin(state, jnp.int32(task), batch, KEY)
            for number in range(3):
                state, logs = update(state, batch, jax.random.fold_in(KEY, number))
        if method is bare:
            ours, our_logs = state, logs
    theirs = state
    for name in ("q_loss", "v_loss", "policy_loss", "gradient_actor"):
        assert np.allclose(logs[name], our_logs[name], rtol=1e-4)
    head = pick(ours.learned.actor.head.policy, 0)
    pairs = ((ours.learned.actor.trunk, theirs.weights.actor.trunk), (head, pick(theirs.weights.actor.head, 0)))
    for mine, other in (*pairs, (ours.learned.critics, theirs.weights.critics), (ours.targets, theirs.targets)):
        assert all(jax.tree.leaves(jax.tree.map(lambda a, b: np.allclose(a, b, rtol=1e-3, atol=1e-5), mine, other)))


def run(method: Any, batch: Batch, tasks: int) -> Any:
    """Tasks of two updates each, on one batch."""
    begin, update, finish = (jax.jit(verb) for verb in (method.begin, method.update, method.finish))
    state = make(method)
    for task in range(tasks):
        state = begin(state, jnp.int32(task), batch, KEY)
        for number in range(2):
            state, _ = update(state, batch, jax.random.fold_in(KEY, number))
        state = finish(state, jnp.int32(task), batch, KEY)
    return state


@pytest.mark.slow
def test_without_their_means_against_forgetting_the_baselines_are_fine_tuning(batch: Batch) -> None:
    plain = run(Ft(), batch, 2).weights
    loose = run(Ewc(strength=0.0), batch, 2).weights
    firm = run(Ewc(), batch, 2).weights
    close = partial(jax.tree.map, partial(np.allclose, rtol=1e-4, atol=1e-6))
    assert all(jax.tree.leaves(close(plain, loose))) and not all(jax.tree.leaves(close(plain.actor, firm.actor)))
    # On the first task a head per task is the same as one.
    alone, owl = run(Ft(), batch, 1).weights, run(Owl(), batch, 1).weights
    assert all(jax.tree.leaves(close(alone.actor.trunk, owl.actor.trunk))) and all(jax.tree.leaves(close(alone.critics, owl.critics)))


@pytest.mark.slow
def test_owl_holds_its_trunk_and_leaves_other_heads_alone(batch: Batch) -> None:
    first, firm, loose = (
        run(Owl(), batch, 1).weights.actor,
        run(Owl(), batch, 2).weights.actor,
        run(Owl(anchor=0.0), batch, 2).weights.actor,
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
