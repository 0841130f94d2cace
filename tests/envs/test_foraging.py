import functools
import itertools
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lbforaging.foraging.environment import Action, ForagingEnv

from comad import envs
from comad.envs import foraging
from comad.envs.foraging import LOAD, Foraging, ForagingWorld
from comad.errors import UserError
from comad.types import Step

STEPS = 2500
PARITY = (
    Foraging(2, 1, 5, 5, force_coop=True, max_player_level=1, food_cells=((3, 2),)),
    Foraging(3, 2, 5, 5, limit=20, penalty=0.1, food_cells=((1, 1), (3, 3))),
    Foraging(2, 1, 8, 8),
    Foraging(3, 3, 6, 9, sight=2, penalty=0.1),
    Foraging(4, 2, 7, 5, sight=4, force_coop=True),
    Foraging(5, 4, 9, 10, sight=2, max_player_level=3, min_food_level=2),
    Foraging(5, 3, 6, 6, sight=1, penalty=0.1, max_player_level=4, max_food_level=5),
    Foraging(4, 4, 6, 7, sight=6, penalty=0.1),
)
STARTS = (Foraging(3, 4, 6, 5, max_player_level=3), Foraging(4, 2, 6, 8, force_coop=True), PARITY[1])
# Each program here runs once, so the time goes into compiling it.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def original(env: Foraging) -> Any:
    """The same world in lbforaging."""
    oracle = ForagingEnv(
        players=env.num_agents,
        min_player_level=env.min_player_level,
        max_player_level=env.max_player_level,
        min_food_level=env.min_food_level,
        max_food_level=env.max_food_level or None,
        field_size=env.shape,
        max_num_food=env.num_foods,
        sight=env.sight or max(env.shape),
        max_episode_steps=env.limit,
        force_coop=env.force_coop,
        penalty=env.penalty,
    )
    # Its own bounds take rows for columns, so that on boards that are not square it refuses what it sees.
    box = gymnasium.spaces.Box(-1, 255, (3 * (env.num_foods + env.num_agents),), np.float32)
    oracle.observation_space = gymnasium.spaces.Tuple([box] * env.num_agents)
    return oracle


def start(oracle: Any, env: Foraging, seed: int) -> tuple[Any, ...]:
    """Reset lbforaging, move its food to where the world wants it, and return the parts of our world at this moment."""
    oracle.reset(seed=seed)
    if env.food_cells:
        weights = oracle.field[oracle.field > 0]
        if len(weights) < env.num_foods or any(player.position in env.food_cells for player in oracle.players):
            return start(oracle, env, seed + 1_000_000)
        oracle.field[:] = 0
        oracle.field[tuple(np.transpose(env.food_cells))] = weights
        oracle._gen_valid_moves()
    agents, levels = [player.position for player in oracle.players], [player.level for player in oracle.players]
    foods = np.concatenate([np.argwhere(oracle.field), np.zeros((env.num_foods, 2), int)])[: env.num_foods]
    return np.array(agents), np.array(levels), foods, oracle.field[tuple(foods.T)], oracle.field.sum(), np.array(0)


def play(env: Foraging) -> dict[str, Any]:
    """Episodes of lbforaging one after the other, by a team that lingers at food and else tries everything, allowed or not."""
    rng, oracle, ended, moments = np.random.default_rng(0), original(env), True, list[dict[str, Any]]()
    while len(moments) < STEPS:
        if first := ended:
            world = start(oracle, env, len(moments))
        beside = [Action.LOAD in oracle._valid_actions[player] for player in oracle.players]
        actions = np.where(beside & (rng.random(env.num_agents) < 0.7), LOAD, rng.integers(0, LOAD + 1, env.num_agents))
        views, rewards, ended, *_ = oracle.step(actions)
        agents = np.array([player.position for player in oracle.players])
        entities = np.array(views).reshape(env.num_agents, -1, 3)
        # It counts cells from the corner of what the agent sees.
        entities[..., :2] += np.where(entities[..., 2:] > 0, np.maximum(agents - oracle.sight, 0)[:, None], 0)
        available = np.array([[action in oracle._valid_actions[player] for action in Action] for player in oracle.players])
        told = {"agents": agents, "field": oracle.field.copy(), "available": available, "views": entities}
        moments.append({"world": world, "first": first, "actions": actions, "reward": sum(rewards), "ended": ended, **told})
    return jax.tree.map(lambda *leaves: np.stack(leaves), *moments)


