"""Import and export of the HDF5 files that ODIS and PyMARL write: whole episodes, padded with zeros to one length.

Files come from other people, so nothing in them is believed: how much is read is checked before it is read, and what is kept must give
back everything the file says. An episode of L steps fills L + 1 moments; ``terminated`` stands at the last step, not at the extra moment.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from comad.datasets.flat import flatten, split
from comad.datasets.hdf5_storage import check_density, check_stored, read_filled, read_moments
from comad.datasets.layout import Values, columns, decode, episode_starts
from comad.datasets.store import Dataset, write
from comad.envs import make
from comad.envs.starcraft_maps import is_starcraft, starcraft_map
from comad.envs.vectors import has_healers, widths
from comad.errors import UserError
from comad.escaping import harmless
from comad.files import open_regular, sha256, write_bytes
from comad.types import Discrete, Spec

BLOCK = 256
"""Episodes written at once, so that the padding of a whole file never lies in memory."""

AXES = ("episodes", "moments")


@dataclass(frozen=True)
class Field:
    """One array of the layout: its type when written (any of the same kind is read) and its axes after episodes and moments."""

    dtype: str
    axes: tuple[str, ...]


FIELDS = {
    "obs": Field("float32", ("agents", "features")),
    "state": Field("float32", ("state features",)),
    "avail_actions": Field("int32", ("agents", "actions")),
    "actions": Field("int64", ("agents", "numbers")),
    "actions_onehot": Field("float32", ("agents", "actions")),
    "reward": Field("float32", ("numbers",)),
    "terminated": Field("uint8", ("numbers",)),
    "filled": Field("int64", ("numbers",)),
}


@dataclass(frozen=True)
class Recording:
    """The recorded moments of one file, end to end, without padding."""

    path: Path
    spec: Spec
    fields: Values
    filled: np.ndarray
    """[episode, time]: where in the file the moments stand."""

    @property
    def last(self) -> np.ndarray:
        """The extra last moment of every episode."""
        return np.cumsum(self.filled.sum(1)) - 1

    def refuse(self, field: str, wrong: np.ndarray, sentence: str) -> None:
        """Stop at the first wrong number of a field, if there is one."""
        if wrong.any():
            moment, *rest = np.argwhere(wrong)[0].tolist()
            place = ", ".join(map(str, (*np.argwhere(self.filled)[moment].tolist(), *rest)))
            raise UserError(f"{self.path}: {field}[{place}] is {self.fields[field][(moment, *rest)]}{sentence}")


def import_hdf5(source: Path, task: str, quality: str, destination: Path) -> Dataset:
    """Turn a file, or the ``part_<n>.h5`` files of a folder, into a dataset; ``task`` is a CN name or a SMAC map such as 5m_vs_6m."""
    if Path(os.path.realpath(source)).is_relative_to(os.path.realpath(destination)):  # of a loop of links, too
        raise UserError(f"{destination}: holds {source.name}, which would be replaced by its own import; choose another destination")
    parts, limits, files = [], [], []
    for path in _parts(source):
        recording = _read(path, task)
        parts.append(_values(recording))
        limits.append(recording.spec.limit)
        files.append({"name": harmless(path.name), "sha256": sha256(path)})
        if limits[-1] != limits[0]:
            raise UserError(f"{path}: has room for {limits[-1]} steps where {files[0]['name']} has {limits[0]}; import them one by one")
    values = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    values["episode.start"] = episode_starts(values["episode.length"])
    provenance = {"kind": "imported", "layout": "odis-hdf5", "task": task, "files": files, "moments_per_episode": limits[0] + 1}
    return write(destination, recording.spec, quality, values, provenance)


def export_hdf5(dataset: Dataset, destination: Path) -> Path:
    """Write a dataset of discrete actions as one HDF5 file.

    SMAC maps get SMAC's order: obs = moves | enemies | allies | own, state = agents | enemies | last actions. All others get
    obs = own | allies in index order | targets, state = agents | targets | context; there, whole numbers are in the world's own units
    (cells count from one) and what is out of sight is zero.
    """
    spec = dataset.spec
    if not isinstance(spec.actions, Discrete):
        raise UserError(f"{dataset.path}: the HDF5 layout has numbered actions only, and those of {spec.env} are continuous")
    if has_healers(spec):
        raise UserError(f"{dataset.path}: medivacs of {spec.env} keep allies as targets, so all they saw cannot be written any more")
    # Stored features are in the units of the file already.
    values = {name: dataset.read(name) if column.kind == "bits" else dataset.arrays[name] for name, column in dataset.columns.items()}
    fields = flatten(spec, values)
    filled = np.arange(spec.limit + 1)[None] <= np.asarray(dataset.lengths)[:, None]
    with h5py.File("image", "w", driver="core", backing_store=False) as file:
        for name, shape in _shapes(spec, len(filled)).items():
            _write(file, name, shape, fields[name], filled)
        file.flush()
        image = file.id.get_file_image()
    try:
        write_bytes(destination, image)
    except OSError as error:
        raise UserError(f"{destination}: could not be written ({error.strerror or error}); nothing was left behind") from error
    return destination


def _write(file: h5py.File, name: str, shape: tuple[int, ...], moments: np.ndarray, filled: np.ndarray) -> None:
    """One field, padded with zeros, as many whole episodes per chunk as make about a megabyte."""
    dtype = np.dtype(FIELDS[name].dtype)
    episodes = max(1, min(BLOCK, shape[0], 2**20 // int(np.prod(shape[1:]) * dtype.itemsize)))
    array = file.create_dataset(name, shape, dtype, chunks=(episodes, *shape[1:]), compression="gzip")
    ends = np.cumsum(filled.sum(1))
    for first in range(0, shape[0], episodes):
        block = filled[first : first + episodes]
        padded = np.zeros((*block.shape, *shape[2:]), dtype)
        padded[block] = moments[ends[first] - filled[first].sum() : ends[first + len(block) - 1]]
        array[first : first + len(block)] = padded


def _parts(source: Path) -> list[Path]:
    """The files to read, in numeric order."""
    if source.is_file():
        return [source]
    numbered = [(int(match[1]), path) for path in source.glob("*.h5") if (match := re.fullmatch(r"part_(\d+)\.h5", path.name))]
    if not numbered:
        raise UserError(f"{source}: is no file and no folder with files named part_0.h5, part_1.h5, ...; give one or the other")
    return [path for _, path in sorted(numbered)]


def world_name(task: str) -> str:
    """The world that a recording of this task belongs to."""
    return _spec(task, limit=1).env


def _spec(task: str, limit: int) -> Spec:
    """The world a file is said to come from; SMAC maps have the limit that their file has room for."""
    return make(task).spec if task.lower().startswith("cn-") else starcraft_map(task, limit).spec


def _shapes(spec: Spec, episodes: int) -> dict[str, tuple[int, ...]]:
    """Every field's shape in a file of this world."""
    obs, state = widths(spec)
    sizes = {"agents": spec.num_agents, "actions": spec.num_actions, "features": obs, "numbers": 1, "state features": state}
    return {name: (episodes, spec.limit + 1, *(sizes[axis] for axis in field.axes)) for name, field in FIELDS.items()}


