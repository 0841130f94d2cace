"""Power that goes at any call: a run goes on from the newest checkpoint that had been saved."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import counting
import pytest
from counting import content, put, train
from cuts import different, laid_down, rights
from power import Watch, watched
from reliability import tried

from comad.errors import UserError
from comad.files import make_folder, write_bytes
from comad.grid import remote
from comad.grid.cells import Cell, Variant
from comad.grid.local import Workshop
from comad.runs.folder import SETTINGS, read_settings
from comad.runs.record import read_run
from comad.runs.run import Run

pytestmark = pytest.mark.usefixtures("quick_disk")
QUICK = 6
"""Steps of a run in the quick tests: enough that a checkpoint is deleted and one is a milestone."""
RESULTS = ("scores.jsonl", "heads.jsonl", "seal.json", "settings.json")
"""What a run vouches for."""


@pytest.fixture(scope="module")
def peaceful(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, bytes]]:
    """All files of runs that nothing happened to, by their steps."""
    folder = tmp_path_factory.mktemp("peaceful")
    for steps in (4, QUICK, 14):
        train(folder / str(steps), until=steps)
    return {steps: content(folder / str(steps)) for steps in (4, QUICK, 14)}


def without_aside(folder: Path) -> dict[str, bytes]:
    """Every file of a run but those that it goes on without."""
    files = content(folder).items()
    return {name: data for name, data in files if not name.startswith("set-aside/")}


@contextmanager
def saving(root: Path) -> Iterator[Watch]:
    """Watch a folder, and note the newest position whose ``save`` has returned."""
    real = Run.save
    with watched(root) as watch, pytest.MonkeyPatch.context() as patch:

        def save(run: Run, position: int, *arguments: Any, **options: Any) -> Any:
            saved = real(run, position, *arguments, **options)
            watch.reached = position
            return saved

        patch.setattr(Run, "save", save)
        yield watch


def record(root: Path, work: Callable[[], object], reached: int = 0) -> Watch:
    """Do some work on a run in a folder whose present content is on the disk already."""
    with saving(root) as watch:
        watch.reached = reached
        work()
    return watch


@pytest.mark.promise("power-loss")
@pytest.mark.parametrize(
    ("steps", "draws"),
    [(QUICK, 1), pytest.param(14, 40, marks=pytest.mark.slow)],
)
def test_whatever_is_on_the_disk_a_run_ends_in_the_same_bytes(
    tmp_path: Path, peaceful: dict[int, dict[str, bytes]], steps: int, draws: int
) -> None:
    place = Path("new", "parents", "run")
    watch = record(tmp_path, lambda: train(tmp_path / place, until=steps))
    assert watch.reached == steps and len(watch.cuts) > 70
    for tree, reached in different(watch.cuts, draws):
        with laid_down(tree) as disk:
            if (disk / place / SETTINGS).exists():
                read_run(disk / place)  # as a grid does with every run before it makes any
            began, skipped = train(disk / place, until=steps)
            assert began >= reached, "a checkpoint was lost after it had been saved"
            assert skipped == {} and content(disk / place) == peaceful[steps]
            assert rights(path for path in disk.rglob("*") if path.is_file()) == {0o644}
        tried()


def damage_the_newest(folder: Path) -> None:
    (folder / "checkpoints/000000010.safetensors").write_bytes(b"damage")


def leave_uncommitted(folder: Path) -> None:
    """As a process does that is killed before its checkpoint counts."""
    (folder / "checkpoints/000000012.safetensors").write_bytes(b"arrays")
    (folder / "checkpoints/.000000012.json-half-abcdefgh").write_bytes(b"{")


@pytest.mark.promise("power-loss")
@pytest.mark.parametrize("draws", [0, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("spoil", "whole"), [(leave_uncommitted, 10), (damage_the_newest, 8)])
def test_a_run_that_goes_on_can_lose_power_too(
    tmp_path: Path,
    peaceful: dict[int, dict[str, bytes]],
    spoil: Callable[[Path], None],
    whole: int,
    draws: int,
) -> None:
    train(tmp_path / "run", until=11)
    before = content(tmp_path / "run")
    spoil(tmp_path / "run")
    watch = record(tmp_path, lambda: train(tmp_path / "run", until=12), whole)
    later = {name for name in before if whole < 10 and name.startswith("checkpoints/000000010.")}
    for tree, reached in different(watch.cuts, draws):
        with laid_down(tree) as disk:
            read_run(disk / "run")
            assert later <= files_anywhere(disk / "run"), "what moves aside is gone"
            assert train(disk / "run")[0] >= reached
            assert without_aside(disk / "run") == peaceful[14]
            assert later <= files_anywhere(disk / "run"), "what was moved aside is gone"
        tried()


def files_anywhere(folder: Path) -> set[str]:
    """The files of a run, also those that it goes on without, by the names that they had before."""
    return {re.sub(r"^set-aside/\d+/", "", name) for name in content(folder)}


@pytest.mark.promise("power-loss")
@pytest.mark.parametrize(("steps", "draws"), [(4, 0), pytest.param(14, 20, marks=pytest.mark.slow)])
def test_a_fresh_start_that_loses_power_can_be_repeated_and_mixes_no_two_runs(
    tmp_path: Path,
    peaceful: dict[int, dict[str, bytes]],
    steps: int,
    draws: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(tmp_path / "run", peaceful[steps])
    old, ours = set(peaceful[steps].values()), counting.SETTINGS
    others = {**ours, "identity": {**ours["identity"], "seed": 1}}
    monkeypatch.setattr(counting, "SETTINGS", others)
    watch = record(tmp_path, lambda: train(tmp_path / "run", until=1, fresh=True))
    for tree, _ in different(watch.cuts, draws):
        with laid_down(tree) as disk:
            assert old <= set(content(disk / "run").values()), "the old run is not whole any more"
            begun = read_settings(disk / "run")["identity"] == others["identity"]
            if begun:
                read_run(disk / "run")
            # Once its settings are there, the new run needs no --fresh and finds nothing old.
            assert train(disk / "run", until=2, fresh=not begun) == (0, {})
            assert read_run(disk / "run").scores and old <= set(content(disk / "run").values())
        if not begun:
            with laid_down(tree) as disk, monkeypatch.context() as patch:
                patch.setattr(counting, "SETTINGS", ours)
                check_taken_back(disk / "run", peaceful[steps], steps)
        tried()


def check_taken_back(folder: Path, peaceful: dict[str, bytes], steps: int) -> None:
    """The old run goes on, unless half of it is aside: only the user knows what is meant then."""
    before = content(folder)
    try:
        train(folder, until=steps)
    except UserError as error:
        assert "--fresh" in str(error)
        kept = {name: data for name, data in before.items() if "-half-" not in name}
        assert content(folder) == kept
    else:
        assert all(content(folder)[name] == peaceful[name] for name in RESULTS)
    assert set(peaceful.values()) <= set(content(folder).values()), "the old run is not whole"


@pytest.mark.promise("power-loss")
def test_a_run_that_begins_again_is_never_shown_as_damaged(tmp_path: Path) -> None:
    train(tmp_path / "run", until=2)
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        path.unlink()  # as a cut does between the seal and the first checkpoint
    watch = record(tmp_path, lambda: train(tmp_path / "run", until=1))
    for tree, _ in different(watch.cuts, 5):
        with laid_down(tree) as disk:
            read_run(disk / "run")
        tried()


def in_this_process(log: Path) -> None:
    """Make the folder of a log as a grid on this machine does."""
    cell = Cell("stream", "expert", Variant("method"), 0)
    workshop = Workshop(lambda _: [sys.executable, "-c", ""], lambda _: log, [])
    workshop.start(cell, 1, frozenset({min(os.sched_getaffinity(0))})).process.wait()


def on_a_cluster(log: Path) -> None:
    """The same as a worker of Ray does."""
    assert remote.make([sys.executable, "-c", ""], str(log), 1) == (0, "")


def by_another_run(log: Path) -> None:
    """As a process does that has not yet synced what it made, or never will."""
    log.parents[1].mkdir()


@pytest.mark.promise("power-loss")
@pytest.mark.parametrize("make", [in_this_process, on_a_cluster, by_another_run])
def test_a_run_is_not_lost_with_a_folder_of_another_process(
    tmp_path: Path,
    make: Callable[[Path], None],
) -> None:
    out = Path("out") if make is by_another_run else Path("new", "parents", "out")

    def work() -> None:
        make(tmp_path / out / "logs" / "a.log")
        train(tmp_path / out / "run", until=2)

    watch = record(tmp_path, work)
    for tree, _ in different(watch.cuts[-1:], 5):
        with laid_down(tree) as disk:
            assert train(disk / out / "run", until=2)[0] == 2
        tried()


def test_what_is_not_synced_is_lost_or_torn_and_what_is_synced_stays(tmp_path: Path) -> None:
    def left(work: Callable[[Path], object]) -> list[dict[str, bytes | None]]:
        folder = tmp_path / work.__name__
        folder.mkdir()
        watch = record(folder, lambda: work(folder))
        trees = [tree for tree, _ in different(watch.cuts[-1:], 50)]
        return [{name: data for name, (_, data) in tree.items()} for tree in trees]

    def renamed(folder: Path) -> None:
        (folder / "half").write_bytes(b"whole")
        os.replace(folder / "half", folder / "file")

    def synced(folder: Path) -> None:
        write_bytes(folder / "file", b"whole")

    def forgotten(folder: Path) -> None:
        synced(folder)
        (folder / "file").unlink()

    def moved(folder: Path) -> None:
        make_folder(folder / "place")
        synced(folder)
        os.replace(folder / "file", folder / "place" / "file")

    found = left(renamed)
    assert all({"file": data} in found for data in (b"", b"whole", bytes(5), b"\0\0ole"))
    assert {} in found and {"half": b""} in found
    assert left(synced) == [{"file": b"whole"}]
    assert {len(state) for state in left(forgotten)} == {0, 1}
    elsewhere = left(moved)
    assert all(b"whole" in state.values() for state in elsewhere) and len(elsewhere) == 3
