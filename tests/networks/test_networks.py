import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from scipy.stats import norm

from comad import pieces
from comad.envs.navigation import Navigation
from comad.networks import density, flat, skills
from comad.networks.attention import PROJECTION, WIDTH, Attention, ObservationEncoder, StateEncoder, likeness, mixture
from comad.networks.critics import ActionValue, LinearMixer, StateValue, mix
from comad.networks.density import DensityTrunk
from comad.networks.heads import create_heads, each, pick, put
from comad.networks.layers import Draws, Gru, LayerNorm, Linear, Mlp, initialize
from comad.networks.policy import ActionHead, Trunk, squashed_log_density
from comad.tokens import complete, full_view
from comad.types import Batch, Continuous, Discrete, Feature, Spec, StateTokens, Tokens

CN = Navigation(3, 8).spec
AIMING = dataclasses.replace(CN, num_targets=2, actions=Discrete(("stop", "go"), targeted="attack"))
VECTORS = dataclasses.replace(CN, actions=Continuous(("hip", "ankle")))
KEY = jax.random.key(0)


def random_tokens(spec: Spec, *lead: int) -> Tokens:
    own, allies, targets = (jax.random.normal(key, shape) for key, shape in zip(jax.random.split(KEY, 3), shapes(spec, lead), strict=True))
    seen = jnp.ones(allies.shape[:-1], bool), jnp.ones(targets.shape[:-1], bool)
    actions = jnp.zeros((*lead, spec.num_agents, 2)) if isinstance(spec.actions, Continuous) else jnp.zeros((*lead, spec.num_agents), int)
    return complete(Tokens(own, allies, targets, *seen), actions, spec)


def shapes(spec: Spec, lead: tuple[int, ...]) -> list[tuple[int, ...]]:
    agents = spec.num_agents
    return [(*lead, agents, 2), (*lead, agents, agents - 1, 2), (*lead, agents, spec.num_targets, 2)]


def random_state(spec: Spec, *lead: int) -> StateTokens:
    agents, targets = jax.random.normal(KEY, (*lead, spec.num_agents, 2)), jax.random.normal(KEY, (*lead, spec.num_targets, 2))
    return StateTokens(agents, targets, jnp.zeros((*lead, 0)), jnp.ones(agents.shape[:-1], bool), jnp.ones(targets.shape[:-1], bool))


def batch_of(tokens: Tokens, state: StateTokens, available: Array, actions: Array) -> Batch:
    """Rows in which somebody acts at every moment."""
    numbers, yes = jnp.zeros(tokens.own.shape[:2]), jnp.ones(tokens.own.shape[:2], bool)
    return Batch(tokens, state, available, actions, numbers, ~yes, ~yes, yes, yes, numbers)


def fresh(make: Any) -> Any:
    """A network with random weights, made in one compiled piece."""
    return jax.jit(partial(initialize, make))(KEY)


def call(network: Any, *arguments: Any, verb: str = "__call__") -> Any:
    """What a network (or one of its verbs) gives, computed in one compiled piece."""
    return jax.jit(lambda network, *arguments: getattr(network, verb)(*arguments))(network, *arguments)


def same(first: Any, second: Any) -> bool:
    return all(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a == b).all()), first, second)))


def test_layers_on_any_leading_axes_are_plain_products() -> None:
    layer = fresh(lambda draws: Linear.create(draws, 3, 2))
    x = jax.random.normal(KEY, (4, 5, 3))
    assert np.allclose(layer(x), np.asarray(x) @ np.asarray(layer.weight) + np.asarray(layer.bias), atol=1e-6)
    assert np.abs(layer.weight).max() <= 3**-0.5 and len(np.unique(layer.weight)) == 6
    found = jax.grad(lambda layer, x: jnp.sin(layer(x)).sum(), argnums=(0, 1))(layer, x)
    expected = jax.grad(lambda layer, x: jnp.sin(x @ layer.weight + layer.bias[None, None]).sum(), argnums=(0, 1))(layer, x)
    assert all(np.allclose(*pair, atol=1e-5) for pair in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True))
    normed = np.asarray(LayerNorm.create(3)(x))
    assert np.allclose(normed.mean(-1), 0, atol=1e-6) and np.allclose(normed.std(-1), 1, atol=1e-3)


