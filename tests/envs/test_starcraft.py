"""StarCraft II behind the contract of worlds, with a stand-in for the game."""

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import starcraft_fake
from starcraft_fake import StarCraft2Env

from comad import envs
from comad.datasets.collect import collect
from comad.datasets.hdf5 import export_hdf5, import_hdf5
from comad.datasets.store import check, open_dataset
from comad.envs.base import HostEnv, Scarce
from comad.envs.rollout import episode_keys, rollout
from comad.envs.scene import AGENT, FOE
from comad.envs.starcraft import Starcraft, StarcraftWorld
from comad.envs.starcraft_game import close_games
from comad.envs.starcraft_maps import RACES, RaceMap, find_map, starcraft_map
from comad.envs.starcraft_starts import SIZE, draw_start
from comad.envs.vectors import split_obs
from comad.errors import UserError
from comad.types import Actions, PRNGKey, Spec, Step, Tokens

MARINES = Starcraft(starcraft_map("3m", 6))
WINS, LOSES, WAITS = 0, 1, 2
"""Seeds by what the stand-in makes of them."""


@pytest.fixture(autouse=True)
def _game(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    starcraft_fake.install(tmp_path, monkeypatch)
    monkeypatch.setattr(StarCraft2Env, "opened", [])
    monkeypatch.setattr(StarCraft2Env, "faults", {})
    yield
    close_games()
    for name in [name for name in sys.modules if name.split(".")[0] in ("smac", "smacv2")]:
        del sys.modules[name]


class Charge(eqx.Module):
    """Shoots the first enemy in range, else walks east, else does the first thing there is to do."""

    def start(self, spec: Spec) -> None:
        """Nothing to remember."""

    def act(self, memory: None, tokens: Tokens | None, available: Any, key: PRNGKey) -> tuple[Actions, None]:
        aimed, alone = available[:, 6:], available.argmax(-1)
        return jnp.where(aimed.any(-1), 6 + aimed.argmax(-1), jnp.where(available[:, 4], 4, alone)), None


def charge(step: Step) -> np.ndarray:
    """The same in NumPy."""
    available = np.asarray(step.available)
    aimed = available[..., 6:]
    return np.where(aimed.any(-1), 6 + aimed.argmax(-1), np.where(available[..., 4], 4, available.argmax(-1)))


def play(env: Starcraft, seeds: list[int]) -> list[tuple[StarcraftWorld, Step]]:
    """Every moment of episodes that end one after the other."""
    moments = [env.reset_many(np.array(seeds, np.uint32))]
    active = np.ones(len(seeds), bool)
    while active.any():
        world, step = moments[-1]
        moments.append(env.step_many(world, charge(step), active))
        active &= ~np.asarray(moments[-1][1].ended)
    return moments


def everything(world: Any, step: Step, actions: Actions) -> Any:
    return world, step, actions


def test_battles_are_won_lost_and_left_at_the_limit() -> None:
    assert isinstance(MARINES, HostEnv) and isinstance(MARINES, Scarce)
    steps = [step for _, step in play(MARINES, [WINS, LOSES, WAITS])]
    ends = [next(time for time, step in enumerate(steps) if step.ended[place]) for place in range(3)]
    last = [steps[end] for end in ends]
    # All shoot the first they can, and two shots kill. Three shoot all the time, or three, two and one.
    assert ends == [3, 3, 6]
    assert [bool(step.terminated[place]) for place, step in enumerate(last)] == [True] * 3
    assert [bool(step.success[place]) for place, step in enumerate(last)] == [True, False, False]
    assert float(sum(step.reward[WINS] for step in steps[: ends[WINS] + 1])) == 13.0
    assert not any(bool(step.success[WAITS]) for step in steps) and float(steps[0].reward.sum()) == 0


def test_the_dead_do_nothing_and_see_nothing() -> None:
    world, _ = MARINES.reset_many(np.array([LOSES], np.uint32))
    world, step = MARINES.step_many(world, np.full((1, 3), 1), np.array([True]))
    assert step.available[0, 0].tolist() == [True] + [False] * 8 and not step.available[0, 1:, 0].any()
    assert not step.tokens.own[0, 0].any() and not step.tokens.target_seen[0, 0].any() and not step.tokens.ally_seen[0, 1:, 0].any()
    assert step.state.agent_present[0].tolist() == [False, True, True] and not step.state.agents[0, 0].any()
    for _ in range(2):
        assert not bool(step.ended[0])
        # What a team wants of the dead does not matter.
        world, step = MARINES.step_many(world, np.full((1, 3), 1), np.array([True]))
    assert bool(step.ended[0]) and not bool(step.success[0]) and step.state.target_present.all() and int(world.time[0]) == 3


def test_what_is_not_available_is_not_done() -> None:
    world, step = MARINES.reset_many(np.array([WAITS], np.uint32))
    assert not step.available[0, :, 0].any() and not step.available[0, :, 6:].any()
    world, step = MARINES.step_many(world, np.array([[0, 7, 4]]), np.array([True]))
    assert StarCraft2Env.opened[0].last_action.argmax(-1).tolist() == [1, 1, 4]


def test_games_are_used_again_unless_their_episode_was_broken_off() -> None:
    play(MARINES, [WINS, LOSES])
    play(MARINES, [WAITS, WINS, WINS])
    first = StarCraft2Env.opened[:3]
    # A seed is that of a program, so those used again keep their first.
    assert sorted((len(game.episodes), game.seed_given) for game in first) == [(1, WINS), (2, WINS), (2, LOSES)]
    assert not any(game.closed for game in first)
    MARINES.reset_many(np.array([WINS], np.uint32))
    MARINES.reset_many(np.array([WINS], np.uint32))
    assert [game.closed for game in StarCraft2Env.opened].count(True) == 1 and len(StarCraft2Env.opened) == 4
    Starcraft(RaceMap("protoss", 2, 2)).reset_many(np.array([5], np.uint32))
    assert [game.closed for game in StarCraft2Env.opened] == [True] * 4 + [False]
    close_games()
    assert StarCraft2Env.opened[-1].closed


def test_a_rollout_plays_in_turns_and_once_more_if_a_game_breaks_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMAD_GAMES", "2")
    monkeypatch.setitem(StarCraft2Env.faults, "step", 1)
    keys = episode_keys(jax.random.key(0), 0, 4)
    outcome, (world, step, actions) = rollout(MARINES, Charge(), keys, everything)
    games = StarCraft2Env.opened
    # The one that broke down and the other, whose episode nobody finished.
    assert len(games) == 4 and [game.closed for game in games].count(True) == 2
    assert actions.shape == (4, 7, 3) and world.agents.shape == (4, 7, 3, 4)
    for episode, length in enumerate(outcome.length.tolist()):
        assert world.time[episode, : length + 1].tolist() == list(range(length + 1))
        assert step.ended[episode, length] and not step.ended[episode, :length].any()
        assert step.success[episode, length] == outcome.success[episode]
        assert step.reward[episode, : length + 1].sum() == pytest.approx(float(outcome.total[episode]))
    shown = MARINES.scene(jax.tree.map(lambda leaf: leaf[0, 0], world))
    discs = [mark for mark in shown.marks if mark.shape == "disc"]
    assert [mark.color for mark in discs] == [AGENT] * 3 + [FOE] * 3 and {mark.label for mark in discs} == {"M"}
    # Both from the lower left corner: the first agent stands at (6, 10).
    assert (discs[0].row, discs[0].column) == (32 - 10 - 0.5, 6 - 0.5) and shown.title == "STARCRAFT-3M   step 0 of 6"
    StarCraft2Env.faults["step"] = 3
    with pytest.raises(UserError, match=r"starcraft-3m: StarCraft II broke down in the middle of an episode \(KeyError: 'battle_won'\)"):
        rollout(MARINES, Charge(), keys[:2], everything)


def test_recorded_games_are_like_other_peoples_recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMAD_GAMES", "2")
    monkeypatch.setattr("comad.datasets.collect.CHUNK", 2)
    assert list(collect(tmp_path / "ours", MARINES, Charge(), "expert", 2, 0, {})) == [2]
    ours = open_dataset(tmp_path / "ours")
    theirs = import_hdf5(export_hdf5(ours, tmp_path / "played.h5"), "3m", "expert", tmp_path / "theirs")
    assert theirs.content == ours.content and theirs.spec == MARINES.spec
    assert check(ours) == [] and ours.read("episode.success").any()
    healing = dataclasses.replace(ours, spec=find_map("terran_5v5").spec)
    with pytest.raises(UserError, match="medivacs of starcraft-terran_5v5 keep allies as targets"):
        export_hdf5(healing, tmp_path / "never.h5")


@pytest.mark.parametrize("when", ["start", "reset"])
def test_a_game_that_does_not_begin_is_replaced_once(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(StarCraft2Env.faults, when, 1)
    MARINES.reset_many(np.array([WINS], np.uint32))
    failed, begun = StarCraft2Env.opened
    assert failed.closed == (when == "reset") and begun.running and not begun.closed
    close_games()
    StarCraft2Env.faults[when] = 2
    with pytest.raises(UserError, match=rf"game failed to start, twice \(ConnectionError: no {when} today\)"):
        MARINES.reset_many(np.array([WINS], np.uint32))


def test_a_map_of_other_sizes_is_refused() -> None:
    with pytest.raises(UserError, match="starcraft-3m: the installed smac has another map of this name: episode_limit 6 instead of 60"):
        Starcraft(find_map("starcraft-3m")).reset_many(np.array([WINS], np.uint32))
    assert [game.closed for game in StarCraft2Env.opened] == [True]


def test_types_and_shields_reach_tokens_and_pictures() -> None:
    env = Starcraft(find_map("2s3z"))
    world, step = env.reset_many(np.array([WINS], np.uint32))
    names = [feature.name for feature in env.spec.target]
    stalker, zealot, shield = (names.index(name) for name in ("is stalker", "is zealot", "shield"))
    seen = np.asarray(step.tokens.targets)[0, 2]
    assert seen[1, [stalker, zealot, shield]].tolist() == [1, 0, 0.25] and seen[2, [stalker, zealot]].tolist() == [0, 1]
    labels = [mark.label for mark in env.scene(jax.tree.map(lambda leaf: leaf[0], world)).marks if mark.shape == "disc"]
    assert labels == ["S", "S", "Z", "Z", "Z"] * 2


def test_medivacs_aim_at_allies() -> None:
    rules = RaceMap("terran", 3, 4)
    env, everybody = Starcraft(rules), np.array([True])
    seed = next(seed for seed in range(0, 300, 3) if draw_start(rules, seed, 0)["team_gen"]["ally_team"].count("medivac") == 1)
    world, _ = env.reset_many(np.array([seed], np.uint32))
    game = StarCraft2Env.opened[0]
    healer = game.ours.index("medivac")
    near, far = (agent for agent in range(3) if agent != healer)
    # It reaches four cells and sees eleven.
    game.places[[healer, near, far]] = [(10, 10), (12, 11), (10, 16)]
    game.places[3:] = [(15, 10), (15, 11), (10, 30), (15, 12)]
    world, step = env.step_many(world, np.ones((1, 3), int), everybody)
    raw = split_obs(env.spec, np.stack(game.get_obs())[None])
    targets, seen = np.asarray(step.tokens.targets)[0], np.asarray(step.tokens.target_seen)[0]
    assert (targets[[near, far]] == raw["targets"][0, [near, far]]).all() and (
        seen[[near, far]] == raw["target_seen"][0, [near, far]]
    ).all()
    assert raw["target_seen"][0, healer].tolist() == [True, True, False, True]
    # Itself and the number that no ally has are nobody; of the others it tells what it sees of them, with "in range" for "visible".
    assert sorted(np.flatnonzero(seen[healer])) == sorted([near, far]) and not targets[healer, [healer, 3]].any()
    for block, ally in enumerate(sorted([near, far])):
        assert (targets[healer, ally, 1:] == raw["allies"][0, healer, block, 1:]).all() and targets[healer, ally, 1:].any()
        assert targets[healer, ally, 0] == step.available[0, healer, 6 + ally] == (ally == near)
    assert (np.asarray(step.available)[0, healer, 6:] == [slot == near for slot in range(4)]).all()
    game.health[near] = 0.5
    world, step = env.step_many(world, np.where(np.arange(3) == healer, 6 + near, 1)[None], everybody)
    health = [feature.name for feature in env.spec.target].index("health")
    assert float(step.tokens.targets[0, healer, near, health]) == 1.0
    labels = {mark.label for mark in env.scene(jax.tree.map(lambda leaf: leaf[0], world)).marks if mark.shape == "disc"}
    assert "V" in labels and labels <= {"M", "A", "V"}


@pytest.mark.parametrize("rules", [RaceMap("zerg", 5, 8), RaceMap("protoss", 6, 4)])
def test_starts_follow_from_the_seed_and_the_published_chances(rules: RaceMap) -> None:
    first, again, retried = (draw_start(rules, 7, attempt) for attempt in (0, 0, 1))
    assert repr(first) == repr(again) != repr(retried)
    starts = [draw_start(rules, seed, 0) for seed in range(600)]
    teams = [(start["team_gen"]["ally_team"], start["team_gen"]["enemy_team"]) for start in starts]
    common = min(rules.agents, rules.enemies)
    assert all(ours[:common] == theirs[:common] and len(theirs) == rules.enemies for ours, theirs in teams)
    assert not any(set(ours) == {"baneling"} for ours, _ in teams)
    shares = [sum(ours.count(unit) for ours, _ in teams) / (600 * rules.agents) for unit in RACES[rules.race]]
    assert shares == pytest.approx([0.45, 0.45, 0.1], abs=0.03)
    ours, theirs = (np.stack([start[f"{side}_start_positions"]["item"] for start in starts]) for side in ("ally", "enemy"))
    assert ours.shape == (600, rules.agents, 2) and theirs.shape == (600, rules.enemies, 2)
    assert (theirs >= 0).all() and (theirs <= SIZE).all()
    mirrored = (theirs[:, :common, 0] == SIZE - ours[:, :common, 0]).all(1)
    assert mirrored.mean() == pytest.approx(0.5, abs=0.06)
    assert (ours[mirrored, :, 0] < SIZE / 2).all() and (theirs[mirrored, :, 0] >= SIZE / 2).all()
    assert (ours[~mirrored] == SIZE / 2).all() and (np.abs(theirs[~mirrored] - SIZE / 2) >= 2).all()
    assert max(len(np.unique(places, axis=0)) for places in theirs[~mirrored]) == 4


def test_worlds_are_made_where_everything_is_there() -> None:
    assert isinstance(envs.make("StarCraft-2s3z"), Starcraft) and isinstance(envs.make("starcraft-protoss_5v5"), Starcraft)
    assert "starcraft" not in envs.missing_extras()
