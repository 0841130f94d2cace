"""Teams that learn to move: what is remembered, what is aimed at, and that a training goes on in the same bits."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from aiming import Aiming
from scipy.stats import norm

from comad import checkpoint
from comad.envs.navigation import Navigation
from comad.errors import UserError
from comad.experts import hosted, joint, library, training
from comad.experts.base import Trainer
from comad.experts.hosted import HostState
from comad.experts.joint import Moment, Normalizer, Transition, look_ahead
from comad.experts.library import Card
from comad.experts.sac import Sac, SacTeam, gaussian, soft_goal
from comad.settings import settings

ENV = Aiming()
TINY = Sac(width=16, num_worlds=4, rounds=1, capacity=4000, batch=16, warm_up=32, steps=192)


def test_returns_over_three_steps_are_those_computed_by_hand() -> None:
    # Windows of four moments: in the middle of an episode, into a time limit, into a fall, and one that starts at an end.
    last = jnp.array([[False] * 4, [False, False, True, False], [False, True, False, False], [True, False, False, False]])
    terminated = jnp.array([[False] * 4, [False] * 4, [False, True, False, False], [False] * 4])
    reward = jnp.broadcast_to(jnp.array([1.0, 2.0, 4.0, 8.0]), (4, 4))
    seen = jnp.broadcast_to(jnp.arange(4.0), (4, 4))[..., None]
    found = look_ahead(Moment(seen, -seen, reward, last, terminated), 0.5)
    assert found.reward.tolist()[:3] == [1 + 2 / 2 + 4 / 4, 1 + 2 / 2, 1.0]
    assert found.following[:, 0].tolist()[:3] == [3.0, 2.0, 1.0]
    assert found.discount.tolist()[:3] == [0.125, 0.25, 0.0]  # value lies beyond the limit, none beyond the fall
    assert found.counts.tolist() == [True, True, True, False]


def test_the_goal_of_the_critics_is_the_one_computed_by_hand() -> None:
    # Layers of zeros but for the last bias: means of 0.3, spreads of e^-1, critics that say 2 and 5.
    learner = TINY.create(ENV.spec, jax.random.key(0))
    actor, critics = jax.tree.map(jnp.zeros_like, (learner.actor, learner.critics))
    bias = jnp.array([0.3, 0.3, -1.0, -1.0])
    actor = replace(actor, layers=(*actor.layers[:-1], replace(actor.layers[-1], bias=bias)))
    first, second = (
        replace(tower, layers=(*tower.layers[:-1], replace(tower.layers[-1], bias=jnp.array([value]))))
        for tower, value in ((critics.first, 5.0), (critics.second, 2.0))
    )
    key, nothing = jax.random.key(3), jnp.zeros((1, 3))
    batch = Transition(nothing, jnp.zeros((1, 2)), jnp.array([1.5]), nothing, jnp.array([0.9]), jnp.array([True]))
    found = soft_goal(actor, replace(critics, first=first, second=second), jnp.float32(0.2), batch, key)
    raw = 0.3 + np.exp(-1.0) * np.asarray(jax.random.normal(key, (1, 2)), float)
    log_density = (norm.logpdf(raw, 0.3, np.exp(-1.0)) - np.log(1 - np.tanh(raw) ** 2)).sum()
    np.testing.assert_allclose(found, 1.5 + 0.9 * (2.0 - 0.2 * log_density), rtol=1e-5)


def test_the_normalizer_knows_all_it_was_shown() -> None:
    rows = np.random.default_rng(0).normal(3.0, 2.0, (60, 2)).astype(np.float32)
    normalizer = Normalizer.create(2)
    for part in np.split(rows, 4):
        normalizer = normalizer.add(jnp.asarray(part))
    np.testing.assert_allclose(normalizer.mean, rows.mean(0), rtol=1e-4)
    np.testing.assert_allclose(normalizer.variance, rows.var(0), rtol=1e-4)
    np.testing.assert_allclose(normalizer(jnp.asarray(rows)), (rows - rows.mean(0)) / rows.std(0), atol=1e-3)
    assert float(normalizer(jnp.full((1, 2), 1e6)).max()) == joint.FARTHEST


def test_the_learning_rate_is_constant_and_then_falls() -> None:
    rates = [float(joint.falling(0.01, 0.6, 0.1, jnp.float32(share))) for share in (0.0, 0.6, 0.8, 1.0)]
    np.testing.assert_allclose(rates, [0.01, 0.01, 0.0055, 0.001], rtol=1e-5)


def test_a_team_sees_all_but_contacts() -> None:
    _, step = ENV.reset_many(np.arange(2, dtype=np.uint32))
    seen = joint.observe(ENV.spec, step.tokens)
    np.testing.assert_array_equal(seen[:, :2], [[1.0, -1.0]] * 2)
    np.testing.assert_array_equal(seen[:, 2], step.state.targets[:, 0, 1])
    assert joint.num_seen(ENV.spec) == seen.shape[-1] == 3


@pytest.mark.slow
def test_the_replay_holds_what_happened_with_the_last_moments_of_episodes() -> None:
    env, lanes = Aiming(limit=3, edge=1.2), TINY.num_worlds
    assert isinstance(TINY, Trainer)
    state = TINY.init(env, jax.random.key(1))
    start = env.at([0.0, 1.0, 0.0, 1.0])  # the second and the fourth fall after one step
    shown = hosted.show(env.spec, env.show(start, np.zeros(lanes)))
    state, _ = TINY.advance(env, HostState(state.mind, start, shown), 9)
    kept: Moment = state.mind.replay.entries
    assert kept.last[0, :9].tolist() == [False, False, False, True, False, False, False, True, False]
    assert kept.last[1, :2].tolist() == [False, True] and kept.terminated[1, :2].tolist() == [False, True]
    assert not kept.terminated[0, :4].any()
    np.testing.assert_allclose(kept.seen[0, :4, 2], [0.0, 0.25, 0.5, 0.75])
    guess, number = np.asarray(kept.actions[0, :4]), np.asarray(kept.seen[0, :4, 2])
    reward = 1.0 - np.square(guess - np.array([1.0, -1.0]) * number[:, None]).mean(1)
    np.testing.assert_allclose(kept.reward[0, :4], reward * [1, 1, 1, 0], rtol=1e-5)


def train(folder: Path, stop: int = 100) -> list[Any]:
    """Train, walking away after a number of evaluations."""
    done = []
    for progress in training.train(ENV, TINY, 3, folder, every=64, episodes=4):
        done.append(progress)
        if len(done) == stop:
            break
    return done


@pytest.mark.slow
def test_a_training_outside_jax_goes_on_in_the_same_bits_and_ships_what_it_evaluated(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole")
    assert [progress.steps for progress in whole] == [64, 128, 192]
    assert len(train(tmp_path / "parts", stop=1)) == 1 and len(train(tmp_path / "parts")) == 2
    for file in ("teams/00002.safetensors", "checkpoints/000000003.safetensors"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "parts" / file).read_bytes()

    chosen = training.choose_teams(ENV, TINY, tmp_path / "whole", num_episodes=8)
    team, _, outcome = chosen["expert"]
    card = Card(ENV.spec.env, ENV.spec.rules, "expert", "sac", settings(TINY), "", 3, 192, 0.1, 8, 0.0, 0.0, 4.0, "")
    library.put(tmp_path / "weights", team, card)
    player, _ = library.get(ENV, "expert", tmp_path / "weights")
    again = training.evaluate(ENV, player, jax.random.key(2**31 - 1), 8)
    assert again.total.tolist() == outcome.total.tolist()
    assert all(leaf.dtype == jnp.float16 for leaf in jax.tree.leaves(team))


@pytest.mark.slow
def test_two_agents_learn_what_to_say(tmp_path: Path) -> None:
    trainer = replace(TINY, width=32, rounds=4, batch=64, learning_rate=2e-3, steps=6000)
    *_, last = training.train(ENV, trainer, 0, tmp_path, every=2000, episodes=32)
    assert last.total > 0.95 * ENV.limit  # of one per step; who always says nothing gets about half
    state = checkpoint.load(tmp_path / "teams" / "00002.safetensors", trainer.blank(ENV.spec))
    decided = trainer.player(state, ENV.spec).team.decide(jnp.array([[1.0, -1.0, 0.5]]))
    np.testing.assert_allclose(decided, [[0.5, -0.5]], atol=0.2)


def test_a_trainer_refuses_a_world_that_it_cannot_learn() -> None:
    with pytest.raises(UserError, match="actions are vectors"):
        TINY.init(Navigation(2, 5), jax.random.key(0))


def test_a_training_that_is_all_warm_up_is_refused() -> None:
    with pytest.raises(UserError, match="nothing would be learned in 192 steps, since 192 go before"):
        replace(TINY, warm_up=192).init(ENV, jax.random.key(0))


@pytest.mark.slow
def test_a_guide_plays_until_learning_begins_and_the_training_goes_on_in_the_same_bits(tmp_path: Path) -> None:
    guide = SacTeam(TINY.create(ENV.spec, jax.random.key(5)).actor, jnp.zeros(3), jnp.ones(3))

    def begin() -> HostState:
        return TINY.begin_from(TINY.init(ENV, jax.random.key(1)), guide)  # twice, so it must be a copy that is given away

    state, _ = TINY.advance(ENV, begin(), 6)
    kept: Moment = state.mind.replay.entries
    # What was done from the second step on is about what the guide does there; the first is chance.
    away = np.asarray(kept.actions[:, 1:6]) - np.asarray(guide.decide(kept.seen[:, 1:6]))
    assert 0.5 * hosted.GUIDE_NOISE < away.std() < 1.5 * hosted.GUIDE_NOISE
    checkpoint.save(tmp_path / "state", state)
    whole, _ = TINY.advance(ENV, state, 6)  # beyond the 32 steps of warm-up
    again, _ = TINY.advance(ENV, checkpoint.load(tmp_path / "state", begin()), 6)
    checkpoint.save(tmp_path / "whole", whole)
    checkpoint.save(tmp_path / "again", again)
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "again").read_bytes()


def test_half_precision_moves_a_team_by_less_than_a_hundredth() -> None:
    learner = Sac().create(ENV.spec, jax.random.key(0))
    seen = jax.random.normal(jax.random.key(1), (64, 3))
    team = SacTeam(learner.actor, jnp.zeros(3), jnp.ones(3))
    assert float(jnp.abs(joint.whole(joint.halved(team)).decide(seen) - team.decide(seen)).max()) < 0.01
    assert float(jnp.abs(gaussian(learner.actor, seen)[0]).max()) > 0.1