def replay(env: Foraging, theirs: dict[str, Any]) -> tuple[ForagingWorld, Step]:
    """What our world makes of the same starts and actions."""

    def advance(world: ForagingWorld, moment: tuple[Any, ...]) -> tuple[ForagingWorld, tuple[ForagingWorld, Step]]:
        start, first, actions = moment
        world = jax.tree.map(lambda new, old: jnp.where(first, new, old), ForagingWorld(*start), world)
        shown = env.step(world, actions, jax.random.key(0))
        return shown[0], shown

    moments = jax.tree.map(jnp.asarray, (theirs["world"], theirs["first"], theirs["actions"]))
    world = ForagingWorld(*jax.tree.map(lambda leaf: leaf[0], moments[0]))
    return jax.tree.map(np.asarray, jit(lambda *inputs: jax.lax.scan(advance, *inputs)[1])(world, moments))


def in_cells(env: Foraging, tokens: Any) -> np.ndarray:
    """Tokens as row, column and level; -1, -1, 0 where there is nothing, as lbforaging has it."""
    return np.rint(tokens * np.array([feature.unit for feature in env.spec.own])) - np.array([1, 1, 0])


def as_views(env: Foraging, step: Step) -> np.ndarray:
    """Our tokens in the order of lbforaging's observation: food row by row, oneself, the others; what is unseen last."""
    targets, allies = in_cells(env, step.tokens.targets), in_cells(env, step.tokens.allies)
    by_rows = np.where(step.tokens.target_seen, targets[..., 0] * env.columns + targets[..., 1], np.inf).argsort(-1)
    seen_first = np.logical_not(step.tokens.ally_seen).argsort(-1, stable=True)
    own = in_cells(env, step.tokens.own)[..., None, :]
    ordered = [np.take_along_axis(entities, order[..., None], -2) for entities, order in ((targets, by_rows), (allies, seen_first))]
    return np.concatenate([ordered[0], own, ordered[1]], -2)


@pytest.mark.parametrize("env", PARITY, ids=lambda env: env.name)
def test_every_step_is_as_in_lbforaging(env: Foraging) -> None:
    theirs = play(env)
    world, step = replay(env, theirs)
    field = np.zeros_like(theirs["field"])
    np.add.at(field, (np.arange(STEPS)[:, None], world.foods[..., 0], world.foods[..., 1]), world.food_levels)
    cleared = (theirs["field"] == 0).all((-1, -2))
    np.testing.assert_array_equal(world.agents, theirs["agents"])
    np.testing.assert_array_equal(field, theirs["field"])
    np.testing.assert_array_equal(step.available, theirs["available"])
    np.testing.assert_allclose(step.reward, theirs["reward"], atol=1e-6)
    np.testing.assert_array_equal([step.ended, step.terminated, step.success], [theirs["ended"], theirs["ended"], cleared])
    np.testing.assert_array_equal(as_views(env, step), theirs["views"])
    assert cleared.any() and (theirs["ended"] & ~cleared).any(), "both ways to end must have happened"


@functools.cache
def starts(env: Foraging) -> ForagingWorld:
    keys = jax.random.split(jax.random.key(0), 6000)
    return jax.tree.map(np.asarray, jit(jax.vmap(lambda key: env.reset(key)[0]))(keys))


def steps_between(first: Any, second: Any) -> np.ndarray:
    return np.abs(first[..., :, None, :] - second[..., None, :, :]).sum(-1)


@pytest.mark.parametrize("env", STARTS, ids=lambda env: env.name)
def test_players_and_food_start_where_and_as_strong_as_they_may(env: Foraging) -> None:
    world = starts(env)
    placed, inner = world.food_levels > 0, np.argwhere(np.pad(np.ones((env.rows - 2, env.columns - 2)), 1))
    assert not np.triu(steps_between(world.agents, world.agents) == 0, 1).any()
    assert not ((steps_between(world.agents, world.foods) == 0) & placed[:, None]).any()
    assert not (np.triu(steps_between(world.foods, world.foods) <= 2, 1) & placed[:, None] & placed[..., None]).any()
    assert (steps_between(world.foods, inner) == 0).any(-1)[placed].all()
    closed = ((steps_between(inner, world.foods) <= 2) & placed[:, None]).any(-1) | (steps_between(inner, world.agents) == 0).any(-1)
    assert (placed.all(-1) | closed.all(-1)).all(), "food was left out although there was room"
    assert set(np.unique(world.levels)) == set(range(env.min_player_level, env.max_player_level + 1))
    heaviest = np.broadcast_to(np.sort(world.levels)[:, :3].sum(-1, keepdims=True), placed.shape)
    for most in np.unique(heaviest):
        weights = set(np.unique(world.food_levels[placed & (heaviest == most)]))
        assert weights == ({most} if env.force_coop else set(range(env.min_food_level, most + 1)))
    assert (world.spawned == world.food_levels.sum(-1)).all()
    assert not env.food_cells or (world.foods == np.array(env.food_cells)).all()


