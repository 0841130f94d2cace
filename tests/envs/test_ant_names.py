"""Which Ants there are, by name, and what happens without the simulator."""

import importlib
import importlib.util
import sys
from typing import Any

import pytest
from ants import ant_named

from comad import envs, streams
from comad.envs import ant, ant_physics
from comad.envs.ant import Ant
from comad.envs.base import HostEnv
from comad.envs.threads import most_threads, usable_cores
from comad.errors import UserError
from comad.types import Continuous


def test_names_lead_back_to_the_same_world() -> None:
    assert len(ant.NAMES) == 8 + 5
    others = ("ant-reward-30", "ant-reward-22.5", "ant-without-1-2", "ant-without-4", "ant-reward-90-without-2", "ant-without-1-2-3-4")
    for name in (*ant.NAMES, *others, "ant-reward-45-obsk1", "ant-dynamics-right-obsk0-500t", "ant-without-2-4-20t"):
        env = envs.find(name)
        assert isinstance(env, HostEnv) and env.spec.env == name == ant_named(name).name
    assert len({ant_named(name).spec.rules_hash for name in (*ant.NAMES, *others)}) == len(ant.NAMES) + len(others)


@pytest.mark.parametrize(
    ("name", "same"),
    {
        "ant": "ant-reward-0",
        "ant-dynamics-normal": "ant-reward-0",
        "ANT-Reward-0-full-1000t": "ant-reward-0",
        "ant-reward--45": "ant-reward-315",
        "ant-reward-405.0": "ant-reward-45",
        "ant-without-3-1": "ant-dynamics-diagonal",
        "ant-reward-0-without-2": "ant-dynamics-right",
        "ant-reward-90-dynamics-back": "ant-reward-90-without-3",
    }.items(),
)
def test_one_world_has_one_name(name: str, same: str) -> None:
    assert envs.find(name) == envs.find(same) and envs.find(name).spec.env == same


@pytest.mark.parametrize(
    ("name", "complaint"),
    {
        "ant-reward-north": "ant-reward-north: 'north' is not a number of degrees; give a direction such as ant-reward-45",
        "ant-reward-nan": "'nan' is not a number",
        "ant-reward-1e3": "'1e3' is not a number",
        f"ant-reward-{'9' * 400}": "is not a number",
        "ant-without-5": "ant-without-5: there is no leg '5'; the legs are 1 to 4",
        "ant-without-1-x": "there is no leg 'x'",
        "ant-dynamics-sideways": "'sideways' stands for no legs; known: back, diagonal, front, mixed, right, normal",
        "ant-reward-0-0t": "the limit must be 1 to 100000 steps, not 0",
        "ant-reward-0-obsk2": "there is no world named 'ant-reward-0-obsk2'; did you mean ant-reward-0",
        "ant-reward": "there is no world named 'ant-reward'",
        "antelope": "there is no world named 'antelope'",
    }.items(),
)
def test_names_that_stand_for_no_ant_are_refused(name: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        envs.find(name)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"direction": float("nan")}, "the direction must be from 0 to below 360 degrees, not nan"),
        ({"disabled": (0,)}, "there is no leg 0"),
        ({"disabled": (2, 1)}, "once each, in order"),
    ],
)
def test_settings_that_make_no_ant_are_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        Ant(**settings)


def test_specs_differ_only_in_what_legs_see() -> None:
    full, near, alone = (ant_named(f"ant-reward-0-{sight}").spec for sight in ("full", "obsk1", "obsk0"))
    assert (full.num_agents, full.num_targets, full.limit, full.full_return) == (4, 1, 1000, 5000.0)
    assert full.actions == Continuous(("hip", "ankle")) and full.seen_in_state and full.metric == "return"
    assert (len(full.own), len(full.ally), len(near.ally)) == (22 + 17, 22, 1)
    assert len(near.own) + 3 * len(near.ally) == 42  # as many numbers as in multi-agent MuJoCo
    assert near.ally == alone.ally and near.rules_hash != alone.rules_hash
    assert ant_named("ant-reward-0-100t").spec.full_return == 500.0


def test_streams_are_the_published_ones() -> None:
    reward, dynamics = streams.find("ant-reward"), streams.find("ant-dynamics")
    assert [task.env for task in reward.tasks] == [f"ant-reward-{angle}" for angle in (0, 45, 90, 135, 180, 225, 270, 315)]
    assert [task.name for task in dynamics.tasks] == ["Back", "Diagonal", "Front", "Mixed", "Right", "Normal"]
    assert [ant_named(task.env).disabled for task in dynamics.tasks] == [(3,), (1, 3), (1,), (2, 3, 4), (2,), ()]
    for stream in (reward, dynamics):
        assert (stream.updates, stream.threshold, stream.metric) == (100_000, 8.0, "return")


def test_without_the_simulator_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"worlds like ant-reward-45 need mujoco, which is not installed: pip install 'comad\[ant\]'"):
        envs.make("ant-reward-45")
    assert set(ant.NAMES) < set(envs.names())
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(UserError, match=r"Ant worlds need mujoco, which is not installed: pip install 'comad\[ant\]'"):
        ant_physics.load()


def test_the_number_of_threads_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COMAD_THREADS", raising=False)
    assert most_threads() == usable_cores() >= 1
    monkeypatch.setenv("COMAD_THREADS", "3")
    assert most_threads() == 3
    monkeypatch.setenv("COMAD_THREADS", "none")
    with pytest.raises(UserError, match="COMAD_THREADS must be a number of threads from 1, not 'none'"):
        most_threads()
