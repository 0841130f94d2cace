"""COMAD-plus: what each of its departures promises."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learners import KEY, make, same, small_batch, vectors
from recorded import FULL_VIEW

from comad import streams
from comad.continual.method import Method, Portrays
from comad.continual.omiga import acting
from comad.methods.acquaintance import SITUATIONS, Acquaintance, odds_of
from comad.methods.bands import TENTHS, Bands, distance
from comad.methods.comad_plus import ComadPlus
from comad.methods.families import PlusState
from comad.methods.weights import SHARPEST, Preference, merit, sharpest, weigh
from comad.networks.flat import ravel
from comad.networks.heads import pick
from comad.tokens import draw_available
from comad.types import Batch, Spec

STRICT = ComadPlus(reuse=False, multipliers=False)
"""Never uses a head again, and listens to all, though nobody has learned much in four updates."""


@pytest.fixture(scope="module")
def batch() -> Batch:
    return small_batch()


@pytest.fixture(scope="module")
def grown(batch: Batch) -> tuple[PlusState, PlusState, PlusState, list[dict[str, Any]]]:
    """A state after its first task, at the beginning of its second, and after it, with that one's logs."""
    begin, update, finish = (jax.jit(verb) for verb in (STRICT.begin, STRICT.update, STRICT.finish))
    state, states, logs = make(STRICT), [], []
    for task in range(2):
        state = begin(state, jnp.int32(task), batch, KEY)
        states.append(state)
        for number in range(4):
            state, log = update(state, batch, jax.random.fold_in(KEY, number))
            logs.append(log)
        state = finish(state, jnp.int32(task), batch, KEY)
        states.append(state)
    return states[1], states[2], states[3], logs[4:]


def test_a_new_family_begins_as_its_parent_and_the_parent_keeps_every_bit(grown: Any) -> None:
    first, begun, second, logs = grown
    assert isinstance(STRICT, Method) and isinstance(STRICT, Portrays)
    assert begun.library.head_of_task.tolist() == [0, 1] and int(begun.library.used) == 2
    assert same(pick(begun.actors, 1), pick(first.actors, 0)) and not same(pick(first.actors, 1), pick(first.actors, 0))
    assert same(pick((second.actors, second.familiarities), 0), pick((first.actors, first.familiarities), 0))
    assert not same(pick(second.actors, 1), pick(begun.actors, 1))
    # Old skills speak in the second half of the task, and only then.
    spreads = [float(log["weight_spread"]) for log in logs]
    assert 10 * abs(spreads[1] - spreads[0]) < abs(spreads[2] - spreads[1])
    assert all(float(log["weight"]) == pytest.approx(1.0, abs=0.05) for log in logs[:2])


@pytest.mark.parametrize(("averaged", "shares"), [(1, [1.0, 1.0, 1.0, 1.0]), (2, [1.0, 2 / 3, 0.5, 0.5]), (100, [1.0, 2 / 3, 0.5, 0.4])])
def test_what_plays_is_a_mean_of_what_was_learned_lately(grown: Any, batch: Batch, averaged: int, shares: list[float]) -> None:
    method, (first, state, *_) = replace(STRICT, averaged=averaged), grown
    assert same(pick((state.actors, state.familiarities), 1), state.learner), "a task begins with what its family is"
    update, expected = jax.jit(method.update), np.zeros(1)
    for number, share in enumerate(shares):
        state, _ = update(state, batch, jax.random.fold_in(KEY, number))
        expected = (1.0 - share) * expected + share * np.asarray(ravel(state.learner))
        assert np.asarray(ravel(pick((state.actors, state.familiarities), 1))) == pytest.approx(expected, abs=1e-6)
    assert same(pick(state.actors, 1), state.learner[0]) == (averaged == 1)
    assert same(pick(state.actors, 0), pick(first.actors, 0))


@pytest.mark.slow
def test_what_is_inherited_is_a_setting(grown: Any, batch: Batch) -> None:
    first = grown[0]
    for inherit in ("trunk", "nothing"):
        begun = jax.jit(replace(STRICT, inherit=inherit).begin)(first, jnp.int32(1), batch, KEY)
        assert same(pick(begun.actors.trunk, 1), pick(first.actors.trunk, 0 if inherit == "trunk" else 1))
        assert same(pick(begun.actors.head, 1), pick(first.actors.head, 1))