def test_memory_over_time_is_step_by_step_and_starts_afresh_where_an_episode_begins() -> None:
    gru = fresh(lambda draws: Gru.create(draws, 4, 5))
    x = jax.random.normal(KEY, (2, 6, 3, 4))
    first = jnp.array([[True, False, False, True, False, False], [False] * 6])
    start = jax.random.normal(KEY, (2, 3, 5))
    memories, last = gru.over_time(start, x, first)
    memory = start
    for time in range(6):
        memory = jnp.where(first[:, time, None, None], 0.0, memory)
        memory = gru(memory, x[:, time])
        assert np.allclose(memories[:, time], memory, atol=1e-6)
    assert np.allclose(last, memory, atol=1e-6)


def test_folded_attention_is_the_written_formula() -> None:
    block = fresh(Attention.create)
    x = jax.random.normal(KEY, (2, 5, WIDTH))
    present = jnp.array([[True] * 5, [True, False, True, True, False]])
    scores = block.query(x) @ jnp.swapaxes(block.key(x), -1, -2) / np.sqrt(PROJECTION)
    scores = jnp.where(present[:, None], scores, -jnp.inf)
    expected = block.norm(x + jax.nn.softmax(scores) @ block.value(x))
    assert np.allclose(block(x, x, present[:, None]), expected, atol=1e-5)


def test_gradients_of_attention_are_those_of_the_written_sums() -> None:
    readers, entities = jax.random.normal(KEY, (2, 3, 4, WIDTH)), jax.random.normal(jax.random.key(1), (2, 3, 5, WIDTH))

    def slopes(of_pairs: Any, of_sums: Any) -> Any:
        def loss(readers: Array, entities: Array) -> Array:
            return jnp.sin(of_sums(jnp.tanh(0.1 * of_pairs(readers, entities)), entities)).sum()

        return jax.jit(jax.grad(loss, argnums=(0, 1)))(readers, entities)

    written = slopes(
        lambda a, b: (a[..., :, None, :] * b[..., None, :, :]).sum(-1), lambda w, b: (w[..., None] * b[..., None, :, :]).sum(-2)
    )
    assert all(np.allclose(one, other, atol=1e-4) for one, other in zip(slopes(likeness, mixture), written, strict=True))


@pytest.mark.parametrize("spec", [AIMING, VECTORS], ids=["aimed", "vectors"])
def test_putting_off_the_last_layer_of_embeddings_changes_nothing(spec: Spec) -> None:
    spec = dataclasses.replace(spec, full_view=False)
    encoder, tokens = fresh(lambda draws: ObservationEncoder.create(draws, spec)), random_tokens(spec, 2, 3)
    tokens = dataclasses.replace(tokens, ally_seen=jax.random.bernoulli(KEY, 0.5, tokens.ally_seen.shape))

    def written(encoder: ObservationEncoder) -> Array:
        own, _, entities, seen = encoder.entities(tokens)
        return encoder.attention(own, entities, seen)[..., 0, :]

    def put_off(encoder: ObservationEncoder) -> Array:
        return encoder.own_view(tokens)

    assert np.allclose(jax.jit(written)(encoder), jax.jit(put_off)(encoder), atol=1e-5)
    slopes = [jax.jit(jax.grad(lambda encoder, view=view: jnp.sin(view(encoder)).sum()))(encoder) for view in (written, put_off)]
    assert all(np.allclose(one, other, atol=1e-4) for one, other in zip(*map(jax.tree.leaves, slopes), strict=True))


