"""Every reader of files that other people may have made: a sound example of what it reads, and the reading."""

import io
import json
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from counting import train
from placed import place
from recorded import FULL_VIEW, record

from comad import checkpoint
from comad.cli.commands import command
from comad.cli.data import Describe, Stats, problems_of, show_datasets
from comad.cli.grid import RunGrid
from comad.cli.growth import ShowHeads
from comad.datasets.hdf5 import export_hdf5, import_hdf5
from comad.datasets.packing import Packing
from comad.datasets.store import check, check_world, open_dataset, seal
from comad.experts import library, qmix
from comad.experts.library import Card
from comad.experts.qmix import Qmix
from comad.files import sha256
from comad.grid.cells import read_grid, with_profile
from comad.policy import restore
from comad.reports import tables
from comad.reports.overall import overall
from comad.reports.page import build, collect
from comad.reports.results import gather
from comad.runs import checkpoints
from comad.runs.folder import read_cost, read_settings
from comad.runs.journal import last_record, read_journal
from comad.runs.record import find_runs, read_portrait
from comad.runs.standing import look
from comad.settings import settings

TREE = {"layers": (jnp.arange(6.0).reshape(2, 3), jnp.array([True])), "key": jax.random.key(7), "count": jnp.int32(4)}
GRID = """profile = "smoke"
streams = ["cn"]
methods = ["ft"]
seeds = [0, 7]
updates = 100
[[variants]]
name = "no-skill"
method = "comad"
options = { skill = "none", expand = false, noise = 0.2 }
"""
PORTRAIT = {
    **{"version": 1, "position": 21, "skills": None},
    "replays": [{"task": "t", "head": 0, "palette": [], "rewards": [0.0], "familiarity": None, "frames": [[[0, 0, 0]]], "world": "w"}],
    "reuse": [{"task": "t", "weights": [[0.2, 0.8]] * 10}],
}


@dataclass(frozen=True)
class Reader:
    """Something that reads files."""

    make: Callable[[Path], object]
    """Puts what it reads into an empty folder."""
    read: Callable[[Path], object]
    files: tuple[str, ...]
    """Which of them are to be spoiled, by pattern."""
    mend: Callable[[Path], object] = field(default=lambda folder: None)
    """What a clever stranger does after changing a file, such as computing hashes anew."""


def make_dataset(folder: Path) -> None:
    record(folder / "cn-2-6x6-9t-2r" / "random", episodes=8)


def read_dataset(folder: Path) -> None:
    dataset = open_dataset(folder / "cn-2-6x6-9t-2r" / "random")
    check(dataset)
    problems_of(dataset.path, {})
    show_datasets([dataset])
    Stats(data=folder).run()
    Describe("cn-2-6x6-9t-2r/random", folder).run()
    if not check(dataset):
        check_world(dataset, FULL_VIEW.spec)
        Packing.plan(dataset.starts, dataset.lengths, 4)


def reseal(folder: Path) -> None:
    """Make hashes and the seal fit what was changed."""
    path = folder / "cn-2-6x6-9t-2r" / "random" / "manifest.json"
    try:
        manifest = json.loads(path.read_text())
        for name, entry in manifest["arrays"].items():
            entry["sha256"] = sha256(path.parent / f"{name}.npy")
        manifest["seal"] = seal(manifest)
        path.write_text(json.dumps(manifest))
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError):
        return


def make_recording(folder: Path) -> None:
    export_hdf5(record(folder / "made", episodes=4), folder / "part.h5")


def make_expert(folder: Path) -> None:
    trainer = Qmix(width=8, num_pools=1)
    agent = qmix.init(trainer, FULL_VIEW, jax.random.key(0)).online.agent
    spec = FULL_VIEW.spec
    card = Card(spec.env, spec.rules, "expert", "qmix", settings(trainer), "", 0, 64, 0.1, 10, 0.5, 0.5, 3.0, "comad experts train")
    library.put(folder, agent, card)


def read_expert(folder: Path) -> None:
    from comad.cli.experts import show_cards

    show_cards("cards", library.cards(folder))
    library.get(FULL_VIEW, "expert", folder)