def test_data_that_returns_gets_its_head_back(grown: Any, batch: Batch) -> None:
    # As if it had learned long enough to tell noise.
    first = replace(grown[0], bands=replace(grown[0].bands, noise=jnp.ones(2)))
    begun = jax.jit(ComadPlus().begin)(first, jnp.int32(1), batch, KEY)
    assert begun.library.head_of_task.tolist() == [0, 0] and float(begun.library.scores[0]) == pytest.approx(1.0, abs=0.05)
    assert same(begun.actors, first.actors)
    elsewhere = replace(batch, state=replace(batch.state, agents=batch.state.agents + 3.0))
    begun = jax.jit(ComadPlus().begin)(first, jnp.int32(1), elsewhere, KEY)
    assert begun.library.head_of_task.tolist() == [0, 1] and float(begun.library.scores[0]) < 0.5


@pytest.mark.parametrize(("explained", "head"), [(1.9, 0), (0.9, 1), (-7.0, 1)])
def test_where_deeds_count_a_family_is_used_again_only_for_what_it_explains(grown: Any, batch: Batch, explained: float, head: int) -> None:
    @dataclass(frozen=True)
    class Told(ComadPlus):
        def explanations(self, *_: Any) -> Any:
            return jnp.array([explained, 9.0])  # of one that was never opened

    first = replace(grown[0], bands=replace(grown[0].bands, noise=jnp.ones(2)))
    assert Told().begin(first, jnp.int32(1), batch, KEY).library.head_of_task.tolist() == [0, 0]
    begun = Told().begin(replace(first, fits=jnp.array([2.0, 0.0])), jnp.int32(1), batch, KEY)
    assert begun.library.head_of_task.tolist() == [0, head]
    assert float(begun.library.scores[0]) == pytest.approx(min(explained / 2.0, 1.0), abs=0.05)


def test_deeds_are_explained_by_how_likely_they_are(grown: Any, batch: Batch) -> None:
    first, bias = grown[0], np.array([[2.0, 0.0, 0.0, 0.0, 0.0], [0.0] * 5], np.float32)
    silent = eqx.tree_at(lambda state: state.actors.head.policy, first, replace_fn=partial(jax.tree.map, jnp.zeros_like))
    told = eqx.tree_at(lambda state: state.actors.head.policy.base.layers[-1].bias, silent, jnp.asarray(bias))
    alike = replace(batch, outcome=jnp.zeros_like(batch.outcome))
    now = alike.acted
    valid, available, actions = (np.asarray(part) for part in (acting(now), now.available, now.actions))
    available, taken = available[valid], actions[valid]
    odds = np.exp(bias[0]) * available
    by_hand = np.mean(bias[0][taken] - np.log(odds.sum(-1)) + np.log(available.sum(-1)))
    # Whoever takes any action alike is no better than chance.
    assert np.asarray(STRICT.explanations(told, alike)) == pytest.approx([by_hand, 0.0], abs=1e-5)
    assert STRICT.finish(told, jnp.int32(0), alike, KEY).fits is None, "nobody asks"
    noted = STRICT.finish(replace(told, fits=jnp.zeros(2)), jnp.int32(0), alike, KEY)
    assert np.asarray(noted.fits) == pytest.approx([by_hand, 0.0], abs=1e-5)


def test_deeds_count_where_actions_are_vectors() -> None:
    def counts(method: ComadPlus, spec: Spec) -> bool:
        init = partial(method.init, stream=streams.custom(["first"]), specs=(spec,), updates=4)
        return jax.eval_shape(init, KEY).fits is not None

    numbered, directions = FULL_VIEW.spec, vectors()[0]
    assert counts(ComadPlus(), directions) and not counts(ComadPlus(), numbered)
    assert counts(ComadPlus(deeds=True), numbered) and not counts(ComadPlus(deeds=False), directions)


