"""What a grid finds in its folders: its own runs, which it keeps, or others, which it refuses by what differs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from comad import envs
from comad.cli.commands import read_method
from comad.cli.tasks import find_stream
from comad.continual.method import settled
from comad.datasets import library
from comad.datasets.store import open_dataset
from comad.errors import UserError
from comad.grid.cells import Cell, Grid, Variant
from comad.runs.folder import read_settings, refuse_another
from comad.runs.standing import look
from comad.training.loop import Budget
from comad.training.provenance import make_identity
from comad.types import Spec, Stream


@dataclass(frozen=True)
class Source:
    """What the runs of one stream and quality learn from, as it is here now."""

    stream: Stream
    specs: tuple[Spec, ...]
    """Of the tasks' environments."""
    datasets: Mapping[str, str]
    """Hash of what each dataset says, by environment, for those that are here."""
    missing: Mapping[str, Path]
    """Where the others would lie, by environment."""


def find_source(stream: str, quality: str, data: Path | None) -> Source:
    """Returns what runs would learn from now; manifests hold the hashes, so no array is read."""
    found = find_stream(stream)
    specs = tuple(envs.find(task.env).spec for task in found.tasks)
    places = {spec.env: library.place(spec.env, quality, data) for spec in specs}
    missing = {env: place for env, place in places.items() if not library.is_there(place)}
    opened = [open_dataset(place) for env, place in places.items() if env not in missing]
    return Source(found, specs, {one.spec.env: one.content for one in opened}, missing)


def keep_own(
    grid: Grid,
    cells: Sequence[Cell],
    out: Path,
    data: Path | None,
    options: Callable[[Variant], Sequence[str]],
) -> dict[Cell, tuple[Path, ...]]:
    """Refuses folders that hold runs of other settings, rules or data under the same name.

    Returns the datasets that are not here to be compared, for every run that is there.
    """
    source_of = cache(partial(find_source, data=data))  # opened once, however many runs learn from it
    absent = {}
    for cell in cells:
        folder = cell.folder(out)
        if _is_begun(folder):
            source = source_of(cell.stream, cell.quality)
            _refuse_other(folder, grid, cell, source, options(cell.variant))
            absent[cell] = tuple(source.missing.values())
    return absent


def budget_of(grid: Grid, stream: Stream) -> Budget:
    """Returns how long a run on a stream is; refuses what fits no run."""
    spec, updates = envs.find(stream.tasks[0].env).spec, grid.updates or stream.updates
    return Budget.of(spec, updates, grid.evaluations, grid.episodes, grid.batch)


def _is_begun(folder: Path) -> bool:
    """Returns whether a run is there; a damaged one is a failure of its own, and the others go on."""
    try:
        return look(folder) is not None
    except UserError:
        return False


def _refuse_other(folder: Path, grid: Grid, cell: Cell, source: Source, options: Sequence[str]) -> None:
    """Refuses a run that is not the one its name promises; believes what it says of absent data."""
    there = read_settings(folder)["identity"]
    method = read_method(cell.variant.method, options)
    told = there.get("datasets")
    learned = told if isinstance(told, dict) else {}
    absent = {env: learned[env] for env in source.missing if env in learned}
    datasets = {**source.datasets, **absent}
    here = make_identity(
        cell.variant.method,
        settled(method, source.specs[0]),
        source.stream,
        cell.quality,
        source.specs,
        datasets,
        cell.seed,
        budget_of(grid, source.stream),
    )
    refuse_another(folder, there, here, "choose another --out")


def describe_uncompared(absent: Iterable[Sequence[Path]]) -> list[str]:
    """Returns a line that tells how many runs learned from data that is not here, if any did.

    Args:
        absent: for every run, the datasets that are not here.
    """
    uncompared = [places for places in absent if places]
    missing = list(dict.fromkeys(place for places in uncompared for place in places))
    if not missing:
        return []
    more = f" ({len(missing)} are missing)" if missing[1:] else ""
    what = f"the data of {len(uncompared)} of them could not be compared"
    return [f"{what}: there is no dataset {missing[0]}{more}"]
