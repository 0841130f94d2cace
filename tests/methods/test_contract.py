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
from learners import KEY, learn, make, matrices, same, small_batch

from comad import checkpoint
from comad.continual.learner import Continual
from comad.continual.method import Method
from comad.continual.net import ActorHead
from comad.continual.omiga import acting
from comad.continual.schedules import AllTasks, DataBlock, Rehearse
from comad.errors import UserError
from comad.methods import METHODS, find, name_of
from comad.methods.comad import Comad
from comad.methods.ewc import Ewc, fisher
from comad.methods.owl import Owl
from comad.networks.heads import pick
from comad.settings import from_settings, settings
from comad.types import Batch

FT = find("ft")


@pytest.fixture(scope="module")
def batch() -> Batch:
    return small_batch()


@pytest.mark.parametrize("name", METHODS)
def test_a_method_keeps_its_contract(name: str, batch: Batch) -> None:
    method = find(name)
    assert isinstance(method, Method) and hash(method) == hash(find(name))
    assert from_settings(method, settings(method)) == method and name_of(method) == name
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
    method = find(name)

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
    begun, plain = make(bare).learned, make(FT)
    head = ActorHead(pick(begun.actor.head.policy, 0))
    actor = replace(plain.net.actor, trunk=begun.actor.trunk, head=head)
    net = replace(plain.net, actor=actor, critic=begun.critic, value=begun.value)
    theirs = replace(plain, heads=plain.heads.write(0, net), targets=make(bare).targets)
    ours, our_logs = learn(bare, 2, updates=3)
    theirs, logs = learn(FT, 2, updates=3, state=theirs)
    for name in ("q_loss", "v_loss", "policy_loss", "gradient_actor"):
        assert np.allclose(logs[name], our_logs[name], rtol=1e-4)
    mine, other = ours.learned, theirs.net
    heads = pick(mine.actor.head.policy, 0), other.actor.head.policy
    pairs = (mine.actor.trunk, other.actor.trunk), heads, (mine.critics, other.critics)
    for pair in (*pairs, (ours.targets, theirs.targets)):
        assert close(*pair, 1e-3, 1e-5)


def heads_after(method: Any, tasks: int) -> Any:
    """Returns what a method has learned from tasks of two updates each."""
    return learn(method, tasks, updates=2)[0].heads


def test_without_their_means_against_forgetting_the_baselines_are_fine_tuning() -> None:
    plain = heads_after(FT, 2).net(0)
    loose, firm = (heads_after(Continual(Ewc(strength)), 2).net(0) for strength in (0.0, 1e4))
    assert close(plain, loose, 1e-4, 1e-6) and not close(plain.actor, firm.actor, 1e-4, 1e-6)
    # On the first task a head per task is the same as one.
    alone, owl = heads_after(FT, 1).net(0), heads_after(find("owl"), 1).net(0)
    assert close(alone, owl, 1e-4, 1e-6)
    # Snapshots are told the task; what learns is the same.
    assert close(plain, heads_after(find("ft-snapshots"), 2).net(1), 1e-4, 1e-6)


def test_owl_holds_its_trunk_and_leaves_other_heads_alone() -> None:
    first, firm, loose = (
        heads_after(find("owl"), 1),
        heads_after(find("owl"), 2),
        heads_after(Continual(Owl(anchor=0.0)), 2),
    )

    def moved(heads: Any) -> float:
        trunks = heads.net(0).actor.trunk, first.net(0).actor.trunk
        return float(optax.tree.norm(jax.tree.map(jnp.subtract, *trunks)))

    assert 0 < moved(firm) < 0.8 * moved(loose)
    old, new = ([heads.net(number).actor.head for heads in (first, firm)] for number in (0, 1))
    assert same(*old) and not same(*new)


def test_from_scratch_means_a_new_actor_for_every_task_but_the_first(batch: Batch) -> None:
    begin, fresh = jax.jit(find("fs").begin), make(find("fs"))
    first = begin(fresh, jnp.int32(0), batch, KEY)
    second = begin(first, jnp.int32(1), batch, KEY)
    assert same(first.net.actor, make(FT).net.actor) and same(first.net.actor, fresh.net.actor)
    assert same(first.net.critics, fresh.net.critics)
    pairs = zip(*map(matrices, (second.net.actor, first.net.actor)), strict=True)
    assert all(not same(*pair) for pair in pairs), "every matrix is another"
    far = optax.tree.norm(jax.tree.map(jnp.subtract, second.net.critics, first.net.critics))
    assert 0 < float(far) < 0.1, "critics are only perturbed"


def test_owl_refuses_a_stream_with_more_tasks_than_heads() -> None:
    with pytest.raises(UserError, match="has 2 tasks, and --heads 1 leaves no room"):
        make(Continual(Owl(heads=1)))
    heads = make(Continual(Owl(heads=3))).heads.per_head
    assert {leaf.shape[0] for leaf in jax.tree.leaves(heads)} == {3}


def test_importance_is_the_expected_squared_slope(batch: Batch) -> None:
    # Of the bias before the softmax, a decision's Fisher information is p (1 - p), whatever comes before it.
    actor = make(FT).net.actor
    view = actor.trunk.look(batch)
    no_skill = jnp.zeros((*view.history.shape[:-1], 0))
    chance = jax.nn.softmax(actor.head.policy.logits(view, no_skill, batch.available))
    valid = np.asarray(acting(batch))
    expected = np.asarray(chance * (1 - chance))[valid].mean(0)
    keys = jax.random.split(KEY, 200)
    drawn = jax.jit(jax.vmap(lambda key: fisher(actor, batch, key).head.policy.base.layers[-1].bias))(keys)
    assert np.allclose(drawn.mean(0), expected, rtol=0.15)


def test_multi_task_learning_draws_a_task_for_every_update() -> None:
    blocks = AllTasks().blocks(seed=1, task=2, num_tasks=4, update=100, count=400)
    assert sum(block.count for block in blocks) == 400 and max(block.count for block in blocks) <= 4
    # However the time is cut into pieces, an update is on the same task.
    pieces = [AllTasks().blocks(1, 2, 4, first, 50) for first in range(100, 500, 50)]

    def sources(blocks: Any) -> list[int]:
        return [block.source for block in blocks for _ in range(block.count)]

    assert (np.abs(np.bincount(sources(blocks), minlength=4) - 100) < 40).all()
    assert [source for piece in pieces for source in sources(piece)] == sources(blocks)


def test_rehearsal_adds_an_old_task_at_every_second_step() -> None:
    data = find("rehearsal").data
    assert data.blocks(1, 0, 4, 0, 50) == [DataBlock(0, 0, 50)]  # nothing is old yet
    # Without memory it is fine-tuning.
    assert Rehearse(memory=0).blocks(1, 2, 4, 10, 50) == [DataBlock(2, 10, 50)]
    blocks = data.blocks(1, 3, 4, 10, 50)
    old = [block for block in blocks if block.kept is not None]
    new = [block for block in blocks if block.kept is None]
    assert [block.first for block in new] == list(range(10, 60, 2))
    assert all(block == DataBlock(3, block.first, 2) for block in new)
    assert len(old) == 25 and {block.source for block in old} == {0, 1, 2}
    assert {block.kept for block in old} == {128 // 3}
    pieces = [data.blocks(1, 3, 4, first, 10) for first in range(10, 60, 10)]
    assert [block for piece in pieces for block in piece] == blocks