def test_actions_weigh_by_how_their_episodes_ended(batch: Batch) -> None:
    valid, outcome = np.asarray(acting(batch)), np.broadcast_to(np.asarray(batch.outcome)[..., None], acting(batch).shape)
    assert len(set(outcome[valid].tolist())) == 2, "some succeed, some do not"
    preference = Preference(jnp.float32(0.5), Preference.of(batch, 0.25).mean)
    weight = np.asarray(weigh(jnp.zeros(valid.shape), preference, batch))
    better, worse = weight[valid & (outcome > 0)], weight[valid & (outcome < 0)]
    assert better / worse[0] == pytest.approx(np.exp(0.5 * (outcome.max() - outcome.min())), rel=1e-5)
    assert not weight[~valid].any()
    assert np.asarray(weigh(jnp.zeros(valid.shape), Preference.none(), batch))[valid] == pytest.approx(1.0, abs=1e-5)
    # Of mean one over the task, not over a batch: one that holds bad episodes only weighs nothing.
    told = Preference.of(batch, 0.02)
    assert np.asarray(weigh(jnp.zeros(valid.shape), told, batch))[valid].mean() == pytest.approx(1.0, abs=1e-4)
    bad = replace(batch, outcome=jnp.full_like(batch.outcome, float(batch.outcome.min())))
    assert np.asarray(weigh(jnp.zeros(valid.shape), told, bad)).max() < 0.05
    # However sharply outcomes are told, of two actions in good episodes the better one still counts more.
    sharp = Preference(jnp.float32(SHARPEST), told.mean)
    more, less = (np.asarray(weigh(jnp.full(valid.shape, value), sharp, batch))[valid & (outcome > 0)] for value in (0.0, -1.0))
    assert more / less == pytest.approx(np.e, rel=1e-4)


def test_sharpness_leaves_a_share_of_the_episodes_effective() -> None:
    def found(outcomes: np.ndarray, effective: float) -> float:
        values = jnp.asarray((outcomes - outcomes.mean()) / max(outcomes.std(), 1e-6), jnp.float32)[None]
        return float(sharpest(values, jnp.ones(values.shape, bool), effective))

    normal = np.random.default_rng(0).normal(size=4000)
    # Of a normal spread exp(-sharpness^2) remain effective.
    assert found(normal, 0.5) == pytest.approx(np.sqrt(np.log(2)), abs=0.05)
    assert found(1000 * normal + 7, 0.5) == pytest.approx(found(normal, 0.5), abs=1e-3)
    assert found(normal, 1.0) == pytest.approx(0.0, abs=1e-2)
    # Of two kinds of outcome the better one may have everything if it is frequent enough, and not if it is not.
    assert found(np.repeat([0.0, 1.0], [40, 60]), 0.5) == pytest.approx(SHARPEST, abs=1e-3)
    assert 0 < found(np.repeat([0.0, 1.0], [60, 40]), 0.5) < 2
    assert found(np.ones(50), 0.5) == pytest.approx(SHARPEST, abs=1e-3), "all alike: there is nothing to tell, however sharply"


def test_old_families_count_by_how_much_better_than_chance_they_are(batch: Batch) -> None:
    chance = -jnp.log(jnp.maximum(batch.available.sum(-1), 1))
    said, alike = jnp.stack([jnp.zeros(chance.shape), 0.25 * chance, chance, 3 * chance]), jnp.ones(chance.shape)
    assert np.asarray(merit(said, alike, batch)) == pytest.approx([1.0, 0.75, 0.0, 0.0], abs=1e-5)


def test_only_numbered_actions_are_doubted(batch: Batch) -> None:
    # Drawn towards all actions at once, a normal distribution would spread over them, and its middle would be nobody's action.
    assert ComadPlus().doubts(batch) and not ComadPlus(doubt=0.0).doubts(batch)
    assert not ComadPlus().doubts(vectors()[1])


@pytest.mark.parametrize("doubted", ["episodes", "actions"])
def test_a_good_episode_is_not_doubted_for_actions_below_the_mean(grown: Any, batch: Batch, doubted: Any) -> None:
    method, state = replace(STRICT, doubted=doubted), grown[1]
    # Advantages that differ: critics of a few updates say something else of every moment, in units so small that it counts.
    state = replace(state, spread=jnp.float32(1e-3))

    def doubt(outcomes: Batch) -> float:
        now = jnp.zeros(outcomes.acted.state.agent_present.shape)
        _, logs = method.loss(state.active, state, outcomes, now, KEY)
        return float(logs["doubt_loss"])

    well = replace(batch, outcome=jnp.full_like(batch.outcome, float(batch.outcome.max())))
    badly = replace(batch, outcome=jnp.full_like(batch.outcome, float(batch.outcome.min())))
    assert doubt(badly) > 0.1
    assert doubt(well) == 0.0 if doubted == "episodes" else doubt(well) > 0.01


