"""Files that are read are regular files, and folders that are made outlast a loss of power."""

import os
import socket
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from comad.errors import UserError
from comad.files import make_folder, new_folder, open_regular, read_regular, sweep


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    target = path.with_name("target")
    target.write_text("{}")
    path.symlink_to(target)


def dangling(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def device(path: Path) -> None:
    try:
        os.mknod(path, 0o20600, os.makedev(1, 5))  # what /dev/zero is: read until memory is full
    except PermissionError:
        pytest.skip("making a device takes rights that this user does not have")


@pytest.mark.parametrize("make", [fifo, link, dangling, unix_socket, device, Path.mkdir])
@pytest.mark.parametrize("read", [open_regular, read_regular])
def test_only_regular_files_are_opened(tmp_path: Path, make: object, read: object) -> None:
    make(tmp_path / "found")  # type: ignore[operator]
    with pytest.raises(UserError, match=r"found: is a (pipe|link|socket|device|folder)"):
        read(tmp_path / "found")  # type: ignore[operator]


def test_a_pipe_under_the_name_of_something_half_written_is_removed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".found-half-abcdefgh")
    sweep(tmp_path / "found")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_replaced_may_be_swept_away_by_another_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "old").touch()
    monkeypatch.setattr("comad.failpoints.reach", lambda point, *_: sweep(tmp_path / "data") if point == "after-folder-name" else None)
    with new_folder(tmp_path / "data") as folder:
        (folder / "new").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["data", "new"]


def test_a_regular_file_is_read_and_a_missing_one_is_missing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    assert read_regular(tmp_path / "file", 3) == b"abc"
    with pytest.raises(UserError, match="4 bytes long"):
        (tmp_path / "file").write_bytes(b"abcd")
        read_regular(tmp_path / "file", 3)
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "missing")


def test_each_new_folder_is_synced_in_the_one_that_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr("comad.files.sync_folder", lambda path: synced.append(path.name))
    make_folder(tmp_path / "one" / "two")
    # Another process may have made the folder that was there, and had no time to sync its name.
    assert synced == [tmp_path.parent.name, tmp_path.name, "one"]
    make_folder(tmp_path / "one" / "two")
    assert synced[3:] == ["one"]


def test_a_folder_that_another_writer_sweeps_before_it_is_held_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def make(**options: Any) -> str:
        made.append(mkdtemp(**options))
        if len(made) == 1:
            sweep(tmp_path / "data")
        return made[-1]

    monkeypatch.setattr("comad.files.tempfile.mkdtemp", make)
    with new_folder(tmp_path / "data") as folder:
        (folder / "new").touch()
    assert len(made) == 2 and [path.name for path in tmp_path.rglob("*")] == ["data", "new"]
