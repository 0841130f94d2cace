"""Ours is the standard Ant: the same model, and step by step what gymnasium-robotics' multi-agent MuJoCo does."""

import importlib.resources
import importlib.util
import re
from typing import Any

import numpy as np
import pytest
from ants import ant_named, compared, draw, play, playable

from comad.bench.envs import cases, measure, notes
from comad.bench.plain_ant import restart, stock
from comad.envs.ant import numbers_of
from comad.envs.ant_physics import simulator

ONLY_LOOKS = re.compile(r"n?(names?|cam|light|mat|tex|numeric)(data|$|_.*)|geom_(rgba|matid)|nbuffer|nnames_map|signature")
"""What a model holds besides the body: how it is drawn, what its parts are called, numbers that nobody reads."""


def fields(thing: Any) -> dict[str, Any]:
    found = {name: getattr(thing, name) for name in dir(thing) if not name.startswith("_")}
    return {name: value for name, value in found.items() if isinstance(value, int | float | np.ndarray)}


@playable
@pytest.mark.skipif(importlib.util.find_spec("gymnasium") is None, reason="needs gymnasium, which has the standard model")
def test_the_body_is_the_standard_one_in_every_number() -> None:
    text = importlib.resources.files("gymnasium").joinpath("envs/mujoco/assets/ant.xml").read_text()
    ours = simulator().model
    theirs = simulator().mujoco.MjModel.from_xml_string(text)
    for one, other in ((ours, theirs), (ours.opt, theirs.opt), (ours.stat, theirs.stat)):
        expected = {name: value for name, value in fields(other).items() if not ONLY_LOOKS.fullmatch(name)}
        assert len(expected) >= 5
        for name, value in expected.items():
            np.testing.assert_array_equal(getattr(one, name), value, err_msg=name)
    assert len(fields(ours)) > 400


@playable
def test_a_few_steps_are_those_that_were_recorded_from_multi_agent_mujoco() -> None:
    env = ant_named("ant-reward-0")
    world, rewards = env.reset_many(np.array([7], np.uint32))[0], []
    for actions in np.sin(np.arange(32)).reshape(4, 1, 4, 2):
        world, motion, reward, _ = env.advance(world, actions, np.ones(1, bool))
        rewards.append(reward[0])
    np.testing.assert_allclose(rewards, [-0.3876581219358126, -0.7794783456100147, -1.0342719093466595, -1.8446840560936657], atol=1e-9)
    expected = [0.7462462111530627, 0.9794742754966927, -0.05042655034296733, 0.05404482863325197, -0.1875272331122596]
    np.testing.assert_allclose(numbers_of(motion)[0, :5], expected, atol=1e-9)


@compared
@pytest.mark.parametrize("steps", [30, pytest.param(1500, marks=pytest.mark.slow)])
def test_random_steps_are_those_of_multi_agent_mujoco(steps: int) -> None:
    env, near, alone = (ant_named(f"ant-reward-0-{sight}") for sight in ("full", "obsk1", "obsk0"))
    games, random, played, seed = [stock(1), stock(0)], np.random.default_rng(1), 0, 0
    while played < steps:
        for game in games:
            game.reset(seed=seed)
        world, ended = env.reset_many(np.array([seed], np.uint32))[0], False
        seed += 1
        while not ended:
            actions = draw(random, 1)
            named = {f"agent_{leg}": actions[0, leg] for leg in range(4)}
            views, rewards, fallen, late, _ = games[0].step(named)
            narrow, *_ = games[1].step(named)
            world, motion, reward, terminated = env.advance(world, actions, np.ones(1, bool))
            np.testing.assert_allclose(numbers_of(motion)[0], games[0].state(), rtol=0, atol=1e-9)
            assert abs(reward[0] - rewards["agent_0"]) < 1e-9
            assert (terminated[0], world.time[0] >= env.limit) == (fallen["agent_0"], late["agent_0"])
            ended, played = fallen["agent_0"] or late["agent_0"], played + 1
            if played % 10 == 0:
                step = near.show(world, motion, reward, terminated)
                for leg in range(4):
                    theirs = narrow[f"agent_{leg}"], views[f"agent_{leg}"]
                    hips = np.asarray(step.tokens.allies[0, leg, :, 0])
                    own = np.asarray(step.tokens.own[0, leg] * np.array([feature.unit for feature in env.spec.own], np.float32))
                    np.testing.assert_allclose(own, theirs[0][ORDER], rtol=0, atol=2e-5)
                    np.testing.assert_allclose(np.r_[theirs[0][:28], hips, theirs[0][28:]], theirs[1], rtol=0, atol=1e-6)
                hidden = alone.show(world, motion, reward, terminated).tokens
                assert not hidden.ally_seen.any() and not hidden.allies.any()
                np.testing.assert_array_equal(hidden.own, step.tokens.own)


ORDER = np.r_[20, 0, 21, 1, 2:20, 28:33, 33:39, 22:28]
"""Where our own token's numbers stand in their observation without neighbors: ankle, its leg's forces, hip, the torso's forces, torso."""


@compared
def test_speed_is_measured_beside_it_and_falls_are_followed_by_fresh_starts() -> None:
    theirs, ours = measure(("ant-reward-0-3t",), num_envs=(200,), seconds=0.001)
    assert (theirs.implementation, theirs.num_envs, theirs.first_call_seconds) == ("gymnasium_robotics", 1, None)
    assert (ours.implementation, ours.num_envs) == ("comad", 200) and ours.ratio == ours.steps_per_second / theirs.steps_per_second
    env = ant_named("ant-reward-0-3t")
    world, shown = play(env, 2, 3)
    fresh = restart(world, shown[-1], iter([5, 6]))
    np.testing.assert_array_equal(fresh.bodies, env.reset_many(np.array([5, 6], np.uint32))[0].bodies)
    assert fresh.time.tolist() == [0, 0] and restart(fresh, shown[0], iter([])) is fresh


def test_without_it_the_speed_is_measured_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert [case.implementation for case in cases(("ant-reward-0",), (1,))] == ["comad"]
    assert notes(("ant-reward-0",)) == ["without gymnasium_robotics, which is not installed: pip install gymnasium-robotics"]