def make_report(folder: Path) -> None:
    heads = {"task": 0, "name": "first", "active": 0, "before": 0, "used": 1, "scores": [0.0], "own_score": [2.0], "noise_score": [-3.0]}
    for name, seed in (("comad", 0), ("comad", 1), ("comad-quiet", 0), ("fs", 0)):
        path = place(
            folder, name, seed, [1.0, 0.5], settings={"noise": 0.1 * len(name)}, threshold=2.0, datasets={"a": "b"}, metric="return"
        )
        (path / "heads.jsonl").write_text("".join(json.dumps({**heads, "when": when}) + "\n" for when in ("begin", "finish")))
        (path / "portrait.json").write_text(json.dumps(PORTRAIT))
        (path / "logs.jsonl").write_text(json.dumps({"task": 1, "update": 10, "loss": 1.0}) + "\n")
        counted = ("learning_seconds", "learning_count", "evaluation_seconds", "evaluation_count", "compiling_seconds", "peak_bytes")
        (path / "cost.json").write_text(json.dumps(dict.fromkeys(counted, 2.0)))


def read_report(folder: Path) -> None:
    results, flaws = gather([folder])
    build(collect(results, flaws, command)).encode()
    rows = tables.main_table(results)
    for text in (tables.markdown(rows), tables.overall_markdown(overall(results)), tables.comma_separated(rows), tables.latex(rows)):
        text.encode()


def read_run_files(folder: Path) -> None:
    for path in find_runs(folder):
        read_settings(path), read_cost(path), read_portrait(path), look(path)
        ShowHeads(path).run()
        for name in ("scores", "heads", "logs"):
            last_record(path / f"{name}.jsonl"), read_journal(path / f"{name}.jsonl")


def read_written_grid(folder: Path) -> None:
    with_profile(*read_grid(folder / "grid.toml"))
    with redirect_stdout(io.StringIO()):
        RunGrid(folder / "grid.toml").grid()


def make_trained(folder: Path) -> None:
    from finished import make_run, record_all

    from comad.methods import find

    make_run(folder / "run", record_all(folder / "data"), "ft", find("ft"))


def read_checkpoint(folder: Path) -> None:
    path = folder / "tree.safetensors"
    checkpoint.notes(path)
    checkpoint.load(path, TREE)


READERS: dict[str, Reader] = {
    "dataset": Reader(make_dataset, read_dataset, ("*/*/manifest.json", "*/*/*.npy")),
    "sealed dataset": Reader(make_dataset, read_dataset, ("*/*/manifest.json", "*/*/*.npy"), reseal),
    "hdf5": Reader(make_recording, lambda folder: import_hdf5(folder / "part.h5", "cn-2-6x6-9t-2r", "x", folder / "out"), ("part.h5",)),
    "safetensors": Reader(
        lambda folder: checkpoint.save(folder / "tree.safetensors", TREE, update=3), read_checkpoint, ("tree.safetensors",)
    ),
    "checkpoints": Reader(
        lambda folder: train(folder / "run", until=9), lambda folder: checkpoints.newest(folder / "run"), ("run/*/*", "run/*")
    ),
    "run": Reader(make_report, read_run_files, ("*/*/*.json", "*/*/*.jsonl")),
    "report": Reader(make_report, read_report, ("*/*/*.json", "*/*/*.jsonl")),
    "expert": Reader(make_expert, read_expert, ("*/*.json", "*/*.safetensors")),
    "grid": Reader(lambda folder: (folder / "grid.toml").write_text(GRID), read_written_grid, ("grid.toml",)),
    "team": Reader(make_trained, lambda folder: restore(folder / "run"), ("run/*.json", "run/*.jsonl", "run/checkpoints/*.json")),
}
ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 3, 10**15, 10**400, 1e308, float("nan"), float("inf"), "", "../../x", "/etc/passwd", "<script>", "\ud800", "\x00"),
    *("\x1b[2J", [], {}, [[]], [1e999], {"a": {"b": None}}, "x" * 5000, "cn-99999999-99999999x99999999", "lbf-9999999x9999999-32p-9f"),
)
"""Values that nobody expects."""