def test_summaries_ignore_the_order_of_entities_and_what_is_not_seen() -> None:
    encoder = fresh(lambda draws: ObservationEncoder.create(draws, dataclasses.replace(CN, full_view=False)))
    tokens = random_tokens(CN, 4)
    own, _ = call(encoder, tokens)
    shuffled = dataclasses.replace(tokens, allies=tokens.allies[..., ::-1, :], targets=tokens.targets[..., ::-1, :])
    assert np.allclose(call(encoder, shuffled)[0], own, atol=1e-5)
    hidden = dataclasses.replace(tokens, target_seen=tokens.target_seen.at[..., 0].set(False))
    moved = dataclasses.replace(hidden, targets=hidden.targets.at[..., 0, :].add(5.0))
    assert same(call(encoder, hidden)[0], call(encoder, moved)[0]) and not np.allclose(call(encoder, hidden)[0], own, atol=1e-3)


@pytest.mark.parametrize("full_view", [True, False])
def test_through_relations_a_target_looks_at_the_team_that_is_there(full_view: bool) -> None:
    spec = dataclasses.replace(CN, full_view=full_view)
    encoder, plain = (fresh(lambda draws, on=on: ObservationEncoder.create(draws, spec, on)) for on in (True, False))
    assert encoder.relations is not None and plain.relations is None
    tokens = random_tokens(CN, 4)
    shuffled = dataclasses.replace(tokens, targets=tokens.targets[..., ::-1, :])
    assert np.allclose(call(encoder, shuffled)[0], call(encoder, tokens)[0], atol=1e-5)
    # Without relations and without looking at allies a target says the same whoever stands beside it.
    gone = dataclasses.replace(tokens, ally_seen=jnp.zeros_like(tokens.ally_seen))
    moved = dataclasses.replace(gone, allies=gone.allies + 1.0)
    if full_view:
        # There everyone is also an ally of somebody: the first agent is told of by the second.
        assert not np.allclose(call(encoder, tokens)[0], call(encoder, gone)[0], atol=1e-3)
    else:
        assert same(call(encoder, gone)[0], call(encoder, moved)[0])


@pytest.mark.parametrize("agents", [1, 3])
def test_where_all_see_all_sharing_what_they_see_changes_nothing(agents: int) -> None:
    spec = Navigation(agents, 8).spec
    state = random_state(spec, 5, 4)
    there = jax.random.bernoulli(KEY, 0.6, state.agent_present.shape), jax.random.bernoulli(KEY, 0.6, state.target_present.shape)
    state = dataclasses.replace(state, agent_present=there[0], target_present=there[1])
    tokens = complete(full_view(state), jax.random.randint(KEY, state.agents.shape[:-1], -1, 5), spec)
    shared = fresh(lambda draws: ObservationEncoder.create(draws, spec))
    alone = dataclasses.replace(shared, shared=False)
    assert shared.shared and np.allclose(call(shared, tokens)[0], call(alone, tokens)[0], atol=1e-5)

    def slope(encoder: ObservationEncoder) -> Any:
        return jax.jit(jax.grad(lambda encoder: jnp.sin(encoder(tokens)[0]).sum()))(encoder)

    for one, other in zip(jax.tree.leaves(slope(shared)), jax.tree.leaves(slope(alone)), strict=True):
        assert np.allclose(one, other, atol=1e-3)
    aiming = ObservationEncoder.create(Draws(), dataclasses.replace(AIMING, full_view=True))
    assert not aiming.shared


def test_one_set_of_weights_fits_every_team() -> None:
    trunk = fresh(lambda draws: Trunk.create(draws, CN))
    for agents in (2, 5):
        spec = Navigation(agents, 12).spec
        view, memory = call(trunk, trunk.start(3, agents), random_tokens(spec, 3, 4), jnp.zeros((3, 4), bool))
        assert view.history.shape == (3, 4, agents, WIDTH) and memory.shape == (3, agents, WIDTH)


def test_an_absent_entity_does_not_count_in_the_state() -> None:
    encoder = fresh(lambda draws: StateEncoder.create(draws, CN))
    state = random_state(CN, 4)
    gone = dataclasses.replace(state, target_present=state.target_present.at[..., 1].set(False))
    moved = dataclasses.replace(gone, targets=gone.targets.at[..., 1, :].add(3.0))
    assert same(call(encoder, gone), call(encoder, moved)) and not np.allclose(call(encoder, gone)[1], call(encoder, state)[1], atol=1e-3)


