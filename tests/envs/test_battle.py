"""Battles show what the simulator computes, end as they should, and do without the simulator's bugs."""

import functools
import importlib
import importlib.util
import subprocess
import sys
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from comad import envs, streams
from comad.bench import plain_battle
from comad.envs import battle, smax
from comad.envs.base import Env
from comad.envs.battle import Battle, look
from comad.envs.rollout import Player, RandomPlayer, episode_keys, rollout
from comad.envs.scene import AGENT, DONE, FOE
from comad.envs.script import command, draw_seen
from comad.envs.smax import MARGIN, SIZE, STOP, BattleWorld
from comad.envs.units import COOLDOWN, HEALTH, KINDS, NUMBERS, RACES, REACH, SIGHT
from comad.errors import UserError
from comad.tokens import draw_available, other_agents
from comad.types import Actions, PRNGKey, Spec, Step, Tokens

playable = pytest.mark.skipif(importlib.util.find_spec("jaxmarl") is None, reason="needs jaxmarl: pip install 'comad[battle]'")
SMALL = "3m"
"""Compiled in the quick tests; every other battle takes as long again."""
LARGE = [pytest.param(name, marks=pytest.mark.slow) for name in ("2s3z", "5m_vs_6m", "2s1z_vs_3z", "protoss_5v5", "zerg_6v8", "terran_6v4")]


def battle_named(name: str) -> Battle:
    env = battle.make(name)
    assert env is not None
    return env


class Charge(eqx.Module):
    """A team that walks east and shoots at the first enemy in range: it wins some battles of marines and loses others."""

    def start(self, spec: Spec) -> None:
        """Nothing to remember."""

    def act(self, memory: None, tokens: Tokens | None, available: Any, key: PRNGKey) -> tuple[Actions, None]:
        shots = available[:, STOP + 1 :]
        return jnp.where(shots.any(-1), STOP + 1 + shots.argmax(-1), jnp.where(available[:, 1], 1, STOP)), None


def everything(world: Any, step: Step, actions: Actions) -> Any:
    return world, step, actions


def play(env: Battle, player: Player, episodes: int) -> Any:
    """Outcome, worlds, steps and actions of whole episodes, as NumPy arrays."""
    outcome, kept = rollout(env, player, episode_keys(jax.random.key(1), 0, episodes), everything)
    return jax.tree.map(np.asarray, (outcome, *kept))


@functools.cache
def moments(name: str) -> Any:
    """Worlds, steps and actions of all moments that a random team has played, in one row."""
    env = battle_named(name)
    outcome, *kept = play(env, RandomPlayer(env.spec), 24)
    within = np.arange(env.limit + 1)[None] <= outcome.length[:, None]
    return jax.tree.map(lambda leaf: leaf[within], tuple(kept))


def stepped(env: Battle, world: BattleWorld, actions: list[int]) -> tuple[BattleWorld, Step]:
    return step_jitted(env, world, jnp.array(actions), jax.random.key(0))


@functools.partial(jax.jit, static_argnums=0)
def step_jitted(env: Battle, world: BattleWorld, actions: Actions, key: PRNGKey) -> tuple[BattleWorld, Step]:
    return env.step(world, actions, key)


def placed(positions: list[tuple[float, float]], health: list[float], time: int = 0) -> BattleWorld:
    """Marines, three a side."""
    return BattleWorld(
        positions=jnp.array(positions, jnp.float32),
        health=jnp.array(health, jnp.float32),
        kinds=jnp.zeros(6, jnp.int32),
        cooldowns=jnp.zeros(6),
        moves=jnp.zeros((6, 2)),
        attacks=jnp.zeros(6, jnp.int32),
        goals=jnp.full((3, 2), 8.0),
        grudges=jnp.full(3, -1, jnp.int32),
        time=jnp.int32(time),
    )


DUEL = [(8.0, 16.0), (1.5, 1.5), (1.5, 30.5), (11.0, 16.0), (30.5, 1.5), (30.5, 30.5)]
"""The first of each side face each other; the others are far away."""


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


def distances(world: BattleWorld) -> np.ndarray:
    positions = np.asarray(world.positions)
    return np.linalg.norm(positions[:, None] - positions[None], axis=-1)


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


def test_units_of_a_race_are_of_two_kinds_alike_on_both_sides() -> None:
    for race, pair in RACES.items():
        for ours, theirs in ((5, 5), (10, 13), (6, 4)):
            env, numbers = Battle(ours, theirs, race=race), [NUMBERS[unit] for unit in pair]
            kinds = np.asarray(jax.jit(jax.vmap(env.draw_kinds))(jax.random.split(jax.random.key(0), 4000)))
            assert kinds.shape == (4000, ours + theirs) and set(np.unique(kinds)) == set(numbers)
            both = min(ours, theirs)
            np.testing.assert_array_equal(kinds[:, :both], kinds[:, ours : ours + both])
            np.testing.assert_allclose((kinds == numbers[0]).mean(0), 0.5, atol=0.04)
            extra = kinds[:, ours + both :]
            assert theirs <= ours or len(np.unique(extra, axis=0)) == 2 ** (theirs - ours)


