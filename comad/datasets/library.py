"""Where datasets lie: a folder of worlds, in each a folder per quality."""

import os
from pathlib import Path

from comad.errors import UserError


def root(folder: Path | None = None) -> Path:
    """The folder of all datasets: the given one, else ``$COMAD_DATA``, else ``data`` here."""
    return folder or Path(os.environ.get("COMAD_DATA", "data"))


def place(env: str, quality: str, folder: Path | None = None) -> Path:
    """Where the dataset of a world and a quality lies. A quality is a folder's name: anything else would be a place of something else."""
    if not quality or quality.startswith(".") or Path(quality).name != quality:
        raise UserError(f"a quality of data must be a plain name, such as expert, not {quality!r}")
    return root(folder) / env / quality


def is_there(place: Path) -> bool:
    """Returns whether a dataset lies at a place, by its manifest."""
    return (place / "manifest.json").exists()


def find_all(folder: Path | None = None) -> list[Path]:
    """Every dataset below the folder."""
    # Hidden folders are half written, or were replaced.
    return sorted(manifest.parent for manifest in root(folder).glob("[!.]*/[!.]*/manifest.json"))


def find(name: str, folder: Path | None = None) -> Path:
    """A dataset by its path, or by world and quality such as ``cn-4/expert``."""
    for path in (Path(name), root(folder) / name):
        if is_there(path):
            return path
    known = [str(path.relative_to(root(folder))) for path in find_all(folder)]
    there = f"there are {', '.join(known)}" if known else "none is there yet; 'comad collect cn' makes some"
    raise UserError(f"no dataset {name!r} in {root(folder)}; {there}")
