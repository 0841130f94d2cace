"""A real file system that loses power; a program to be run in a mount namespace of its own.

An image of a disk is copied while it is mounted and written: what a copy lacks was only in memory,
as it is when the power goes. Each copy is mounted, which replays its journal, and must hold what
was promised. Prints how many copies there were.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from counting import content, no_sync, train
from recorded import write_again

from comad.datasets.store import Dataset, check, open_dataset
from comad.runs.run import Run

CANNOT = 77
"""The exit code that says: no disk can be made here."""
MEGABYTES, STEPS = 16, 6
RUN, DATA = Path("new", "parents", "run"), Path("data", "expert")
CALLS = ("open", "replace", "unlink", "fsync")
"""Functions of ``os`` after which the power can go."""


@dataclass
class Power:
    """Copies the image after every so many calls."""

    image: Path
    every: int
    saved: int = 0
    """The position that the run has saved."""
    written: bool = False
    """Whether the new dataset has been written."""
    calls: int = 0
    copies: list[tuple[Path, int, bool]] = field(default_factory=list)

    def after(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Make a call, then look whether it is time for a copy."""
        result = call(*arguments, **options)
        self.calls += 1
        if self.calls % self.every == 0:
            self.copy()
        return result

    def copy(self) -> None:
        """Keep what is on the disk now."""
        copy = self.image.with_name(f"{len(self.copies)}.img")
        subprocess.run(["cp", "--sparse=always", self.image, copy], check=True)
        self.copies.append((copy, self.saved, self.written))


@contextmanager
def mounted(image: Path, place: Path, *options: str) -> Iterator[Path]:
    """A disk that is an image."""
    place.mkdir(exist_ok=True)
    how = ",".join(("loop", *options))
    subprocess.run(["mount", "-o", how, image, place], check=True, capture_output=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def work(power: Power, disk: Path, new: Dataset) -> None:
    """Make a run and replace a dataset while the image is copied again and again."""
    real_save = Run.save

    def save(run: Run, position: int, *arguments: Any, **options: Any) -> Any:
        saved = real_save(run, position, *arguments, **options)
        power.saved = position
        return saved

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, partial(power.after, getattr(os, name)))
        patch.setattr(Run, "save", save)
        train(disk / RUN, until=STEPS)
        write_again(new, disk / DATA)
        power.written = True
        power.copy()


def examine(disk: Path, saved: int, written: bool, folder: Path) -> None:
    """Whether what was promised is on a disk."""
    old, new = open_dataset(folder / "old"), open_dataset(folder / "new")
    began, skipped = train(disk / RUN, until=STEPS)
    assert began >= saved, f"began at {began}, though {saved} had been saved"
    assert skipped == {} and content(disk / RUN) == content(folder / "peaceful")
    found = open_dataset(disk / DATA)
    assert found.content in ({new.content} if written else {old.content, new.content})
    assert check(found) == []
    assert write_again(new, disk / DATA).content == new.content


def main(folder: Path, every: int, *options: str) -> int:
    """Cut the power everywhere, and look at all that is left."""
    power = Power(folder / "disk.img", every)
    train(folder / "peaceful", until=STEPS)
    with power.image.open("wb") as image:
        image.truncate(MEGABYTES << 20)
    try:
        subprocess.run(["mkfs.ext4", "-q", "-F", power.image], check=True, capture_output=True)
        with mounted(power.image, folder / "disk", *options):
            pass
    except subprocess.CalledProcessError as error:
        print(error, error.stderr, file=sys.stderr)
        return CANNOT
    with mounted(power.image, folder / "disk", *options) as disk:
        write_again(open_dataset(folder / "old"), disk / DATA)
        os.sync()
        work(power, disk, open_dataset(folder / "new"))
    os.fsync = no_sync
    for copy, saved, written in power.copies:
        with mounted(copy, folder / "disk") as disk:
            examine(disk, saved, written, folder)
        copy.unlink()
    print(len(power.copies))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
