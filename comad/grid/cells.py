"""A grid of runs: streams x qualities x methods x seeds, and the command that makes each of them."""

import itertools
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comad.errors import UserError, unknown
from comad.files import read_regular
from comad.ranges import AtOnce, Count, Seed, Updates, numeric_fields, ranged
from comad.settings import by_attribute, written_names

MOST_TOML = 1 << 20
"""Bytes of a grid that are still read; ours have hundreds."""
MOST_RUNS = 10_000
"""Runs of one grid; a comparison of all methods has hundreds."""


@dataclass(frozen=True)
class Variant:
    """A method with settings of its own."""

    method: str
    options: tuple[tuple[str, Any], ...] = ()
    """Settings by name."""
    name: str = ""
    """Tells variants of a method apart; empty for the method as it is."""

    @property
    def label(self) -> str:
        """What the runs of it are called."""
        return f"{self.method}-{self.name}" if self.name else self.method


@dataclass(frozen=True)
class Cell:
    """One run of the grid."""

    stream: str
    quality: str
    variant: Variant
    seed: int

    @property
    def row(self) -> tuple[str, str]:
        """What it shares with the runs of other seeds."""
        return f"{self.stream}-{self.quality}", self.variant.label

    def folder(self, out: Path) -> Path:
        """Where 'comad train' would put it by itself, if it is not a variant."""
        return out / self.row[0] / f"{self.row[1]}-seed{self.seed}"


def told_apart(cells: Sequence[Cell]) -> dict[Cell, str]:
    """Returns what tells each run apart from the others: stream and data, method, seed, or less."""
    parts = {cell: (*cell.row, f"seed {cell.seed}") for cell in cells}
    columns = enumerate(zip(*parts.values(), strict=True))
    differing = [place for place, values in columns if len(set(values)) > 1] or [1]
    return {cell: " ".join(names[place] for place in differing) for cell, names in parts.items()}


@dataclass(frozen=True)
@ranged
class Grid:
    """All runs of a comparison."""

    streams: tuple[str, ...]
    qualities: tuple[str, ...] = ("expert",)
    methods: tuple[str, ...] = ("comad",)
    seeds: tuple[Seed, ...] = (0,)
    updates: Updates | None = None
    """Per task; by default each stream's, as in the paper."""
    evaluations: Count | None = None
    """Per task; by default what suits the stream's worlds, and likewise the batch."""
    episodes: AtOnce = 32
    batch: AtOnce | None = None
    variants: tuple[Variant, ...] = ()

    def cells(self) -> Iterator[Cell]:
        """All runs, seed by seed, so that every method has one result before any has two."""
        kinds = (*(Variant(method) for method in self.methods), *self.variants)
        for stream, quality, seed, variant in itertools.product(self.streams, self.qualities, self.seeds, kinds):
            yield Cell(stream, quality, variant, seed)

    def arguments(self, cell: Cell, out: Path, data: Path | None = None) -> list[str]:
        """What follows 'comad' on the command line that makes a run, but for the variant's options."""
        budget = {"updates": self.updates, "evaluations": self.evaluations, "episodes": self.episodes, "batch": self.batch}
        options = {"stream": cell.stream, "quality": cell.quality, "seed": cell.seed, **budget, "data": data, "out": cell.folder(out)}
        given = ((f"--{name}", str(value)) for name, value in options.items() if value is not None)
        return ["train", cell.variant.method, *itertools.chain.from_iterable(given)]


PROFILES: dict[str, dict[str, Any]] = {
    "smoke": {"updates": 100, "evaluations": 2, "episodes": 8, "seeds": (0,)},
    "lite": {"updates": 5000, "seeds": (0, 1, 2)},
    "paper": {"seeds": (0, 1, 2, 3, 4)},
}
"""Budgets by name: minutes, hours, and what was published."""


def with_profile(profile: str, given: Mapping[str, Any]) -> Grid:
    """A profile's budget, and whatever is given in its place."""
    if profile not in PROFILES:
        raise unknown("profile", profile, PROFILES)
    known = set(written_names(Grid).values())
    if strange := sorted(given.keys() - known):
        raise UserError(f"a grid has no {strange[0]!r}; it has profile, {', '.join(sorted(known))}")
    grid = Grid(**by_attribute(Grid, {"streams": (), **PROFILES[profile], **given}))
    for name in ("streams", "qualities", "seeds"):
        if not getattr(grid, name):
            raise UserError(f"a grid without {name} holds no run; give some")
    if not (grid.methods or grid.variants):
        raise UserError("a grid without methods holds no run; give some")
    for quality in grid.qualities:
        _check_name("a quality of data", quality)
    runs = len(grid.streams) * len(grid.qualities) * len(grid.seeds) * (len(grid.methods) + len(grid.variants))
    if runs > MOST_RUNS:
        raise UserError(f"a grid of {runs} runs is more than one can hold, {MOST_RUNS}; make several of it")
    labels = Counter(cell.folder(Path()) for cell in grid.cells())
    if twice := next((label for label, times in labels.items() if times > 1), None):
        raise UserError(f"two runs of the grid would both be {twice}; give variants names of their own")
    return grid


def read_grid(path: Path) -> tuple[str, dict[str, Any]]:
    """The profile and the rest of a grid that is written down in TOML."""
    try:
        found = tomllib.loads(read_regular(path, MOST_TOML).decode())
    except FileNotFoundError:
        raise UserError(f"there is no file {path}; name a grid in TOML, such as grids/lite.toml, or give --streams and --methods") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read as TOML ({error})") from error
    profile = found.pop("profile", "lite")
    if not isinstance(profile, str):
        raise UserError(f"{path}: profile must be one of {', '.join(PROFILES)}, not {profile!r}")
    for name in ("streams", "qualities", "methods", "seeds"):
        if name in found:
            found[name] = _listed(path, name, found[name], int if name == "seeds" else str)
    for attribute, name in written_names(Grid).items():
        if name in found and (entry := numeric_fields(Grid).get(attribute)):
            entry.check(f"{path}: {name}", found[name])
    if "variants" in found:
        found["variants"] = tuple(_variant(path, entry) for entry in _listed(path, "variants", found["variants"], dict))
    return profile, found


def _variant(path: Path, entry: Mapping[str, Any]) -> Variant:
    if set(entry) != {"name", "method", "options"} or not isinstance(entry["options"], Mapping):
        raise UserError(f"{path}: a variant has a name, a method and a table of options, not {dict(entry)!r}")
    if not isinstance(entry["name"], str) or not isinstance(entry["method"], str):
        raise UserError(f"{path}: name and method of a variant must be text, not {entry['name']!r} and {entry['method']!r}")
    _check_name(f"{path}: a variant", entry["name"])
    return Variant(entry["method"], tuple((name.replace("-", "_"), value) for name, value in entry["options"].items()), entry["name"])


def _check_name(what: str, name: str) -> None:
    """Refuse a name that would lead out of the folder it is to become a part of."""
    if not name or not all(letter.isalnum() or letter in "-._" for letter in name):
        raise UserError(f"{what} cannot be named {name!r}; use letters, digits, '-', '.' and '_'")


def _listed(path: Path, name: str, values: Any, kind: type) -> tuple[Any, ...]:
    if not isinstance(values, Sequence) or isinstance(values, str) or not all(type(value) is kind for value in values):
        raise UserError(f"{path}: {name} must be a list of {kind.__name__}, not {values!r}")
    return tuple(values)
