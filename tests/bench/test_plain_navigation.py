"""CN twice, written independently, with one outcome: whoever errs, errs alone."""

from itertools import permutations
from random import Random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from comad.bench.plain_navigation import Cell, PlainNavigation, find_landmark
from comad.envs.navigation import Navigation, NavigationWorld, published

step = jax.jit(Navigation.step, static_argnums=0)


def navigation(num_agents: int) -> Navigation:
    env = published(num_agents)
    assert env is not None
    return env


def cells(array: jax.Array) -> list[Cell]:
    return [(int(row), int(column)) for row, column in np.asarray(array)]


def same_start(game: PlainNavigation) -> NavigationWorld:
    return NavigationWorld(jnp.array(game.agents), jnp.array(game.landmarks), jnp.int32(0))


def homewards(game: PlainNavigation, random: Random) -> list[int]:
    """Joint actions that mostly lead to a landmark, so that games also end by success; unavailable ones included."""
    actions = []
    for (row, column), landmark in zip(game.agents, game.landmarks, strict=True):
        down, right = landmark[0] - row, landmark[1] - column
        wanted = [2 if down > 0 else 1] * abs(down) + [4 if right > 0 else 3] * abs(right)
        actions.append(random.choice(wanted) if wanted and random.random() < 0.6 else random.randrange(5))
    return actions


@pytest.mark.parametrize(("num_agents", "episodes"), [(2, 16), (3, 16), (5, 12), (6, 10), (8, 8), (15, 4)])
def test_both_versions_agree_step_for_step(num_agents: int, episodes: int) -> None:
    env, random = navigation(num_agents), Random(num_agents)
    game = PlainNavigation(num_agents, env.size, env.limit)
    endings = set()
    for episode in range(episodes):
        game.reset(random)
        world = same_start(game)
        available = env.available(world)
        # Every other episode is played at random, which rarely succeeds but bumps into everything.
        draw = homewards if episode % 2 else lambda game, random: [random.randrange(5) for _ in game.agents]
        done = False
        while not done:
            assert np.asarray(available).tolist() == game.available()
            actions = draw(game, random)
            world, shown = step(env, world, jnp.array(actions), jax.random.key(0))
            available = shown.available
            reward, done = game.step(actions)
            assert cells(world.agents) == game.agents
            assert (float(shown.reward), bool(shown.ended), bool(shown.success)) == (reward, done, reward == 1.0)
        assert int(world.time) == game.time
        endings.add(reward)
    assert endings == {0.0, 1.0}, "the games above should end both ways"


def test_the_cell_of_a_blocked_agent_can_be_entered_in_both_versions() -> None:
    agents, actions = [(1, 0), (1, 2), (2, 0)], [4, 3, 1]
    game = PlainNavigation(3, 8, 50)
    game.place(agents, [(7, 7), (7, 6), (6, 7)])
    world = same_start(game)
    game.step(actions)
    assert game.agents == [(1, 0), (1, 2), (1, 0)]
    assert cells(step(navigation(3), world, jnp.array(actions), jax.random.key(0))[0].agents) == game.agents


def test_matching_equals_trying_every_assignment() -> None:
    random = Random(0)
    found = set()
    for _ in range(300):
        choices = [[landmark for landmark in range(5) if random.random() < 0.35] for _ in range(5)]
        holder: dict[int, int] = {}
        matched = all(find_landmark(agent, choices, holder, set()) for agent in range(5))
        assert matched == any(all(order[agent] in choices[agent] for agent in range(5)) for order in permutations(range(5)))
        found.add(matched)
    assert found == {True, False}


@pytest.mark.parametrize("num_agents", [2, 4, 15])
def test_reset_keeps_agents_apart_and_landmarks_out_of_reach(num_agents: int) -> None:
    env = navigation(num_agents)
    game, random = PlainNavigation(num_agents, env.size, env.limit), Random(0)
    starts = set()
    for _ in range(20):
        game.reset(random)
        assert len(set(game.agents)) == len(set(game.landmarks)) == num_agents
        assert not any(game.in_reach(agent, landmark) for agent in game.agents for landmark in game.landmarks)
        assert all(game.on_field(*cell) for cell in game.agents + game.landmarks)
        starts.add(tuple(game.agents))
    assert len(starts) > 15


def test_legal_actions_are_the_available_ones() -> None:
    game = PlainNavigation(2, 6, 50)
    game.place([(0, 0), (3, 5)], [(5, 5), (5, 0)])
    assert list(game.legal_actions()) == [[0, 2, 4], [0, 1, 2, 3]]
