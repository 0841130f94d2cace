"""What is missing before StarCraft II can be played, and how the command line says so."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import starcraft_fake

from comad import envs
from comad.cli import main
from comad.envs import starcraft, starcraft_game, starcraft_site
from comad.envs.starcraft_maps import ODIS_LIMITS
from comad.errors import UserError


@pytest.fixture(autouse=True)
def _away_from_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SC2PATH", raising=False)
    monkeypatch.chdir(tmp_path)


def refusal(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command line says of a world, whose spec is known all the same."""
    assert envs.find(name).spec.env == name
    assert main(["play", "--random", name, "out.gif"]) == 2
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("name", "package"), [("starcraft-3m", "smac"), ("starcraft-zerg_5v5", "smacv2")])
def test_without_the_package_one_line_gets_it(name: str, package: str, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = f"{name} needs {package}, which is not installed: pip install git+https://github.com/oxwhirl/{package}.git"
    assert wanted in refusal(name, capsys)
    assert "starcraft" in envs.missing_extras()


def test_what_else_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    starcraft_fake.install(tmp_path, monkeypatch)
    monkeypatch.setenv("SC2PATH", "/nowhere")
    assert "no folder /nowhere: install StarCraft II and set SC2PATH to its folder" in refusal("starcraft-3m", capsys)
    monkeypatch.setenv("SC2PATH", str(tmp_path / "game"))
    assert "smac has no map 12m, which comes with the maps of ODIS: get github.com/LAMDA-RL/ODIS" in refusal("starcraft-12m", capsys)
    assert "smac has no map 1s1z, which nobody has published; 1s1z without starcraft plays" in refusal("starcraft-1s1z", capsys)
    assert "smacv2 has no map 10gen_zerg, which newer ones have" in refusal("starcraft-zerg_5v6", capsys)
    (starcraft_site.maps_folder() / "2s3z.SC2Map").unlink()
    assert "2s3z.SC2Map: copy SMAC_Maps from the sources of SMACv2" in refusal("starcraft-2s3z", capsys)


def test_doctor_tells_one_smac_from_the_other_without_running_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "others" / "smac"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('not the game')")
    monkeypatch.syspath_prepend(str(package.parent))
    assert not starcraft_site.installed("smac.env.starcraft2") and starcraft_site.known_maps("smac") == set()
    starcraft_fake.install(tmp_path, monkeypatch)
    assert starcraft_site.installed("smac.env.starcraft2")
    assert starcraft_site.known_maps("smac") == set(starcraft_fake.REGISTRY)
    assert not starcraft_site.installed("json.decoder.deeper")
    (tmp_path / "packages/smac/env/starcraft2/maps/smac_maps.py").write_text("no Python")
    assert starcraft_site.known_maps("smac") == set()


def test_doctor_looks_for_the_game_its_maps_and_those_of_odis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def found() -> list[bool]:
        assert main(["doctor", "--json"]) == 0
        optional = json.loads(capsys.readouterr().out)["optional"]
        assert all(optional[name]["get"] for name in ("StarCraft II", "SMAC_Maps", "maps of ODIS"))
        return [optional[name]["found"] for name in ("smac", "smacv2", "StarCraft II", "SMAC_Maps", "maps of ODIS")]

    assert found() == [False] * 5
    (tmp_path / "StarCraftII").mkdir()
    assert found() == [False, False, True, False, False]
    starcraft_fake.install(tmp_path, monkeypatch)
    assert found() == [True] * 4 + [False]
    for name in ODIS_LIMITS:
        monkeypatch.setitem(starcraft_fake.REGISTRY, name, {"n_agents": 1})
    (tmp_path / "packages/smac/env/starcraft2/maps/smac_maps.py").write_text(f"registry = {starcraft_fake.REGISTRY!r}")
    assert found() == [True] * 5


def test_a_package_that_does_not_import_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starcraft_fake.install(tmp_path, monkeypatch)
    (tmp_path / "packages/smac/env/__init__.py").write_text("import a_client_that_is_not_there")
    with pytest.raises(UserError, match=r"smac is installed but cannot be imported .*a_client_that_is_not_there"):
        starcraft.load("smac")
    sys.modules.pop("smac", None)


@pytest.mark.parametrize("given", ["none", "0", "-1", "2.5"])
def test_a_number_of_games_that_is_none_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMAD_GAMES", given)
    with pytest.raises(UserError, match=f"COMAD_GAMES must be a number of games from 1, not '{given}'"):
        starcraft_game.most_games()
    monkeypatch.delenv("COMAD_GAMES")
    assert 1 <= starcraft_game.most_games() <= starcraft_game.MOST_GAMES


def test_steps_without_a_game_are_refused() -> None:
    games = starcraft_game.Games("starcraft-3m", lambda seed: starcraft_fake.StarCraft2Env("3m", seed), lambda game, seed, attempt: None)
    with pytest.raises(UserError, match="starcraft-3m: no game is being played in place 4"):
        games.step(4, np.zeros(3, int))
