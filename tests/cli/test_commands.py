"""A run's settings and the words that make it again say the same."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from comad.cli import main, parse
from comad.cli.commands import changed, command, departures
from comad.errors import UserError
from comad.methods import METHODS
from comad.methods.comad import Comad
from comad.methods.comad_plus import ComadPlus
from comad.settings import from_settings, settings


def identity(method: str, wanted: dict[str, Any]) -> dict[str, Any]:
    tasks = [{"name": "CN-2", "env": "cn-2"}]
    budget = {"updates": 50, "evaluations": 2, "episodes": 4, "batch": 8}
    return {"method": method, "settings": wanted, "stream": "cn", "quality": "my own", "seed": 3, "tasks": tasks, "budget": budget}


def upset(value: Any) -> Any:
    """Other settings than those a method has by itself, of the same kind."""
    if isinstance(value, dict):
        return {name: upset(inner) for name, inner in value.items()}
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1 if isinstance(value, int) else value / 2  # which stays in every range
    return value


@pytest.mark.parametrize("method", METHODS)
def test_every_method_comes_back_from_its_command(method: str) -> None:
    plain = settings(METHODS[method])
    assert changed(method, plain) == []
    for wanted in (plain, upset(plain)):
        words = shlex.split(command(identity(method, wanted), f"{method}-seed3"))
        assert words[0] == "comad"
        verb: Any = parse(words[1:])
        assert verb.method.method == from_settings(METHODS[method], wanted)
        assert (verb.method.quality, verb.method.seed, verb.method.updates, verb.method.batch) == ("my own", 3, 50, 8)


@pytest.mark.parametrize(("env", "given", "words"), [("cn-2", True, ""), ("cn-2", False, "--recurrent False"), ("ant-reward-0", False, "")])
def test_what_a_world_decides_is_not_said(env: str, given: bool, words: str) -> None:
    wanted = settings(Comad(recurrent=given))
    assert (
        command({**identity("comad", wanted), "tasks": [{"name": "one", "env": env}]}, "comad-seed3").partition("--batch 8")[2].strip()
        == words
    )


def test_a_stream_of_ones_own_is_told_by_its_tasks_and_unknown_settings_are_refused() -> None:
    plain = identity("ft", settings(METHODS["ft"]))
    assert "--tasks cn-2 --quality" in command({**plain, "stream": "custom"}, "ft-seed3")
    assert command({**plain, "stream": "cn:CN-2"}, "ft-cold-seed3").endswith("--out 'runs/cn:CN-2-my own/ft-cold-seed3'")
    with pytest.raises(UserError, match="ft has no setting 'skil'; 'comad train ft --help' shows those it has"):
        changed("ft", {"skil": "none"})


def test_a_run_from_before_a_setting_is_another_method_and_cannot_be_made_again() -> None:
    wanted = settings(ComadPlus(temperature=4.0, hand_over=True, deeds=False, recurrent=False))
    assert departures(identity("comad-plus", wanted)) == ["--temperature 4.0"]
    later = {name: value for name, value in wanted.items() if name not in ("reuse", "deeds")}
    assert departures(identity("comad-plus", later)) == ["--temperature 4.0"], "what came later and changes nothing is no difference"
    running = {**identity("comad-plus", {**later, "hand_over": False}), "tasks": [{"name": "Reward-0", "env": "ant-reward-0"}]}
    assert departures(running) == ["--temperature 4.0", "(before deeds)"], "where it changes something it is"
    before = identity("comad-plus", {name: value for name, value in wanted.items() if name != "hand_over"})
    assert departures(before) == ["--temperature 4.0", "(before hand-over)"]
    earlier = identity("comad-plus", {name: value for name, value in wanted.items() if name not in ("averaged", "hand_over")})
    assert departures(earlier) == ["--temperature 4.0", "(before averaged, hand-over)"]
    with pytest.raises(UserError, match="made before comad-plus had hand-over, and the comad-plus of today is another"):
        command(before, "comad-plus-seed3")


@pytest.mark.parametrize(("options", "complaint"), [("{ skil = 'none' }", "no setting 'skil'"), ("{ skill = 'loud' }", "loud")])
def test_a_grid_with_wrong_options_is_refused_before_any_run(
    options: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("grid.toml").write_text(f"streams = ['cn']\n[[variants]]\nname = 'x'\nmethod = 'comad'\noptions = {options}\n")
    assert main(["bench", "grid", "grid.toml"]) == 2
    assert complaint in "".join(capsys.readouterr()) and not Path("runs").exists()
