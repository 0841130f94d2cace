"""Battles show what the simulator computes, and end as they should."""

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from battles import (
    DUEL,
    LARGE,
    SMALL,
    Charge,
    battle_named,
    moments,
    placed,
    play,
    playable,
    stepped,
)

from comad.envs import smax
from comad.envs.battle import Battle, look
from comad.envs.scene import AGENT, DONE, FOE
from comad.envs.smax import STOP, BattleWorld
from comad.envs.units import COOLDOWN, HEALTH, REACH, SIGHT
from comad.tokens import other_agents


@playable
@pytest.mark.parametrize("name", [SMALL, *LARGE])
def test_tokens_say_what_the_raw_state_says(name: str) -> None:
    env = battle_named(name)
    world, step, _ = moments(name)
    ours = env.num_agents
    others, checked = other_agents(ours), 0
    for moment in range(0, len(world.time), 3):
        positions, kinds, health, alive = world.positions[moment], world.kinds[moment], world.health[moment], world.health[moment] > 0
        share = health / HEALTH[kinds]
        cooldown = np.clip(world.cooldowns[moment] / COOLDOWN[kinds], 0, 1)
        tokens = jax.tree.map(lambda leaf, at=moment: leaf[at], step.tokens)
        for agent in range(ours):
            own = [share[agent], *positions[agent] / 32, cooldown[agent], *np.eye(6)[kinds[agent]]]
            np.testing.assert_allclose(tokens.own[agent], np.array(own) * alive[agent], atol=1e-6)
            views = [(unit, tokens.allies[agent, slot], tokens.ally_seen[agent, slot]) for slot, unit in enumerate(others[agent])]
            views += [(ours + slot, tokens.targets[agent, slot], tokens.target_seen[agent, slot]) for slot in range(env.num_enemies)]
            for unit, token, seen in views:
                offset = positions[unit] - positions[agent]
                distance = float(np.hypot(*offset.astype(float)))
                near = distance < SIGHT[kinds[agent]]
                assert seen == (near and alive[agent] and alive[unit]) or abs(distance - SIGHT[kinds[agent]]) < 1e-4
                does = [*world.moves[moment, unit], world.attacks[moment, unit] > 4]
                expected = [share[unit], *offset / 10, cooldown[unit], *does, *np.eye(6)[kinds[unit]]]
                aim = [distance < REACH[kinds[agent]]] if unit >= ours else []
                np.testing.assert_allclose(token, np.array([*expected, *aim]) * seen, atol=1e-6)
                checked += 1
    assert checked > 1000
    assert not (world.health > 0).all() and not np.asarray(step.tokens.target_seen).all()


@functools.partial(jax.jit, static_argnums=0)
def as_the_simulator_sees_it(env: Battle, world: BattleWorld) -> tuple[Any, Any]:
    def look_at(world: BattleWorld) -> tuple[Any, Any]:
        with smax._in_its_own_ways():
            state = smax._to_simulator(world, env.game)
            views, masks = env.game.get_obs(state), env.game.get_avail_actions(state)
        ours = env.game.agents[: env.num_agents]
        return jnp.stack([views[agent] for agent in ours]), jnp.stack([masks[agent] for agent in ours])

    return jax.vmap(look_at)(world)


@playable
@pytest.mark.parametrize("name", [SMALL, *LARGE])
def test_tokens_and_masks_are_the_simulators_own_observation(name: str) -> None:
    env = battle_named(name)
    world, step, _ = moments(name)
    views, masks = map(np.asarray, as_the_simulator_sees_it(env, jax.tree.map(jnp.asarray, world)))
    np.testing.assert_array_equal(step.available, masks.astype(bool))
    others = env.num_agents - 1
    units = views[..., : 13 * (others + env.num_enemies)].reshape(*views.shape[:2], -1, 13)
    ours = np.concatenate([step.tokens.allies, step.tokens.targets[..., :-1]], axis=-2)
    np.testing.assert_array_equal(np.concatenate([step.tokens.ally_seen, step.tokens.target_seen], -1), units[..., 0] > 0)
    sight = SIGHT[world.kinds[:, : env.num_agents]][..., None, None]
    np.testing.assert_allclose(ours[..., 1:3] * 10, units[..., 1:3] * sight, atol=1e-5)
    np.testing.assert_allclose(ours[..., [0, 3, 4, 5]], units[..., [0, 6, 3, 4]], atol=1e-6)
    np.testing.assert_array_equal(ours[..., 6] > 0, units[..., 5] > 0)
    np.testing.assert_array_equal(ours[..., 7:], units[..., 7:])
    np.testing.assert_allclose(step.tokens.own, views[..., -10:], atol=1e-6)


