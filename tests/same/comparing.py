"""Does the code compute what it did at an earlier commit? Run as a program: [METHOD ...] [--kinds KIND ...].

The earlier code runs beside the present one, each by its own ``snapshot.py``, so that either may call things as it likes. What is compared
are multisets of hashes: no rename and no new order can part them, any other bit does.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[2]
BASE = Path(__file__).with_name("base.txt")
PARTED = Path(__file__).with_name("parted.json")
"""Methods whose numbers were changed on purpose, each with the reason."""
KINDS = ("discrete", "recurrent", "continuous", "run")


def base_code(folder: Path) -> Path:
    """Returns the folder of the code at the base commit, taken out of the repository the first time."""
    commit = BASE.read_text().strip()
    place = folder / commit
    if not place.exists():
        found = subprocess.run(["git", "archive", "--format=tar", commit], cwd=PROJECT, capture_output=True, check=True)
        half = folder / f".{commit}-{os.getpid()}"
        with tarfile.open(fileobj=io.BytesIO(found.stdout)) as archive:
            archive.extractall(half, filter="data")
        try:
            half.rename(place)
        except OSError:  # another process was first
            if not place.exists():
                raise
    return place


def snapshot(code: Path, method: str, kind: str) -> list[dict[str, Any]]:
    """Returns what the code in a folder computes."""
    words = [sys.executable, str(code / "tests" / "same" / "snapshot.py"), method, kind]
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    environment |= {"PYTHONPATH": f"{code}:{code / 'tests'}", "COMAD_CACHE": str(code / ".cache")}
    done = subprocess.run(words, env=environment, cwd=code, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{code}: {method} {kind} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return list(json.loads(done.stdout))


def difference(before: Sequence[dict[str, Any]], now: Sequence[dict[str, Any]]) -> str:
    """Returns the first step at which two snapshots part, and what differs there; nothing if they do not."""
    for old, new in zip(before, now, strict=True):
        for what in ("arrays", "numbers"):
            was, is_now = Counter(old.get(what, [])), Counter(new.get(what, []))
            # An array that is not kept any more, or one more that is, is no other number.
            gone, come = was - is_now, is_now - was
            if gone and come:
                shapes = sorted({entry.rpartition(" ")[0] for entry in gone}) if what == "arrays" else sorted(gone)
                return f"{old['at']}: {sum(gone.values())} of {sum(was.values())} {what} differ: {', '.join(shapes[:8])}"
    return ""


def main() -> int:
    """Prints a line for each method and kind; the exit code is 1 if any parted that should not have."""
    sys.path[:0] = [str(PROJECT)]
    from comad.methods import METHODS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("methods", nargs="*", metavar="METHOD", help=f"by default all: {', '.join(METHODS)}")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    options = parser.parse_args()
    code, parted = base_code(PROJECT / ".same"), json.loads(PARTED.read_text()) if PARTED.exists() else {}
    failed = 0
    for method in options.methods or METHODS:
        for kind in options.kinds:
            found = difference(snapshot(code, method, kind), snapshot(PROJECT, method, kind))
            meant = found and parted.get(method, "")
            failed += bool(found and not meant)
            print(f"{method:12} {kind:11} {f'other numbers at {found}' if found else 'every bit the same'}", flush=True)
            if meant:
                print(f"{'':24} meant: {meant}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
