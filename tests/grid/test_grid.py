"""Grids of runs: which there are, how they are made, and what survives."""

import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from comad.errors import UserError
from comad.grid.cells import Cell, Grid, Variant, read_grid, with_profile
from comad.grid.local import Ended, Event, Started, Waited, Workshop, judge, share
from comad.runs.folder import checkpoint_files
from comad.runs.journal import last_record
from comad.runs.standing import Standing, look

MADE = Path(__file__).with_name("made.py")


def cell(behavior: str, seed: int = 0) -> Cell:
    return Cell("s", "q", Variant("m", name=behavior.replace(" ", "-")), seed)


def workshop(out: Path, places: Sequence[frozenset[int]] | None = None) -> Workshop:
    def command(cell: Cell) -> list[str]:
        return [sys.executable, str(MADE), str(cell.folder(out)), cell.variant.name.replace("-", " ")]

    cores = sorted(os.sched_getaffinity(0))
    places = places or share(cores, len(cores))
    return Workshop(command, lambda cell: out / "logs" / f"{cell.variant.name}{cell.seed}.log", places, pause=0.05)


def saved(run: Path) -> int:
    """The position of a run's newest checkpoint, 0 before the first."""
    return max((int(path.stem) for path in checkpoint_files(run, ".json")), default=0)


def told(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if not isinstance(event, Waited)]


def test_a_grid_has_every_combination_once_and_a_seed_of_all_before_the_next() -> None:
    grid = with_profile("lite", {"streams": ("cn", "lbf"), "qualities": ("expert", "medium"), "methods": ("comad", "ft")})
    cells = list(grid.cells())
    assert len(cells) == len(set(cells)) == 2 * 2 * 2 * 3
    assert [(cell.seed, cell.variant.method) for cell in cells[:4]] == [(0, "comad"), (0, "ft"), (1, "comad"), (1, "ft")]
    assert cells[0].folder(Path("runs")) == Path("runs/cn-expert/comad-seed0")
    words = grid.arguments(cells[1], Path("runs"), Path("data"))
    assert words[:2] == ["train", "ft"]
    pairs = dict(zip(words[2::2], words[3::2], strict=True))
    assert pairs["--updates"] == "5000" and pairs["--data"] == "data" and pairs["--out"] == "runs/cn-expert/ft-seed0"
    assert "--updates" not in with_profile("paper", {"streams": ("cn",)}).arguments(cells[0], Path("runs"))


