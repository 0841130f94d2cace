"""Power that goes while datasets, weights and states of experts are written: each is old or new."""

import dataclasses
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import teaching
from cuts import different, laid_down, rights
from killing import leftovers
from power import Watch, watched
from recorded import record, write_again
from reliability import tried

from comad import files
from comad.datasets.library import find_all
from comad.datasets.store import Dataset, check, open_dataset
from comad.experts import library, training
from comad.experts.qmix import Qmix

pytestmark = pytest.mark.usefixtures("quick_disk")
WAYS = ("new", "in one step", "in two steps", "killed in one step", "killed in two steps")
DRAWS = pytest.mark.parametrize("draws", [0, pytest.param(40, marks=pytest.mark.slow)])


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, Dataset]:
    """Two that differ."""
    folder = tmp_path_factory.mktemp("datasets")
    return record(folder / "old", episodes=3), record(folder / "new", episodes=3, seed=1)


def watch_each(root: Path, *works: Callable[[], object]) -> Watch:
    """Do some works in a folder whose present content is on the disk, counting what is done."""
    with watched(root) as watch:
        for number, work in enumerate(works, 1):
            work()
            watch.reached = number
    return watch


def in_two_steps(one: Path, other: Path) -> bool:
    """In place of the exchange of names: a system that cannot."""
    return False


class Killed(BaseException):
    """The end of a process."""


def die_once_it_has_its_name(write: Callable[[], object]) -> None:
    """Write a dataset as a process does that is killed before it can sync the name it gave."""

    def reach(point: str, last_act: Any = None) -> None:
        if point == "after-folder-name":
            raise Killed

    with pytest.MonkeyPatch.context() as patch, suppress(Killed):
        patch.setattr("comad.failpoints.reach", reach)
        patch.setattr("shutil.rmtree", lambda *_, **__: None)
        write()


