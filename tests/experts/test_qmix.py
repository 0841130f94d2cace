from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from comad import checkpoint
from comad.envs.navigation import Navigation
from comad.envs.rollout import Outcome
from comad.errors import UserError
from comad.experts import library, qmix, training
from comad.experts.library import Card
from comad.experts.mixer import Mixer
from comad.experts.qmix import Moment, Qmix
from comad.experts.replay import Replay
from comad.networks.layers import initialize
from comad.networks.mixer import AttentionMixer
from comad.settings import settings
from comad.types import StateTokens

ENV = Navigation(2, 5, limit=6)
TINY = Qmix(width=8, num_pools=1, num_worlds=4, unroll=4, capacity=16, batch=4, window=3, steps=64, epsilon_steps=32)


def state_of(*lead: int) -> StateTokens:
    present = jnp.ones((*lead, 2), bool)
    cells = jax.random.uniform(jax.random.key(0), (*lead, 2, 2))
    return StateTokens(cells, cells, jnp.zeros((*lead, 0)), present, present)


def test_returns_are_those_computed_by_hand() -> None:
    # Window of three steps; the second ends the episode with reward 1, the third starts another that goes on.
    none, two = jnp.zeros((1, 4, 2, 5)), jnp.zeros((1, 4, 2), jnp.int32)
    flags = jnp.array([[False, True, False, False]])
    moment = Moment(None, state_of(1, 4), none.astype(bool), flags, two, two, jnp.array([[0.0, 1.0, 0.0, 9.0]]), flags, flags)
    found = qmix.traced_returns(moment, jnp.array([[9.0, 0.5, 9.0, 0.8]]), Qmix(discount=0.9, trace=0.5))
    # G_2 = .9 (.5 * .8 + .5 * .8) = .72,  G_1 = 1,  G_0 = .9 (.5 * .5 + .5 * 1) = .675
    assert np.allclose(found, [[0.675, 1.0, 0.72]])


@pytest.mark.parametrize("kind", [Mixer, AttentionMixer])
def test_the_team_value_never_falls_when_an_agent_rises(kind: type[Mixer | AttentionMixer]) -> None:
    mixing = initialize(lambda draws: kind.create(draws, ENV.spec), jax.random.key(1))(state_of(64))
    low = jax.random.normal(jax.random.key(2), (64, 2))
    for agent in range(2):
        assert (mixing(low.at[:, agent].add(1.0)) >= mixing(low)).all()
    assert (mixing(low + 1.0) > mixing(low)).any()


@pytest.mark.parametrize("attentive", [True, False])
def test_an_attentive_mixer_does_not_ask_who_stands_where_in_the_row(attentive: bool) -> None:
    trainer, state = replace(TINY, attentive=attentive), state_of(64)
    mixer = initialize(lambda draws: qmix.Networks.create(draws, trainer, ENV.spec), jax.random.key(1)).mixer
    values, turned = jax.random.normal(jax.random.key(2), (64, 2)), replace(state, agents=state.agents[:, ::-1])
    assert np.allclose(mixer(state)(values), mixer(turned)(values[:, ::-1]), atol=1e-5) == attentive


def test_windows_are_neighboring_moments_of_one_lane() -> None:
    replay = Replay.create({"lane": jnp.zeros(3, jnp.int32), "time": jnp.zeros(3, jnp.int32)}, lanes=3, capacity=8)
    lanes = jnp.repeat(jnp.arange(3, dtype=jnp.int32)[:, None], 4, axis=1)
    for block in range(3):
        times = jnp.repeat(jnp.arange(4 * block, 4 * block + 4, dtype=jnp.int32)[None], 3, axis=0)
        replay = replay.add({"lane": lanes, "time": times})
    windows = replay.sample(jax.random.key(0), 200, 3)
    assert (np.diff(windows["time"], axis=1) == 1).all() and (np.diff(windows["lane"], axis=1) == 0).all()
    # Twelve moments came, eight are kept: windows start at 4 to 9, all of them.
    assert set(np.asarray(windows["time"][:, 0]).tolist()) == {4, 5, 6, 7, 8, 9}


def test_exploration_falls_and_stays() -> None:
    trainer = Qmix(num_worlds=1, unroll=10, epsilon_start=0.9, epsilon_end=0.1, epsilon_steps=100)
    shares = [float(qmix.exploration(trainer, jnp.int32(iteration))) for iteration in (0, 5, 10, 99)]
    assert shares == pytest.approx([0.9, 0.5, 0.1, 0.1])


