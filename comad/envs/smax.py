"""SMAX, the battle simulator of jaxmarl, behind a few pure functions: what this package knows of its state is in this file."""

import contextlib
import functools
import importlib
import io
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from comad.envs.base import not_installed
from comad.envs.script import command
from comad.envs.units import HEALTH
from comad.types import Actions, PRNGKey

SIZE = 32.0
"""Width and height of the map, in cells."""
MARGIN = 1.0
"""Nobody starts closer to a wall than this: touching one is death, and crowded units push each other."""
STOP = 4
"""The action that does nothing; those before it are moves, those after it attacks."""
DIRECTIONS = np.array([[0, 1], [1, 0], [0, -1], [-1, 0], [0, 0]], np.float32)
"""East and north of the moves and of the stop."""
STEP_SECONDS = 0.5
TAKES_OVER_OUTPUT = "jaxmarl.environments.mabrax"


class BattleWorld(eqx.Module):
    """Every unit, allies first, what it did last, and what the enemies' script remembers."""

    positions: Float[Array, "unit 2"]
    """East and north from the lower left corner, in cells."""
    health: Float[Array, " unit"]
    kinds: Int[Array, " unit"]
    cooldowns: Float[Array, " unit"]
    """Seconds until the next shot; below zero if that could have been fired a while ago."""
    moves: Float[Array, "unit 2"]
    """Direction of the last move."""
    attacks: Int[Array, " unit"]
    """The last action if it was an attack, or 0. Enemies count their targets from our last unit backwards."""
    goals: Float[Array, "enemy 2"]
    """Where enemies go who see nobody."""
    grudges: Int[Array, " enemy"]
    """Whom enemies attack until one of the two is dead or gone; -1 for nobody."""
    time: Int[Array, ""]

    @property
    def alive(self) -> Bool[Array, " unit"]:
        """Who still fights."""
        return self.health > 0


def begin(game: Any, key: PRNGKey) -> BattleWorld:
    """The simulator's own start of an episode."""
    with _in_its_own_ways():
        _, units = game.reset(key)
    return _from_simulator(units, jnp.zeros((game.num_enemies, 2)), jnp.full(game.num_enemies, -1, jnp.int32))


def advance(game: Any, world: BattleWorld, actions: Actions, key: PRNGKey) -> tuple[BattleWorld, Float[Array, ""]]:
    """Half a second of battle, and the simulator's reward: the share of the enemies' health that was taken, and 1 for a victory."""
    key, script_key = jax.random.split(key)
    enemies = world.kinds[game.num_allies :]
    orders, goals, grudges = command(
        world.positions, world.alive, enemies, world.goals, world.grudges, script_key, size=SIZE, first_attack=STOP + 1
    )
    done = jnp.concatenate([actions, orders])
    doings = jnp.asarray(DIRECTIONS)[jnp.minimum(done, STOP)], jnp.where(done > STOP, done, 0)
    with _in_its_own_ways():
        # Not its `step`, which also computes a reset, every time.
        _, units, rewards, _, _ = game.step_env_no_decode(key, _to_simulator(world, game), doings)
    return _from_simulator(units, goals, grudges), rewards[game.agents[0]]


def recast(game: Any, world: BattleWorld, kinds: Int[Array, " unit"]) -> BattleWorld:
    """The same start with other units, pushed apart as far as they are large now, and inside the map.

    Left to itself the simulator starts about one unit in a hundred outside the map, where it dies at once.
    """
    recruited = replace(world, kinds=kinds, health=jnp.asarray(HEALTH)[kinds])
    with _in_its_own_ways():
        pushed = game._push_units_away(_to_simulator(recruited, game))
    return replace(recruited, positions=fold_inside(pushed.unit_positions))


def fold_inside(positions: Float[Array, "unit 2"]) -> Float[Array, "unit 2"]:
    """Mirror what lies outside at the edge: clipping would put several units on the same spot, from which no push separates them."""
    high = SIZE - MARGIN
    return high - jnp.abs(high - MARGIN - jnp.abs(positions - MARGIN))


@functools.cache
def simulator(kinds: tuple[int, ...], num_agents: int, scattered: bool) -> Any:
    """SMAX with these units, allies first; starts are two camps or, if scattered, mirrored or surrounded."""
    # Whoever asks first may be a program that is being compiled, to which these constants must not belong.
    with jax.ensure_compile_time_eval():
        smax = load()
        units = jnp.asarray(kinds, jnp.uint8)
        scenario = smax.Scenario(units, num_agents, len(kinds) - num_agents, scattered, False)
        return smax.SMAX(scenario=scenario, map_width=SIZE, map_height=SIZE)


def load() -> Any:
    """The module, imported at first use because that takes seconds, and without what its neighbors do to the output."""
    hidden = TAKES_OVER_OUTPUT not in sys.modules
    if hidden:
        # It points stdout and stderr to where they were when Python started. Marked as absent, it is left out.
        sys.modules[TAKES_OVER_OUTPUT] = None  # type: ignore[assignment]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return importlib.import_module("jaxmarl.environments.smax")
    except ModuleNotFoundError as error:
        raise not_installed("battles", "jaxmarl", "battle") from error
    finally:
        if hidden:
            sys.modules.pop(TAKES_OVER_OUTPUT, None)


@contextlib.contextmanager
def _in_its_own_ways() -> Iterator[None]:
    """It broadcasts silently."""
    with jax.numpy_rank_promotion("allow"):
        yield


def _from_simulator(units: Any, goals: Float[Array, "enemy 2"], grudges: Int[Array, " enemy"]) -> BattleWorld:
    """Its state as ours, with definite types: where those of a start and of a step differ, everything is compiled twice."""
    real, whole = functools.partial(jnp.asarray, dtype=jnp.float32), functools.partial(jnp.asarray, dtype=jnp.int32)
    return BattleWorld(
        positions=real(units.unit_positions),
        health=real(units.unit_health),
        kinds=whole(units.unit_types),
        cooldowns=real(units.unit_weapon_cooldowns),
        moves=real(units.prev_movement_actions),
        attacks=whole(units.prev_attack_actions),
        goals=real(goals),
        grudges=whole(grudges),
        time=whole(units.step),
    )


def _to_simulator(world: BattleWorld, game: Any) -> Any:
    """Our state as its own."""
    return importlib.import_module("jaxmarl.environments.smax.smax_env").State(
        done=jnp.array(False),
        step=world.time,
        unit_positions=world.positions,
        unit_alive=world.alive,
        unit_teams=(jnp.arange(len(world.health)) >= game.num_allies).astype(jnp.float32),
        unit_health=world.health,
        unit_types=world.kinds,
        unit_weapon_cooldowns=world.cooldowns,
        prev_movement_actions=world.moves,
        prev_attack_actions=world.attacks,
    )
