"""What is written under a name stays under it: the lists beside this file tell every name."""

import json
from pathlib import Path
from typing import Any

import keeping
import pytest
from identities import LISTS
from keeping import GROW, HERE, WAY_OUT, changes, main, recorded

from comad.experts.library import SHIPPED, cards
from comad.settings import settings


@pytest.mark.parametrize("name", LISTS)
def test_what_is_written_is_what_it_was(name: str) -> None:
    lost, new = changes(recorded(name), LISTS[name](), name)
    assert lost == [], WAY_OUT
    assert new == [], GROW


def test_there_is_a_list_for_everything_and_no_other() -> None:
    assert {path.stem for path in HERE.glob("*.json")} == LISTS.keys()


def test_cards_tell_the_hashes_of_their_weights() -> None:
    told: dict[str, dict[str, str]] = {}
    for card in cards():
        told.setdefault(card.env, {})[card.quality] = card.sha256
    assert told == recorded("weights")


def test_cards_are_written_to_the_byte_as_they_were() -> None:
    for card in cards():
        text = (SHIPPED / card.env / f"{card.quality}.json").read_text()
        assert text == json.dumps(settings(card), indent=2, ensure_ascii=False) + "\n"


BEFORE: dict[str, Any] = {"Budget": {"batch": "int"}, "arrays": ["bias", "weight"], "hash": "12"}


@pytest.mark.parametrize(
    ("found", "lost", "new"),
    [
        (BEFORE, [], []),
        ({**BEFORE, "hash": "13"}, ["list.hash is '13' instead of '12'"], []),
        ({**BEFORE, "arrays": ["weight", "x"]}, ["list.arrays.bias is gone"], ["list.arrays.x"]),
        ({**BEFORE, "Budget": {"x": "int"}}, ["list.Budget.batch is gone"], ["list.Budget.x"]),
        ({**BEFORE, "Budget": "int"}, ["list.Budget is 'int' instead of {'batch': 'int'}"], []),
    ],
)
def test_changes_are_told_from_what_is_new(found: Any, lost: list[str], new: list[str]) -> None:
    assert changes(BEFORE, found, "list") == (lost, new)


def test_lists_grow_and_change_only_where_they_are_told_to(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = dict(BEFORE)
    monkeypatch.setattr(keeping, "HERE", tmp_path)
    monkeypatch.setattr(keeping, "LISTS", {"list": lambda: now})
    assert main([]) == 0 and recorded("list") == BEFORE
    now["Budget"] = {"batch": "int", "updates": "int"}
    assert main([]) == 0 and recorded("list") == now
    kept = (tmp_path / "list.json").read_bytes()
    now |= {"Budget": {"updates": "int"}, "arrays": ["bias"], "hash": "13"}
    for told in ([], ["list.hash"], ["list.hash", "list.Budget.batch"]):
        assert main(told) == 1 and (tmp_path / "list.json").read_bytes() == kept
        assert WAY_OUT in capsys.readouterr().err
    assert main(["list.hash", "list.Budget.batch", "list.arrays.weight"]) == 0
    assert recorded("list") == now
