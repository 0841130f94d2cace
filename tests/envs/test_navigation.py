import jax
import jax.numpy as jnp
import numpy as np
import pytest
from odis import odis_arrays

from comad.envs.navigation import Navigation, NavigationWorld, make
from comad.errors import UserError


def world_at(agents: list[tuple[int, int]], landmarks: list[tuple[int, int]], time: int = 0) -> NavigationWorld:
    return NavigationWorld(jnp.array(agents, jnp.int32), jnp.array(landmarks, jnp.int32), jnp.int32(time))


def unscaled(values: jax.Array, size: int) -> np.ndarray:
    return np.round(np.asarray(values) * size).astype(int)


@pytest.mark.parametrize("task", ["cn-2", "cn-4"])
def test_recorded_third_party_episodes_replay_exactly(task: str) -> None:
    data = odis_arrays(task, "expert")
    env = make(task)
    assert env is not None
    episodes, times = np.nonzero(data["filled"][..., 0])
    last = data["terminated"][episodes, np.maximum(times - 1, 0), 0].astype(bool) & (times > 0)
    shown, acted = (episodes, times), (episodes[~last], times[~last])
    positions = data["state"].reshape(*data["state"].shape[:2], -1, 2).astype(np.int32) - 1
    assert acted[0].size > 3_900

    def worlds(index: tuple[np.ndarray, np.ndarray]) -> NavigationWorld:
        cells = positions[index]
        agents, landmarks = cells[:, : env.num_agents], cells[:, env.num_agents :]
        return jax.vmap(NavigationWorld)(*map(jnp.asarray, (agents, landmarks, index[1].astype(np.int32))))

    # What a world shows: state, observations and availability, for every recorded moment, the extra last one included.
    moments = jax.vmap(env.show)(worlds(shown), jnp.zeros(len(episodes), bool))
    tokens = moments.tokens
    count = len(episodes)
    flat = np.concatenate(
        [unscaled(part, env.size).reshape(count, env.num_agents, -1) for part in (tokens.own, tokens.allies, tokens.targets)], -1
    )
    assert (flat == data["obs"][shown]).all()
    state = np.concatenate([unscaled(part, env.size).reshape(count, -1) for part in (moments.state.agents, moments.state.targets)], -1)
    assert (state == data["state"][shown]).all()
    assert (np.asarray(moments.available) == data["avail_actions"][shown]).all()

    # What a step does: the next recorded state, reward and end.
    actions = jnp.asarray(data["actions"][acted][..., 0], jnp.int32)
    keys = jax.random.split(jax.random.key(0), len(actions))
    after, step = jax.vmap(env.step)(worlds(acted), actions, keys)
    following = worlds((acted[0], acted[1] + 1))
    assert (np.asarray(after.agents) == following.agents).all()
    assert (np.asarray(after.landmarks) == following.landmarks).all()
    assert (np.asarray(step.reward) == data["reward"][acted][..., 0]).all()
    assert (np.asarray(step.terminated) == data["terminated"][acted][..., 0]).all()
    assert (np.asarray(step.ended) == data["terminated"][acted][..., 0]).all()


def test_agents_that_name_the_same_cell_stay_and_swaps_are_allowed() -> None:
    env, key = Navigation(3, 8), jax.random.key(0)
    far = [(7, 7), (7, 6), (7, 5)]
    crowd, _ = env.step(world_at([(0, 0), (0, 2), (3, 3)], far), jnp.array([4, 3, 0]), key)
    assert crowd.agents.tolist() == [[0, 0], [0, 2], [3, 3]]
    swap, _ = env.step(world_at([(0, 0), (0, 1), (3, 3)], far), jnp.array([4, 3, 0]), key)
    assert swap.agents.tolist() == [[0, 1], [0, 0], [3, 3]]
    # The first two block each other at (0, 1); the third may still enter the cell that the first could not leave.
    shared, _ = env.step(world_at([(0, 0), (0, 2), (1, 0)], far), jnp.array([4, 3, 1]), key)
    assert shared.agents.tolist() == [[0, 0], [0, 2], [0, 0]]


def test_a_move_off_the_field_is_unavailable_and_executed_as_stay() -> None:
    env = Navigation(2, 6)
    world = world_at([(0, 0), (5, 5)], [(0, 5), (5, 0)])
    assert env.available(world).tolist() == [[True, False, True, False, True], [True, True, False, True, False]]
    after, _ = env.step(world, jnp.array([1, 4]), jax.random.key(0))
    assert after.agents.tolist() == [[0, 0], [5, 5]]


def test_success_needs_a_landmark_for_everyone() -> None:
    env, key, stay = Navigation(2, 12), jax.random.key(0), jnp.array([0, 0])
    both_at_one = env.step(world_at([(2, 2), (2, 3)], [(2, 2), (11, 11)]), stay, key)[1]
    assert not both_at_one.success and both_at_one.reward == 0 and not both_at_one.ended
    one_each = env.step(world_at([(0, 0), (4, 4)], [(2, 2), (6, 6)]), stay, key)[1]
    assert one_each.success and one_each.reward == 1 and one_each.terminated
    out_of_time = env.step(world_at([(2, 2), (2, 3)], [(2, 2), (11, 11)], time=49), stay, key)[1]
    assert out_of_time.ended and out_of_time.terminated and not out_of_time.success


@pytest.mark.parametrize("team", [2, 5, 10, 15])
def test_starts_are_on_distinct_cells_with_landmarks_out_of_reach(team: int) -> None:
    env = make(f"cn-{team}")
    assert env is not None
    world, _ = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(team), 1000))
    agents, landmarks = np.asarray(world.agents), np.asarray(world.landmarks)
    everything = np.concatenate([agents, landmarks], axis=1)
    assert ((everything >= 0) & (everything < env.size)).all()
    assert all(len(np.unique(cells, axis=0)) == 2 * team for cells in everything)
    assert (np.abs(agents[:, :, None] - landmarks[:, None]).max(-1) > env.reach).all()
    # Uniform over the field: the average agent stands in its middle.
    assert np.abs(agents.mean((0, 1)) - (env.size - 1) / 2).max() < 0.2


def test_sight_hides_what_is_far() -> None:
    env = Navigation(2, 10, sight=3)
    world = world_at([(0, 0), (0, 4)], [(3, 3), (9, 9)])
    tokens = env.show(world, jnp.array(False)).tokens
    assert tokens.ally_seen.tolist() == [[False], [False]]
    assert tokens.target_seen.tolist() == [[True, False], [True, False]]
    assert not tokens.allies.any() and not tokens.targets[:, 1].any() and tokens.targets[:, 0].all()


@pytest.mark.parametrize("name", ["cn-2", "cn-15", "cn-3-9x9-60t-1r", "cn-3-9x9-50t-2r-4s"])
def test_names_make_the_world_again(name: str) -> None:
    env = make(name)
    assert env is not None and env.name == name and make(env.name) == env


def test_impossible_fields_are_refused() -> None:
    assert make("cn-13") is None
    with pytest.raises(UserError, match="1 to 4 agents"):
        make("cn-9-3x3")
