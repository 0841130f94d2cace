"""The code that jobs run: a commit, taken out of the repository once and prepared, which no later checkout changes."""

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

from background.jobs import Plan
from background.state import State
from comad.errors import UserError
from comad.files import make_folder, write_json

READY = ".prepared.json"


def prepare(state: State, plan: Plan, repository: Path) -> None:
    """Takes out and prepares the code of every commit that jobs run, unless that was done before."""
    for commit in dict.fromkeys(job.commit for job in plan.jobs):
        folder = state.code(commit)
        if (folder / READY).exists():
            continue
        if folder.exists():
            shutil.rmtree(folder)  # half prepared
        _take_out(repository, commit, folder)
        done = subprocess.run(plan.setup, cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise UserError(
                f"the code of {commit} could not be prepared in {folder}: {said[-1] if said else f'exit code {done.returncode}'}"
            )
        write_json(folder / READY, {"commit": commit, "setup": list(plan.setup)})


def _take_out(repository: Path, commit: str, folder: Path) -> None:
    """Writes the files of a commit into a folder."""
    found = subprocess.run(["git", "archive", "--format=tar", commit], cwd=repository, capture_output=True, check=False)
    if found.returncode:
        raise UserError(f"{repository} has no commit {commit}: {found.stderr.decode(errors='replace').strip()}")
    make_folder(folder)
    with tarfile.open(fileobj=io.BytesIO(found.stdout)) as archive:
        archive.extractall(folder, filter="data")
