"""The promises of a loss of power on a real file system, where images of disks can be mounted."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import ext4
import pytest
from killing import PROJECT
from recorded import record
from reliability import tried

USUAL, CARELESS = "commit=300", "commit=300,data=writeback,noauto_da_alloc"
"""How the disk is mounted: nothing gets there by itself for minutes.

The second way does nothing for careless programs either.
"""


@pytest.mark.promise("power-loss")
@pytest.mark.parametrize(
    ("options", "every"),
    [
        (CARELESS, 40),
        pytest.param(CARELESS, 1, marks=pytest.mark.slow),
        pytest.param(USUAL, 1, marks=pytest.mark.slow),
    ],
)
def test_a_copied_image_holds_what_was_promised(tmp_path: Path, options: str, every: int) -> None:
    if os.geteuid() or not all(map(shutil.which, ("unshare", "mkfs.ext4", "mount"))):
        pytest.skip("only root may mount a disk of its own, with util-linux and e2fsprogs")
    for seed, name in enumerate(("old", "new")):
        record(tmp_path / name, episodes=3, seed=seed)
    environment = {**os.environ, "PYTHONPATH": f"{PROJECT}:{PROJECT / 'tests'}"}
    command = ["unshare", "-m", sys.executable, ext4.__file__, str(tmp_path), str(every), options]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    if done.returncode == ext4.CANNOT or done.stderr.startswith("unshare:"):
        pytest.skip(f"an image cannot be mounted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 3
    tried(int(done.stdout))
