"""A dataset on disk: a folder with a manifest and one plain array file per quantity, memory-mapped when read.

Nothing in a dataset can run. Every number that decides how much is read comes from the manifest and is checked against the file's own
header and size before anything is loaded; file names with a path in them are refused.
"""

import hashlib
import io
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from comad.datasets.layout import EPISODE_COLUMNS, Column, columns, decode, encode, episode_starts
from comad.datasets.statistics import Statistics, statistics
from comad.errors import MALFORMED, UserError
from comad.files import new_folder, open_regular, read_json, sha256, write_json
from comad.settings import from_settings, settings
from comad.types import Continuous, Discrete, Feature, Spec

FORMAT = 1
PREAMBLE = 10
"""Bytes before the text of an array file's header."""
LOOKS = 20
"""A dataset may be replaced while it is opened; so often it is opened again before it counts as damaged."""
FEATURE_GROUPS = ("own", "ally", "target", "state_agent", "state_target", "context")


@dataclass(frozen=True)
class Dataset:
    """Recorded episodes of one world. Arrays are read-only views of files until somebody asks for their values."""

    path: Path
    spec: Spec
    quality: str
    provenance: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray] = field(repr=False)
    """As stored, by column name."""
    content: str
    """Hash of what the dataset says, whatever files say it."""
    recorded: Statistics
    """The statistics that the manifest claims; `check` computes them again."""
    hashes: Mapping[str, str] = field(repr=False)
    """SHA-256 of every array's file, as the manifest claims them."""

    @cached_property
    def columns(self) -> dict[str, Column]:
        """Per-moment arrays and episode table by name."""
        return {column.name: column for column in (*columns(self.spec), *EPISODE_COLUMNS)}

    @property
    def starts(self) -> np.ndarray:
        """First moment of every episode."""
        return self.arrays["episode.start"]

    @property
    def lengths(self) -> np.ndarray:
        """Steps of every episode; it has one moment more."""
        return self.arrays["episode.length"]

    def episode_of(self, moments: np.ndarray) -> np.ndarray:
        """The number of the episode that each moment is part of."""
        return np.searchsorted(np.asarray(self.starts), moments, side="right") - 1

    def read(self, name: str, moments: Any = slice(None)) -> np.ndarray:
        """Values of a column as the program sees them."""
        return decode(self.columns[name], np.asarray(self.arrays[name][moments]))


def write(path: Path, spec: Spec, quality: str, values: Mapping[str, np.ndarray], provenance: Mapping[str, Any]) -> Dataset:
    """Write a dataset and read it back checked; the folder appears whole or not at all."""
    expected = {column.name: column for column in (*columns(spec), *EPISODE_COLUMNS)}
    if missing := sorted(expected.keys() ^ values.keys()):
        raise UserError(f"{path}: a dataset of {spec.env} needs the arrays {', '.join(sorted(expected))}; {missing[0]!r} does not fit")
    if not len(values["episode.length"]):
        raise UserError(f"{path}: not written, because it would hold no episode to learn from")
    stored = {name: np.ascontiguousarray(encode(column, values[name])) for name, column in expected.items()}
    for name, column in expected.items():
        if not np.array_equal(decode(column, stored[name]), values[name]):
            raise UserError(f"{path}: {name} loses information when stored as {column.dtype}; is a whole-number feature not whole?")
    try:
        with new_folder(path) as folder:
            entries = {}
            for name, array in stored.items():
                file = folder / f"{name}.npy"
                np.save(file, array, allow_pickle=False)
                entries[name] = {"file": file.name, "dtype": array.dtype.name, "shape": list(array.shape), "sha256": sha256(file)}
            manifest = {
                "format": FORMAT,
                "quality": quality,
                "spec": settings(spec),
                "content": content_hash(stored),
                "statistics": settings(statistics(spec, stored)),
                "provenance": dict(provenance),
                "arrays": entries,
            }
            write_json(folder / "manifest.json", manifest | {"seal": seal(manifest)})
            problems = check(open_dataset(folder))
            if problems:
                raise UserError(f"{path}: not written, because it would not pass its own check: {problems[0]}")
    except OSError as error:
        raise UserError(f"{path}: could not be written ({error.strerror or error}); nothing was left behind") from error
    return open_dataset(path)


