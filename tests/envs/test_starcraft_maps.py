from operator import attrgetter

import jax
import numpy as np
import pytest
from odis import odis_arrays

from comad import envs
from comad.datasets.flat import split
from comad.envs.starcraft import NAMES, Starcraft
from comad.envs.starcraft_game import Sight
from comad.envs.starcraft_maps import find_map, starcraft_map
from comad.envs.vectors import has_healers, join_obs, widths
from comad.errors import UserError
from comad.types import Feature


def names(features: tuple[Feature, ...]) -> list[str]:
    return [feature.name for feature in features]


def test_marines_have_health_only() -> None:
    spec = starcraft_map("5m_vs_6m", 70).spec
    assert (spec.num_agents, spec.num_targets, spec.num_actions, spec.limit) == (5, 6, 12, 70)
    assert names(spec.state_agent) == ["health", "cooldown", "x", "y"] and names(spec.state_target) == ["health", "x", "y"]
    assert spec.env == "starcraft-5m_vs_6m" and '"limit": 70' in spec.rules


def test_enemies_have_their_types_in_the_other_order() -> None:
    spec = starcraft_map("starcraft-2s3z", 120).spec
    for ours in (spec.own, spec.ally, spec.state_agent):
        assert names(ours[-3:]) == ["shield", "is stalker", "is zealot"]
    for theirs in (spec.target, spec.state_target):
        assert names(theirs[-3:]) == ["shield", "is zealot", "is stalker"]


SIZES = {
    **{"3m": (3, 3, 60, 30, 48), "4m": (4, 4, 75, 40, 68), "10m": (10, 10, 120, 100, 230), "12m": (12, 12, 150, 120, 300)},
    **{"5m_vs_6m": (5, 6, 70, 55, 98), "7m_vs_8m": (7, 8, 90, 75, 150), "9m_vs_10m": (9, 10, 140, 95, 210)},
    **{"13m_vs_15m": (13, 15, 160, 140, 370), "1s1z": (2, 2, 120, 32, 42), "2s3z": (5, 5, 120, 80, 120), "2s4z": (6, 6, 130, 96, 150)},
    **{"3s5z": (8, 8, 150, 128, 216), "4s4z": (8, 8, 150, 128, 216), "2s1z_vs_3z": (3, 3, 150, 48, 66)},
    **{"2s2z_vs_4z": (4, 4, 150, 64, 92), "4s4z_vs_8z": (8, 8, 200, 128, 216)},
}
"""Agents, enemies, limit, and numbers in an observation and in a state."""
RACE_SIZES = {
    **{(5, 5): ((92, 130), (82, 120)), (6, 6): ((110, 162), (98, 150)), (10, 10): ((182, 310), (162, 290))},
    **{(20, 20): ((362, 820), (322, 780)), (10, 11): ((191, 327), (170, 306)), (20, 23): ((389, 901), (346, 858))},
}
"""The last two for protoss, and for the others."""


def test_every_map_of_the_paper_is_as_large_as_the_game_makes_it() -> None:
    expected = SIZES | {
        f"{race}_{agents}v{enemies}": (agents, enemies, 200, *sizes[race != "protoss"])
        for race in ("protoss", "terran", "zerg")
        for (agents, enemies), sizes in RACE_SIZES.items()
    }
    assert set(NAMES) == {f"starcraft-{name}" for name in expected}
    for name, sizes in expected.items():
        spec = envs.find(f"starcraft-{name}").spec
        assert (spec.num_agents, spec.num_targets, spec.limit, *widths(spec)) == sizes and spec.num_actions == 6 + sizes[1]
        assert spec.env == f"starcraft-{name}"


def test_widths_of_tokens_are_those_of_the_reference() -> None:
    found = {}
    for name in ("3m", "2s3z", "protoss_5v5", "terran_5v5", "zerg_5v5"):
        spec = find_map(name).spec
        # Four of the own features tell where an agent can go.
        found[name] = [len(features) for features in (spec.own[4:], spec.ally, spec.target, spec.state_agent, spec.state_target)]
    assert found["3m"] == [1, 5, 5, 4, 3] and found["2s3z"] == [4, 8, 8, 7, 6] and found["protoss_5v5"] == [7, 9, 9, 8, 7]
    assert found["terran_5v5"] == found["zerg_5v5"] == [6, 8, 8, 7, 6]