def _read(path: Path, task: str) -> Recording:
    """The recorded moments of a file, each field of the right kind and size."""
    with _opened(path) as file:
        arrays = {name: _plain_array(path, file, name) for name in FIELDS}
        episodes, moments = arrays["filled"].shape[:2]
        if episodes < 1 or moments < 2:
            raise UserError(f"{path}: filled has {episodes} episodes of {moments} moments; an episode of one step has two moments")
        spec = _spec(task, moments - 1)
        for name, shape in _shapes(spec, episodes).items():
            for axis, found, wanted in zip(AXES + FIELDS[name].axes, arrays[name].shape, shape, strict=True):
                if found != wanted:
                    owner = "filled" if axis == "episodes" else task
                    raise UserError(f"{path}: {name} has {found} {axis} where {owner} has {wanted}; is it a file of another task?")
        size = file.id.get_filesize()
        check_stored(str(path), arrays, size)
        filled = _prefixes(path, arrays["filled"])
        check_density(str(path), int(filled.sum()), arrays, size)
        return Recording(path, spec, {name: read_moments(array, filled) for name, array in arrays.items()}, filled)


@contextmanager
def _opened(path: Path) -> Iterator[h5py.File]:
    """An HDF5 file whose every fault is the user's to mend."""
    try:
        open_regular(path).close()  # HDF5 would wait for a pipe
        with h5py.File(path, "r") as file:
            yield file
    except UserError:
        raise
    # A damaged file makes h5py raise nearly anything, so only reading happens inside.
    except Exception as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: cannot be read as HDF5 ({reason}); it is damaged or of another kind, get a fresh copy") from error


