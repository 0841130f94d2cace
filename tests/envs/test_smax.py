"""Battles go as jaxmarl plays them, and do without its bugs."""

import importlib
import importlib.util
import subprocess
import sys
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from battles import LARGE, SMALL, Charge, battle_named, distances, placed, playable, starts, step_jitted

from comad.bench import plain_battle
from comad.envs import smax
from comad.envs.battle import look
from comad.envs.script import command, draw_seen
from comad.envs.smax import MARGIN, SIZE, STOP
from comad.envs.units import HEALTH, KINDS
from comad.tokens import draw_available


@playable
@pytest.mark.parametrize("name", [SMALL, *LARGE])
def test_battles_go_as_jaxmarl_plays_them_against_its_script(name: str) -> None:
    env, stock = battle_named(name), plain_battle.stock(battle_named(name))
    key = jax.random.key(7)
    world, _ = jax.jit(env.reset)(key)
    modules = [importlib.import_module(f"jaxmarl.environments.smax.{part}") for part in ("heuristic_enemy", "heuristic_enemy_smax_env")]
    script = modules[0].HeuristicPolicyState(world.goals, world.grudges)
    state = modules[1].State(smax._to_simulator(world, env.game), script)
    # Sight of several at once, shots and deaths must all have happened.
    fights, crowds = 0, 0
    for time in range(25):
        key, draw_key = jax.random.key(time), jax.random.key(1000 + time)
        available = look(env.situation(world))[1]
        actions, _ = Charge().act(None, None, available, key) if time % 4 else (draw_available(draw_key, available), None)
        crowds += int((distances(world)[env.num_agents :, : env.num_agents] < 8).sum(-1).max() > 1)
        with jax.numpy_rank_promotion("allow"):
            named = {agent: actions[number] for number, agent in enumerate(stock.agents)}
            _, state, rewards, _, _ = stock.step_env(key, state, named)
        world, step = step_jitted(env, world, actions, key)
        fights += int((np.asarray(world.attacks)[env.num_agents :] > STOP).any())
        np.testing.assert_allclose(step.reward, 10 * rewards["ally_0"], atol=1e-4)
        alive = np.asarray(world.alive)
        theirs = state.state
        for mine, other in (
            (world.positions, theirs.unit_positions),
            (world.health, theirs.unit_health),
            (world.cooldowns, theirs.unit_weapon_cooldowns),
            (world.moves, theirs.prev_movement_actions),
            (world.attacks, theirs.prev_attack_actions),
        ):
            np.testing.assert_allclose(np.asarray(mine)[alive], np.asarray(other)[alive], atol=1e-3)
        remembered = state.enemy_policy_state
        np.testing.assert_array_equal(world.grudges[alive[env.num_agents :]], remembered.last_attacked_enemy[alive[env.num_agents :]])
        np.testing.assert_allclose(world.goals[alive[env.num_agents :]], remembered.default_target[alive[env.num_agents :]], atol=1e-4)
        if step.ended:
            break
    assert fights > 3 and crowds > 1


@playable
@pytest.mark.parametrize("name", [SMALL, pytest.param("2s3z", marks=pytest.mark.slow), pytest.param("5m_vs_6m", marks=pytest.mark.slow)])
def test_battles_begin_as_in_the_scenario_of_that_name(name: str) -> None:
    env, module = battle_named(name), smax.load()
    stock, key = module.SMAX(scenario=module.map_name_to_scenario(name)), jax.random.key(7)
    with jax.numpy_rank_promotion("allow"):
        _, state = stock.reset(jax.random.split(key)[0])
    world, _ = jax.jit(env.reset)(key)
    for mine, theirs in ((world.positions, state.unit_positions), (world.health, state.unit_health), (world.kinds, state.unit_types)):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)


@playable
def test_a_step_is_compiled_once() -> None:
    env = battle_named(SMALL)
    world, first = jax.jit(env.reset)(jax.random.key(0))
    step: Any = jax.jit(env.step)
    for time in range(3):
        world, shown = step(world, jnp.full(3, 1), jax.random.key(time))
        assert jax.tree.map(jnp.shape, shown) == jax.tree.map(jnp.shape, first)
    assert step._cache_size() == 1
    assert not any(leaf.weak_type for leaf in jax.tree.leaves((world, shown)))


