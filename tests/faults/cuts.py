"""What is on a disk after its power went: each file and each name as it was since its last sync."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from power import Change, Cut, File, Folder, Key, Place

MEMORY = Path("/dev/shm")
"""Where files are quickly there and gone, if the system has such a place."""
Tree = dict[str, tuple[int, bytes | None]]
"""What lies on a disk: for every path its mode, and the bytes of a file or nothing for a folder."""


class Choice:
    """What of a cut is on the disk."""

    def __init__(
        self,
        cut: Cut,
        keeps: Callable[[Change], bool],
        content: Callable[[File], bytes],
        mode: bool,
    ) -> None:
        self._nodes, self._content, self._mode = cut.nodes, content, mode
        self._pending = {
            (key, name): changes
            for key, node in cut.nodes.items()
            for name, changes in (node.changes.items() if isinstance(node, Folder) else ())
        }
        # Of the values that a name has had it takes that of the last change that is kept.
        self._kept: dict[Place, int] = {}
        for place, changes in self._pending.items():
            kept = (number for number, change in enumerate(changes, 1) if keeps(change))
            self._kept[place] = max(kept, default=0)
        while self._take_back():
            pass

    def tree(self, path: str = "", key: Key = 0) -> Tree:
        """Returns what lies in a folder."""
        node = self._nodes[key]
        mode = node.mode if self._mode else node.synced_mode
        if isinstance(node, File):
            return {path: (mode, self._content(node))}
        found: Tree = {path: (mode, None)} if path else {}
        for name in sorted(node.synced.keys() | node.changes.keys()):
            kept = self._kept.get((key, name), 0)
            inside = node.changes[name][kept - 1].key if kept else node.synced.get(name)
            if inside is not None:
                found |= self.tree(f"{path}/{name}" if path else name, inside)
        return found

    def _take_back(self) -> bool:
        """Takes back changes whose needs are not met; tells whether there were any."""
        for place, kept in self._kept.items():
            for number, change in enumerate(self._pending[place][:kept]):
                if change.needs is None:
                    continue
                others = self._pending.get(change.needs, ())
                needed = sum(other.step <= change.step for other in others)
                if self._kept.get(change.needs, 0) < needed:
                    self._kept[place] = number
                    return True
        return False


def different(cuts: Sequence[Cut], draws: int) -> Iterable[tuple[Tree, int]]:
    """Returns every state that some cut can leave, with the farthest that the work had come then.

    Where little is drawn, states that differ only in what half-written files hold count as one.
    """
    found: dict[Any, tuple[Tree, int]] = {}
    for seed, cut in enumerate(cuts):
        for tree in states(cut, draws, seed):
            what = frozenset(tree.items() if draws > 1 else outside(tree))
            found[what] = tree, max(cut.reached, found.get(what, (tree, 0))[1])
    return found.values()


def outside(tree: Tree) -> Iterator[tuple[str, Any]]:
    """Returns the names of what is hidden, and all that is not."""
    for name, value in tree.items():
        hidden = re.match(r"([^./][^/]*/)*\.\w+", name)
        yield (hidden[0], None) if hidden else (name, value)


def states(cut: Cut, draws: int, seed: int = 0) -> Iterator[Tree]:
    """Returns states in which a cut can leave the disk: the extreme ones, and some drawn ones."""
    for content in (as_now, as_synced, zeroed, holed):
        yield Choice(cut, always, content, mode=True).tree()
        yield Choice(cut, never, content, mode=False).tree()
    folders = [node for node in cut.nodes.values() if isinstance(node, Folder)]
    for change in (change for node in folders for many in node.changes.values() for change in many):
        # It overtakes all others but those of the same call, or is overtaken by all.
        yield Choice(cut, partial(same_step, change), as_now, mode=True).tree()
        yield Choice(cut, partial(is_not, change), as_now, mode=True).tree()
    random = Random(seed)
    for _ in range(draws):
        share = random.random()
        keeps, content_of = partial(sometimes, random, share), partial(torn_somehow, random)
        yield Choice(cut, keeps, content_of, mode=share < 0.5).tree()


def always(_: Change) -> bool:
    return True


def never(_: Change) -> bool:
    return False


def sometimes(random: Random, share: float, _: Change) -> bool:
    return random.random() < share


def same_step(one: Change, other: Change) -> bool:
    return one.step == other.step


def is_not(one: Change, other: Change) -> bool:
    return one is not other


def as_now(file: File) -> bytes:
    return file.now


def as_synced(file: File) -> bytes:
    return file.synced


def zeroed(file: File) -> bytes:
    return torn(file, 0.0, "zeros")


def holed(file: File) -> bytes:
    return torn(file, 0.5, "hole")


def torn_somehow(random: Random, file: File) -> bytes:
    return torn(file, random.random(), random.choice(["cut", "zeros", "hole", "mix", "now", "old"]))


def torn(file: File, share: float, how: str) -> bytes:
    """Returns a file of which a share of what was not synced arrived; what is the same is there."""
    old, now = file.synced, file.now
    differing = (at for at, both in enumerate(zip(old, now, strict=False)) if both[0] != both[1])
    same = next(differing, min(len(old), len(now)))
    place = same + round(share * (len(now) - same))
    return {
        "cut": now[:place],
        "zeros": now[:place] + bytes(len(now) - place),
        "hole": now[:same] + bytes(place - same) + now[place:],
        "mix": now[:place] + old[place:],
        "now": now,
        "old": old,
    }[how]


@contextmanager
def laid_down(tree: Tree) -> Iterator[Path]:
    """Write a tree into a folder that is there for a while."""
    with TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as temporary:
        folder = Path(temporary)
        for name, (mode, data) in tree.items():
            if data is None:
                (folder / name).mkdir()
            else:
                (folder / name).write_bytes(data)
            (folder / name).chmod(mode)
        yield folder


def rights(paths: Iterable[Path]) -> set[int]:
    """What may be done with files."""
    return {path.stat().st_mode & 0o777 for path in paths}
