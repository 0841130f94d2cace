"""StarCraft II itself, through SMAC and SMACv2, where the game and one of them are installed; `docs/worlds.md` says how to get them."""

import functools
import importlib
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from comad.envs import fighters, vectors
from comad.envs.fighters import Fighter
from comad.envs.scene import Scene
from comad.envs.starcraft_game import Game, Games, Sight, describe, most_games, open_games
from comad.envs.starcraft_maps import FAMILY, PAPER_MAPS, PROPOSED_LIMITS, RaceMap, Rules, StarcraftMap, find_map
from comad.envs.starcraft_site import GET_ODIS, PACKAGES, Needs, check_playable
from comad.envs.starcraft_starts import SIZE, draw_start
from comad.envs.units import KINDS
from comad.errors import UserError
from comad.tokens import state_of, tokens_of
from comad.types import Feature, Spec, Step

NO_OP, STOP = 0, 1
SETTINGS = {
    **{"difficulty": "7", "step_mul": 8, "move_amount": 2, "continuing_episode": False},
    **{"obs_all_health": True, "obs_own_health": True, "obs_last_action": False, "obs_pathing_grid": False, "obs_terrain_height": False},
    **{"obs_instead_of_state": False, "obs_timestep_number": False, "state_last_action": True, "state_timestep_number": False},
    **{"reward_sparse": False, "reward_only_positive": True, "reward_death_value": 10, "reward_win": 200, "reward_scale": True},
    **{"reward_scale_rate": 20},
}
"""How both packages are set up: their own defaults, and those of all recorded data, spelled out in case the defaults change."""
RACE_SETTINGS = {
    **{"obs_own_pos": True, "use_unit_ranges": True, "min_attack_range": 2},
    **{"conic_fov": False, "prob_obs_enemy": 1.0, "action_mask": True},
}
"""The same for SMACv2 alone."""
LOOKS = {
    **{kind.name: (kind.letter, kind.radius) for kind in KINDS},
    **{"medivac": ("v", 0.75), "colossus": ("c", 1.0), "baneling": ("b", 0.375)},
}
"""Letter and radius of units in pictures."""


class StarcraftWorld(eqx.Module):
    """What the games' states say of the units, and what can be done. The games themselves go on outside (`starcraft_game.Games`)."""

    agents: Float[Array, "*episode agent feature"]
    enemies: Float[Array, "*episode enemy feature2"]
    available: Bool[Array, "*episode agent action"]
    time: Int[Array, "*episode"]


@dataclass(frozen=True)
class Starcraft:
    """A map, played in the game."""

    rules: Rules

    @property
    def spec(self) -> Spec:
        """The same as of recordings of this map."""
        return self.rules.spec

    @property
    def at_once(self) -> int:
        """Every episode takes a game of its own."""
        return most_games()

    @property
    def games(self) -> Games:
        """Those of this map; the games of another map are closed."""
        return open_games(self.spec.rules, Games(self.spec.env, functools.partial(start, self.rules), functools.partial(begin, self.rules)))

    def check_playable(self) -> None:
        """Refuse to be played where something is missing."""
        check_playable(self.spec.env, needs_of(self.rules))

    def reset_many(self, seeds: np.ndarray) -> tuple[StarcraftWorld, Step]:
        """A game per seed, started if there are not enough."""
        load(needs_of(self.rules).package)
        games, places = self.games, np.arange(len(seeds))
        return self.show(games.together(places, lambda place: games.reset(place, int(seeds[place]))), np.zeros(len(seeds), np.int32))

    def step_many(self, world: StarcraftWorld, actions: np.ndarray, active: np.ndarray) -> tuple[StarcraftWorld, Step]:
        """A third of a second in which all do what they chose; the game's own AI leads the enemies."""
        available = np.asarray(world.available)
        allowed = np.take_along_axis(available, actions[..., None], axis=-1)[..., 0]
        # SMAC itself stops with an error at what is not available.
        actions = np.where(allowed, actions, np.where(available[..., NO_OP], NO_OP, STOP))
        games, places = self.games, np.flatnonzero(active)
        seen = dict(zip(places.tolist(), games.together(places, lambda place: games.step(place, actions[place])), strict=True))
        nothing = self.nothing
        return self.show([seen.get(place, nothing) for place in range(len(active))], np.asarray(world.time) + active)

    @property
    def nothing(self) -> Sight:
        """Stands where nobody looks: in the places whose episodes are over."""
        obs, state = vectors.widths(self.spec)
        agents = self.spec.num_agents
        return Sight(np.zeros((agents, obs), np.float32), np.zeros(state, np.float32), np.zeros((agents, self.spec.num_actions), bool))

    def show(self, sights: list[Sight], time: np.ndarray) -> tuple[StarcraftWorld, Step]:
        """Tokens, masks and outcomes of many games."""
        obs, state, available = (np.stack([getattr(sight, name) for sight in sights]) for name in ("obs", "state", "available"))
        seen = vectors.aim_at_allies(self.spec, vectors.split_obs(self.spec, obs), available)
        tokens = tokens_of({name: jnp.asarray(array) for name, array in seen.items()})
        whole = vectors.split_state(self.spec, state)
        situation = state_of({name: jnp.asarray(array) for name, array in whole.items()})
        world = StarcraftWorld(situation.agents, situation.targets, jnp.asarray(available), jnp.asarray(time, jnp.int32))
        ended = jnp.array([sight.ended for sight in sights])
        return world, Step(
            tokens=tokens,
            state=situation,
            available=world.available,
            reward=jnp.array([sight.reward for sight in sights], jnp.float32),
            ended=ended,
            # The limit counts as an end like any other, as in recorded data.
            terminated=ended,
            success=jnp.array([sight.won for sight in sights]),
        )

    def scene(self, world: StarcraftWorld) -> Scene:
        """Units on the part of the map that is played on, whatever its shape, as a square of 32 cells."""
        spec, (ours, theirs) = self.spec, sole_kinds(self.rules)
        units = [
            *place_fighters(np.asarray(world.agents), spec.state_agent, ours, is_ours=True),
            *place_fighters(np.asarray(world.enemies), spec.state_target, theirs, is_ours=False),
        ]
        title = f"{spec.env.upper()}   step {int(world.time)} of {spec.limit}"
        return Scene(int(SIZE), int(SIZE), fighters.draw(units), title)