def _plain_array(path: Path, file: h5py.File, name: str) -> h5py.Dataset:
    """A field that lies in this file and is of the right kind; none of its values is read yet."""
    key = name.encode()
    if not file.id.links.exists(key):
        raise UserError(f"{path}: has no field {name!r}; the layout needs {', '.join(FIELDS)}")
    if file.id.links.get_info(key).type != h5py.h5l.TYPE_HARD:
        raise UserError(f"{path}: {name} is a link, which is not followed; copy the array itself into the file")
    array = file[name]
    if not isinstance(array, h5py.Dataset) or array.is_virtual or array.external:
        raise UserError(f"{path}: {name} is not an array in this file; copy the array itself into the file")
    field, shape = FIELDS[name], array.shape or ()
    # h5py rounds odd number formats to NumPy's; only those that are NumPy's own are read.
    ordinary = array.dtype.isnative and array.id.get_type().equal(h5py.h5t.py_create(array.dtype, logical=True))
    if array.dtype.kind not in ("f" if "float" in field.dtype else "iub") or not ordinary:
        raise UserError(f"{path}: {name} holds {array.dtype} where {field.dtype} is expected; convert it first")
    if len(shape) != len(AXES + field.axes):
        raise UserError(f"{path}: {name} has shape {shape}, but its axes must be {', '.join(AXES + field.axes)}")
    return array


def _prefixes(path: Path, array: h5py.Dataset) -> np.ndarray:
    """[episode, time] where a moment was recorded, if every episode is recorded from its beginning on."""
    filled = read_filled(array)
    wrong = filled > 1
    wrong[:, 1:] |= filled[:, 1:] > filled[:, :-1]
    wrong[:, :2] |= filled[:, :2] != 1
    if wrong.any():
        episode, time = np.argwhere(wrong)[0].tolist()
        expected = "must be ones, two at least, then zeros"
        raise UserError(f"{path}: filled[{episode}, {time}, 0] is {array[episode, time, 0]}, but an episode's {expected}; get a fresh copy")
    return filled.astype(bool)


def _check(recording: Recording) -> None:
    """Refuse numbers that cannot be: each in its own words."""
    spec, fields, last, refuse = recording.spec, recording.fields, recording.last, recording.refuse
    for name in ("obs", "state", "reward"):
        refuse(name, ~np.isfinite(fields[name]), ", not a finite number; get a fresh copy")
    for name in ("avail_actions", "terminated"):
        refuse(name, (fields[name] != 0) & (fields[name] != 1), ", neither 0 nor 1; get a fresh copy")
    actions = fields["actions"]
    refuse(
        "actions", (actions < 0) | (actions >= spec.num_actions), f", but {spec.env} has 0 to {spec.num_actions - 1}; is it another task's?"
    )
    available = np.take_along_axis(fields["avail_actions"], actions.astype(np.int64), axis=-1)
    refuse("actions", available == 0, ", which is not available there by avail_actions; get a fresh copy")
    for name, lowest in (("state", 1), ("obs", int(spec.full_view))) if spec.own[0].integral else ():
        cells, size = fields[name], spec.own[0].unit
        off = (cells != np.round(cells)) | (cells < lowest) | (cells > size)
        refuse(name, off, f", not a whole number from {lowest} to {size:.0f}: no cell of {spec.env}; is it another task's?")
    ended, is_end, is_last = fields["terminated"] == 1, *np.zeros((2, *fields["terminated"].shape), bool)
    is_end[last - 1] = is_last[last] = True
    refuse("terminated", ended & ~is_end, ", but only an episode's last step, one before its last filled moment, can end it")
    room = np.nonzero(recording.filled)[1][:, None] + 1 < spec.limit
    refuse("terminated", is_end & ~ended & room, ", but the episode stops there before its time is up; was it cut off?")
    refuse("reward", is_last & (fields["reward"] != 0), ", but nothing is done in an episode's last filled moment that could earn it")


def _values(recording: Recording) -> Values:
    """What a dataset keeps of a file, once it is certain that nothing is lost."""
    spec, fields, last = recording.spec, recording.fields, recording.last
    _check(recording)
    lengths = recording.filled.sum(1).astype(np.int32) - 1
    kept = {
        **split(spec, fields["obs"], fields["state"]),
        "actions": fields["actions"][..., 0],
        "available": fields["avail_actions"].astype(bool),
        "reward": fields["reward"][..., 0],
        "episode.length": lengths,
        "episode.terminated": fields["terminated"][last - 1, 0].astype(bool),
    }
    for name, expected in flatten(spec, kept).items():
        recording.refuse(name, fields[name] != expected, ", which the rest of the file contradicts; get a fresh copy")
    if is_starcraft(spec):
        # The game's own rule for a victory; the reward's bonus says the same but depends on how rewards were shaped and scaled.
        success = kept["state.agent_present"][last].any(-1) & ~kept["state.target_present"][last].any(-1)
    else:
        # CN rewards nothing but success, once.
        success = np.add.reduceat(kept["reward"], last - lengths) == 1
    seen = {column.name: decode(column, kept[column.name].astype(column.dtype)) for column in columns(spec) if column.kind == "features"}
    return {**kept, **seen, "episode.success": success}
