"""The Ant by itself: symmetric, the same on any number of threads, with legs out of order, and when the simulator loses its way."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ants import ant_named, draw, play, playable, seeds
from jaxtyping import Array, Bool, Float
from recorded import record

from comad.datasets.batches import gather, upload
from comad.datasets.packing import Packing
from comad.envs.ant import AntWorld
from comad.envs.ant_physics import PLACES, SPEEDS, simulator
from comad.envs.episodes import watch
from comad.envs.pictures import paint
from comad.envs.rollout import RandomPlayer, _cast, _decider, episode_keys, rollout, rollout_all
from comad.evaluation import score
from comad.types import Actions, PRNGKey, Step, Tokens

pytestmark = playable
APART = ("ant-reward-0-30t", "ant-reward-135-30t", "ant-dynamics-diagonal-30t")
OFF = ((1, 1), (1, -1), (1, 1), (1, -1))
"""Signs of hip and ankle of every leg after a quarter turn, by which legs 1, 2, 3, 4 become 2, 3, 4, 1."""


def turn(legs: np.ndarray) -> np.ndarray:
    return np.roll(legs, 1, axis=-2) * OFF


def mirror(legs: np.ndarray) -> np.ndarray:
    return legs[..., ::-1, :] * (-1, 1)


def turn_body(bodies: np.ndarray) -> np.ndarray:
    x, y, z, *rotation = bodies[:, :7].T
    right, ahead, up, *spin = bodies[:, PLACES : PLACES + 6].T
    legs = [turn(part.reshape(-1, 4, 2)).reshape(-1, 8) for part in (bodies[:, 7:PLACES], bodies[:, PLACES + 6 : PLACES + SPEEDS])]
    torso = [-y, x, z, rotation[0], -rotation[2], rotation[1], rotation[3]]
    return np.column_stack([*torso, legs[0], -ahead, right, up, -spin[1], spin[0], spin[2], legs[1], bodies[:, PLACES + SPEEDS :]])


def mirror_body(bodies: np.ndarray) -> np.ndarray:
    signs = [1, -1, 1, 1, -1, 1, -1], [1, -1, 1, -1, 1, -1]
    legs = [mirror(part.reshape(-1, 4, 2)).reshape(-1, 8) for part in (bodies[:, 7:PLACES], bodies[:, PLACES + 6 : PLACES + SPEEDS])]
    torso, moves = bodies[:, :7] * signs[0], bodies[:, PLACES : PLACES + 6] * signs[1]
    return np.column_stack([torso, legs[0], moves, legs[1], bodies[:, PLACES + SPEEDS :]])


@pytest.mark.parametrize(
    ("body", "legs", "name", "other"),
    [
        (turn_body, turn, "ant-reward-0", "ant-reward-90"),
        (turn_body, turn, "ant-reward-45-without-4", "ant-reward-135-without-1"),
        (mirror_body, mirror, "ant-reward-45", "ant-reward-315"),
        (mirror_body, mirror, "ant-dynamics-back", "ant-dynamics-right"),
    ],
)
def test_a_quarter_turn_and_a_reflection_change_only_names(
    body: Callable[[np.ndarray], np.ndarray], legs: Callable[[np.ndarray], np.ndarray], name: str, other: str
) -> None:
    env, twin, random = ant_named(name), ant_named(other), np.random.default_rng(1)
    world = env.reset_many(seeds(4))[0]
    bodies = world.bodies * (np.arange(world.bodies.shape[1]) < PLACES + SPEEDS)  # the solver starts from nothing in both
    here, there = replace(world, bodies=bodies), AntWorld(body(bodies), body(bodies)[:, :2], world.time)
    for _ in range(10):
        actions = draw(random, 4)
        here, _, reward, fallen = env.advance(here, actions, np.ones(4, bool))
        there, _, their_reward, their_fallen = twin.advance(there, legs(actions), np.ones(4, bool))
        both = slice(PLACES + SPEEDS)
        np.testing.assert_allclose(body(here.bodies)[:, both], there.bodies[:, both], atol=1e-10)
        np.testing.assert_allclose(reward, their_reward, atol=1e-10)
        assert (fallen == their_fallen).all()


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    env, found = ant_named("ant-reward-45"), []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("COMAD_THREADS", threads)
        world, shown = play(env, 7, 6)
        found.append((world.bodies, world.spots, *(step.reward for step in shown)))
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


def test_episodes_follow_from_their_seeds_alone_and_those_that_have_ended_are_left_alone() -> None:
    env = ant_named("ant-reward-0")
    world, _ = env.reset_many(seeds(3))
    alone, _ = env.reset_many(seeds(3)[2:])
    np.testing.assert_array_equal(alone.bodies[0], world.bodies[2])
    assert len(np.unique(world.bodies[:, :PLACES], axis=0)) == 3
    actions = draw(np.random.default_rng(0), 3)
    after, _ = env.step_many(world, actions, np.array([True, False, True]))
    np.testing.assert_array_equal(after.bodies[1], world.bodies[1])
    assert after.time.tolist() == [1, 0, 1]
    np.testing.assert_array_equal(env.step_many(alone, actions[2:], np.ones(1, bool))[0].bodies[0], after.bodies[2])


def test_the_limit_is_an_end_beyond_which_value_lies_and_a_fall_is_not() -> None:
    env = ant_named("ant-reward-0-3t")
    _, shown = play(env, 2, 3)
    assert [step.ended.tolist() for step in shown] == [[False] * 2, [False] * 2, [True] * 2]
    assert not shown[-1].terminated.any() and not shown[-1].success.any()
    world, _ = env.reset_many(seeds(2))
    bodies = world.bodies.copy()
    bodies[0, 2], bodies[1, 2] = 1.5, 0.9
    _, step = env.step_many(replace(world, bodies=bodies), np.zeros((2, 4, 2)), np.ones(2, bool))
    assert step.terminated.tolist() == step.ended.tolist() == [True, False]
    # At such a height nothing touches it: only the second one gets its point for being well.
    speed = (step.reward - np.array([0.0, 1.0])).tolist()
    assert all(abs(number) < 0.5 for number in speed)


def test_legs_out_of_order_neither_move_nor_cost_anything() -> None:
    env = ant_named("ant-without-2-4")
    world, _ = env.reset_many(seeds(2))
    actions = draw(np.random.default_rng(0), 2)
    idle = actions * np.array([1, 0, 1, 0])[None, :, None]
    one, two, three = (
        some.advance(world, asked, np.ones(2, bool)) for some, asked in ((env, actions), (env, idle), (replace(env, disabled=()), idle))
    )
    for other in (two, three):
        np.testing.assert_array_equal(one[0].bodies, other[0].bodies)
        np.testing.assert_array_equal(one[2], other[2])
    whole = replace(env, disabled=()).advance(world, actions, np.ones(2, bool))
    assert (whole[0].bodies != one[0].bodies).any()
    beyond = env.advance(world, 1e9 * actions, np.ones(2, bool))
    np.testing.assert_array_equal(beyond[0].bodies, env.advance(world, np.sign(actions), np.ones(2, bool))[0].bodies)


@pytest.mark.parametrize("where", ["action", "place", "speed"])
def test_numbers_that_are_not_finite_end_an_episode_with_a_warning(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    env = ant_named("ant-reward-0")
    world, _ = env.reset_many(seeds(3))
    actions, bodies = draw(np.random.default_rng(0), 3), world.bodies.copy()
    if where == "action":
        actions[1, 2, 0] = np.nan
    else:
        bodies[1, 20 if where == "speed" else 8] = np.nan if where == "place" else 1e12
    with pytest.warns(RuntimeWarning, match="numbers are no longer finite"):
        after, step = env.step_many(replace(world, bodies=bodies), actions, np.ones(3, bool))
    assert step.terminated.tolist() == step.ended.tolist() == [False, True, False]
    assert step.reward[1] == 0
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((step.tokens, step.state)))
    healthy, _ = env.step_many(world, np.where(np.isfinite(actions), actions, 0), np.ones(3, bool))
    np.testing.assert_array_equal(after.bodies[[0, 2]], healthy.bodies[[0, 2]])
    assert list(tmp_path.iterdir()) == []  # MuJoCo writes its alarms into the current folder if one lets it


def test_tokens_are_about_one_in_size() -> None:
    _, shown = play(ant_named("ant-reward-0"), 8, 20)
    for group in ("agents", "targets"):
        values = np.concatenate([np.asarray(getattr(step.state, group)) for step in shown])
        assert 0.05 < values.std() < 1 and abs(values).max() < 5


def test_recordings_hold_the_state_and_what_legs_see_is_made_from_it(tmp_path: Path) -> None:
    env = ant_named("ant-reward-0-obsk1-6t")
    dataset = record(tmp_path / "data", env, episodes=3)
    assert not any(name.startswith("tokens") for name in dataset.arrays)
    # A moment takes 105 numbers of state, 8 of action, a reward and two bytes that say who is there.
    moments = sum(array.nbytes for name, array in dataset.arrays.items() if not name.startswith("episode"))
    assert moments == 3 * 7 * (4 * (105 + 8 + 1) + 2)
    assert not np.asarray(dataset.arrays["episode.terminated"]).any()

    def keep(world: AntWorld, step: Step, actions: jax.Array) -> Step:
        return step

    _, shown = rollout(env, RandomPlayer(env.spec), episode_keys(jax.random.key(0), 0, 3), keep)
    index = Packing.plan(dataset.starts, dataset.lengths, 3).index(0, 0, 0)
    batch = jax.jit(gather, static_argnums=0)(dataset.spec, upload(dataset), index)
    episode, moment = np.divmod(np.asarray(index.moment), 7)
    np.testing.assert_array_equal(batch.tokens.own[..., : len(env.spec.own)], shown.tokens.own[episode, moment])
    np.testing.assert_array_equal(batch.tokens.allies, shown.tokens.allies[episode, moment])
    assert batch.tokens.ally_seen.all() and not batch.terminated.any() and batch.available.shape[-1] == 0


def test_returns_in_the_thousands_become_scores() -> None:
    spec = ant_named("ant-reward-0").spec
    assert [score(total, 0.0, spec, "return") for total in (-20.0, 2500.0, 5600.0)] == [0.0, 0.5, 1.0]
    assert score(5000.0, 0.25, spec, "success") == 0.25


def test_pictures_show_legs_and_where_to_run() -> None:
    env = ant_named("ant-reward-90-without-1-4t")
    episode = watch(env, RandomPlayer(env.spec), 0)
    scenes = episode.scenes
    assert len(scenes) == episode.length + 1 == 5 and "step 4 of 4" in scenes[-1].title
    lines = [mark for mark in scenes[0].marks if mark.shape == "line"]
    assert len(lines) == 1 + 4 * 3
    assert lines[0].end is not None and lines[0].end[0] < 1 and math.isclose(lines[0].end[1], 3.5)
    assert paint(scenes[0]).shape == paint(scenes[-1]).shape


def test_the_simulator_is_shared_by_all_ants() -> None:
    assert simulator() is simulator()


@playable
def test_worlds_of_one_shape_share_the_compiled_decision() -> None:
    before = _decider.cache_info().currsize
    player, keys = RandomPlayer(ant_named("ant-reward-0-2t").spec.shape), episode_keys(jax.random.key(0), 0, 2)
    for name in ("ant-reward-0-2t", "ant-reward-45-2t", "ant-dynamics-back-2t"):
        rollout(ant_named(name), player, keys)
    assert _decider.cache_info().currsize == before + 1


class Pusher(eqx.Module):
    """Pushes in a rhythm of its own, as hard as it is told, and rests where an agent may not act."""

    strength: Float[Array, ""]
    rhythm: Float[Array, " moment"]

    def start(self, spec: Any) -> Any:
        return jnp.int32(0)

    def act(self, memory: Any, tokens: Tokens, available: Bool[Array, "agent action"], key: PRNGKey) -> tuple[Actions, Any]:
        return jnp.full((4, 2), self.strength * self.rhythm[memory]), memory + 1


def test_worlds_played_together_go_as_each_does_alone() -> None:
    rhythm = jnp.sin(jnp.arange(31.0))
    worlds = [ant_named(name) for name in APART]
    players = [Pusher(jnp.float32(strength), rhythm) for strength in (0.2, 0.5, 1.0)]
    keys = [episode_keys(jax.random.key(task), 0, 3) for task in range(3)]
    together = rollout_all(worlds, players, keys)
    for env, player, some, outcome in zip(worlds, players, keys, together, strict=True):
        alone, _ = rollout(env, player, some)
        assert outcome.total.tolist() == alone.total.tolist() and outcome.length.tolist() == alone.length.tolist()
    assert len({total for outcome in together for total in outcome.total.tolist()}) == 9


def test_worlds_that_are_not_alike_are_played_one_by_one() -> None:
    worlds = [ant_named("ant-reward-0-5t"), ant_named("ant-reward-0-7t")]
    keys = [episode_keys(jax.random.key(0), 0, 2)] * 2
    outcomes = rollout_all(worlds, [Pusher(jnp.float32(0.1), jnp.ones(8))] * 2, keys)
    assert [outcome.length.tolist() for outcome in outcomes] == [[5, 5], [7, 7]]


def test_weights_that_all_players_share_are_not_copied() -> None:
    rhythm = jnp.ones(8)
    arrays, axes = _cast([Pusher(jnp.float32(number), rhythm) for number in range(2)], 3)
    assert axes == (0, None) and arrays[0].tolist() == [0, 0, 0, 1, 1, 1] and arrays[1] is rhythm
