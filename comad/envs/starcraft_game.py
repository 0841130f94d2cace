"""Running games of StarCraft II: programs that are started once and used for many episodes."""

import atexit
import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from comad.envs.base import SimulatorError
from comad.envs.starcraft_site import starcraft_folder
from comad.errors import UserError

MOST_GAMES = 8
"""Games at once unless ``$COMAD_GAMES`` says otherwise: each is a program with a map, units and an AI of its own."""


@runtime_checkable
class Game(Protocol):
    """What is used of the documented interface that the environments of SMAC and SMACv2 have in common."""

    def get_env_info(self) -> dict[str, Any]:
        """Sizes of everything."""
        ...

    def reset(self, *args: Any, **kwargs: Any) -> Any:
        """Begin an episode; SMACv2's is told how, in a configuration."""
        ...

    def step(self, actions: list[int]) -> tuple[float, bool, dict[str, Any]]:
        """Reward, whether the episode is over, and ``battle_won`` among other things; no such thing if the game broke down."""
        ...

    def get_obs(self) -> list[np.ndarray]:
        """What each agent sees."""
        ...

    def get_state(self) -> np.ndarray:
        """All there is."""
        ...

    def get_avail_actions(self) -> list[list[int]]:
        """What each agent can do."""
        ...

    def close(self) -> None:
        """End the program."""
        ...


class Sight(NamedTuple):
    """A moment of one game."""

    obs: np.ndarray
    state: np.ndarray
    available: np.ndarray
    reward: float = 0.0
    ended: bool = False
    won: bool = False


@dataclass(frozen=True)
class Games:
    """The games of one world, each with a place of its own. One whose episode was broken off is not used again.

    (SMAC starts another program, and forgets the first, if its very first episode is followed by a reset before the end.)
    """

    name: str
    start: Callable[[int], Game]
    """A new program with this seed."""
    begin: Callable[[Game, int, int], None]
    """A fresh episode from a seed, for the n-th time of asking."""
    idle: dict[int, Game] = field(default_factory=dict)
    playing: dict[int, Game] = field(default_factory=dict)

    def reset(self, place: int, seed: int) -> Sight:
        """A fresh episode in a place; a game that fails is replaced once."""
        self.drop(place)
        for attempt in range(2):
            try:
                # In `playing` from the start, so that it is closed whatever happens to it.
                self.playing[place] = self.idle.pop(place) if place in self.idle else self.start(seed)
                self.begin(self.playing[place], seed, attempt)
                return look(self.playing[place])
            except UserError:
                self.drop(place)
                raise
            # The client of the game raises nearly anything, from failed assertions to broken connections.
            except Exception as error:
                self.drop(place)
                reason = error
        said = describe(reason)
        raise UserError(
            f"{self.name}: StarCraft II in {starcraft_folder()} failed to start, twice ({said}); does it run alone?"
        ) from reason

    def step(self, place: int, actions: np.ndarray) -> Sight:
        """All agents in a place act at once."""
        if place not in self.playing:
            raise SimulatorError(f"{self.name}: no game is being played in place {place}; reset first")
        game = self.playing[place]
        try:
            reward, ended, info = game.step(actions.tolist())
            sight = look(game, float(reward), bool(ended), bool(info["battle_won"]))
        except Exception as error:
            self.drop(place)
            way_out = "start again, with fewer games at once in COMAD_GAMES if memory is short"
            raise SimulatorError(
                f"{self.name}: StarCraft II broke down in the middle of an episode ({describe(error)}); {way_out}"
            ) from error
        if sight.ended:
            self.idle[place] = self.playing.pop(place)
        return sight

    def together(self, places: np.ndarray, act: Callable[[int], Sight]) -> list[Sight]:
        """Do something in many places. Threads suffice, since the work is done by the games."""
        with ThreadPoolExecutor(max(1, len(places))) as pool:
            return list(pool.map(act, places.tolist()))

    def drop(self, place: int) -> None:
        """Close a game that is still playing."""
        game = self.playing.pop(place, None)
        if game is not None:
            with contextlib.suppress(Exception):  # it may be gone already
                game.close()

    def close(self) -> None:
        """Close all."""
        self.playing.update({place: game for place, game in self.idle.items() if place not in self.playing})
        self.idle.clear()
        for place in list(self.playing):
            self.drop(place)


OPEN: dict[str, Games] = {}
"""The games of the world that was played last, by its rules. Others are closed: a stream has many worlds, a machine little memory."""


def open_games(rules: str, games: Games) -> Games:
    """Take these games into use, or those that run already if their world was the last one played."""
    if rules not in OPEN:
        close_games()
        OPEN[rules] = games
    return OPEN[rules]


@atexit.register
def close_games() -> None:
    """Close whatever runs."""
    while OPEN:
        OPEN.popitem()[1].close()


def look(game: Game, reward: float = 0.0, ended: bool = False, won: bool = False) -> Sight:
    """What a game shows now."""
    obs, state = np.stack(game.get_obs()).astype(np.float32), np.asarray(game.get_state(), np.float32)
    return Sight(obs, state, np.asarray(game.get_avail_actions(), bool), reward, ended, won)


def describe(error: Exception) -> str:
    """An error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def most_games() -> int:
    """How many games run at once."""
    given = os.environ.get("COMAD_GAMES", "")
    if not given:
        return min(MOST_GAMES, os.cpu_count() or 1)
    if not given.isdecimal() or int(given) < 1:
        raise UserError(f"COMAD_GAMES must be a number of games from 1, not {given!r}")
    return int(given)
