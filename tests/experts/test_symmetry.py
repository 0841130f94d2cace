"""One team, many sides: turned and reflected teams do exactly what the team does where it learned."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ants import ant_named, playable, seeds
from jaxtyping import Array, Float

from comad import streams
from comad.envs.ant import AntWorld
from comad.envs.ant_physics import PLACES, SPEEDS
from comad.errors import UserError
from comad.experts import joint, library
from comad.experts.joint import JointPlayer
from comad.experts.symmetry import Symmetry, TurnedTeam, twins

ALL = [Symmetry(mirrored, quarters, ground) for mirrored in (False, True) for quarters, ground in enumerate((0.0, 0.0, 30.0, -100.0))]


class Whim(eqx.Module):
    """Some team: actions that depend on every number it sees, in no symmetric way."""

    weights: Float[Array, "number motor"]

    def decide(self, seen: Float[Array, "*batch number"]) -> Float[Array, "*batch motor"]:
        return jnp.tanh(seen @ self.weights)


def whim() -> Whim:
    return Whim(jnp.asarray(np.random.default_rng(0).normal(0.0, 0.5, (27, 8)), jnp.float32))


@pytest.mark.parametrize("symmetry", ALL)
def test_undoing_a_symmetry_leaves_everything_as_it_was(symmetry: Symmetry) -> None:
    random = np.random.default_rng(1)
    legs, torso = (jnp.asarray(random.normal(size=shape), jnp.float32) for shape in ((3, 4, 4), (3, 11)))
    np.testing.assert_array_equal(symmetry.back.legs(symmetry.legs(legs)), legs)
    np.testing.assert_allclose(symmetry.back.torso(symmetry.torso(torso)), torso, atol=0.0 if symmetry.ground == 0.0 else 1e-6)
    env = ant_named("ant-reward-30-without-1-2")
    assert symmetry.back.world(symmetry.world(env)) == env


def test_fourteen_tasks_are_five_problems() -> None:
    trained = {"ant-reward-0", "ant-dynamics-back", "ant-dynamics-front", "ant-dynamics-diagonal", "ant-dynamics-mixed"}
    tasks = {task.env for name in ("ant-reward", "ant-dynamics") for task in streams.find(name).tasks}

    def nearest(task: str) -> tuple[str, Symmetry]:
        return next((twin.name, symmetry) for twin, symmetry in twins(ant_named(task)) if twin.name in trained)

    grounds = {task: nearest(task)[1].ground for task in tasks}
    assert {task for task in tasks if grounds[task]} == {f"ant-reward-{angle}" for angle in (45, 135, 225, 315)}
    assert {abs(ground) for ground in grounds.values()} == {0.0, 45.0}
    assert nearest("ant-without-4-obsk1-50t")[0] == "ant-dynamics-front"
    assert nearest("ant-reward-30") == ("ant-reward-0", Symmetry(ground=30.0))


def test_a_training_begins_from_a_team_that_can_play_its_world() -> None:
    front, back = ant_named("ant-dynamics-front"), ant_named("ant-dynamics-back")
    assert isinstance(library.beginning(front, back), TurnedTeam)
    with pytest.raises(UserError, match="ant-dynamics-front is not ant-reward-0 seen from another side"):
        library.beginning(front, ant_named("ant-reward-0"))


@pytest.mark.parametrize("name", ["ant-reward-200", "ant-dynamics-front", "ant-reward-10-without-1-2"])
def test_every_twin_is_the_world_from_that_side(name: str) -> None:
    env = ant_named(name)
    assert all(symmetry.world(twin) == env for twin, symmetry in twins(env))
    assert sum(twin.direction == 0.0 for twin, _ in twins(env)) >= 8


def test_a_side_is_a_world_of_its_own() -> None:
    assert Symmetry(quarters=1).world(ant_named("ant-reward-45-without-4")).name == "ant-reward-135-without-1"
    assert Symmetry(mirrored=True).world(ant_named("ant-dynamics-back")).name == "ant-dynamics-right"
    assert Symmetry(mirrored=True, quarters=1).world(ant_named("ant-reward-0")).name == "ant-reward-90"
    assert Symmetry(ground=-45.0).world(ant_named("ant-reward-0-without-1")).name == "ant-reward-315-without-1"


def seen_from(symmetry: Symmetry, bodies: np.ndarray) -> np.ndarray:
    """The same bodies from another side, in double precision: places and speeds of torso and joints; the solver starts from nothing."""
    moved = bodies.copy()
    moved[:, PLACES + SPEEDS :] = 0.0
    for _ in range(int(symmetry.mirrored)):
        moved[:, [1, 4, 6, PLACES + 1, PLACES + 3, PLACES + 5]] *= -1
        for first in (7, PLACES + 6):
            moved[:, first : first + 8] = (moved[:, first : first + 8].reshape(-1, 4, 2)[:, ::-1] * (-1, 1)).reshape(-1, 8)
    for _ in range(symmetry.quarters):
        for x, y in ((0, 1), (4, 5), (PLACES, PLACES + 1), (PLACES + 3, PLACES + 4)):
            moved[:, [x, y]] = np.stack([-moved[:, y], moved[:, x]], axis=1)
        for first in (7, PLACES + 6):
            legs = np.roll(moved[:, first : first + 8].reshape(-1, 4, 2), 1, axis=1) * np.array([(1, 1), (1, -1), (1, 1), (1, -1)])
            moved[:, first : first + 8] = legs.reshape(-1, 8)
    turn = np.exp(1j * np.radians(symmetry.ground))
    for x, y, by in ((0, 1, turn), (PLACES, PLACES + 1, turn), (3, 6, turn**0.5), (4, 5, turn**0.5)):
        point = (moved[:, x] + 1j * moved[:, y]) * by
        moved[:, [x, y]] = np.stack([point.real, point.imag], axis=1)
    return moved


@playable
@pytest.mark.parametrize("symmetry", ALL)
def test_a_turned_team_runs_as_the_team_does(symmetry: Symmetry) -> None:
    env = ant_named("ant-reward-45-without-2")
    other, team = symmetry.world(env), whim()
    here = env.reset_many(seeds(3))[0]
    here = replace(here, bodies=here.bodies * (np.arange(here.bodies.shape[1]) < PLACES + SPEEDS))
    if symmetry.ground:
        # In the air, for friction on the ground is the same only after quarter turns: MuJoCo takes a pyramid with edges along x and y.
        here.bodies[:, 2] += 3.0
    moved = seen_from(symmetry, here.bodies)
    there = AntWorld(moved, moved[:, :2].copy(), here.time)
    everyone = np.ones(3, bool)
    for _ in range(8):
        # What the token of a moment says decides, in single precision; the simulator then moves both worlds in double precision.
        ours, theirs = (
            np.asarray(decider.decide(joint.observe(env.spec, world.step_many(at, np.zeros((3, 4, 2)), ~everyone)[1].tokens)))
            for decider, world, at in ((team, env, here), (TurnedTeam(team, symmetry), other, there))
        )
        expected = np.asarray(symmetry.legs(jnp.asarray(ours.reshape(3, 4, 2))))
        np.testing.assert_allclose(theirs.reshape(3, 4, 2), expected, atol=2e-6)
        here, _, reward, _ = env.advance(here, ours.reshape(3, 4, 2), everyone)
        there, _, their_reward, _ = other.advance(there, expected, everyone)
        np.testing.assert_allclose(their_reward, reward, atol=1e-9)
        np.testing.assert_allclose(there.bodies[:, : PLACES + SPEEDS], seen_from(symmetry, here.bodies)[:, : PLACES + SPEEDS], atol=1e-9)
    assert np.abs(here.bodies[:, :2] - here.spots).max() < 1.0


@playable
def test_a_player_gives_every_leg_its_own_part() -> None:
    env = ant_named("ant-reward-0-obsk0")
    _, step = env.reset_many(seeds(1))
    tokens, available = jax.tree.map(lambda leaf: leaf[0], (step.tokens, step.available))
    actions, _ = JointPlayer(whim(), env.spec).act(None, tokens, available, jax.random.key(0))
    # 27 numbers: height, rotation and speeds of the torso, and two angles with their speeds of every leg.
    state = jax.tree.map(lambda leaf: leaf[0], step.state)
    seen = jnp.concatenate([state.agents[:, :4].reshape(-1), state.targets[0, :11]])
    np.testing.assert_array_equal(actions, whim().decide(seen).reshape(4, 2))
    assert joint.num_seen(env.spec) == len(seen) == 27 and joint.num_motors(env.spec) == 8