def train(folder: Path, stop: int = 100) -> list[training.Progress]:
    """Train, walking away after a number of evaluations."""
    done = []
    for progress in training.train(ENV, TINY, seed=3, folder=folder, every=16):
        done.append(progress)
        if len(done) == stop:
            break
    return done


@pytest.mark.slow
def test_a_training_goes_on_in_the_same_bits_and_refuses_another_ones_folder(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole")
    assert [progress.steps for progress in whole] == [16, 32, 48, 64]
    first = train(tmp_path / "parts", stop=2)
    assert len(first) == 2 and len(train(tmp_path / "parts")) == 2
    for number in range(4):
        team = f"teams/{number:05d}.safetensors"
        assert (tmp_path / "whole" / team).read_bytes() == (tmp_path / "parts" / team).read_bytes()
    state = "checkpoints/000000004.safetensors"
    assert (tmp_path / "whole" / state).read_bytes() == (tmp_path / "parts" / state).read_bytes()
    with pytest.raises(UserError, match="seed is 3 there and 4 here"):
        next(training.train(ENV, TINY, seed=4, folder=tmp_path / "whole", every=16))

    # The last stretch is shorter where steps do not come out even, and ends in the same bits.
    uneven = list(training.train(ENV, TINY, seed=3, folder=tmp_path / "uneven", every=48))
    assert [progress.steps for progress in uneven] == [48, 64] and uneven[-1].team == whole[-1].team

    # Evaluated twice as often, the same training is on the same path, and ends where it is told to.
    seldom = training.train(ENV, TINY, seed=3, folder=tmp_path / "seldom", every=32)
    assert next(seldom).steps == 32
    seldom.close()  # type: ignore[attr-defined]
    closer = list(training.look_closer(ENV, TINY, 3, tmp_path / "seldom", 16, None, 256, until=32))
    assert [progress.steps for progress in closer] == [16, 32]
    paths = training.team_path(tmp_path / "seldom", 0), training.team_path(tmp_path / "seldom" / training.CLOSER, 1)
    assert paths[0].read_bytes() == paths[1].read_bytes()

    chosen = training.choose_teams(ENV, TINY, tmp_path / "whole", num_episodes=64)
    expert, medium = (float(chosen[quality][2].total.mean()) for quality in ("expert", "medium"))
    assert 0 < 0.5 * expert <= medium <= expert
    for number in range(4):
        path = training.team_path(tmp_path / "whole", number)
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(UserError, match=r"safetensors: its bytes are not those that were evaluated \(SHA-256 differs\)"):
        training.choose_teams(ENV, TINY, tmp_path / "whole", num_episodes=64)


@pytest.mark.slow
def test_settling_leaves_the_agents_alone_and_teaches_the_mixer() -> None:
    trainer = Qmix(**{**settings(TINY), "settle": 100})
    state = qmix.init(trainer, ENV, jax.random.key(0))
    agent, mixer = jax.tree.map(jnp.copy, (state.online.agent, state.online.mixer))
    state, _ = qmix.train(trainer, ENV, state, 4)
    assert all(jax.tree.leaves(jax.tree.map(lambda old, new: bool((old == new).all()), agent, state.online.agent)))
    assert not all(jax.tree.leaves(jax.tree.map(lambda old, new: bool((old == new).all()), mixer, state.online.mixer)))


def test_after_settling_the_first_step_of_the_agents_is_a_first_step() -> None:
    state = qmix.init(TINY, ENV, jax.random.key(0))
    slope = jax.tree.map(jnp.ones_like, state.online)
    networks, optimizer = state.online, state.optimizer
    for settled in (False, False, True):
        before = networks.agent
        networks, optimizer = qmix.descend(TINY, networks, slope, optimizer, jnp.array(settled))
    # Adam's first step is the learning rate in every weight, whatever the slope.
    moved = jax.tree.leaves(jax.tree.map(lambda new, old: jnp.abs(new - old), networks.agent, before))
    np.testing.assert_allclose(np.concatenate([leaf.ravel() for leaf in moved]), TINY.learning_rate, rtol=0.02)


def test_a_curve_that_shows_nobody_half_as_good_as_the_best_still_gives_two_teams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Luck: nobody scored in an evaluation, somebody did in the many episodes by which the best of them is found.
    curve = [training.Progress(steps, 0.0, 0.0, 0.0, 6.0, 1.0, "") for steps in (1, 2)]
    lucky = Outcome(jnp.full(4, 0.5), jnp.full(4, 6), jnp.array([True, False, True, False]))
    monkeypatch.setattr(training, "read_curve", lambda folder: curve)
    monkeypatch.setattr(training, "sha256", lambda path: "")
    monkeypatch.setattr(training, "evaluate", lambda *_: lucky)
    monkeypatch.setattr(checkpoint, "load", lambda path, like: like)
    chosen = training.choose_teams(ENV, TINY, tmp_path, num_episodes=4)
    assert chosen["expert"][1] in curve and chosen["medium"][1] in curve


def test_a_medium_team_that_the_curve_leapt_over_is_found_by_looking_closer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reached(*totals: float) -> list[training.Progress]:
        return [training.Progress(place, 0.0, total, total, 6.0, 1.0, "") for place, total in enumerate(totals)]

    curves = {tmp_path: reached(0.1, 0.9, 1.0)}
    totals = {
        training.team_path(folder, place): total
        for folder in (tmp_path, tmp_path / training.CLOSER)
        for place, total in enumerate((0.1, 0.9, 1.0))
    }
    totals[training.team_path(tmp_path / training.CLOSER, 1)] = 0.6
    monkeypatch.setattr(training, "read_curve", lambda folder: curves.get(folder, []))
    monkeypatch.setattr(training, "sha256", lambda path: "")
    monkeypatch.setattr(checkpoint, "load", lambda path, like: path)
    monkeypatch.setattr(Qmix, "player", lambda trainer, team, spec: team)
    monkeypatch.setattr(
        training, "evaluate", lambda env, team, *_: Outcome(jnp.full(2, totals[team]), jnp.full(2, 6), jnp.array([True, False]))
    )
    chosen = training.choose_teams(ENV, TINY, tmp_path)
    assert chosen["medium"][1].total == 0.9 and training.leapt_over(ENV.spec, chosen)
    curves[tmp_path / training.CLOSER] = reached(0.1, 0.6, 0.9)
    chosen = training.choose_teams(ENV, TINY, tmp_path)
    assert chosen["medium"][1].total == 0.6 and not training.leapt_over(ENV.spec, chosen)
    assert chosen["expert"][1].total == 1.0

    # How far a closer look goes is decided without it, so that one that was interrupted ends where it would have ended.
    assert training.choose_teams(ENV, TINY, tmp_path, closely=False)["medium"][1].total == 0.9
    monkeypatch.setattr(training, "train", lambda *_: iter([curves[tmp_path][0]]))
    assert list(training.look_closer(ENV, TINY, 0, tmp_path, 1, None, 2, until=2)) == [], "it has been there"
    assert len(list(training.look_closer(ENV, TINY, 0, tmp_path, 1, None, 2, until=3))) == 1


def test_weights_are_refused_in_another_world_or_when_damaged(tmp_path: Path) -> None:
    agent = qmix.init(TINY, ENV, jax.random.key(0)).online.agent
    card = Card(ENV.spec.env, ENV.spec.rules, "expert", "qmix", settings(TINY), "", 0, 64, 0.1, 10, 0.5, 0.5, 3.0, "comad experts train")
    library.put(tmp_path, agent, card)
    team, found = library.load(ENV, "expert", tmp_path)
    assert found.total == 0.5 and (team.own.weight == agent.own.weight).all()
    with pytest.raises(UserError, match="no medium player"):
        library.get(ENV, "medium", tmp_path)
    weights = tmp_path / ENV.spec.env / "expert.safetensors"
    checkpoint.save(weights, jax.tree.map(lambda leaf: leaf + 1, agent))
    with pytest.raises(UserError, match="SHA-256 differs"):
        library.get(ENV, "expert", tmp_path)
    (tmp_path / ENV.spec.env).rename(tmp_path / "cn-2-6x6-6t-2r")
    with pytest.raises(UserError, match="other rules"):
        library.get(Navigation(2, 6, limit=6), "expert", tmp_path)


@pytest.mark.slow
def test_two_agents_learn_to_share_the_landmarks(tmp_path: Path) -> None:
    env = Navigation(2, 6)
    *_, last = training.train(env, Qmix(steps=150_000, epsilon_steps=50_000), seed=0, folder=tmp_path)
    assert last.success > 0.9 and last.length < 6
