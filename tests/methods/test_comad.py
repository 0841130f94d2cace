from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from learners import vectors
from recorded import FULL_VIEW, record

from comad import streams
from comad.continual import omiga
from comad.continual.method import Method, Recognizes
from comad.continual.omiga import Critics
from comad.datasets.batches import gather, upload
from comad.datasets.packing import Packing
from comad.errors import UserError
from comad.methods import METHODS, descent, find
from comad.methods.comad import Comad, ComadState
from comad.methods.learned import Learned
from comad.networks.critics import mix
from comad.networks.heads import pick
from comad.networks.layers import initialize
from comad.types import Batch

STREAM = streams.custom(["first", "second", "third"], threshold=1e9)
KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Batch:
    dataset = record(tmp_path_factory.mktemp("data") / "random")
    index = Packing.plan(dataset.starts, dataset.lengths, 8).index(0, 0, 0)
    return jax.jit(gather, static_argnums=0)(dataset.spec, upload(dataset), index)


@dataclass(frozen=True)
class Verbs:
    """The verbs of a method, compiled."""

    init: Any
    begin: Any
    update: Any
    finish: Any


def compiled(method: Comad, updates: int = 4) -> Verbs:
    init = jax.jit(partial(method.init, stream=STREAM, specs=(FULL_VIEW.spec,) * 3, updates=updates))
    return Verbs(init, jax.jit(method.begin), jax.jit(method.update), jax.jit(method.finish))


def same(first: Any, second: Any) -> bool:
    return all(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a == b).all()), first, second)))


def learn(verbs: Verbs, state: ComadState, task: int, batch: Batch, updates: int) -> tuple[ComadState, list[dict[str, Any]]]:
    state, logs = verbs.begin(state, jnp.int32(task), batch, KEY), []
    for update in range(updates):
        state, log = verbs.update(state, batch, jax.random.fold_in(KEY, update))
        logs.append(log)
    return verbs.finish(state, jnp.int32(task), batch, KEY), logs


def distance(first: Any, second: Any) -> float:
    """Squared."""
    return sum(float(((a - b) ** 2).sum()) for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True))


def head_of(learned: Learned, head: int) -> Any:
    return pick((learned.actor.head, learned.familiarity.head), head)


def test_a_second_task_leaves_the_first_ones_head_untouched_to_the_bit(batch: Batch) -> None:
    assert isinstance(Comad(), Method) and isinstance(Comad(), Recognizes)
    verbs = compiled(Comad())
    first, logs = learn(verbs, verbs.init(KEY), 0, batch, 4)
    assert all(np.isfinite(value) for log in logs for value in log.values())
    second, logs = learn(verbs, first, 1, batch, 4)
    # d0 is out of reach, so a head was opened; both learned, one did not move any more, one has not moved yet.
    assert int(second.library.used) == 2 and second.library.head_of_task.tolist() == [0, 1, -1]
    assert same(head_of(first.learned, 0), head_of(second.learned, 0))
    assert not same(head_of(first.learned, 1), head_of(second.learned, 1))
    assert same(head_of(first.learned, 2), head_of(second.learned, 2))
    # The anchor stays where the trunks were after the first task; they have moved on, but hardly.
    assert same(second.anchor, (first.learned.actor.trunk, first.learned.familiarity.trunk))
    assert 0 < distance(second.learned.actor.trunk, second.anchor[0]) < 0.05
    assert same(second.learned.familiarity.trunk, second.anchor[1])
    heads = Comad().describe(second)
    assert (int(heads["before"]), int(heads["used"]), int(heads["active"])) == (1, 2, 1)
    assert np.isfinite(Comad().familiarity(second, batch.state)).all((1, 2)).tolist() == [True, True, False]
    # The actor's policies were kept when the second stage began.
    assert 0 < distance(second.snapshot.trunk, second.learned.actor.trunk) < 0.05
    assert not same(second.snapshot, first.snapshot)
    # Half-way through the second task old skills begin to speak, and the weights of actions are no longer near one.
    assert [float(log["weight"]) > 0.9 for log in logs] == [True, True, False, False]


@pytest.mark.parametrize(
    ("actions", "setting", "heard"),
    [("numbered", "numbered", True), ("numbered", "never", False), ("vectors", "numbered", False), ("vectors", "always", True)],
)
def test_a_head_that_learns_alone_is_guided_by_itself_or_by_nobody(actions: str, setting: Any, heard: bool, batch: Batch) -> None:
    spec, recorded = (FULL_VIEW.spec, batch) if actions == "numbered" else vectors()
    method = Comad(hears_itself=setting)
    state = method.begin(method.init(KEY, STREAM, (spec,) * 3, 4), jnp.int32(0), recorded, KEY)
    assert bool((jax.jit(method.guide)(state, recorded.acted, KEY) != 0).any()) == heard