def test_chance_takes_what_is_available_and_all_of_it(batch: Batch) -> None:
    drawn = np.stack([np.asarray(draw_available(key, batch.available)) for key in jax.random.split(KEY, 40)])
    valid, available = np.asarray(acting(batch)), np.asarray(batch.available)
    for action in range(available.shape[-1]):
        assert np.array_equal((drawn == action).any(0)[valid] | ~available[valid, action], np.ones(valid.sum(), bool))
        assert not (drawn == action).any(0)[valid & ~available[..., action]].any()


@pytest.mark.slow
def test_without_neighbors_nobody_guides(grown: Any, batch: Batch) -> None:
    late = replace(grown[1], update=jnp.int32(3))
    alone, silent = replace(STRICT, consulted=0), replace(STRICT, stage_two=False)
    results = [jax.jit(method.update)(late, batch, KEY) for method in (alone, silent, STRICT)]
    assert same(results[0], results[1]) and not same(results[0], results[2])


@settings(max_examples=25, deadline=None)
@given(scale=st.floats(0.1, 50.0), shift=st.floats(-100.0, 100.0), seed=st.integers(0, 1000))
def test_likeness_has_no_unit(scale: float, shift: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    own, noisy, other = random.normal(2.0, 1.0, 4000), random.normal(-1.0, 2.0, 4000), random.normal(1.0, 1.0, 4000)
    there = jnp.ones(4000, bool)

    def likeness(*scores: np.ndarray) -> list[float]:
        bands = Bands.create(1).learn(jnp.int32(0), jnp.asarray(own * scale + shift), jnp.asarray(noisy * scale + shift), there, 1.0)
        return [float(bands.likeness(jnp.asarray(score * scale + shift)[None], there)[0]) for score in scores]

    mine, noise, others = likeness(own, noisy, other)
    assert mine == pytest.approx(1.0, abs=0.01) and noise == pytest.approx(0.0, abs=0.01) and 0.1 < others < 0.95


def test_tenths_hold_a_tenth_each_and_follow_step_by_step() -> None:
    own, there = jnp.arange(1000.0), jnp.ones(1000, bool)
    bands = Bands.create(2).learn(jnp.int32(1), own, own + 5000.0, there, 1.0)
    assert np.asarray(bands.edges[1]) == pytest.approx([99.9 * number for number in range(1, 10)], abs=0.01)
    assert float(bands.noise[1]) == pytest.approx(1.0, abs=1e-3), "all of it in one tenth: as far as can be"
    even = jnp.full(TENTHS, 1.0 / TENTHS)
    assert float(distance(own, bands.edges[1], even, there)) == pytest.approx(0.0, abs=2e-3)
    # Half of the situations in the lowest tenth, half in the highest: four tenths on either side would have to move.
    both = jnp.concatenate([jnp.full(500, -1.0), jnp.full(500, 2000.0)])
    assert float(distance(both, bands.edges[1], even, there)) == pytest.approx(0.8 / 0.9, abs=1e-3)
    assert float(bands.outside(jnp.array([[0.0], [899.1 + 2 * 799.2]]))[1, 0]) == pytest.approx(2.0, abs=1e-3)
    nearer = bands.learn(jnp.int32(1), own + 100.0, own, there, 0.25)
    assert np.asarray(nearer.edges[1] - bands.edges[1]) == pytest.approx(25.0, abs=0.01)
    assert same(nearer.edges[0], bands.edges[0])


def test_to_be_in_the_middle_of_anothers_scores_is_not_to_be_like_it() -> None:
    own, there = jnp.linspace(-3.0, 3.0, 2000), jnp.ones(2000, bool)
    bands = Bands.create(1).learn(jnp.int32(0), own, own - 50.0, there, 1.0)
    inside = jnp.linspace(-0.1, 0.1, 2000)
    assert float(bands.likeness(own[None], there)[0]) == pytest.approx(1.0, abs=0.01)
    assert float(bands.outside(inside[None]).max()) == 0.0 and float(bands.likeness(inside[None], there)[0]) < 0.3


def test_whoever_has_seen_more_knows_the_less() -> None:
    # Two worlds, of which the narrow one's situations are a part of the wide one's.
    random, there = np.random.default_rng(0), jnp.ones(4000, bool)
    wide, narrow = random.normal(0.0, 1.0, 4000), random.normal(-0.6, 0.4, 4000)
    bands = Bands.create(2)
    for head, own in enumerate((wide, narrow)):
        bands = bands.learn(jnp.int32(head), jnp.asarray(own), jnp.asarray(random.normal(-9.0, 1.0, 4000)), there, 1.0)

    def known(scores: np.ndarray) -> list[float]:
        return bands.known(jnp.broadcast_to(jnp.asarray(scores), (2, 4000)), there).tolist()

    assert known(wide) == pytest.approx([1.0, known(wide)[1]], abs=0.01) and known(wide)[1] < 0.5
    assert known(narrow)[0] > 0.9 and float(bands.likeness(jnp.asarray(narrow)[None].repeat(2, 0), there)[0]) < 0.5
    assert known(narrow - 9.0) == pytest.approx([0.0, 0.0], abs=0.01)
    # Too familiar is unknown as well, and who cannot tell noise from its own knows nothing for sure.
    assert max(known(narrow + 9.0)) < 0.01
    unsure = replace(bands, noise=jnp.full(2, 0.3))
    assert float(unsure.known(jnp.asarray(narrow)[None].repeat(2, 0) - 0.8, there)[0]) < float(
        bands.known(jnp.asarray(narrow)[None].repeat(2, 0) - 0.8, there)[0]
    )


def test_situations_that_repeat_themselves_are_like_themselves() -> None:
    # A team that is stuck: half of all moments are one and the same.
    random = np.random.default_rng(0)
    stuck, there = [np.where(random.random(2000) < 0.5, 0.3, random.normal(size=2000)) for _ in range(2)], jnp.ones(2000, bool)
    bands = Bands.create(1).learn(jnp.int32(0), jnp.asarray(stuck[0]), jnp.asarray(stuck[0] - 4.0), there, 1.0)
    own, again, free = (float(bands.likeness(jnp.asarray(some)[None], there)[0]) for some in (*stuck, random.normal(size=2000)))
    assert own == pytest.approx(1.0, abs=1e-3) and again > 0.95 and free < 0.7
    # Another program rounds otherwise.
    rounded = stuck[0] * (1 + 1e-6)
    assert float(bands.likeness(jnp.asarray(rounded)[None], there)[0]) == pytest.approx(1.0, abs=0.01)


def test_one_situation_is_recognized_by_whose_scores_it_lies_among(grown: Any, batch: Batch) -> None:
    second = grown[2]
    moment = jax.tree.map(lambda leaf: leaf[:1, 0], batch.state)
    for head in (0, 1):
        odds = odds_of(second.familiarities, jnp.ones(2, bool), moment)[:, 0]
        edges = odds[:, None] + jnp.linspace(-1.0, 1.0, TENTHS - 1)[None] + jnp.where(jnp.arange(2) == head, 0.0, 500.0)[:, None]
        assert int(STRICT.recognize(replace(second, bands=replace(second.bands, edges=edges)), moment)) == head


@pytest.mark.parametrize("moments", [1, SITUATIONS - 1, 2 * SITUATIONS + 3])
def test_situations_are_judged_alike_in_pieces_and_only_by_whoever_is_asked(grown: Any, batch: Batch, moments: int) -> None:
    families, chosen = grown[2].familiarities, np.resize(np.arange(batch.present.shape[1]), moments)
    situations = jax.tree.map(lambda leaf: leaf[:1, chosen], batch.state)
    odds = np.asarray(odds_of(families, jnp.array([False, True]), situations))
    alone = pick(families, 1)
    assert odds.shape == (2, 1, moments) and not odds[0].any()
    assert odds[1] == pytest.approx(np.asarray(alone.head(alone.trunk(situations))[..., 0]), abs=1e-5)


@pytest.mark.parametrize(
    ("likeness", "known", "made", "expected"),
    [
        ([1.0, 0.3], [1.0, 0.8], 4, 1),  # the newer one knows the situations too, though it has seen others as well, and has learned more
        ([1.0, 0.6], [1.0, 0.4], 4, 0),  # it does not know them
        ([1.0, 0.8], [1.0, 0.8], 3, 0),  # it still learns, and something else
        ([0.3, 0.9], [0.4, 0.9], 3, 1),  # it learns this one
        ([0.6, 0.9], [0.6, 0.9], 3, 1),  # another one knows it as well, and has learned less of it
        ([0.3, 0.2], [0.2, 0.3], 4, 1),  # nobody knows them, so that likeness says nothing
        ([0.3, 0.2], [0.2, 0.3], 3, 1),  # nor while somebody still learns
    ],
)
def test_a_task_is_played_by_the_family_that_learned_last_of_those_that_know_it(
    grown: Any, batch: Batch, likeness: list[float], known: list[float], made: int, expected: int
) -> None:
    @dataclass(frozen=True)
    class Told(ComadPlus):
        def meet(self, *_: Any) -> Any:
            return Acquaintance(jnp.array(likeness), jnp.array(known))

        def explanations(self, *_: Any) -> Any:
            return jnp.array([0.5, -0.5])

    state = replace(grown[2], update=jnp.int32(made))
    assert int(Told().route(state, jnp.int32(0), batch)) == expected
    directions = replace(batch, actions=batch.actions[..., None].astype(float))  # nothing in a situation tells where an Ant is to run
    assert int(Told().route(replace(state, fits=jnp.zeros(2)), jnp.int32(0), directions)) == 0, "but what was done there does"
    for alone in (Told(hand_over=False).route(state, jnp.int32(0), batch), Told().route(state, jnp.int32(0), directions)):
        assert int(alone) == (int(np.argmax(likeness)) if max(known) > 0.5 else 1)
    most_similar = Told(strangers="similar").route(state, jnp.int32(0), batch)
    assert int(most_similar) == (expected if max(known) > 0.5 else int(np.argmax(likeness)))


@pytest.mark.parametrize(("knowledge", "strangers", "parent"), [(0.0, "newest", 1), (0.0, "similar", 0), (0.6, "newest", 0)])
def test_what_nobody_knows_grows_from_the_family_that_learned_last(batch: Batch, knowledge: float, strangers: Any, parent: int) -> None:
    @dataclass(frozen=True)
    class Told(ComadPlus):
        def meet(self, *_: Any) -> Any:
            return Acquaintance(jnp.array([0.01, 0.0, 0.0]), jnp.array([knowledge, 0.0, 0.0]))

    method, tasks = Told(strangers=strangers), streams.custom(["first", "second", "third"], threshold=1e9)
    fresh = jax.jit(partial(method.init, stream=tasks, specs=(FULL_VIEW.spec,) * 3, updates=4))(KEY)
    state = replace(fresh, library=replace(fresh.library, used=jnp.int32(2), head_of_task=jnp.array([0, 1, -1])))
    begun = method.begin(state, jnp.int32(2), batch, KEY)
    assert begun.library.head_of_task.tolist() == [0, 1, 2]
    assert same(pick(begun.actors, 2), pick(state.actors, parent))


def test_a_family_that_learned_again_has_learned_last(grown: Any, batch: Batch) -> None:
    @dataclass(frozen=True)
    class Both(ComadPlus):
        def meet(self, *_: Any) -> Any:
            return Acquaintance(jnp.array([0.9, 0.8]), jnp.array([0.9, 0.8]))

    library = replace(grown[2].library, head_of_task=jnp.array([0, 1, 0]), active=jnp.int32(0))
    assert library.learned_last.tolist() == [2, 1]
    for made in (3, 4):  # while it learns and after
        assert int(Both().route(replace(grown[2], library=library, update=jnp.int32(made)), jnp.int32(0), batch)) == 0


def test_noise_is_told_on_the_scale_of_the_scores(grown: Any) -> None:
    told = replace(grown[2].bands, noise=jnp.array([0.6, 0.02]))
    described = STRICT.describe(replace(grown[2], bands=told))
    assert np.asarray(described["noise_score"]) == pytest.approx([0.0, 0.8], abs=1e-6), "0, but for who cannot tell noise"


def test_masked_situations_do_not_count() -> None:
    own = jnp.concatenate([jnp.arange(100.0), jnp.full(50, 1e6)])
    there = jnp.arange(150) < 100
    bands = Bands.create(1).learn(jnp.int32(0), own, own, there, 1.0)
    assert float(bands.edges.max()) < 100 and float(bands.noise[0]) == pytest.approx(0.0, abs=0.02)