def open_dataset(path: Path) -> Dataset:
    """Opens a dataset: reads its manifest, checks sizes and types, maps its arrays. Contents are checked by `check`."""
    for _ in range(LOOKS):
        manifest = read_json(path / "manifest.json")
        try:
            return _from(path, manifest)
        except UserError:
            if read_json(path / "manifest.json") == manifest:
                raise
    return _from(path, read_json(path / "manifest.json"))


def _from(path: Path, manifest: Any) -> Dataset:
    try:
        return _from_manifest(path, manifest)
    except MALFORMED as error:
        raise UserError(f"{path / 'manifest.json'}: not a dataset's manifest ({type(error).__name__}: {error})") from error


def _from_manifest(path: Path, manifest: dict[str, Any]) -> Dataset:
    if manifest["format"] != FORMAT:
        raise UserError(f"{path}: dataset format {manifest['format']!r}, but this version reads format {FORMAT}")
    if manifest["seal"] != seal(manifest):
        raise UserError(f"{path / 'manifest.json'}: is not as it was written (its seal does not fit); collect or import the dataset again")
    spec = _spec_from(manifest["spec"])
    entries = manifest["arrays"]
    moments, episodes = int(manifest["statistics"]["moments"]), int(manifest["statistics"]["episodes"])
    arrays = {}
    for column in (*columns(spec), *EPISODE_COLUMNS):
        if column.name not in entries:
            raise UserError(f"{path}: the manifest lists no array {column.name!r}")
        rows = episodes if column in EPISODE_COLUMNS else moments
        arrays[column.name] = _map(path, column, (rows, *column.stored_shape), entries[column.name])
    provenance = dict(manifest["provenance"])
    recorded = from_settings(Statistics, {**manifest["statistics"], "actions": tuple(manifest["statistics"]["actions"])})
    hashes = {name: str(entries[name]["sha256"]) for name in arrays}
    return Dataset(path, spec, str(manifest["quality"]), provenance, arrays, str(manifest["content"]), recorded, hashes)


def _map(path: Path, column: Column, shape: tuple[int, ...], entry: Mapping[str, Any]) -> np.ndarray:
    """One array, if its file is where it must be and is what the spec says it is, byte for byte in its header and in its size.

    The header is compared, not parsed: what an array must be is known, so nothing that a stranger wrote there is ever interpreted.
    """
    name = str(entry["file"])
    if name != f"{column.name}.npy":
        raise UserError(f"{path}: array {column.name!r} must be in the file {column.name}.npy of the same folder, not in {name!r}")
    file, wanted = path / name, f"{column.dtype}{list(shape)}"
    header = _header(column.dtype, shape)
    try:
        with open_regular(file) as opened:
            found, size = opened.read(len(header)), os.fstat(opened.fileno()).st_size
        if found != header:
            said = found[PREAMBLE:].decode("latin-1").strip()
            raise UserError(f"{file}: its header says {said!r} where {wanted} is expected")
        expected = len(header) + math.prod(shape) * np.dtype(column.dtype).itemsize
        if size != expected:
            raise UserError(f"{file}: is {size} bytes long where {wanted} takes {expected}; it has been cut or added to")
        if math.prod(shape) == 0:  # an empty range cannot be mapped
            return np.zeros(shape, column.dtype)
        return np.memmap(file, column.dtype, "r", offset=len(header), shape=shape)
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror or error})") from error


def _header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """What NumPy writes before the values of such an array."""
    buffer = io.BytesIO()
    description = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, description)
    return buffer.getvalue()


def _spec_from(saved: Mapping[str, Any]) -> Spec:
    saved = dict(saved)
    for group in FEATURE_GROUPS:
        saved[group] = tuple(from_settings(Feature, feature) for feature in saved[group])
    actions = saved["actions"]
    saved["actions"] = (
        Continuous(tuple(actions["components"])) if "components" in actions else Discrete(tuple(actions["base"]), actions["targeted"])
    )
    return from_settings(Spec, saved)


