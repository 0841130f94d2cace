"""Times to come, by hand."""

import pytest

from comad.grid.cells import Cell, Variant, told_apart
from comad.grid.pace import Pace, seconds_left
from comad.runs.standing import Standing


def standing(done: int, total: int = 1000) -> Standing:
    return Standing(done, total, done == total, None)


def test_nobody_helps_a_slow_run_when_the_others_have_ended() -> None:
    """In 100 seconds the quick one made 400 of 1,000 updates, the slow one 100."""
    quick, slow, pace = standing(400), standing(100), Pace(10.0, 0, learns=True)
    running = [(quick, pace), (slow, pace)]
    assert seconds_left([quick, slow], running, 110.0) == pytest.approx(900 / 1.0)
    # Five more as long wait: 600 + 900 + 5,000 updates at 5 a second.
    waiting = [quick, slow, *[None] * 5]
    assert seconds_left(waiting, running, 110.0) == pytest.approx(6500 / 5)


def test_nothing_is_told_before_an_update_was_seen() -> None:
    begun, compiling = standing(0), Pace(0.0, 0)
    assert seconds_left([begun, None], [(begun, compiling)], 30.0) is None
    assert seconds_left([begun], [(begun, Pace(0.0, 0, learns=True))], 30.0) is None
    behind = standing(50)  # it went on from a checkpoint before what its log had said
    assert seconds_left([behind], [(behind, Pace(0.0, 80, learns=True))], 30.0) is None
    assert seconds_left([], [], 30.0) is None


def test_what_has_ended_leaves_nothing() -> None:
    ended = standing(1000)
    assert seconds_left([ended], [(ended, Pace(0.0, 0, learns=True))], 30.0) == 0.0


def test_runs_are_called_by_what_tells_them_apart() -> None:
    def names(*cells: Cell) -> list[str]:
        return list(told_apart(cells).values())

    ft = Cell("lbf", "medium", Variant("ft"), 0)
    comad = Cell("lbf", "medium", Variant("comad", name="cold"), 0)
    other = Cell("lbf", "expert", Variant("ft"), 1)
    assert names(ft, comad) == ["ft", "comad-cold"]
    assert names(ft, other) == ["lbf-medium seed 0", "lbf-expert seed 1"]
    assert names(ft) == ["ft"] and names() == []
