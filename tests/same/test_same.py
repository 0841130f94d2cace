"""The code computes what it did at the base commit: a few methods here, all of them by ``make same``."""

import subprocess
from pathlib import Path

import pytest
from comparing import BASE, PROJECT, base_code, difference, snapshot


def known() -> bool:
    """Returns whether the base commit is in this clone."""
    words = ["git", "cat-file", "-e", f"{BASE.read_text().strip()}^{{commit}}"]
    return subprocess.run(words, cwd=PROJECT, check=False, capture_output=True).returncode == 0


@pytest.mark.skipif(not known(), reason="the base commit is not in this clone, which is not whole")
@pytest.mark.parametrize("method", ["ft", "owl", "comad"])
def test_a_method_computes_what_it_did(method: str, tmp_path: Path) -> None:
    before, now = snapshot(base_code(tmp_path), method, "discrete"), snapshot(PROJECT, method, "discrete")
    assert len(now) == 1 + 2 * (1 + 4 + 1) + 2
    assert all(len(step["arrays"]) > 10 for step in now)
    assert difference(before, now) == ""


def test_a_difference_is_the_first_step_and_the_shapes_that_part() -> None:
    before = [{"at": "one", "arrays": ["[2] f a", "[3] f b"], "numbers": ["1"]}, {"at": "two", "arrays": ["[2] f c"]}]
    assert difference(before, [dict(step) for step in before]) == ""
    assert difference(before, [before[0], {"at": "two", "arrays": ["[2] f d"]}]) == "two: 1 of 1 arrays differ: [2] f"
    assert difference(before, [{**before[0], "numbers": ["2"]}, before[1]]) == "one: 1 of 1 numbers differ: 1"


def test_an_order_or_one_array_more_is_no_difference() -> None:
    before = [{"at": "one", "arrays": ["[2] f a", "[3] f b"]}]
    assert difference(before, [{"at": "other", "arrays": ["[3] f b", "[2] f a", "[4] f c"]}]) == ""
