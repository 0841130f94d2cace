"""A disk that can lose its power: what is on it for sure, and what only may be, at every call.

Every call that changes files or syncs them is watched. Before and after it the real folder is
compared with what was seen last, so that writers in C or Rust are noticed too. Of every file the
bytes are known as they were at its last sync and as they are now. Of every folder the names are
known as they were at its last sync, and every change of a name since. At a cut (`cuts.py`) each
file and each name takes any of these values, whatever the order of the calls. Only two things are
taken for granted, as journaling file systems grant them: a name that was synced in its folder
stays, and a rename never removes the old name without making the new one.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

CALLS = (
    "open",
    "write",
    "ftruncate",
    "truncate",
    "replace",
    "rename",
    "unlink",
    "remove",
    "mkdir",
    "rmdir",
    "chmod",
    "fchmod",
    "link",
    "symlink",
)
"""Functions of ``os`` that change files; ``fsync`` is watched in a way of its own."""
Key = int
"""What a file or folder is called here, for its inode may be used again once it is gone."""
Place = tuple[Key, str]
"""A folder and a name in it."""


@dataclass(frozen=True, eq=False)
class Change:
    """A name that began to mean something else, or nothing."""

    key: Key | None
    needs: Place | None
    """The name that got what this one lost; without that change this one is not on the disk."""
    step: int
    """When it was noticed."""


@dataclass(frozen=True)
class File:
    """What is known of a file."""

    synced: bytes
    now: bytes
    synced_mode: int
    mode: int


@dataclass(frozen=True)
class Folder:
    """What is known of a folder."""

    synced: dict[str, Key]
    changes: dict[str, tuple[Change, ...]]
    """Since its last sync, by name."""
    synced_mode: int
    mode: int


@dataclass(frozen=True)
class Cut:
    """A state in which the power can go, and how far the work said it was."""

    nodes: dict[Key, File | Folder]
    reached: int


@dataclass
class Watch:
    """Sees all that happens in a folder, and keeps every state of the disk under it."""

    root: Path
    reached: int = 0
    """What the work has said to be safe by now; the watcher's owner sets it."""
    cuts: list[Cut] = field(default_factory=list)
    _nodes: dict[Key, File | Folder] = field(default_factory=dict)
    _live: dict[Key, dict[str, Key]] = field(default_factory=dict)
    _inodes: dict[int, Key] = field(default_factory=dict)
    _step: int = 0

    def begin(self) -> None:
        """Take what is there as safely on the disk."""
        self._look()
        for key in list(self._nodes):
            self._settle(key)
        self._keep()

    def around(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Make a call and look at the folder before and after it."""
        self._look()
        self._keep()
        try:
            return call(*arguments, **options)
        finally:
            self._look()
            self._keep()

    def sync(self, handle: int) -> None:
        """In place of ``os.fsync``: what the handle belongs to is on the disk from now on."""
        self._look()
        self._keep()
        key = self._inodes.get(os.fstat(handle).st_ino)
        if key is not None:
            self._settle(key)
            self._keep()

    def _keep(self) -> None:
        cut = Cut(dict(self._nodes), self.reached)
        if not self.cuts or self.cuts[-1] != cut:
            self.cuts.append(cut)

    def _settle(self, key: Key) -> None:
        node = self._nodes[key]
        if isinstance(node, File):
            self._nodes[key] = File(node.now, node.now, node.mode, node.mode)
            return
        self._nodes[key] = Folder(dict(self._live.get(key, {})), {}, node.mode, node.mode)
        for change in (change for changes in node.changes.values() for change in changes):
            self._settle_name(change)

    def _settle_name(self, change: Change) -> None:
        """With a name that has gone for good, the name that a file has now is there for good."""
        if change.needs is None:
            return
        where, name = change.needs
        folder = self._nodes[where]
        assert isinstance(folder, Folder)
        changes = folder.changes.get(name, ())
        done = [each for each in changes if each.step <= change.step]
        if not done:
            return
        synced = {other: key for other, key in folder.synced.items() if other != name}
        if (key := done[-1].key) is not None:
            synced[name] = key
        left = {**folder.changes, name: changes[len(done) :]}
        left = {other: rest for other, rest in left.items() if rest}
        self._nodes[where] = Folder(synced, left, folder.synced_mode, folder.mode)
        for each in done:
            self._settle_name(each)

    def _look(self) -> None:
        """Notice what is new, in whatever way it came about."""
        self._step += 1
        before, self._live = self._live, {}
        seen: dict[int, Key] = {}
        self._enter(self.root, seen)
        self._inodes = seen
        changed: dict[Place, tuple[Key | None, Key | None]] = {}
        for key, names in self._live.items():
            old = before.get(key, {})
            both = ((name, (old.get(name), names.get(name))) for name in sorted(old.keys() | names))
            changed |= {(key, name): values for name, values in both if values[0] != values[1]}
        gained = {now: place for place, (_, now) in changed.items() if now is not None}
        for (key, name), (was, now) in changed.items():
            folder = self._nodes[key]
            assert isinstance(folder, Folder)
            change = Change(now, gained.get(was) if was is not None else None, self._step)
            changes = {**folder.changes, name: (*folder.changes.get(name, ()), change)}
            self._nodes[key] = Folder(folder.synced, changes, folder.synced_mode, folder.mode)

    def _enter(self, path: Path, seen: dict[int, Key]) -> Key:
        status = os.lstat(path)
        key = seen.get(status.st_ino, self._inodes.get(status.st_ino, len(self._nodes)))
        seen[status.st_ino] = key
        mode, known = stat.S_IMODE(status.st_mode), self._nodes.get(key)
        if stat.S_ISDIR(status.st_mode):
            folder = known if isinstance(known, Folder) else Folder({}, {}, mode, mode)
            self._nodes[key] = Folder(folder.synced, folder.changes, folder.synced_mode, mode)
            self._live[key] = {}
            for name in sorted(os.listdir(path)):
                self._live[key][name] = self._enter(path / name, seen)
            return key
        with path.open("rb") as opened:
            now = opened.read()
        file = known if isinstance(known, File) else File(b"", now, mode, mode)
        self._nodes[key] = File(file.synced, now, file.synced_mode, mode)
        return key


@contextmanager
def watched(root: Path) -> Iterator[Watch]:
    """Watch what is done in a folder; nothing waits for the real disk meanwhile."""
    watch = Watch(root)
    watch.begin()
    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, partial(watch.around, getattr(os, name)))
        patch.setattr(os, "fsync", watch.sync)
        yield watch
    watch.around(lambda: None)
