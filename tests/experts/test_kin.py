import dataclasses
from pathlib import Path
from typing import Any

import jax
import pytest
from battles import battle_named, playable

from comad.cli.collect import provenance
from comad.cli.teams import Source
from comad.envs.rollout import episode_keys, rollout
from comad.errors import UserError
from comad.experts import library
from comad.experts.kin import nearest_kin


@pytest.mark.parametrize(
    ("battle", "there", "chosen"),
    [
        ("protoss_6v6", ["protoss_5v5", "protoss_10v11"], "protoss_5v5"),
        ("protoss_20v23", ["protoss_5v5", "protoss_10v11"], "protoss_10v11"),
        ("5m", ["3m", "5m_vs_6m", "2s3z"], "5m_vs_6m"),
        ("3m-60t", ["4m", "3m"], "3m"),
        # Given units start in camps, drawn ones anywhere: that matters more than how many they are.
        ("8s8z", ["protoss_10v11", "2s3z"], "2s3z"),
        ("8s8z", ["protoss_10v11", "3m"], "protoss_10v11"),
        ("2z_vs_3z", ["2s3z"], "2s3z"),
        # Marines know nothing of marauders, and two worlds equally far away are always told apart in the same way.
        ("terran_5v5", ["5m_vs_6m", "zerg_5v5"], None),
        ("4m", ["5m", "3m"], "3m"),
        ("4m", ["3m", "5m"], "3m"),
    ],
)
def test_a_battle_is_played_by_the_nearest_team_that_knows_its_units(battle: str, there: list[str], chosen: str | None) -> None:
    found = nearest_kin(battle_named(battle), map(battle_named, there))
    assert (found and found.name) == chosen


def put(folder: Path, name: str) -> None:
    card = library.read_card(library.SHIPPED / "protoss_5v5" / "expert-related.json")
    team, _ = library.load(battle_named("protoss_5v5"), "expert-related")
    library.put(folder, team, dataclasses.replace(card, env=name, rules=battle_named(name).spec.rules))


def test_a_team_of_ones_own_goes_before_a_shipped_one_and_the_right_size_before_both(tmp_path: Path) -> None:
    def chosen(name: str) -> str:
        env = battle_named(name)
        return library.get(env, "expert", library.nearest(env, "expert", tmp_path))[1].env

    assert chosen("protoss_7v7") == "protoss_5v5"
    put(tmp_path, "protoss_9v9")
    assert chosen("protoss_7v7") == "protoss_9v9"
    assert chosen("protoss_5v5") == "protoss_5v5"
    put(tmp_path, "protoss_7v7")
    assert chosen("protoss_7v7") == "protoss_7v7"


def test_without_kin_the_way_to_a_team_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="comad experts train --tasks protoss_6v6"):
        library.get(battle_named("protoss_6v6"), "expert", tmp_path)


def test_whoever_watches_or_counts_hears_that_a_team_learned_elsewhere() -> None:
    experts = Source(quality="expert")
    assert experts.stand_in(battle_named("protoss_6v6")) == [
        "protoss_6v6, expert: no team learned there, so that of protoss_5v5 plays, expert-related"
    ]
    assert experts.stand_in(battle_named("protoss_5v5")) == [
        "protoss_5v5, expert: no policy was trained by itself there yet, so expert-related plays"
    ]
    related = Source(quality="expert-related")
    assert related.stand_in(battle_named("protoss_5v5")) == Source().stand_in(battle_named("protoss_6v6")) == []


def test_what_kin_recorded_says_where_it_learned() -> None:
    _, card = library.get(battle_named("protoss_6v6"), "medium")
    origin: dict[str, Any] = provenance(card, "protoss_6v6")
    assert origin["learned"] == "protoss_5v5" and origin["weights"] == card.sha256
    assert "learned" not in provenance(card, "protoss_5v5")


@playable
@pytest.mark.slow
def test_five_protoss_lead_six_to_victory() -> None:
    env = battle_named("protoss_6v6")
    outcome, _ = rollout(env, library.get(env, "expert")[0], episode_keys(jax.random.key(5), 0, 64))
    assert float(outcome.success.mean()) > 0.75