@pytest.mark.parametrize("spec", [CN, AIMING, VECTORS], ids=["numbered", "aimed", "vectors"])
def test_policies_and_critics_fit_every_kind_of_action(spec: Spec) -> None:
    tokens, state = random_tokens(spec, 2, 3), random_state(spec, 2, 3)
    trunk = fresh(lambda draws: Trunk.create(draws, spec))
    head = fresh(lambda draws: ActionHead.create(draws, spec, skill_size=4))
    view, _ = call(trunk, trunk.start(2, 3), tokens, jnp.zeros((2, 3), bool))
    skill, available = jnp.zeros((2, 3, 3, 4)), jnp.ones((2, 3, 3, spec.num_actions), bool)
    if spec.num_actions:
        available = available.at[..., -1].set(False)

    def said_of(actions: Array, verb: str = "log_probability") -> Any:
        return call(head, view, skill, batch_of(tokens, state, available, actions), verb=verb)

    if spec.num_actions:
        chances = jnp.stack([said_of(jnp.full((2, 3, 3), action)) for action in range(spec.num_actions)])
        assert np.allclose(jnp.exp(chances).sum(0), 1, atol=1e-5) and (np.exp(chances[-1]) == 0).all()
        said, likeliest = said_of(call(head, view, skill, available, verb="mode"), "judge")
        assert likeliest.all() and same(said, chances.max(0))
        assert not said_of(chances.argmin(0), "judge")[1].any()
    actions = call(head, view, skill, available, KEY, verb="sample")
    assert jnp.isfinite(said_of(actions)).all()
    # The likeliest has nothing against it, anything else the less likely it is, down to chance; of numbers it is the probability itself.
    likelihood = partial(said_of, verb="relative_log_probability")
    if spec.num_actions:
        assert same(likelihood(actions), said_of(actions))
    else:
        mean, log_spread = call(head, view, skill, verb="gaussian")
        assert np.allclose(likelihood(jnp.tanh(mean)), 0.0, atol=1e-5)
        for spreads, said in (([1.0, 0.5], -0.625), ([2.0, 1.0], -2 * np.log(2)), ([4.0, 9.0], -2 * np.log(2))):
            away = jnp.tanh(mean + jnp.array(spreads).reshape(1, 1, 1, 2) * jnp.exp(log_spread))
            assert np.allclose(likelihood(away), said, atol=1e-2)
    q, v = fresh(lambda draws: ActionValue.create(draws, spec)), fresh(lambda draws: StateValue.create(draws, spec))
    weight, bias = call(fresh(lambda draws: LinearMixer.create(draws, spec)), state)
    values = call(q, tokens, actions)
    assert values.shape == call(v, tokens).shape == weight.shape == (2, 3, 3)
    assert (np.asarray(weight) >= 0).all() and mix(weight, bias, values).shape == (2, 3)


def test_who_aims_is_judged_the_same_some_agents_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = dataclasses.replace(AIMING, num_targets=3)
    kinds = (Trunk, ActionHead, ActionValue, StateValue)
    networks = fresh(lambda draws: tuple(kind.create(draws, AIMING) for kind in kinds))  # for two targets, and so for any number
    state, tokens = random_state(spec, 2, 4), random_tokens(spec, 2, 4)
    fallen = dataclasses.replace(state, agent_present=state.agent_present.at[0, 1:, 0].set(False))
    # Of the first agent all targets are in reach, of the second the last, of the third none, so that pieces of all three kinds are there.
    reach = jnp.array([[True, True, True], [False, False, True], [False, False, False]]).reshape(1, 1, 3, 3)
    available = jnp.concatenate([jnp.ones((2, 4, 3, 2), bool), jnp.broadcast_to(reach, (2, 4, 3, 3))], axis=-1)
    batch = batch_of(tokens, fallen, available, jnp.broadcast_to(jnp.array([3, 4, 1]).reshape(1, 1, 3), (2, 4, 3)))

    def judge(networks: Any) -> Any:
        trunk, head, q, v = networks
        told = *head.judge(trunk.look(batch), jnp.zeros((2, 4, 3, 0)), batch), q.of(batch), v.of(batch)
        return jax.tree.map(lambda values: jnp.where(batch.there, values, 0.0), told)

    found = []
    monkeypatch.setattr(pieces, "FEW", 1)
    for entities in (10**6, 12):
        monkeypatch.setattr(pieces, "ENTITIES", entities)
        found.append((judge(networks), jax.jit(jax.grad(lambda networks: sum(map(jnp.sum, judge(networks)))))(networks)))
    for whole, cut in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(cut, whole, rtol=1e-4, atol=1e-4)