def test_every_cell_is_as_likely_as_any_other() -> None:
    world, agents, foods = starts(STARTS[0]), np.zeros((6, 5)), np.zeros((6, 5))
    np.add.at(agents, tuple(world.agents.reshape(-1, 2).T), 1)
    np.add.at(foods, tuple(world.foods[:, 0].T), 1)
    np.testing.assert_allclose(agents, 3 * 6000 / 30, rtol=0.2)
    np.testing.assert_allclose(foods[1:-1, 1:-1], 6000 / 12, rtol=0.2)


def beside_food(agents: list[list[int]]) -> ForagingWorld:
    return ForagingWorld(jnp.array(agents), jnp.array([1, 1]), jnp.array([[3, 2]]), jnp.array([2]), jnp.int32(2), jnp.int32(0))


def act(env: Foraging, world: ForagingWorld, actions: list[int]) -> tuple[ForagingWorld, Step]:
    return jit(env.step)(world, jnp.array(actions), jax.random.key(0))


def test_two_of_level_one_take_food_of_level_two_together() -> None:
    world, step = act(PARITY[0], beside_food([[3, 1], [2, 2]]), [LOAD, LOAD])
    assert step.reward == 1.0 and step.ended and step.success and world.food_levels[0] == 0
    assert not step.tokens.target_seen.any() and not step.tokens.targets.any() and not step.state.targets.any()


@pytest.mark.parametrize(("agents", "actions"), [([[3, 1], [2, 2]], [LOAD, 0]), ([[3, 1], [1, 2]], [LOAD, LOAD])])
def test_one_alone_fails_and_pays(agents: list[list[int]], actions: list[int]) -> None:
    env = Foraging(2, 1, 5, 5, penalty=0.25)
    world, step = act(env, beside_food(agents), actions)
    assert step.reward == -0.25 and not step.ended and not step.success and world.food_levels[0] == 2


def test_names_lead_back_to_the_same_world() -> None:
    options = itertools.product(("5x5", "8x12"), ("2p-1f", "5p-4f"), ("", "-2s", "-8s"), ("", "-coop"), ("", "-pen"))
    named = ["lbf-{}-{}{}{}{}".format(*parts) for parts in options]
    for name in (*foraging.NAMES, *named):
        env = foraging.make(name)
        assert env is not None and env.name == env.spec.env == name
    assert foraging.make("lbf-5x6-2p-3f-2s-coop-pen") == Foraging(2, 3, 5, 6, sight=2, force_coop=True, penalty=0.1)
    assert len({env.name for env in PARITY}) == len(PARITY)


@pytest.mark.parametrize("name", ["lbf-middle", "lbf-8x8", "lbf-8x8-2p-1f-pen-coop", PARITY[1].name])
def test_unknown_names_are_refused(name: str) -> None:
    assert foraging.make(name) is None
    with pytest.raises(UserError, match=name):
        envs.make(name)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"rows": 2}, "2x5"),
        ({"num_foods": 0}, "0f"),
        ({"num_agents": 25}, "25p"),
        ({"limit": 0}, "limit .* 0"),
        ({"penalty": -0.5}, "-0.5"),
        ({"min_player_level": 3}, "3 to 2"),
        ({"min_food_level": 3}, "3 to 2"),
        ({"max_player_level": 130}, "260"),
        ({"food_cells": ((1, 1), (3, 3))}, "one food cell"),
        ({"food_cells": ((5, 1),)}, r"\(5, 1\)"),
        ({"num_foods": 2, "food_cells": ((1, 1), (2, 2))}, "apart"),
    ],
)
def test_settings_that_make_no_world_are_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        Foraging(**{"num_agents": 2, "num_foods": 1, "rows": 5, "columns": 5, **settings})


def test_scene_shows_levels_and_no_eaten_food() -> None:
    world = beside_food([[3, 1], [2, 2]])
    before = PARITY[0].scene(world)
    assert [(mark.shape, mark.row, mark.column, mark.label) for mark in before.marks] == [
        ("square", 3, 2, "2"),
        ("disc", 3, 1, "1"),
        ("disc", 2, 2, "1"),
    ]
    after = PARITY[0].scene(act(PARITY[0], world, [LOAD, LOAD])[0])
    assert [mark.shape for mark in after.marks] == ["disc", "disc"]
    assert after.title == "LBF-BOTTOM   step 1 of 50"
