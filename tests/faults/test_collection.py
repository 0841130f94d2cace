"""Writing a dataset, killed anywhere, out of space, twice at once: the old dataset or the new one is there, never a part of one."""

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from killing import KILLED, killed, leftovers
from recorded import record, write_again
from reliability import tried

from comad import files
from comad.datasets.store import Dataset, check, open_dataset
from comad.errors import UserError
from comad.failpoints import FILE_POINTS, FOLDER_POINTS

ALONE = [point for point in FOLDER_POINTS if point != "while-exchanging"]

pytestmark = pytest.mark.usefixtures("quick_disk")


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, Dataset]:
    """Two that differ."""
    folder = tmp_path_factory.mktemp("recordings")
    first, second = record(folder / "first"), record(folder / "second", seed=1)
    assert first.content != second.content
    return first, second


def in_two_steps(one: Path, other: Path) -> bool:
    """In place of the exchange of names: a system that cannot."""
    return False


@pytest.mark.promise("killed-collection")
@pytest.mark.parametrize("point", [*ALONE, *FILE_POINTS])
def test_a_new_dataset_is_whole_or_absent(tmp_path: Path, recordings: tuple[Dataset, Dataset], point: str) -> None:
    path = tmp_path / "data"
    assert killed(lambda: write_again(recordings[0], path), point) == KILLED
    assert not path.exists() or check(open_dataset(path)) == []
    assert path.exists() == (point == "after-folder-name")
    assert write_again(recordings[0], path).content == recordings[0].content
    assert leftovers(tmp_path) == [] and [entry.name for entry in tmp_path.iterdir()] == ["data"]


@pytest.mark.promise("killed-collection")
@pytest.mark.parametrize(
    ("steps", "point"),
    [*(("one", point) for point in (*ALONE, *FILE_POINTS)), *(("two", point) for point in (*FOLDER_POINTS, *FILE_POINTS))],
)
def test_a_dataset_is_replaced_or_stays(
    tmp_path: Path, recordings: tuple[Dataset, Dataset], steps: str, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if steps == "two":
        monkeypatch.setattr(files, "_exchange", in_two_steps)
    elif not files._exchange(tmp_path, tmp_path):
        pytest.skip("names cannot change places in one step on this disk")
    path = tmp_path / "data"
    write_again(recordings[0], path)
    assert killed(lambda: write_again(recordings[1], path), point) == KILLED
    files.sweep(path)
    assert leftovers(tmp_path) == []
    found = open_dataset(path)
    assert check(found) == [] and found.content == recordings[point == "after-folder-name"].content
    assert write_again(recordings[1], path).content == recordings[1].content


@pytest.mark.promise("full-disk")
@pytest.mark.parametrize("call", ["numpy.save", "os.fsync", "os.replace", "os.chmod"])
def test_a_disk_that_fails_at_any_call_leaves_the_old_dataset(
    tmp_path: Path, recordings: tuple[Dataset, Dataset], call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data"
    write_again(recordings[0], path)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    module, name = {"numpy": np, "os": os}[call.split(".")[0]], call.split(".")[1]
    real, calls = getattr(module, name), 0
    while True:
        left = calls

        def failing(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(module, name, failing)
            try:
                write_again(recordings[1], path)
            except UserError as error:
                assert "No space left on device" in str(error) and str(path) in str(error)
            if left >= 0:
                break  # it was called fewer times than would have failed
        files.sweep(path)
        assert leftovers(tmp_path) == []
        # Whatever fails after the new one has its name, such as the last sync of the folder, cannot take it away again.
        now = {file.name: file.read_bytes() for file in path.iterdir()}
        assert now == before or open_dataset(path).content == recordings[1].content
        tried()
        calls += 1
    assert calls >= 1 and open_dataset(path).content == recordings[1].content


@pytest.mark.promise("two-processes")
def test_two_writers_of_one_dataset_leave_one_of_them_whole(tmp_path: Path, recordings: tuple[Dataset, Dataset]) -> None:
    path = tmp_path / "data"
    with files.new_folder(path) as slow:
        (slow / "part").touch()
        # Another one comes, sees the half-written folder, leaves it alone and is done first.
        write_again(recordings[0], path)
        assert slow.exists() and check(open_dataset(path)) == []
        with pytest.raises(UserError, match="cannot be read as JSON"):
            open_dataset(slow)
        (slow / "part").unlink()
        for file in recordings[1].path.iterdir():
            (slow / file.name).write_bytes(file.read_bytes())
    assert open_dataset(path).content == recordings[1].content and leftovers(tmp_path) == []


@pytest.mark.promise("killed-collection")
def test_nothing_of_anybody_else_is_swept(tmp_path: Path) -> None:
    mine = [".data-notes", ".data-half-a", ".other-half-abcdefgh", ".data-half-abcdefghi"]
    for name in mine:
        (tmp_path / name).mkdir()
    (tmp_path / ".data-half-00000000").symlink_to(tmp_path / mine[0])
    (tmp_path / ".data-half-11111111").touch()
    files.sweep(tmp_path / "data")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*mine, ".data-half-00000000"])