def test_without_memory_what_is_seen_goes_past_the_layers_of_the_trunk() -> None:
    tokens, trunk = random_tokens(VECTORS, 2, 3), fresh(lambda draws: Trunk.create(draws, VECTORS, recurrent=False))
    idle = dataclasses.replace(trunk, mlp=jax.tree.map(jnp.zeros_like, trunk.mlp))
    view, memory = call(idle, idle.start(2, 3), tokens, jnp.zeros((2, 3), bool))
    assert same(view.history, call(trunk.encoder, tokens)[0]) and memory.size == 0


def test_one_thing_beside_each_of_many_is_what_the_written_pairs_give() -> None:
    network = fresh(lambda draws: Mlp.create(draws, (5, 4, 1)))
    one, many = jax.random.normal(KEY, (2, 3, 2)), jax.random.normal(KEY, (2, 3, 6, 3))
    pairs = jnp.concatenate([jnp.broadcast_to(one[..., None, :], (2, 3, 6, 2)), many], axis=-1)
    assert np.allclose(call(network, one, many, verb="of_pairs"), call(network, pairs), atol=1e-6)


def test_an_aimed_action_is_worth_what_the_views_of_all_targets_say() -> None:
    tokens, critic = random_tokens(AIMING, 2, 3), fresh(lambda draws: ActionValue.create(draws, AIMING))
    own, targets = call(critic.encoder, tokens)
    aimed = jax.vmap(lambda target: call(critic.aimed, jnp.concatenate([own, target], axis=-1)), in_axes=-2, out_axes=-2)(targets)
    expected = jnp.concatenate([call(critic.base, own), aimed[..., 0]], axis=-1)
    found = jnp.stack([call(critic, tokens, jnp.full((2, 3, 3), action)) for action in range(4)], axis=-1)
    assert np.allclose(found, expected, atol=1e-5) and len(np.unique(np.round(found[0, 0, 0], 4))) == 4
    assert np.allclose(call(critic.encoder, tokens, verb="own_view"), own, atol=1e-5)


def test_hindsight_sees_who_is_aimed_at() -> None:
    state, trunk = random_state(AIMING, 2, 3), fresh(lambda draws: skills.PosteriorTrunk.create(draws, AIMING))
    first, second = (call(trunk, state, jnp.full((2, 3, 3), action)) for action in (2, 3))
    assert not np.allclose(first, second, atol=1e-4)


def test_the_squashed_density_is_scipys() -> None:
    raw, mean, log_spread = np.array([0.3, -1.2]), np.array([0.1, -1.0]), np.array([-0.5, 0.4])
    action = np.tanh(raw)
    expected = norm.logpdf(raw, mean, np.exp(log_spread)) - np.log(1 - action**2)
    found = squashed_log_density(*(jnp.asarray(part, jnp.float32) for part in (action, mean, log_spread)))
    assert float(found) == pytest.approx(expected.sum(), rel=1e-4)


def test_only_the_head_that_is_put_changes() -> None:
    heads = create_heads(lambda draws: Linear.create(draws, 2, 2), KEY, capacity=4)
    changed = put(heads, 2, jax.tree.map(lambda leaf: leaf + 1, pick(heads, 2)))
    assert [same(pick(heads, head), pick(changed, head)) for head in range(4)] == [True, True, False, True]
    outputs = each(heads, lambda head: head(jnp.ones(2)))
    assert outputs.shape == (4, 2) and len(np.unique(outputs)) == 8


