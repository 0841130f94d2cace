"""`comad data`: look at datasets, check and mix them, bring other people's in and take one's own out."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from comad import envs
from comad.cli.mix import Mix
from comad.cli.published import read_published
from comad.cli.terminal import show_lines, show_table
from comad.datasets import library
from comad.datasets.hdf5 import export_hdf5, import_hdf5, world_name
from comad.datasets.layout import Column
from comad.datasets.packing import Packing
from comad.datasets.store import Dataset, check, check_world, open_dataset, refuse_damaged
from comad.errors import UserError
from comad.streams import battle
from comad.training.loop import LONG_BATCH
from comad.types import Discrete, Spec

Folder = Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")]


@dataclass(frozen=True)
class ListAll:
    """Show the datasets there are."""

    data: Folder = None
    """Where datasets lie; by default $COMAD_DATA, or data here."""

    def run(self) -> None:
        """Print one row each."""
        show_datasets(all_datasets(self.data))


@dataclass(frozen=True)
class Describe:
    """Explain a dataset: every array and feature by name, and what the recorded team did."""

    dataset: tyro.conf.Positional[str]
    """Its path, or world and quality, such as cn-4/expert."""
    data: Folder = None
    """Where datasets lie; by default $COMAD_DATA, or data here."""

    def run(self) -> None:
        """Print what it is, what it holds and how the team played."""
        dataset = open_dataset(library.find(self.dataset, self.data))
        spec = dataset.spec
        size = sum(array.nbytes for array in dataset.arrays.values())
        show_lines(
            [
                f"{dataset.path}",
                f"world {spec.env}, version {spec.version}, rules {spec.rules_hash}: {spec.num_agents} agents, {spec.num_targets} targets",
                f"content {dataset.content[:16]}, {size / 1e6:.2f} MB, {size / dataset.recorded.moments:.0f} bytes per moment",
                *[f"{name}: {value}" for name, value in dataset.provenance.items()],
                f"observations: {describe_view(spec)}",
                "",
            ]
        )
        show_table(
            "Arrays", ("name", "of each moment", "stored as", "features"), [describe_column(column) for column in dataset.columns.values()]
        )
        show_datasets([dataset])
        show_lines([describe_batches(dataset)])
        if isinstance(spec.actions, Discrete):
            show_actions(dataset)


@dataclass(frozen=True)
class Verify:
    """Check datasets: hashes, types, values, statistics, and that no two say the same."""

    datasets: tyro.conf.Positional[tuple[str, ...]] = ()
    """Paths, or world and quality; by default all there are."""
    data: Folder = None
    """Where datasets lie; by default $COMAD_DATA, or data here."""

    def run(self) -> None:
        """Print a line per dataset; anything wrong ends in exit code 2."""
        paths = [library.find(name, self.data) for name in self.datasets] or library.find_all(self.data)
        if not paths:
            raise UserError(f"no datasets in {library.root(self.data)}; 'comad collect cn' makes some")
        seen: dict[str, Path] = {}
        bad = 0
        for path in paths:
            problems = problems_of(path, seen)
            bad += bool(problems)
            show_lines([f"{path}: holds"] if not problems else [f"{path}: {problem}" for problem in problems])
        if bad:
            raise UserError(f"{bad} of {len(paths)} datasets do not hold; collect or import them again")


@dataclass(frozen=True)
class Import:
    """Bring in a recording in the HDF5 layout of ODIS and PyMARL."""

    source: tyro.conf.Positional[Path]
    """A .h5 file, or a folder of part_N.h5 files."""
    task: str
    """What was played: a CN name such as cn-4, or a StarCraft map such as 3m or 2s3z."""
    quality: str = "imported"
    """The name under which the dataset is kept."""
    data: Folder = None
    """Where datasets go; by default $COMAD_DATA, or data here."""

    def run(self) -> None:
        """Import, check and show."""
        destination = library.place(world_name(self.task), self.quality, self.data)
        show_datasets([import_hdf5(self.source, self.task, self.quality, destination)])


@dataclass(frozen=True)
class Export:
    """Write a dataset in the HDF5 layout of ODIS and PyMARL."""

    dataset: tyro.conf.Positional[str]
    """Its path, or world and quality, such as cn-4/expert."""
    out: tyro.conf.Positional[Path]
    """The .h5 file to write."""
    data: Folder = None
    """Where datasets lie; by default $COMAD_DATA, or data here."""

    def run(self) -> None:
        """Write and say where."""
        written = export_hdf5(refuse_damaged(open_dataset(library.find(self.dataset, self.data))), self.out)
        show_lines([f"wrote {written} ({written.stat().st_size / 1e6:.2f} MB)"])


@dataclass(frozen=True)
class Stats:
    """Show the datasets' statistics, beside a published table if there is one."""

    against: Annotated[Path | None, tyro.conf.arg(metavar="CSV")] = None
    """A table with the columns stream, task, quality, avg_length, avg_return."""
    data: Folder = None
    """Where datasets lie; by default $COMAD_DATA, or data here."""

    def run(self) -> None:
        """Print one row per dataset; published lengths count the extra last moment, so ours are shown with it too."""
        found = all_datasets(self.data)
        if self.against is None:
            show_datasets(found)
            return
        published = read_published(self.against)
        rows = []
        for dataset in found:
            ours, theirs = dataset.recorded, published.get((dataset.spec.env, dataset.quality))
            rows.append(
                (
                    dataset.spec.env,
                    dataset.quality,
                    f"{ours.length:.2f}",
                    f"{ours.length + 1:.2f}",
                    theirs["avg_length"] if theirs else "",
                    f"{ours.total:.3f}",
                    theirs["avg_return"] if theirs else "",
                    f"{ours.success:.3f}",
                    of_expert(dataset, found),
                )
            )
        columns = ("world", "quality", "steps", "moments", "published", "return", "published", "success", "of expert")
        show_table("Datasets beside the published ones", columns, rows)
        battles = {task.env for stream in battle.STREAMS for task in stream.tasks}
        if any(dataset.spec.env in battles and (dataset.spec.env, dataset.quality) in published for dataset in found):
            show_lines(["published battles were fought in StarCraft II, these in SMAX: other rules, another enemy"])


