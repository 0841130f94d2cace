import platform
import subprocess
import sys

import pytest

PROGRAM = """
import os
from pathlib import Path
from comad.memory import keep_memory

if {keep}:
    assert keep_memory()

import numpy as np

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

before = resident()
held = np.ones(10_000_000)
while_held = resident()
del held
print(while_held - before, resident() - before)
"""
SIZE = 80e6


def resident(keep: bool) -> tuple[int, int]:
    """Bytes that a process holds for an array of 80 MB while it is used, and after it was freed."""
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(keep=keep)], check=True, stdout=subprocess.PIPE, text=True)
    used, freed = map(int, done.stdout.split())
    return used, freed


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be asked to keep memory")
def test_freed_memory_is_there_for_the_next_who_needs_it() -> None:
    (used, kept), (used_as_well, handed_back) = resident(keep=True), resident(keep=False)
    assert min(used, used_as_well) > 0.9 * SIZE
    assert kept > 0.9 * SIZE and handed_back < 0.1 * SIZE, (kept, handed_back)
