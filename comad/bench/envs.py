"""How many steps a second our worlds take, beside the same worlds as others play them, in one run on one machine."""

import dataclasses
import importlib
import importlib.util
import itertools
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from comad import envs
from comad.bench import plain_ant, plain_battle
from comad.bench.plain_navigation import PlainNavigation
from comad.envs.ant import Ant
from comad.envs.battle import Battle
from comad.envs.foraging import Foraging
from comad.envs.navigation import Navigation
from comad.envs.rollout import RandomPlayer, episode_keys, rollout

WORLDS = ("cn-4", "lbf-bottom", "lbf-8x8-3p-3f", "3m")
NUM_ENVS = (1, 32, 1024)
OURS = "comad"
EXTRAS = {"lbforaging": "'comad[dev]'", "jaxmarl": "'comad[battle]'", "gymnasium_robotics": "gymnasium-robotics"}
"""Peers that are packages of their own, and what installs them."""

Spans = Iterator[tuple[int, float]]
"""Steps taken and the seconds they took, one span after the other without end."""


@dataclass(frozen=True)
class Row:
    """One measurement."""

    world: str
    implementation: str
    num_envs: int
    """Episodes played at once."""
    env_steps: int
    """Steps of running episodes; what is computed for episodes that have ended does not count."""
    seconds: float
    steps_per_second: float
    first_call_seconds: float | None
    """Compiling and the first run, not part of ``seconds``; none for implementations that do not compile."""
    ratio: float | None
    """Speed over that of the peer of the same world, with as many episodes at once if it can play many."""


@dataclass(frozen=True)
class Case:
    """One measurement to be made."""

    world: str
    implementation: str
    num_envs: int

    def run(self, seconds: float) -> Row:
        """Random legal actions for about that many seconds."""
        spans = _our_spans(self.world, self.num_envs) if self.implementation == OURS else _peer_spans(self.world, self.num_envs)
        _, first_call = next(spans)
        env_steps, elapsed = 0, 0.0
        while elapsed < seconds:
            steps, span = next(spans)
            env_steps, elapsed = env_steps + steps, elapsed + span
        compiled = first_call if self.implementation in (OURS, "jaxmarl") else None
        return Row(self.world, self.implementation, self.num_envs, env_steps, elapsed, env_steps / elapsed, compiled, ratio=None)


def measure(
    worlds: Sequence[str] = WORLDS,
    num_envs: Sequence[int] = NUM_ENVS,
    seconds: float = 1.0,
    track: Callable[[Sequence[Case]], Iterable[Case]] = iter,
) -> list[Row]:
    """Measure every world at every number of episodes at once, and its Python peer with one; jaxmarl plays as many as we do.

    Timed for our worlds: whole episodes as `rollout` plays them, resets and the choice of random actions included, until the last
    of the episodes has ended. Timed for the peers: the steps and the choice of one legal action per agent; their resets are not
    timed, which favors them. Battles and Ants are played on without waiting for the last one to end (`plain_battle`, `plain_ant`).

    Args:
        worlds: names of worlds.
        num_envs: numbers of episodes at once.
        seconds: how long to measure each case.
        track: wraps the cases, for instance to show progress.
    """
    rows = [case.run(seconds) for case in track(cases(worlds, num_envs))]
    peers = {(row.world, row.num_envs): row.steps_per_second for row in rows if row.implementation != OURS}

    def compare(row: Row) -> Row:
        peer = peers.get((row.world, row.num_envs)) or peers.get((row.world, 1))
        return dataclasses.replace(row, ratio=row.steps_per_second / peer if peer else None)

    return [compare(row) for row in rows]


def cases(worlds: Sequence[str], num_envs: Sequence[int]) -> list[Case]:
    """Everything to be measured, each world's peer before ours."""
    found = []
    for world in worlds:
        peer = peer_name(world)
        if peer == "jaxmarl":
            # The same simulator: without it we cannot play either.
            found += [Case(world, who, count) for count in num_envs for who in (peer, OURS) if not missing(peer)]
            continue
        if peer and not missing(peer):
            found.append(Case(world, peer, 1))
        found += [Case(world, OURS, count) for count in num_envs]
    return found


def notes(worlds: Sequence[str] = WORLDS) -> list[str]:
    """What was left out of the measurement, and how to get it."""
    absent = sorted({peer for peer in map(peer_name, worlds) if peer and missing(peer)})
    return [f"without {peer}, which is not installed: pip install {EXTRAS[peer]}" for peer in absent]


def peer_name(world: str) -> str:
    """Who else plays this world; empty if nobody does."""
    match envs.find(world):
        case Navigation():
            return "plain Python"
        case Foraging():
            return "lbforaging"
        case Battle():
            return "jaxmarl"
        case Ant():
            return "gymnasium_robotics"
    return ""


def missing(peer: str) -> bool:
    """Whether a peer is a package that is not installed."""
    return peer in EXTRAS and importlib.util.find_spec(peer) is None


def _our_spans(world: str, num_envs: int) -> Spans:
    env = envs.make(world)
    if isinstance(env, Battle):
        yield from plain_battle.our_spans(env, num_envs)
    if isinstance(env, Ant):
        yield from plain_ant.our_spans(env, num_envs)
    player = RandomPlayer(env.spec)
    draw_keys = jax.jit(lambda span: episode_keys(jax.random.fold_in(jax.random.key(0), span), 0, num_envs))
    for span in itertools.count():
        keys = jax.block_until_ready(draw_keys(span))
        start = time.perf_counter()
        outcome, _ = jax.block_until_ready(rollout(env, player, keys))
        elapsed = time.perf_counter() - start
        yield int(outcome.length.sum()), elapsed


def _peer_spans(world: str, num_envs: int) -> Spans:
    env = envs.make(world)
    if isinstance(env, Battle):
        return plain_battle.their_spans(env, num_envs)
    if isinstance(env, Ant):
        return plain_ant.their_spans()
    if isinstance(env, Navigation):
        return _plain_navigation_spans(env)
    assert isinstance(env, Foraging)
    return _lbforaging_spans(env)


def _plain_navigation_spans(env: Navigation) -> Spans:
    game = PlainNavigation(env.num_agents, env.size, env.limit, env.reach)
    generator = random.Random(0)
    draw = generator.random
    while True:
        game.reset(generator)
        ended = False
        start = time.perf_counter()
        while not ended:
            _, ended = game.step([legal[int(draw() * len(legal))] for legal in game.legal_actions()])
        yield game.time, time.perf_counter() - start


def _lbforaging_spans(env: Foraging) -> Spans:
    game = _lbforaging_game(env)
    draw = random.Random(0).random
    game.reset(seed=0)
    while True:
        game.reset()
        steps, ended = 0, False
        start = time.perf_counter()
        while not ended:
            legal_actions = game._valid_actions.values()
            _, _, ended, _, _ = game.step([legal[int(draw() * len(legal))] for legal in legal_actions])
            steps += 1
        yield steps, time.perf_counter() - start


def _lbforaging_game(env: Foraging) -> Any:
    """Its world with our settings, without the checking wrappers of the registered ones; only the food lies where its reset puts it."""
    module = importlib.import_module("lbforaging.foraging.environment")
    return module.ForagingEnv(
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