@dataclass(frozen=True)
class Data:
    """Look at datasets, check, mix, import and export them."""

    verb: (
        Annotated[ListAll, tyro.conf.subcommand("list")]
        | Annotated[Describe, tyro.conf.subcommand("describe")]
        | Annotated[Verify, tyro.conf.subcommand("verify")]
        | Annotated[Import, tyro.conf.subcommand("import")]
        | Annotated[Export, tyro.conf.subcommand("export")]
        | Annotated[Mix, tyro.conf.subcommand("mix")]
        | Annotated[Stats, tyro.conf.subcommand("stats")]
    )

    def run(self) -> None:
        """Do it."""
        self.verb.run()


def all_datasets(data: Path | None) -> list[Dataset]:
    """Every dataset below the folder, opened."""
    return [open_dataset(path) for path in library.find_all(data)]


def problems_of(path: Path, seen: dict[str, Path]) -> list[str]:
    """What is wrong with a dataset, itself or beside those seen before."""
    try:
        dataset = open_dataset(path)
    except UserError as error:
        return [str(error)]
    problems = check(dataset) + world_problems(dataset)
    twin = seen.setdefault(dataset.content, path)
    return problems + ([f"says the same as {twin}"] if twin != path else [])


def world_problems(dataset: Dataset) -> list[str]:
    """Whether the world of that name still has the rules under which the data was recorded; worlds that live elsewhere cannot tell."""
    try:
        spec = envs.find(dataset.spec.env).spec
    except UserError:
        return []
    try:
        check_world(dataset, spec)
    except UserError as error:
        return [str(error)]
    return []


def show_datasets(datasets: list[Dataset]) -> None:
    """Print what recorded teams did."""
    columns = ("world", "quality", "episodes", "steps", "shortest", "longest", "at limit", "return", "+-", "success", "content")
    rows = [
        (
            dataset.spec.env,
            dataset.quality,
            dataset.recorded.episodes,
            f"{dataset.recorded.length:.2f}",
            dataset.recorded.shortest,
            dataset.recorded.longest,
            dataset.recorded.at_limit,
            f"{dataset.recorded.total:.3f}",
            f"{dataset.recorded.total_spread:.3f}",
            f"{dataset.recorded.success:.4f}",
            dataset.content[:8],
        )
        for dataset in datasets
    ]
    show_table("Datasets", columns, rows)


def describe_view(spec: Spec) -> str:
    """Where observations come from."""
    if spec.full_view:
        return "all agents see the whole state"
    return "made anew from the state when they are used" if spec.view else "stored, with masks of what is seen"


def describe_column(column: Column) -> tuple[str, str, str, str]:
    """A row of the table of arrays."""
    features = ", ".join(f"{feature.name} (1 = {feature.unit:g})" if feature.unit != 1 else feature.name for feature in column.features)
    stored = "bits" if column.kind == "bits" else column.dtype
    return column.name, " x ".join(map(str, column.shape)) or "one number", stored, features


def describe_batches(dataset: Dataset, batch: int = 32) -> str:
    """How the dataset packs."""
    if dataset.spec.continuous:
        return f"a batch is {LONG_BATCH} steps with the moments after them, drawn from all episodes"
    if dataset.recorded.episodes < batch:
        return f"too few episodes for batches of {batch}"
    packing = Packing.plan(dataset.starts, dataset.lengths, batch)
    return f"a batch of {batch} episodes is {packing.rows} rows of {packing.row_length} moments, {packing.padding:.1%} of them padding"


def show_actions(dataset: Dataset) -> None:
    """Print how often each action was taken."""
    assert isinstance(dataset.spec.actions, Discrete)
    counts = dataset.recorded.actions
    names = dataset.spec.actions.names(dataset.spec.num_targets)
    most = max(counts)
    rows = [
        (name, f"{count:,}", f"{count / sum(counts):.1%}", "█" * round(30 * count / most))
        for name, count in zip(names, counts, strict=True)
    ]
    show_table("Actions taken", ("action", "times", "share", ""), rows)


def of_expert(dataset: Dataset, all_found: list[Dataset]) -> str:
    """A dataset's return as a share of its world's expert's."""
    experts = [other.recorded.total for other in all_found if other.spec.env == dataset.spec.env and other.quality == "expert"]
    return f"{dataset.recorded.total / experts[0]:.0%}" if experts and experts[0] else ""