@pytest.mark.parametrize("kind", ["gaussian", "categorical"])
def test_skills_differ_by_a_divergence_that_is_zero_only_at_home(kind: skills.Kind) -> None:
    here, there = (jax.random.normal(jax.random.key(seed), (1, 1, skills.parameter_size(kind, 3))) for seed in (1, 2))
    assert np.allclose(skills.divergence(kind, here, here), 0, atol=1e-6)
    found = float(skills.divergence(kind, here, there)[0, 0])
    drawn = jax.vmap(lambda key: skills.draw(kind, here, key))(jax.random.split(KEY, 20_000))
    difference = log_density(kind, here, drawn) - log_density(kind, there, drawn)
    assert found == pytest.approx(float(difference.mean()), abs=4 * float(difference.std()) / np.sqrt(20_000)) and found > 0


def log_density(kind: skills.Kind, parameters: jax.Array, drawn: jax.Array) -> np.ndarray:
    values = np.asarray(parameters)[None]
    if kind == "categorical":
        return (np.asarray(jax.nn.log_softmax(values)) * np.asarray(drawn)).sum(-1)
    return norm.logpdf(np.asarray(drawn), values[..., :3], np.exp(np.clip(values[..., 3:], -5, 2))).sum(-1)


def test_weights_survive_being_one_vector() -> None:
    heads = create_heads(lambda draws: Mlp.create(draws, (3, 2, 1)), KEY, capacity=2)
    vector = flat.ravel(heads)
    assert vector.shape == (flat.size(heads),) == (2 * (3 * 2 + 2 + 2 + 1),)
    assert same(flat.unravel(vector, heads), heads)


def test_recorded_and_noisy_are_told_apart_in_one_pass() -> None:
    trunk, head = fresh(lambda draws: DensityTrunk.create(draws, CN)), fresh(density.density_head)
    state = random_state(CN, 2, 3)
    found = jax.jit(density.tell)(trunk, head, state, density.perturb(state, 0.1, KEY))
    for odds, shown in zip(found, (state, density.perturb(state, 0.1, KEY)), strict=True):
        assert np.allclose(odds, head(trunk(shown))[..., 0], atol=1e-5)


@pytest.mark.parametrize("exact", ["thigh force x", "is stalker", "moves east", "attacks"])
def test_familiarity_is_blind_to_contacts_and_marks(exact: str) -> None:
    touching = dataclasses.replace(CN, state_agent=(Feature("angle"), Feature(exact)))
    state = random_state(touching, 2)
    felt = dataclasses.replace(state, agents=state.agents.at[..., 1].add(1.0))
    trunk = fresh(lambda draws: DensityTrunk.create(draws, touching))
    assert same(call(trunk, state), call(trunk, felt))
    assert not same(call(trunk, state), call(trunk, dataclasses.replace(state, agents=state.agents + 1.0)))
    seeing = fresh(lambda draws: DensityTrunk.create(draws, CN))
    assert seeing.sight is None and not same(call(seeing, state), call(seeing, felt))


def test_noise_touches_only_what_is_present_and_contrast_prefers_the_recorded() -> None:
    state = random_state(CN, 500)
    state = dataclasses.replace(state, target_present=state.target_present.at[..., 0].set(False))
    noisy = density.perturb(state, 0.1, KEY)
    assert same(noisy.targets[:, 0], state.targets[:, 0])
    assert float((noisy.agents - state.agents).std()) == pytest.approx(0.1, rel=0.1)
    assert density.contrast(jnp.float32(2.0), jnp.float32(-2.0)) < density.contrast(jnp.float32(-2.0), jnp.float32(2.0))
    assert float(density.contrast(jnp.float32(0.0), jnp.float32(0.0))) == pytest.approx(2 * np.log(2))
