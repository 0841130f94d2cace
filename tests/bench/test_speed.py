"""The speed table says what it measured, leaves out what is not installed, and counts only steps that were played."""

import importlib.machinery
import importlib.util
import itertools
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from comad.bench import envs as bench_envs
from comad.bench import plain_battle
from comad.bench.envs import Case, _lbforaging_game, cases, measure, notes
from comad.envs import make
from comad.envs.foraging import Foraging
from comad.training import cost


def test_every_world_is_measured_beside_its_peer() -> None:
    rows = measure(("cn-2", "lbf-bottom"), num_envs=(2,), seconds=0.001)
    assert [(row.world, row.implementation, row.num_envs) for row in rows] == [
        ("cn-2", "plain Python", 1),
        ("cn-2", "comad", 2),
        ("lbf-bottom", "lbforaging", 1),
        ("lbf-bottom", "comad", 2),
    ]
    for row in rows:
        peer = next(other for other in rows if other.world == row.world)
        assert row.steps_per_second == row.env_steps / row.seconds
        assert row.ratio == row.steps_per_second / peer.steps_per_second
        assert (row.first_call_seconds is None) == (row is peer)
    assert notes(("cn-2", "lbf-bottom")) == []


@pytest.fixture
def compiler_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock for measurements on which a look takes a millisecond and the making of a program a second."""
    looks = itertools.count()
    clock = SimpleNamespace(perf_counter=lambda: cost._made + 1e-3 * next(looks))
    for module in (bench_envs, plain_battle):
        monkeypatch.setattr(module, "time", clock)


@pytest.mark.usefixtures("compiler_clock")
def test_only_steps_of_running_episodes_count_and_compiling_is_apart() -> None:
    row = Case("cn-2-7x7", "comad", 16).run(seconds=1e-9)
    # Random teams solve most games of two before the limit of 50.
    assert 16 <= row.env_steps < 16 * 45
    assert row.first_call_seconds is not None and row.first_call_seconds >= 1
    assert row.seconds == pytest.approx(1e-3)


def test_a_peer_that_is_not_installed_is_left_out_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_lbforaging(name: str) -> importlib.machinery.ModuleSpec | None:
        return None if name == "lbforaging" else importlib.machinery.PathFinder.find_spec(name)

    monkeypatch.setattr(importlib.util, "find_spec", without_lbforaging)
    rows = measure(("lbf-bottom",), num_envs=(2,), seconds=0.001)
    assert [(row.implementation, row.ratio) for row in rows] == [("comad", None)]
    assert notes() == ["without lbforaging, which is not installed: pip install 'comad[dev]'"]


def test_battles_are_measured_beside_jaxmarl_with_as_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: importlib.machinery.ModuleSpec(name, None))
    assert [(case.implementation, case.num_envs) for case in cases(("3m",), (1, 32))] == [
        ("jaxmarl", 1),
        ("comad", 1),
        ("jaxmarl", 32),
        ("comad", 32),
    ]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert cases(("3m",), (1, 32)) == []
    assert notes(("3m", "cn-2")) == ["without jaxmarl, which is not installed: pip install 'comad[battle]'"]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("jaxmarl") is None, reason="needs jaxmarl: pip install 'comad[battle]'")
@pytest.mark.usefixtures("compiler_clock")
@pytest.mark.parametrize("world", ["3m", "protoss_5v5"])
def test_battles_are_played_on_where_one_has_ended(world: str) -> None:
    theirs, ours = measure((world,), num_envs=(4,), seconds=0.001)
    assert (theirs.implementation, theirs.ratio, ours.implementation) == ("jaxmarl", 1.0, "comad")
    assert theirs.env_steps % 2048 == ours.env_steps % 2048 == 0
    assert theirs.first_call_seconds and theirs.first_call_seconds >= 1 and theirs.seconds < 1
    assert ours.ratio == ours.steps_per_second / theirs.steps_per_second


def test_progress_sees_every_case() -> None:
    seen: list[Case] = []

    def track(cases: Sequence[Case]) -> Sequence[Case]:
        seen.extend(cases)
        return cases

    rows = measure(("cn-2",), num_envs=(2,), seconds=0.001, track=track)
    assert [(case.world, case.implementation, case.num_envs) for case in seen] == [
        (row.world, row.implementation, row.num_envs) for row in rows
    ]


def test_lbforaging_plays_by_our_settings() -> None:
    env = make("lbf-bottom")
    assert isinstance(env, Foraging)
    game = _lbforaging_game(env)
    game.reset(seed=0)
    assert game.field.shape == (5, 5)
    assert [player.level for player in game.players] == [1, 1]
    assert game.field.max() == game.field.sum() == 2
