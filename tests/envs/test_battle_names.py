"""Which battles there are, by name, and what happens without the simulator."""

import importlib
import importlib.util
import sys
from typing import Any

import jax
import numpy as np
import pytest
from battles import battle_named, playable

from comad import envs, streams
from comad.envs import battle, smax
from comad.envs.base import Env
from comad.envs.battle import Battle
from comad.envs.units import NUMBERS, RACES
from comad.errors import UserError


def test_units_of_a_race_are_of_two_kinds_alike_on_both_sides() -> None:
    for race, pair in RACES.items():
        for ours, theirs in ((5, 5), (10, 13), (6, 4)):
            env, numbers = Battle(ours, theirs, race=race), [NUMBERS[unit] for unit in pair]
            kinds = np.asarray(jax.jit(jax.vmap(env.draw_kinds))(jax.random.split(jax.random.key(0), 4000)))
            assert kinds.shape == (4000, ours + theirs) and set(np.unique(kinds)) == set(numbers)
            both = min(ours, theirs)
            np.testing.assert_array_equal(kinds[:, :both], kinds[:, ours : ours + both])
            np.testing.assert_allclose((kinds == numbers[0]).mean(0), 0.5, atol=0.04)
            extra = kinds[:, ours + both :]
            assert theirs <= ours or len(np.unique(extra, axis=0)) == 2 ** (theirs - ours)


def test_names_lead_back_to_the_same_world() -> None:
    assert len(battle.NAMES) == 34
    for name in (*battle.NAMES, "7m", "3s2z", "1m_vs_2g", "1a2h_vs_3z", "terran_3v9", "3m-60t", "zerg_5v5-200t"):
        env = battle_named(name)
        assert env.name == env.spec.env == name
    assert battle_named("2s3z").units == ("stalker", "stalker", "zealot", "zealot", "zealot") * 2
    assert battle_named("2m1m_vs_3m") == battle_named("3m")
    assert battle_named("2s1z_vs_3z").spec.num_actions == 5 + 3
    assert envs.find("Protoss_5v5") == battle_named("protoss_5v5") == Battle(5, 5, race="protoss")
    assert len({battle_named(name).spec.rules_hash for name in battle.NAMES}) == 34


def test_all_battles_share_one_kind_of_token() -> None:
    specs = [battle_named(name).spec for name in battle.NAMES]
    assert len({(spec.own, spec.ally, spec.target, spec.state_agent, spec.state_target) for spec in specs}) == 1


def test_streams_are_the_published_ones() -> None:
    tasks = {name: [task.env for task in streams.find(name).tasks] for name in ("marines", "stalker-zealot", "protoss", "terran", "zerg")}
    assert [env for names in tasks.values() for env in names] == list(battle.NAMES)
    marines = streams.find("marines")
    assert (marines.updates, marines.threshold, marines.metric) == (20_000, 8.0, "success")
    for number in (1, 2, 3):
        assert sorted(task.env for task in streams.find(f"marines-seq{number}").tasks) == sorted(tasks["marines"])
    assert [task.env for task in streams.find("marines-seq1").tasks] == tasks["marines"][::-1]


@playable
@pytest.mark.slow
@pytest.mark.parametrize("name", battle.NAMES)
def test_every_battle_can_be_made_and_begun(name: str) -> None:
    env = envs.make(name)
    assert isinstance(env, Env)
    _, step = jax.jit(env.reset)(jax.random.key(0))
    assert step.state.agent_present.all() and step.state.target_present.all() and not step.ended
    assert step.available.shape == (env.spec.num_agents, env.spec.num_actions)


@pytest.mark.parametrize(
    ("name", "complaint"),
    {
        "3x": "3x: 'x' stands for no unit; known: m marine",
        "3mm": "'mm' stands for no unit",
        "2c_vs_64zg": "'c' stands for no unit",
        "0m": "0m is no unit at all",
        "3m_vs_0z": "0z is no unit at all",
        "33m": "33m: a team has 1 to 32 units, not 33",
        "5m_vs_20m20z": "a team has 1 to 32 units, not 40",
        "99999999999999m": "not 99999999999999",
        "protoss_0v5": "protoss_0v5: a team has 1 to 32 units, not 0",
        "zerg_5v33": "not 33",
        "human_5v5": "there is no race named 'human'; known: protoss, terran, zerg",
        "3m-0t": "the limit must be 1 to 100000 steps, not 0",
        "3m-9999999999t": "the limit must be 1 to 100000 steps, not 9999999999",
        "cn-2-6x6-9999999999t": "cn-2-6x6-9999999999t: the limit must be 1 to 100000 steps",
        "starcraft-3m-60t": r"there is no StarCraft map named '3m-60t'; did you mean 3m\?$",
        "3m_vs": "there is no world named '3m_vs'; did you mean",
        "5v5": "there is no world named '5v5'",
    }.items(),
)
def test_names_that_stand_for_no_battle_are_refused(name: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        envs.find(name)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({}, "give the kind of each of the 4 units, or a race"),
        ({"units": ("marine",) * 3}, "give the kind of each of the 4 units"),
        ({"units": ("marine",) * 4, "race": "terran"}, "or a race"),
        ({"units": ("medivac",) * 4}, "there is no unit named 'medivac'"),
    ],
)
def test_settings_that_make_no_battle_are_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        Battle(2, 2, **settings)


def test_without_the_simulator_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"worlds like 5m_vs_6m need jaxmarl, which is not installed: pip install 'comad\[battle\]'"):
        envs.make("5m_vs_6m")
    assert set(battle.NAMES) < set(envs.names()) and envs.find("3m").spec.num_agents == 3
    assert envs.make("cn-2").spec.num_agents == 2
    monkeypatch.setitem(sys.modules, "jaxmarl.environments.smax", None)
    with pytest.raises(UserError, match=r"battles need jaxmarl, which is not installed: pip install 'comad\[battle\]'"):
        smax.load()
