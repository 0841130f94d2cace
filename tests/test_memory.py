import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
from comad.memory import keep_memory

if {keep}:
    assert keep_memory()

import numpy as np

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

np.ones(10_000_000)
before = faults()
np.ones(10_000_000)
print(faults() - before)
"""


def faults(keep: bool) -> int:
    """Pages that had to be mapped for 80 MB which had been used and freed before."""
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(keep=keep)], check=True, stdout=subprocess.PIPE, text=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be asked to keep memory")
def test_freed_memory_is_there_for_the_next_who_needs_it() -> None:
    kept, handed_back = faults(keep=True), faults(keep=False)
    assert kept < 100 and handed_back > 10 * kept + 30, (kept, handed_back)