def seal(manifest: Mapping[str, Any]) -> str:
    """Hash of all that a manifest says, so that a changed byte in it does not go unnoticed either."""
    said = {name: value for name, value in manifest.items() if name != "seal"}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def content_hash(stored: Mapping[str, np.ndarray]) -> str:
    """Hash of names, types, shapes and values: the same for the same data in whatever files."""
    digest = hashlib.sha256()
    for name in sorted(stored):
        array = stored[name]
        digest.update(f"{name} {array.dtype.name} {list(array.shape)}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def check(dataset: Dataset) -> list[str]:
    """Everything that is wrong with a dataset's contents, each as a sentence that names the array; empty if it can be trusted."""
    problems = [
        f"{name}.npy: its bytes are not those that were written (SHA-256 differs)"
        for name, expected in dataset.hashes.items()
        if sha256(dataset.path / f"{name}.npy") != expected
    ]
    problems += _check_values(dataset)
    if not problems and content_hash(dataset.arrays) != dataset.content:
        problems.append("manifest.json: the content hash is not that of the arrays")
    if not problems and statistics(dataset.spec, dataset.arrays) != dataset.recorded:
        problems.append("manifest.json: the statistics are not those of the arrays")
    return problems


def refuse_damaged(dataset: Dataset) -> Dataset:
    """The dataset, if it can be trusted: whatever is made of a damaged one would look sound."""
    if problems := check(dataset):
        raise UserError(f"{dataset.path}: {problems[0]}; collect or import it again")
    return dataset


def _check_values(dataset: Dataset) -> list[str]:
    problems = []
    starts, lengths = np.asarray(dataset.starts), np.asarray(dataset.lengths)
    filled = int(lengths.astype(np.int64).sum()) + len(lengths)
    if not len(lengths):
        return ["episode.length: holds no episode to learn from"]
    if not (lengths >= 1).all() or not np.array_equal(starts, episode_starts(lengths)) or filled != len(dataset.arrays["reward"]):
        return ["episode.start: episodes overlap, leave gaps or do not fill the dataset"]
    for name, column in dataset.columns.items():
        if column.dtype == "float32" and not np.isfinite(dataset.arrays[name]).all():
            problems.append(f"{name}: holds NaN or infinity")
    if isinstance(dataset.spec.actions, Discrete):
        problems += _check_actions(dataset)
    last = starts + lengths
    if np.asarray(dataset.arrays["reward"])[last].any():
        problems.append("reward: a last moment, after which nothing happens, holds a reward")
    return problems


def _check_actions(dataset: Dataset) -> list[str]:
    actions = np.asarray(dataset.arrays["actions"])
    if actions.size and actions.max() >= dataset.spec.num_actions:
        return [f"actions: action {actions.max()} does not exist, {dataset.spec.env} has {dataset.spec.num_actions}"]
    taken = np.take_along_axis(dataset.read("available"), actions[..., None].astype(np.int64), axis=-1)[..., 0]
    if not taken.all():
        moment, agent = np.argwhere(~taken)[0]
        return [f"actions: agent {agent} takes action {actions[moment, agent]} at moment {moment}, where it is not available"]
    return []


def check_world(dataset: Dataset, spec: Spec) -> None:
    """Refuse a dataset that was recorded in another world, naming what differs."""
    if dataset.spec.rules == spec.rules:
        return
    try:
        flat, wanted = _flat(dataset.spec.rules), _flat(spec.rules)
    except MALFORMED as error:
        raise UserError(f"{dataset.path}: its manifest does not tell the rules of a world ({error}); collect it again") from error
    differing = [
        f"{name} {flat.get(name)!r} instead of {wanted.get(name)!r}"
        for name in sorted(flat.keys() | wanted.keys())
        if flat.get(name) != wanted.get(name)
    ]
    raise UserError(f"{dataset.path}: recorded in another world than {spec.env}: {', '.join(differing)}; collect it again")


def _flat(rules: str) -> dict[str, object]:
    found = json.loads(rules)
    return {"family": found["family"], "version": found["version"], **found["settings"]}
