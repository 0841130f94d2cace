from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from comad import envs
from comad.envs.base import HostEnv
from comad.envs.navigation import Navigation, NavigationWorld
from comad.envs.rollout import RandomPlayer, episode_keys, rollout
from comad.envs.scene import Scene
from comad.types import Actions, PRNGKey, Spec, Step, Tokens

WORLD = Navigation(2, 6, limit=8)


class HostNavigation:
    """CN behind the host contract: stepped in NumPy land, many at once, chance only from seeds."""

    spec = WORLD.spec

    def reset_many(self, seeds: np.ndarray) -> tuple[NavigationWorld, Step]:
        keys = jax.vmap(jax.random.key)(jnp.asarray(seeds))
        return jax.vmap(WORLD.reset)(keys)

    def step_many(self, world: NavigationWorld, actions: np.ndarray, active: np.ndarray) -> tuple[NavigationWorld, Step]:
        keys = jax.random.split(jax.random.key(0), len(actions))
        stepped = jax.vmap(WORLD.step)(world, jnp.asarray(actions), keys)
        # Whatever comes back for an ended episode must not matter.
        return jax.tree.map(lambda leaf: jnp.where(active.reshape(-1, *[1] * (leaf.ndim - 1)), leaf, jnp.zeros_like(leaf)), stepped)

    def scene(self, world: NavigationWorld) -> Scene:
        return WORLD.scene(world)


class Counter(eqx.Module):
    """A team that walks east and remembers how often it was asked."""

    def start(self, spec: Spec) -> Any:
        return jnp.int32(0)

    def act(self, memory: Any, tokens: Tokens, available: Any, key: PRNGKey) -> tuple[Actions, Any]:
        return jnp.where(available[:, 4], 4, 0), memory + 1


def everything(world: Any, step: Step, actions: Actions) -> Any:
    return world, step, actions


def test_an_episode_is_the_same_however_many_are_played_beside_it() -> None:
    player, key = RandomPlayer(WORLD.spec), jax.random.key(3)
    many, _ = rollout(WORLD, player, episode_keys(key, 0, 16))
    few, _ = rollout(WORLD, player, episode_keys(key, 5, 3))
    assert few.length.tolist() == many.length[5:8].tolist()
    assert few.total.tolist() == many.total[5:8].tolist()
    assert len(set(many.length.tolist())) > 1


def test_outcomes_add_up_to_the_recorded_moments() -> None:
    outcome, (world, step, actions) = rollout(WORLD, RandomPlayer(WORLD.spec), episode_keys(jax.random.key(0), 0, 64), everything)
    length = np.asarray(outcome.length)
    assert actions.shape == (64, WORLD.limit + 1, 2)
    for episode, last in enumerate(length):
        assert not step.ended[episode, :last].any() and step.ended[episode, last]
        assert world.time[episode, : last + 1].tolist() == list(range(last + 1))
        assert step.reward[episode, : last + 1].sum() == outcome.total[episode]
        assert step.success[episode, last] == outcome.success[episode]
    taken = np.take_along_axis(np.asarray(step.available), np.asarray(actions)[..., None], -1)[..., 0]
    assert all(taken[episode, :last].all() for episode, last in enumerate(length))
    assert 0 < np.asarray(outcome.success).mean() < 1


def test_ended_episodes_are_frozen() -> None:
    outcome, (world, _, _) = rollout(WORLD, RandomPlayer(WORLD.spec), episode_keys(jax.random.key(0), 0, 64), everything)
    final_times = np.asarray(world.time).max(axis=1)
    assert (final_times == np.asarray(outcome.length)).all()


def test_a_host_world_gives_what_the_same_world_in_jax_gives() -> None:
    host = HostNavigation()
    assert isinstance(host, HostEnv) and not isinstance(WORLD, HostEnv)
    keys = episode_keys(jax.random.key(1), 0, 32)
    outcome, (world, step, actions) = rollout(host, RandomPlayer(host.spec), keys, everything)

    # The same starts and the same actions, replayed in JAX.
    def replay(start: NavigationWorld, actions: Any) -> Any:
        return jax.lax.scan(lambda world, act: WORLD.step(world, act, jax.random.key(0)), start, actions)[1]

    start = jax.tree.map(lambda leaf: leaf[:, 0], world)
    stepped = jax.vmap(replay)(start, actions)
    for episode, last in enumerate(np.asarray(outcome.length)):
        assert (stepped.state.agents[episode, :last] == step.state.agents[episode, 1 : last + 1]).all()
        assert stepped.reward[episode, :last].sum() == outcome.total[episode]
        assert stepped.ended[episode, last - 1]
    assert len(set(outcome.length.tolist())) > 1


def test_memory_and_last_actions_reach_the_player() -> None:
    seen: list[np.ndarray] = []

    def watch(own: Any, memory: Any) -> None:
        seen.append(np.concatenate([np.asarray(own)[0, -5:], [memory]]))

    class Watcher(Counter):
        def act(self, memory: Any, tokens: Tokens, available: Any, key: PRNGKey) -> tuple[Actions, Any]:
            jax.debug.callback(watch, tokens.own, memory, ordered=False)
            return jnp.zeros(2, jnp.int32), memory + 1

    rollout(WORLD, Watcher(), episode_keys(jax.random.key(0), 0, 1))
    jax.effects_barrier()
    by_time = {int(row[-1]): row[:-1].tolist() for row in seen}
    assert by_time[0] == [0, 0, 0, 0, 0]
    assert by_time[1] == by_time[WORLD.limit] == [1, 0, 0, 0, 0]


def test_every_registered_world_can_be_played() -> None:
    for name in envs.ENVS.keys() - envs.missing_extras():
        env = envs.make(envs.ENVS[name].NAMES[0])
        outcome, _ = rollout(env, RandomPlayer(env.spec), episode_keys(jax.random.key(0), 0, 2))
        assert (np.asarray(outcome.length) >= 1).all() and (np.asarray(outcome.length) <= env.spec.limit).all()
