"""Attack readers for some seconds each: guided by coverage where atheris is installed, by chance elsewhere.

Run as a program: ``python tests/hostile/fuzz.py SECONDS [READER ...]``; it stops at the first fault and says how to repeat it.
"""

import contextlib
import io
import json
import os
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

try:
    import atheris
except ImportError:
    atheris = None

GUIDED = ("comad.files", "comad.runs", "comad.datasets", "comad.experts.library", "comad.grid.cells", "comad.reports", "comad.checkpoint")


@contextlib.contextmanager
def instrumented() -> Iterator[None]:
    """Watch which lines of the readers are reached, if somebody can make use of it."""
    if atheris is None:
        yield
    else:
        with atheris.instrument_imports(include=list(GUIDED), enable_loader_override=False):
            yield


with instrumented():
    from readers import READERS
    from spoiling import attack

    from comad.ranges import Duration, check


def by_chance(name: str, sound: Path, seconds: float, seed: int) -> int:
    """Attacks drawn from a seed, for so long; how many they were."""
    deadline, number = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        drawn = random.Random(seed + number)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                attack(READERS[name], sound, drawn.randrange)
        except BaseException:
            traceback.print_exc()
            raise SystemExit(f"{name} fell to seed {seed + number}") from None
        number += 1
    return number


def guided(name: str, sound: Path, seconds: float) -> int:
    """Attacks that atheris finds promising; it ends the process, so this is a copy of it."""
    told, deadline = sound.parent / "tries", time.monotonic() + seconds
    child = os.fork()
    if child == 0:
        count = 0

        def one(data: bytes) -> None:
            nonlocal count
            source = atheris.FuzzedDataProvider(data)
            with contextlib.redirect_stdout(io.StringIO()):
                attack(READERS[name], sound, lambda below: source.ConsumeIntInRange(0, below - 1))
            count += 1
            if time.monotonic() > deadline:
                told.write_text(str(count))
                # At once: while Python winds up, nobody hears the alarm by which atheris notices inputs that take minutes, and it kills.
                os._exit(0)

        quiet = ["-verbosity=0", "-print_final_stats=0", f"-artifact_prefix={tempfile.gettempdir()}/"]
        atheris.Setup([sys.argv[0], "-max_len=256", "-len_control=0", "-rss_limit_mb=4096", *quiet], one)
        atheris.Fuzz()
    if code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise SystemExit(f"{name} fell to the fuzzer (exit code {code}); the input is kept in {tempfile.gettempdir()}")
    return int(told.read_text())


def main(seconds: float, names: list[str]) -> dict[str, int]:
    """Attack readers by name; how often each."""
    tries = {}
    for name in names:
        with tempfile.TemporaryDirectory() as temporary:
            sound = Path(temporary) / "sound"
            sound.mkdir()
            READERS[name].make(sound)
            with contextlib.redirect_stdout(io.StringIO()):
                READERS[name].read(sound)
            tries[name] = guided(name, sound, seconds) if atheris and name not in ("team", "expert") else by_chance(name, sound, seconds, 0)
            sys.stderr.write(f"{name}: {tries[name]} attacks\n")
    return tries


if __name__ == "__main__":
    SECONDS = float(sys.argv[1])
    check(Duration, "SECONDS", SECONDS)  # with NaN it would never end
    sys.stdout.write(json.dumps(main(SECONDS, sys.argv[2:] or list(READERS))) + "\n")