def test_races_tell_their_own_place_and_all_three_types() -> None:
    spec = find_map("starcraft-protoss_5v5").spec
    assert names(spec.own[4:]) == ["health", "shield", "x", "y", "is stalker", "is zealot", "is colossus"]
    assert names(spec.target) == ["in range", "distance", "east", "north", "health", "shield", "is stalker", "is zealot", "is colossus"]
    assert spec.target[1].unit == 1.0 and find_map("3m").spec.target[1].unit == 9.0
    assert has_healers(find_map("terran_5v5").spec) and not has_healers(spec)


def test_rules_of_recorded_maps_are_what_they_were() -> None:
    # Datasets hold these.
    assert envs.find("starcraft-3m").spec.rules_hash == starcraft_map("3m", 60).spec.rules_hash == "029cc2202921c5e7"
    assert envs.find("starcraft-2s3z").spec.rules_hash == "1a1fe07109eed5f9"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("2q", "2q stands for no unit"),
        ("1m1s", "teams of marines only"),
        ("2s3z_vs_5m", "teams of marines only"),
        ("lbf-x", "cn-4 or a SMAC"),
        ("3m_vs_0m", "0m is no unit at all"),
    ],
)
def test_other_maps_are_refused(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        starcraft_map(name, 60)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("2q", "2q stands for no unit whose features are known; known: m = marine"),
        ("0m", "0m is no unit at all"),
        ("33m", "a team has 1 to 32 units, not 33"),
        ("3m_vs_40m", "a team has 1 to 32 units, not 40"),
        ("6m_vs_9m", "there is no StarCraft map named '6m_vs_9m'; did you mean"),
        ("mmm2", "there is no StarCraft map named 'mmm2'"),
        ("human_5v5", "there is no race named 'human'; known: protoss, terran, zerg"),
        ("zerg_0v5", "a team has 1 to 32 units, not 0"),
        ("protoss_33v33", "a team has 1 to 32 units, not 33"),
        ("terran_6v5", "terran_6v5: medivacs reach allies by the numbers of enemies, so there must be at least 6 enemies"),
    ],
)
def test_worlds_that_there_are_not_are_refused(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        envs.find(f"starcraft-{name}")


def test_recorded_play_obeys_the_rules_that_tokens_tell() -> None:
    fields = odis_arrays("3m", "medium")
    filled = fields["filled"][..., 0] == 1
    obs, state, available = (fields[name][filled] for name in ("obs", "state", "avail_actions"))
    env = Starcraft(find_map("starcraft-3m"))
    sights = [Sight(*moment) for moment in zip(obs, state, available.astype(bool), strict=True)]
    world, step = env.show(sights, np.zeros(len(sights), np.int32))
    alive = np.asarray(step.state.agent_present)
    own, targets = np.asarray(step.tokens.own), np.asarray(step.tokens.targets)
    assert 0.1 < (~alive).mean() < 0.5 and (available[~alive] == np.eye(9)[0]).all() and not own[~alive].any()
    # No-op is for the dead, stop for the living, moves and attacks as the tokens say.
    assert (available[..., 0] == ~alive).all() and (available[..., 1] == alive).all()
    assert (available[..., 2:6] == own[..., :4]).all() and (available[..., 6:] == targets[..., 0]).all()
    assert (own[..., 4] == np.asarray(step.state.agents)[..., 0]).all()
    assert np.asarray(step.tokens.target_seen)[targets[..., 0] > 0].all()
    in_sight = np.asarray(step.tokens.target_seen)
    assert (in_sight <= np.asarray(step.state.target_present)[:, None]).all() and in_sight.any()
    stored = split(env.spec, obs, state)
    assert all((np.asarray(attrgetter(name)(step)) == array).all() for name, array in stored.items())
    seen = {name.removeprefix("tokens."): stored[name] for name in ("tokens.own", "tokens.allies", "tokens.targets")}
    assert (join_obs(env.spec, **seen) == obs).all()
    first = env.scene(jax.tree.map(lambda leaf: leaf[0], world))
    assert all(0 <= mark.row < 32 and 0 <= mark.column < 32 for mark in first.marks)