@playable
@pytest.mark.parametrize("name", [SMALL, *LARGE])
def test_features_are_about_one_and_the_dead_are_zero(name: str) -> None:
    env = battle_named(name)
    world, step, _ = moments(name)
    for leaf in jax.tree.leaves((step.tokens, step.state)):
        assert np.abs(leaf).max(initial=0) < 1.05
    alive = world.health > 0
    np.testing.assert_array_equal(np.concatenate([step.state.agent_present, step.state.target_present], -1), alive)
    units = np.concatenate([step.state.agents, step.state.targets], -2)
    assert not units[~alive].any() and (units[alive][:, 0] > 0).all()
    dead = ~alive[:, : env.num_agents]
    assert dead.any() and not step.tokens.own[dead].any() and not step.tokens.targets[dead].any() and not step.tokens.ally_seen[dead].any()
    assert (step.available[dead] == np.eye(env.spec.num_actions, dtype=bool)[STOP]).all()
    assert (world.cooldowns < 0).any(), "the simulator's own cooldowns fall below zero"


@playable
def test_a_victory_is_what_the_simulator_rewards_as_one() -> None:
    outcome, world, step, _ = play(battle_named(SMALL), Charge(), 64)
    wins = outcome.success
    last = np.take_along_axis(step.reward, outcome.length[:, None], 1)[:, 0]
    assert 5 < wins.sum() < 59
    np.testing.assert_array_equal(wins, last >= 10)
    np.testing.assert_allclose(outcome.total[wins], 20.0, rtol=1e-5)
    assert (outcome.total[~wins] < 10.0).all()
    for episode, length in enumerate(outcome.length):
        theirs = world.health[episode, : length + 1, 3:].sum(-1)
        np.testing.assert_allclose(step.reward[episode, 1 : length + 1].sum(), 10 * (1 - theirs[-1] / 135) + 10 * wins[episode], rtol=1e-5)
        assert not step.ended[episode, :length].any() and step.terminated[episode, length]


@playable
def test_a_draw_is_no_victory() -> None:
    env = battle_named(SMALL)
    world, step = stepped(env, placed(DUEL, [5, 0, 0, 5, 0, 0]), [STOP + 1, STOP, STOP])
    assert not np.asarray(world.alive).any()
    assert step.ended and step.terminated and not step.success
    np.testing.assert_allclose(step.reward, 10 * (5 / 45) / 3, rtol=1e-5)


@playable
def test_the_limit_is_an_end_and_not_one_step_late() -> None:
    env = battle_named(SMALL)
    for time, ended in ((98, False), (99, True)):
        world, step = stepped(env, placed(DUEL, [45, 45, 45, 45, 45, 45], time), [STOP] * 3)
        assert [bool(step.ended), bool(step.terminated), bool(step.success), int(world.time)] == [ended, ended, False, time + 1]


@playable
def test_what_is_unavailable_is_a_stop() -> None:
    env = battle_named(SMALL)
    world = placed(DUEL, [45, 0, 45, 45, 45, 45])
    asked, did = stepped(env, world, [STOP + 2, 1, STOP + 3]), stepped(env, world, [STOP, STOP, STOP])
    assert jax.tree.all(jax.tree.map(lambda one, other: bool((one == other).all()), asked, did))


@playable
def test_scenes_show_the_living_their_health_and_their_shots() -> None:
    env = battle_named(SMALL)
    world, _ = stepped(env, placed(DUEL, [45, 45, 0, 45, 45, 45]), [STOP + 1, STOP, STOP])
    drawn = env.scene(jax.tree.map(np.asarray, world))
    discs = [(mark.color, mark.label) for mark in drawn.marks if mark.shape == "disc"]
    assert discs == [(AGENT, "M")] * 2 + [(FOE, "M")] * 3
    assert (drawn.rows, drawn.columns, drawn.title) == (32, 32, "3M   step 1 of 100")
    first = next(mark for mark in drawn.marks if mark.shape == "disc")
    np.testing.assert_allclose((first.row, first.column), (32 - world.positions[0, 1] - 0.5, world.positions[0, 0] - 0.5), rtol=1e-6)
    lines = [mark for mark in drawn.marks if mark.shape == "line"]
    assert [line.color for line in lines] == [AGENT, FOE], "the two in range shoot each other"
    assert lines[0].end == (lines[1].row, lines[1].column) and lines[1].end == (lines[0].row, lines[0].column)
    bars = [mark.size for mark in drawn.marks if mark.shape == "bar" and mark.color == DONE]
    np.testing.assert_allclose(bars, 1.2 * np.asarray(world.health)[np.asarray(world.alive)] / 45, rtol=1e-6)
    assert 0 < min(bars) < max(bars)
    calm = env.scene(jax.tree.map(np.asarray, replace(world, attacks=jnp.zeros(6, jnp.int32))))
    assert not [mark for mark in calm.marks if mark.shape == "line"]


@playable
def test_what_agents_see_follows_from_the_state() -> None:
    _, step, _ = moments(SMALL)
    tokens, available = jax.jit(jax.vmap(look))(jax.tree.map(jnp.asarray, step.state))
    again = jax.tree.map(lambda one, other: np.array_equal(one, other), (tokens, available), (step.tokens, step.available))
    assert jax.tree.all(again)