@pytest.mark.promise("power-loss")
@DRAWS
@pytest.mark.parametrize("how", WAYS)
def test_a_dataset_is_the_old_one_or_the_new_one(
    tmp_path: Path,
    datasets: tuple[Dataset, Dataset],
    how: str,
    draws: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place, (old, new) = Path("new", "parents", "expert"), datasets
    if how.endswith("two steps"):
        monkeypatch.setattr(files, "_exchange", in_two_steps)
    elif how != "new" and not files._exchange(tmp_path, tmp_path):
        pytest.skip("names cannot change places in one step on this disk")
    if how != "new":
        write_again(old, tmp_path / place)

    def work() -> None:
        if how.startswith("killed"):
            die_once_it_has_its_name(lambda: write_again(new, tmp_path / place))
        write_again(new, tmp_path / place)

    for tree, reached in different(watch_each(tmp_path, work).cuts, draws):
        with laid_down(tree) as disk:
            assert {path.name for path in find_all(disk / "new")} <= {place.name}, "a half is shown"
            files.sweep(disk / place)
            if reached:
                assert open_dataset(disk / place).content == new.content
                assert rights([disk / place]) == {0o755}
            if how != "new" or (disk / place).exists():
                found = open_dataset(disk / place)
                assert check(found) == [] and found.content in (old.content, new.content)
            assert write_again(new, disk / place).content == new.content
            assert leftovers(disk) == [] and rights(disk.rglob("*.*")) == {0o644}
        tried()


@pytest.mark.promise("power-loss")
def test_what_is_swept_stays_away(tmp_path: Path, datasets: tuple[Dataset, Dataset]) -> None:
    for name in ("expert", ".expert-kept-abcdefgh", ".expert-half-abcdefgh"):
        write_again(datasets[0], tmp_path / name)
    watch = watch_each(tmp_path, lambda: files.sweep(tmp_path / "expert"))
    for tree, _ in different(watch.cuts[-1:], 5):
        with laid_down(tree) as disk:
            assert [path.name for path in disk.iterdir()] == ["expert"]
        tried()


@pytest.mark.promise("power-loss")
@DRAWS
def test_weights_and_their_card_are_both_old_or_both_new(
    tmp_path: Path,
    draws: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Qmix, "blank", cache(Qmix.blank))
    env, (agent, card) = teaching.ENV, teaching.shipped_in_small()
    teams = {seed: jax.tree.map(lambda leaf, seed=seed: leaf + seed, agent) for seed in (1, 2, 3)}
    place = Path("new", "weights")

    def put(seed: int, quality: str = "expert", folder: Path = tmp_path) -> None:
        ours = dataclasses.replace(card, quality=quality, seed=seed)
        library.put(folder / place, teams[seed], ours)

    torn = partial(die_after_the_card, partial(put, 2))
    watch = watch_each(tmp_path, partial(put, 1), partial(put, 1, "medium"), torn, partial(put, 3))
    for tree, reached in different(watch.cuts, draws):
        with laid_down(tree) as disk:
            assert len(library.cards(disk / place)) in (min(reached, 2), min(reached + 1, 2))
            if reached or (disk / place / env.spec.env / "expert.safetensors").exists():
                team, found = library.load(env, "expert", disk / place)
                assert max(reached - 1, 1) <= found.seed <= 3
                assert jax.tree.all(jax.tree.map(jnp.array_equal, team, teams[found.seed]))
            assert reached < 2 or library.load(env, "medium", disk / place)[1].seed == 1
            put(3, folder=disk)
            assert library.load(env, "expert", disk / place)[1].seed == 3
            assert [path for path in leftovers(disk) if "expert" in path.name] == []
        tried()


def die_after_the_card(put: Callable[[], None]) -> None:
    """Write weights as a process does that is killed when only their card has its name."""
    real = os.replace

    def replace(old: Path | str, new: Path) -> None:
        if str(old).endswith("-next"):
            raise Killed
        real(old, new)

    with pytest.MonkeyPatch.context() as patch, suppress(Killed):
        patch.setattr(os, "replace", replace)
        put()


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """No team plays."""
    monkeypatch.setattr(training, "evaluate", teaching.evaluate)


def train(folder: Path, until: int) -> list[str]:
    """A training of five turns, whatever is asked for."""
    return teaching.train(folder)


def look_closer(folder: Path, until: int) -> list[str]:
    """The same, evaluated more often, up to some step."""
    told: list[str] = []
    learned = (teaching.ENV, teaching.FiveTurns(), 0, folder, 10, None, 1, until)
    list(training.look_closer(*learned, tell=told.append))
    return told


@pytest.mark.promise("power-loss")
@pytest.mark.parametrize(
    ("work", "turns", "draws"),
    [
        (look_closer, 1, 0),
        pytest.param(look_closer, 3, 20, marks=pytest.mark.slow),
        pytest.param(train, 3, 20, marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("stand_in")
def test_a_training_of_experts_goes_on_in_the_same_bits(
    tmp_path: Path, work: Callable[[Path, int], list[str]], turns: int, draws: int
) -> None:
    inside = training.CLOSER if work is look_closer else "."
    until = 10 * (turns + 1)
    assert work(tmp_path / "peaceful", until) == []
    whole = teaching.end(tmp_path / "peaceful" / inside)
    (tmp_path / "disk").mkdir()
    folder = tmp_path / "disk/new/team" / inside
    steps = training.train(teaching.ENV, teaching.FiveTurns(), 0, folder, every=10)
    watch = watch_each(tmp_path / "disk", *[lambda: next(steps)] * turns)
    for tree, reached in different(watch.cuts, draws):
        with laid_down(tree) as disk:
            kept = (disk / "new/team" / inside / "checkpoints").glob("*.json")
            assert max((int(path.stem) for path in kept), default=0) >= reached
            assert work(disk / "new/team", until) == [], "something could not be relied on"
            assert teaching.end(disk / "new/team" / inside) == whole and leftovers(disk) == []
        tried()