@pytest.mark.slow
@pytest.mark.parametrize("method", [Comad(skill="none", reuse="softmax"), Comad(skill="categorical", live_guidance=True, recurrent=False)])
def test_variants_learn_and_act_within_what_is_available(method: Comad, batch: Batch) -> None:
    verbs = compiled(method)
    state, _ = learn(verbs, verbs.init(KEY), 0, batch, 4)
    state, logs = learn(verbs, state, 1, batch, 4)
    assert float(logs[-1]["q_loss"]) < float(logs[0]["q_loss"])
    row, time = (index[0] for index in np.nonzero(np.asarray(batch.step)))
    tokens = jax.tree.map(lambda leaf: leaf[row, time], batch.tokens)
    act = jax.jit(jax.vmap(method.act, in_axes=(None, None, None, None, None, None, 0)))
    only = jnp.array([[False, False, True, False, False], [True, False, False, False, True]])
    for greedy in (False, True):
        actions, _ = act(state, method.start(state, 2), tokens, only, jnp.int32(1), jnp.array(greedy), jax.random.split(KEY, 64))
        assert set(np.asarray(actions[:, 0]).tolist()) == {2} and set(np.asarray(actions[:, 1]).tolist()) <= {0, 4}
        assert (len(set(np.asarray(actions[:, 1]).tolist())) == 1) == greedy


def test_the_critics_learn_from_the_next_moment_and_not_past_the_end(batch: Batch) -> None:
    online, target = (jax.jit(partial(initialize, partial(Critics.create, spec=FULL_VIEW.spec)))(jax.random.key(seed)) for seed in (1, 2))
    losses = jax.jit(partial(omiga.critic_losses, temperature=10.0, discount=0.9))
    q_loss, _, exponent = losses(online, target, batch)
    weight, bias = target.mixer(batch.state)
    following = np.asarray(mix(weight, bias, target.v(batch.tokens)))
    own_weight, own_bias = online.mixer(batch.state)
    team = np.asarray(mix(own_weight, own_bias, online.q(batch.tokens, batch.actions)))
    step, ends, reward = (np.asarray(part) for part in (batch.step, batch.terminated, batch.reward))
    errors = []
    for row, time in np.argwhere(step):
        goal = reward[row, time] + (0.0 if ends[row, time] else 0.9 * following[row, time + 1])
        errors.append((team[row, time] - goal) ** 2)
    assert float(q_loss) == pytest.approx(np.mean(errors), rel=1e-4)
    expected = np.asarray(weight) * (np.asarray(target.q(batch.tokens, batch.actions)) - np.asarray(online.v(batch.tokens))) / 10.0
    assert np.allclose(exponent, np.clip(expected, -10, 10)[:, :-1], atol=1e-5)


def test_each_critic_loss_moves_its_own_networks_only(batch: Batch) -> None:
    online = jax.jit(partial(initialize, partial(Critics.create, spec=FULL_VIEW.spec)))(KEY)

    def loss(online: Critics, which: int) -> Any:
        return omiga.critic_losses(online, online, batch, 10.0, 0.9)[which]

    def touched(tree: Any) -> bool:
        return any(bool((leaf != 0).any()) for leaf in jax.tree.leaves(tree))

    for which, moves in ((0, (True, True, False)), (1, (False, False, True))):
        gradient = jax.jit(jax.grad(partial(loss, which=which)))(online)
        assert (touched(gradient.q), touched(gradient.mixer), touched(gradient.v)) == moves


def test_a_gradient_is_shortened_to_the_limit_and_pulled_to_the_anchor() -> None:
    tree = {"a": jnp.full((3, 4), 2.0), "b": jnp.full(4, 2.0)}
    for largest, expected in ((4.0, 1.0), (8.0, 2.0), (9.0, 2.0)):
        found, norm = descent.clip(tree, largest)
        assert float(norm) == pytest.approx(8.0) and np.allclose(found["a"], expected) and np.allclose(found["b"], expected)
    anchor = jax.tree.map(lambda leaf: leaf - 0.5, tree)
    pulled, drift = descent.pull(jax.tree.map(jnp.zeros_like, tree), tree, anchor, jnp.float32(3.0))
    written = jax.grad(lambda tree: 3.0 * sum(((tree[name] - anchor[name]) ** 2).sum() for name in tree))(tree)
    assert float(drift) == pytest.approx(distance(tree, anchor)) and np.allclose(pulled["a"], written["a"])


def test_methods_are_found_by_name() -> None:
    assert [find(name) for name in METHODS] == list(METHODS.values())
    with pytest.raises(UserError, match="there is no method named 'comat'; did you mean comad"):
        find("comat")


def test_a_jolt_goes_exactly_so_far() -> None:
    tree = {"a": jnp.ones((3, 4)), "b": jnp.zeros(5)}
    jolted = omiga.jolt(tree, 0.01, KEY)
    assert distance(jolted, tree) == pytest.approx(1e-4, rel=1e-4)