def test_a_grid_is_read_from_toml(tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(
        'profile = "smoke"\nstreams = ["cn"]\nmethods = ["ft"]\nseeds = [0, 7]\n'
        '[[variants]]\nname = "no-skill"\nmethod = "comad"\n'
        'options = { skill = "none", expand = false, live_guidance = true, noise = 0.2 }\n'
    )
    profile, given = read_grid(file)
    grid = with_profile(profile, given)
    assert grid.updates == 100 and grid.seeds == (0, 7)
    options = (("skill", "none"), ("expand", False), ("live_guidance", True), ("noise", 0.2))
    assert grid.variants == (Variant("comad", options, "no-skill"),)
    assert [cell.folder(Path()).name for cell in grid.cells()] == ["ft-seed0", "comad-no-skill-seed0", "ft-seed7", "comad-no-skill-seed7"]


WRONG = {
    "streams = ": "cannot be read as TOML",
    'streams = "cn"': "streams must be a list of str, not 'cn'",
    "seeds = [0.5]": r"seeds must be a list of int, not \[0.5\]",
    "updates = 0": "updates must be a whole number x with 1 <= x <= 10000000, not 0",
    "updates = true": "updates must be a whole number x with 1 <= x <= 10000000, not True",
    "stream = ['cn']": "a grid has no 'stream'",
    "profile = 5": "profile must be one of smoke, lite, paper, not 5",
    "streams = ['cn']\n[[variants]]\nname = 5\nmethod = 'ft'\noptions = {}": "name and method of a variant must be text",
    "profile = 'light'": "there is no profile named 'light'; did you mean lite",
    "seeds = []\nstreams = ['cn']": "a grid without seeds holds no run",
    "methods = []\nstreams = ['cn']": "a grid without methods holds no run",
    "": "a grid without streams holds no run",
    "streams = ['cn', 'cn']": "two runs of the grid would both be cn-expert/comad-seed0",
    "streams = ['cn']\n[[variants]]\nname = 'x'\nmethod = 'ft'": "a variant has a name, a method and a table of options",
    "streams = ['cn']\n[[variants]]\nname = '../x'\nmethod = 'ft'\noptions = {}": "a variant cannot be named '../x'",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_grid_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(text)
    with pytest.raises(UserError, match=WRONG[text]):
        with_profile(*read_grid(tmp_path / "grid.toml"))


def test_neither_a_grid_nor_a_log_is_read_from_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "grid.toml")
    with pytest.raises(UserError, match=r"grid\.toml: is a pipe, not a file"):
        read_grid(tmp_path / "grid.toml")
    shop = workshop(tmp_path)
    log = shop.log(cell("plain"))
    log.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(log)
    with pytest.raises(UserError, match="is a pipe, not a file"):
        list(shop.run([cell("plain")]))


def test_runs_are_made_one_after_the_other_in_one_place_and_their_standing_can_be_seen(tmp_path: Path) -> None:
    cells = [cell("plain", 0), cell("plain", 1)]
    assert look(cells[0].folder(tmp_path)) is None
    events = told(list(workshop(tmp_path).run(cells)))
    assert events == [Started(cells[0], 1), Ended(cells[0], "finished"), Started(cells[1], 1), Ended(cells[1], "finished")]
    assert look(cells[1].folder(tmp_path)) == Standing(done=20, total=20, finished=True, score=0.75)


def test_a_crash_is_tried_once_more_and_misuse_is_not(tmp_path: Path) -> None:
    once, always, misuse = cell("crash once"), cell("crash"), cell("misuse")
    events = told(list(workshop(tmp_path).run([once, always, misuse])))
    assert events == [
        Started(once, 1),
        Ended(once, "crashed", "something broke"),
        Started(once, 2),
        Ended(once, "finished"),
        Started(always, 1),
        Ended(always, "crashed", "something broke"),
        Started(always, 2),
        Ended(always, "failed", "something broke"),
        Started(misuse, 1),
        Ended(misuse, "failed", "comad: this cannot be"),
    ]
    standing = look(always.folder(tmp_path))
    assert standing is not None and not standing.finished and standing.done == 5


def test_an_abandoned_grid_ends_its_runs_and_a_killed_one_is_told_by_its_signal(tmp_path: Path) -> None:
    shop = workshop(tmp_path)
    events = shop.run([cell("slow")])
    assert isinstance(next(events), Started)
    process = shop.workers[0].process
    events.close()
    assert process.poll() is not None and not shop.workers

    slow = cell("slow", 1)
    killed, told = 0, []
    for event in (again := workshop(tmp_path)).run([slow]):
        # Each attempt goes on from the checkpoint of the one before, saves the next one and is killed then.
        if isinstance(event, Waited) and again.workers and saved(slow.folder(tmp_path)) > killed:
            again.workers[0].process.kill()
            killed += 1
        told.append(event)
    ends = [(event.outcome, event.why) for event in told if isinstance(event, Ended)]
    assert ends == [("crashed", "ended by signal SIGKILL"), ("failed", "ended by signal SIGKILL")]
    assert killed == saved(slow.folder(tmp_path)) == 2
    # Whatever it had said before, that was not why.
    assert judge(cell("slow"), -9, "CN-3  14 updates/s: 63 %", again=False).why == "ended by signal SIGKILL"


def test_places_share_the_cores_and_none_has_two() -> None:
    assert share([0, 1, 2, 3], 2) == [frozenset({0, 1}), frozenset({2, 3})]
    assert share([4, 5], 1) == [frozenset({4}), frozenset({5})] and share([0, 1, 2], 2) == [frozenset({0, 1})]
    assert share([0, 1, 2, 3], 1, at_once=2) == [frozenset({0}), frozenset({1})]
    for cores, each in itertools.product(range(1, 9), repeat=2):
        places = share(list(range(cores)), each)
        assert {len(place) for place in places} <= {each} and len(places) == cores // each
        assert sum(map(len, places)) == len(frozenset().union(*places)) <= cores


def test_the_last_record_is_found_however_long_it_is(tmp_path: Path) -> None:
    path = tmp_path / "logs.jsonl"
    assert last_record(path) is None
    path.write_text("")
    assert last_record(path) is None
    for size in (10, 4094, 4096, 50_000):
        path.write_text('{"a": 1}\n{"b": "' + "x" * size + '"}\n{"half": ')
        assert last_record(path) == {"b": "x" * size}
    path.write_text('{"only": 1}\n')
    assert last_record(path) == {"only": 1}
    path.write_text("{broken\n")
    with pytest.raises(UserError, match="last line: damaged"):
        last_record(path)


def test_an_empty_grid_of_methods_and_an_unknown_setting_are_refused() -> None:
    with pytest.raises(UserError, match="a grid has no 'speed'"):
        with_profile("lite", {"streams": ("cn",), "speed": 3})
    assert Grid(("cn",)).methods == ("comad",)