@functools.partial(jax.jit, static_argnums=0)
def starts(env: Battle, keys: Any) -> BattleWorld:
    return jax.vmap(lambda key: env.reset(key)[0])(keys)


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


def test_names_lead_back_to_the_same_world() -> None:
    assert len(battle.NAMES) == 34
    for name in (*battle.NAMES, "7m", "3s2z", "1m_vs_2g", "1a2h_vs_3z", "terran_3v9", "3m-60t", "zerg_5v5-200t"):
        env = battle_named(name)
        assert env.name == env.spec.env == name
    assert battle_named("2s3z").units == ("stalker", "stalker", "zealot", "zealot", "zealot") * 2
    assert battle_named("2m1m_vs_3m") == battle_named("3m")
    assert battle_named("2s1z_vs_3z").spec.num_actions == 5 + 3
    assert envs.find("Protoss_5v5") == battle_named("protoss_5v5") == Battle(5, 5, race="protoss")
    assert len({battle_named(name).spec.rules_hash for name in battle.NAMES}) == 34


def test_all_battles_share_one_kind_of_token() -> None:
    specs = [battle_named(name).spec for name in battle.NAMES]
    assert len({(spec.own, spec.ally, spec.target, spec.state_agent, spec.state_target) for spec in specs}) == 1


def test_streams_are_the_published_ones() -> None:
    tasks = {name: [task.env for task in streams.find(name).tasks] for name in ("marines", "stalker-zealot", "protoss", "terran", "zerg")}
    assert [env for names in tasks.values() for env in names] == list(battle.NAMES)
    marines = streams.find("marines")
    assert (marines.updates, marines.threshold, marines.metric) == (20_000, 8.0, "success")
    for number in (1, 2, 3):
        assert sorted(task.env for task in streams.find(f"marines-seq{number}").tasks) == sorted(tasks["marines"])
    assert [task.env for task in streams.find("marines-seq1").tasks] == tasks["marines"][::-1]


@playable
@pytest.mark.slow
@pytest.mark.parametrize("name", battle.NAMES)
def test_every_battle_can_be_made_and_begun(name: str) -> None:
    env = envs.make(name)
    assert isinstance(env, Env)
    _, step = jax.jit(env.reset)(jax.random.key(0))
    assert step.state.agent_present.all() and step.state.target_present.all() and not step.ended
    assert step.available.shape == (env.spec.num_agents, env.spec.num_actions)


@pytest.mark.parametrize(
    ("name", "complaint"),
    {
        "3x": "3x: 'x' stands for no unit; known: m marine",
        "3mm": "'mm' stands for no unit",
        "2c_vs_64zg": "'c' stands for no unit",
        "0m": "0m is no unit at all",
        "3m_vs_0z": "0z is no unit at all",
        "33m": "33m: a team has 1 to 32 units, not 33",
        "5m_vs_20m20z": "a team has 1 to 32 units, not 40",
        "99999999999999m": "not 99999999999999",
        "protoss_0v5": "protoss_0v5: a team has 1 to 32 units, not 0",
        "zerg_5v33": "not 33",
        "human_5v5": "there is no race named 'human'; known: protoss, terran, zerg",
        "3m-0t": "the limit must be at least 1, not 0",
        "3m_vs": "there is no world named '3m_vs'; did you mean",
        "5v5": "there is no world named '5v5'",
    }.items(),
)
def test_names_that_stand_for_no_battle_are_refused(name: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        envs.find(name)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({}, "give the kind of each of the 4 units, or a race"),
        ({"units": ("marine",) * 3}, "give the kind of each of the 4 units"),
        ({"units": ("marine",) * 4, "race": "terran"}, "or a race"),
        ({"units": ("medivac",) * 4}, "there is no unit named 'medivac'"),
    ],
)
def test_settings_that_make_no_battle_are_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        Battle(2, 2, **settings)


def test_without_the_simulator_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"worlds like 5m_vs_6m need jaxmarl, which is not installed: pip install 'comad\[battle\]'"):
        envs.make("5m_vs_6m")
    assert set(battle.NAMES) < set(envs.names()) and envs.find("3m").spec.num_agents == 3
    assert envs.make("cn-2").spec.num_agents == 2
    monkeypatch.setitem(sys.modules, "jaxmarl.environments.smax", None)
    with pytest.raises(UserError, match=r"battles need jaxmarl, which is not installed: pip install 'comad\[battle\]'"):
        smax.load()


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