@pytest.mark.slow
def test_enemies_who_see_nobody_cross_the_map() -> None:
    # Each step of theirs would be NaN if anything were divided by how many they see.
    world = placed([(2.0, 2.0), (3.0, 2.0), (2.0, 4.0), (30.0, 16.0), (16.0, 30.0), (28.0, 20.0)], [45.0] * 6)
    world = replace(world, goals=jnp.zeros((3, 2)))
    with jax.debug_nans(True), jax.disable_jit():
        memory = world.goals, world.grudges
        orders, goals, grudges = command(
            world.positions, world.alive, world.kinds[3:], *memory, jax.random.key(0), size=SIZE, first_attack=STOP + 1
        )
    assert orders.tolist() == [3, 2, 3] and grudges.tolist() == [-1, -1, -1], "west, south and west"
    assert goals.tolist() == [[2.0, 16.0], [16.0, 2.0], [4.0, 12.0]]


def test_enemies_follow_each_of_those_they_see_equally_often() -> None:
    seen = jnp.array([[True, False, True, True], [False, False, True, False]])
    drawn = np.asarray(jax.vmap(lambda key: draw_seen(key, seen))(jax.random.split(jax.random.key(0), 3000)))
    np.testing.assert_allclose(np.bincount(drawn[:, 0], minlength=4) / 3000, [1 / 3, 0, 1 / 3, 1 / 3], atol=0.03)
    assert (drawn[:, 1] == 2).all()


@playable
def test_the_simulator_is_loaded_late_and_leaves_the_output_alone() -> None:
    script = """
import contextlib, io, sys
import comad.envs
from comad.envs import smax
env = comad.envs.make("3m")
assert env.spec.num_agents == 3 and "jaxmarl" not in sys.modules
ours = io.StringIO()
with contextlib.redirect_stdout(ours), contextlib.redirect_stderr(ours):
    smax.load()
    assert sys.stdout is ours and sys.stderr is ours
assert "jaxmarl" in sys.modules and ours.getvalue() == "" and smax.TAKES_OVER_OUTPUT not in sys.modules
print("all is well")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("all is well\n", 0), done.stderr


@playable
@pytest.mark.parametrize("name", ["protoss_5v5", pytest.param("terran_20v23", marks=pytest.mark.slow)])
def test_races_start_inside_the_map_mirrored_or_surrounded(name: str) -> None:
    env = battle_named(name)
    worlds = jax.tree.map(np.asarray, starts(env, jax.random.split(jax.random.key(3), 1024)))
    ours, theirs = worlds.positions[:, : env.num_agents], worlds.positions[:, env.num_agents :]
    assert worlds.positions.min() >= MARGIN and worlds.positions.max() <= SIZE - MARGIN
    gap = np.abs(ours * [-1, 1] + [SIZE, 0] - theirs[:, : env.num_agents]).max((-1, -2))
    mirrored = gap < 1.0
    assert 0.4 < mirrored.mean() < 0.6
    middle = np.abs(worlds.positions - SIZE / 2).max(-1) < 4.5
    surrounded = middle[:, : env.num_agents].all(-1) | middle[:, env.num_agents :].all(-1)
    assert surrounded[~mirrored].mean() > 0.95
    np.testing.assert_array_equal(worlds.health, HEALTH[worlds.kinds])


@playable
@pytest.mark.slow
@pytest.mark.parametrize("name", ["protoss_5v5", "terran_20v23", "zerg_10v11"])
def test_nobody_dies_at_a_wall_in_the_first_step(name: str) -> None:
    env = battle_named(name)
    worlds = starts(env, jax.random.split(jax.random.key(5), 512))
    wait = jnp.full((512, env.num_agents), STOP)
    after, _ = jax.jit(jax.vmap(env.step))(worlds, wait, jax.random.split(jax.random.key(6), 512))
    positions = np.asarray(after.positions)
    assert positions.min() > 0 and positions.max() < SIZE


@playable
def test_kinds_are_the_simulators() -> None:
    game = battle_named(SMALL).game
    assert [kind.name for kind in KINDS] == list(game.unit_type_names)
    for what, theirs in {"health": "health", "sight": "sight_ranges", "reach": "attack_ranges", "cooldown": "weapon_cooldowns"}.items():
        np.testing.assert_allclose([getattr(kind, what) for kind in KINDS], getattr(game, f"unit_type_{theirs}"))
    np.testing.assert_allclose([kind.radius for kind in KINDS], game.unit_type_radiuses)
    assert (game.map_width, game.map_height, game.num_movement_actions) == (SIZE, SIZE, STOP + 1)
    assert game.time_per_step * game.world_steps_per_env_step == smax.STEP_SECONDS