def place_fighters(units: np.ndarray, features: tuple[Feature, ...], sole_kind: str, *, is_ours: bool) -> list[Fighter]:
    """The living of one side; places are told from the middle of the map, in shares of its size."""
    names = [feature.name for feature in features]
    found = []
    for unit in units[units[:, names.index("health")] > 0]:
        told = dict(zip(names, unit.tolist(), strict=True))
        letter, radius = LOOKS[next((kind for kind in LOOKS if told.get(f"is {kind}")), sole_kind)]
        row, column = SIZE * (0.5 - told["y"]) - 0.5, SIZE * (0.5 + told["x"]) - 0.5
        found.append(Fighter(row, column, is_ours, letter, radius, told["health"]))
    return found


def sole_kinds(rules: Rules) -> tuple[str, str]:
    """The kind of either side's units where the game does not tell it, since there is only one."""
    if isinstance(rules, RaceMap):
        return "", ""
    return rules.agent_units[0][0], rules.enemy_units[0][0]


def needs_of(rules: Rules) -> Needs:
    """What must be installed for a map."""
    if isinstance(rules, RaceMap):
        return Needs("smacv2", f"10gen_{rules.race}", "32x32_flat", f"which newer ones have: {PACKAGES['smacv2'][1]}")
    if rules.map in PROPOSED_LIMITS:
        return Needs("smac", rules.map, rules.map, f"which nobody has published; {rules.map} without {FAMILY} plays a battle like it")
    return Needs("smac", rules.map, rules.map, f"which comes with the maps of ODIS: {GET_ODIS}")


def start(rules: Rules, seed: int) -> Game:
    """A new game program, not yet begun. The seed is that of the whole program: neither package takes one per episode."""
    needs = needs_of(rules)
    game: Game = load(needs.package).StarCraft2Env(map_name=needs.map_name, seed=seed, **SETTINGS, **team_settings(rules))
    found, spec = game.get_env_info(), rules.spec
    obs, state = vectors.widths(spec)
    expected = {"n_agents": spec.num_agents, "n_actions": spec.num_actions, "obs_shape": obs, "state_shape": state}
    expected["episode_limit"] = spec.limit
    wrong = [f"{name} {found[name]} instead of {value}" for name, value in expected.items() if found[name] != value]
    if wrong:
        game.close()
        raise UserError(f"{spec.env}: the installed {needs.package} has another map of this name: {', '.join(wrong)}")
    return game


def load(package: str) -> Any:
    """The module with the environment, imported when the first game starts, and not by several threads at once."""
    try:
        return importlib.import_module(f"{package}.env")
    # Old packages meet new ones here: whatever they raise, the user must mend it.
    except Exception as error:
        raise UserError(f"{package} is installed but cannot be imported ({describe(error)}); {PACKAGES[package][1]}") from error


def team_settings(rules: Rules) -> dict[str, Any]:
    """What SMACv2 must know of its teams from the beginning."""
    if isinstance(rules, StarcraftMap):
        return {}
    sizes = {"n_units": rules.agents, "n_enemies": rules.enemies}
    return RACE_SETTINGS | {"capability_config": {**sizes, "team_gen": {**sizes, "observe": True}, "start_positions": sizes}}


def begin(rules: Rules, game: Game, seed: int, attempt: int) -> None:
    """A fresh episode. SMACv2's teams and places follow from the seed; the rest goes on from what happened in this game before."""
    if isinstance(rules, RaceMap):
        game.reset(draw_start(rules, seed, attempt))
    else:
        game.reset()


NAMES = tuple(f"{FAMILY}-{name}" for name in PAPER_MAPS)


def make(name: str) -> Starcraft | None:
    """``starcraft-5m_vs_6m``, ``starcraft-2s3z`` or ``starcraft-zerg_5v6``: StarCraft II itself, where it is installed."""
    return Starcraft(find_map(name)) if name.startswith(f"{FAMILY}-") else None
