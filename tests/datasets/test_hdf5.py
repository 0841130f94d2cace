import dataclasses
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from odis import odis_arrays, odis_file

from comad.datasets.hdf5 import export_hdf5, import_hdf5
from comad.datasets.layout import EPISODE_COLUMNS, columns
from comad.datasets.store import Dataset
from comad.envs import make
from comad.envs.navigation import Navigation, NavigationWorld
from comad.errors import UserError
from comad.files import sha256
from comad.tokens import full_view, state_of
from comad.types import Continuous

Fields = dict[str, np.ndarray]
OBS = ("obs", (3, 51, 2, 8), "float32")


def finish(lengths: list[int], limit: int, obs: np.ndarray, state: np.ndarray, actions: np.ndarray, available: np.ndarray) -> Fields:
    """Everything a file says, padded: success and reward 1 for episodes that are shorter than they may be."""
    steps = np.array(lengths)
    filled = np.arange(limit + 1)[None] <= steps[:, None]
    at_end = np.arange(limit + 1)[None] == steps[:, None] - 1
    onehot = np.eye(available.shape[-1], dtype=np.float32)[actions]
    fields = {
        "obs": obs.astype(np.float32),
        "state": state.astype(np.float32),
        "avail_actions": (available | (onehot > 0)).astype(np.int32),
        "actions": actions[..., None],
        "actions_onehot": onehot,
        "reward": (at_end & (steps < limit)[:, None])[..., None].astype(np.float32),
        "terminated": at_end[..., None].astype(np.uint8),
        "filled": filled[..., None].astype(np.int64),
    }
    return {name: array * filled.reshape(*filled.shape, *[1] * (array.ndim - 2)).astype(array.dtype) for name, array in fields.items()}


def navigation_fields() -> Fields:
    """Made-up play of CN-2."""
    draw, lead = np.random.default_rng(0), (3, 51)
    state = draw.integers(1, 7, (*lead, 8))
    obs = np.stack([state, state[..., [2, 3, 0, 1, 4, 5, 6, 7]]], axis=2)
    return finish([3, 50, 1], 50, obs, state, draw.integers(0, 5, (*lead, 2)), draw.random((*lead, 2, 5)) < 0.5)


def starcraft_fields() -> Fields:
    """Made-up play of 2s1z_vs_3z, seven steps at most: 8 features for each that is seen, 7 for agents and 6 for enemies in the state."""
    draw, lead = np.random.default_rng(1), (4, 8)
    enemies, allies = draw.random((*lead, 3, 3, 8)), draw.random((*lead, 3, 2, 8))
    allies[..., 0] = 1.0
    enemies *= draw.random((*lead, 3, 3, 1)) < 0.7
    allies *= draw.random((*lead, 3, 2, 1)) < 0.7
    flat = (*lead, 3, -1)
    obs = np.concatenate([draw.random((*lead, 3, 4)), enemies.reshape(flat), allies.reshape(flat), draw.random((*lead, 3, 4))], -1)
    team, foes = draw.random((*lead, 3, 7)) * (draw.random((*lead, 3, 1)) < 0.8), draw.random((*lead, 3, 6))
    team[:, :, 0], foes[2, 4] = 1.0, 0.0
    actions = draw.integers(0, 9, (*lead, 3))
    before = np.eye(9)[np.roll(actions, 1, axis=1)]
    before[:, 0] = 0.0
    state = np.concatenate([part.reshape(*lead, -1) for part in (team, foes, before)], axis=-1)
    return finish([7, 2, 4, 5], 7, obs, state, actions, draw.random((*lead, 3, 9)) < 0.5)


def short_sight_fields() -> Fields:
    """Made-up play of CN-2 in which the other agent and the last landmark are seen only now and then."""
    fields = navigation_fields()
    fields["obs"][:, ::3, :, 2:4] = fields["obs"][:, 1::4, :, 6:] = 0.0
    return fields


MADE_UP = {"cn-2": navigation_fields, "2s1z_vs_3z": starcraft_fields, "cn-2-6x6-50t-2r-3s": short_sight_fields}


def save(path: Path, fields: Fields, compression: str | None = "gzip") -> Path:
    with h5py.File(path, "w") as file:
        for name, array in fields.items():
            file.create_dataset(name, data=array, compression=compression)
    return path


def load(path: Path) -> Fields:
    with h5py.File(path) as file:
        return {name: np.asarray(array) for name, array in file.items()}


def imported(folder: Path, fields: Fields, task: str) -> Dataset:
    return import_hdf5(save(folder / "x.h5", fields), task, "expert", folder / "dataset")


def assert_gives_back(dataset: Dataset, fields: Fields) -> None:
    again = load(export_hdf5(dataset, dataset.path.parent / "again.h5"))
    assert again.keys() == fields.keys()
    for name, array in again.items():
        assert (array.dtype, array.shape) == (fields[name].dtype, fields[name].shape) and (array == fields[name]).all(), name


@pytest.mark.parametrize("task", MADE_UP)
def test_a_made_up_file_comes_back_from_its_dataset(task: str, tmp_path: Path) -> None:
    fields = MADE_UP[task]()
    dataset = imported(tmp_path, fields, task)
    assert_gives_back(dataset, fields)
    assert dataset.provenance["files"] == [{"name": "x.h5", "sha256": sha256(tmp_path / "x.h5")}]


NUMBERS = [("cn-2", "expert", (1.99, 1.0, 1.0)), ("cn-4", "expert", (32.70, 0.447, 0.447)), ("3m", "medium", (25.225, 14.00, 0.5415))]


@pytest.mark.parametrize(("task", "quality", "numbers"), NUMBERS)
def test_recorded_files_come_back_with_published_numbers(task: str, quality: str, numbers: tuple[float, ...], tmp_path: Path) -> None:
    dataset = import_hdf5(odis_file(task, quality), task, quality, tmp_path / "dataset")
    assert (dataset.recorded.length, dataset.recorded.total) == pytest.approx(numbers[:2], abs=0.005)
    assert (dataset.recorded.episodes, dataset.recorded.success) == (2000, numbers[2])
    assert_gives_back(dataset, odis_arrays(task, quality))


def test_an_imported_moment_is_what_the_world_shows(tmp_path: Path) -> None:
    fields, env = navigation_fields(), Navigation(2, 6)
    dataset = imported(tmp_path, fields, "cn-2")
    cells = jnp.asarray(fields["state"][fields["filled"][..., 0] == 1].reshape(-1, 4, 2).astype(np.int32) - 1)
    worlds = jax.vmap(lambda cell: NavigationWorld(cell[:2], cell[2:], jnp.int32(0)))(cells)
    shown = jax.vmap(lambda world: env.show(world, jnp.array(False)))(worlds)
    names = [name for name in dataset.columns if name.startswith("state.")]
    state = state_of({name: jnp.asarray(dataset.read(name)) for name in names}, "state.")
    assert dataset.spec == env.spec
    for ours, theirs in zip(jax.tree.leaves((state, full_view(state))), jax.tree.leaves((shown.state, shown.tokens)), strict=True):
        assert (np.asarray(ours) == np.asarray(theirs)).all()


def test_starcraft_vectors_are_cut_into_the_right_blocks(tmp_path: Path) -> None:
    fields = starcraft_fields()
    read = imported(tmp_path, fields, "2s1z_vs_3z").read
    obs, state = (fields[name][fields["filled"][..., 0] == 1] for name in ("obs", "state"))
    assert (read("tokens.own")[..., :4] == obs[..., :4]).all() and (read("tokens.own")[..., 4:] == obs[..., -4:]).all()
    assert (read("tokens.targets")[:, 1, 2] == obs[:, 1, 20:28]).all() and (read("tokens.allies")[:, 1, 1] == obs[:, 1, 36:44]).all()
    assert (read("tokens.ally_seen")[:, 2, 0] == obs[:, 2, 28]).all()
    assert (read("tokens.target_seen")[:, 0, 0] == (obs[:, 0, 4:12] > 0).any(-1)).all()
    assert (read("state.agents")[:, 1] == state[:, 7:14]).all() and (read("state.targets")[:, 0] == state[:, 21:27]).all()
    assert (read("state.agent_present")[:, 1] == (state[:, 7] > 0)).all()
    assert read("episode.success").tolist() == [False, False, True, False] and read("episode.terminated").all()


def test_parts_are_read_in_numeric_order_and_have_one_limit(tmp_path: Path) -> None:
    fields = starcraft_fields()
    for number, episodes in ((10, slice(1, 4)), (9, slice(0, 1))):
        save(tmp_path / f"part_{number}.h5", {name: array[episodes] for name, array in fields.items()})
    dataset = import_hdf5(tmp_path, "2s1z_vs_3z", "expert", tmp_path / "dataset")
    assert [file["name"] for file in dataset.provenance["files"]] == ["part_9.h5", "part_10.h5"]
    assert_gives_back(dataset, fields)
    short = save(tmp_path / "part_11.h5", {name: array[1:2, :5] for name, array in fields.items()})
    with pytest.raises(UserError, match=re.escape(f"{short}: has room for 4 steps where part_9.h5 has 7")):
        import_hdf5(tmp_path, "2s1z_vs_3z", "expert", tmp_path / "other")


def test_other_number_types_of_the_same_kind_and_plain_storage_are_read(tmp_path: Path) -> None:
    fields = navigation_fields()
    other = {"obs": np.float64, "actions": np.uint8, "filled": np.bool_, "terminated": np.int64}
    source = save(tmp_path / "x.h5", {name: array.astype(other.get(name, array.dtype)) for name, array in fields.items()}, None)
    assert_gives_back(import_hdf5(source, "cn-2", "expert", tmp_path / "dataset"), fields)


def put(field: str, place: Any, value: Any) -> Callable[[Fields], None]:
    return lambda fields: fields[field].__setitem__(place, value)


WRONG_VALUES = [
    ("cn-2", lambda fields: {name: fields[name] for name in fields if name != "filled"}, "has no field 'filled'"),
    ("cn-2", lambda fields: fields | {"obs": fields["obs"][..., :7]}, "obs has 7 features where cn-2 has 8"),
    ("cn-2", lambda fields: fields | {"obs": fields["obs"][:2]}, "obs has 2 episodes where filled has 3"),
    ("cn-2", lambda fields: fields | {"state": fields["state"][:, 0]}, r"state has shape \(3, 8\)"),
    ("cn-2", lambda fields: fields | {"actions": fields["actions"].astype(np.float32)}, "actions holds float32 where int64"),
    ("cn-2", lambda fields: fields | {"reward": fields["reward"].astype(">f4")}, "reward holds >f4 where float32"),
    ("cn-2", lambda fields: fields | {"obs": fields["obs"].astype("S4")}, r"obs holds \|S4 where float32"),
    ("cn-2", lambda fields: {name: array[:0] for name, array in fields.items()}, "filled has 0 episodes"),
    ("cn-2", put("obs", (1, 20, 1, 3), np.nan), r"obs\[1, 20, 1, 3\] is nan, not a finite"),
    ("cn-2", put("state", (0, 3, 5), -np.inf), r"state\[0, 3, 5\] is -inf"),
    ("cn-2", put("reward", (1, 49, 0), np.inf), r"reward\[1, 49, 0\] is inf"),
    ("cn-2", put("avail_actions", (1, 2, 0, 0), 2), r"avail_actions\[1, 2, 0, 0\] is 2, neither 0 nor 1"),
    ("cn-2", put("actions", (0, 1, 1), 5), r"actions\[0, 1, 1, 0\] is 5, but cn-2 has 0 to 4"),
    ("cn-2", put("avail_actions", (2, 1), 0), r"actions\[2, 1, 0, 0\] is \d, which is not available there"),
    ("cn-2", put("actions_onehot", (2, 1, 1), 0), r"actions_onehot\[2, 1, 1, \d\] is 0.0, which the rest of the file contradicts"),
    ("cn-2", put("filled", (0, 2), 0), r"filled\[0, 3, 0\] is 1"),
    ("cn-2", put("filled", (2, slice(1, None)), 0), r"filled\[2, 1, 0\] is 0"),
    ("cn-2", put("terminated", (1, 30), 1), r"terminated\[1, 30, 0\] is 1, but only an episode's last step"),
    ("cn-2", put("terminated", (0, 2), 0), r"terminated\[0, 2, 0\] is 0, but the episode stops"),
    ("cn-2", put("reward", (0, 3), 1), r"reward\[0, 3, 0\] is 1.0, but nothing is done"),
    ("cn-2", put("state", (1, 2, 3), 1.5), r"state\[1, 2, 3\] is 1.5, not a whole number from 1 to 6"),
    ("cn-2", put("state", (1, 2, 3), 7), r"state\[1, 2, 3\] is 7.0, not a whole number from 1 to 6"),
    ("cn-2", put("obs", (1, 2, 0, slice(4, 8)), 1), r"obs\[1, 2, 0, \d\] is 1.0, which the rest of the file contradicts"),
    ("2s1z_vs_3z", put("state", (1, 2, slice(39, 48)), 1), r"state\[1, 2, \d+\] is 1.0, which the rest of the file contradicts"),
    ("2s1z_vs_3z", put("state", (2, 4, 22), 0.5), r"state\[2, 4, 22\] is 0.5, which the rest of the file contradicts"),
    ("2s1z_vs_3z", put("obs", (0, 0, 0, 28), 0), r"obs\[0, 0, 0, 29\] is 0.\d+, which the rest of the file contradicts"),
    ("cn-2", lambda fields: {name: array[:, :40] for name, array in fields.items()}, "obs has 40 moments where cn-2 has 51"),
    ("3m", lambda fields: fields, "obs has 2 agents where 3m has 3"),
]


def assert_refused(source: Path, task: str, message: str) -> None:
    before = sorted(source.parent.iterdir())
    with pytest.raises(UserError, match=message) as caught:
        import_hdf5(source, task, "expert", source.parent / "dataset")
    assert str(source) in str(caught.value) and sorted(source.parent.iterdir()) == before


@pytest.mark.parametrize(("task", "spoil", "message"), WRONG_VALUES, ids=[message for _, _, message in WRONG_VALUES])
def test_a_file_with_wrong_values_is_refused(task: str, spoil: Callable[[Fields], Fields | None], message: str, tmp_path: Path) -> None:
    fields = MADE_UP.get(task, navigation_fields)()
    assert_refused(save(tmp_path / "x.h5", spoil(fields) or fields), task, message)


def test_a_time_limit_may_be_marked_as_no_end(tmp_path: Path) -> None:
    fields = navigation_fields()
    fields["terminated"][1, 49] = 0
    assert imported(tmp_path, fields, "cn-2").read("episode.terminated").tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("replace", "message"),
    [
        (lambda file: file.__setitem__("obs", h5py.ExternalLink("/etc/hostname", "obs")), "obs is a link"),
        (lambda file: file.__setitem__("obs", h5py.SoftLink("/state")), "obs is a link"),
        (lambda file: file.create_group("obs"), "obs is not an array in this file"),
        (lambda file: file.create_dataset(*OBS, external=[("/etc/hostname", 0, h5py.h5f.UNLIMITED)]), "obs is not an array in this file"),
        (lambda file: file.create_virtual_dataset("obs", h5py.VirtualLayout(*OBS[1:])), "obs is not an array in this file"),
        (lambda file: file.create_dataset("obs", (10**9, 51, 2, 8), "float32", chunks=(1, 51, 2, 8)), "obs has 1000000000 episodes"),
        (lambda file: file.create_dataset(*OBS), "obs claims 2448 numbers, more than the file can hold"),
        (lambda file: file.create_dataset(*OBS, chunks=(1, 51, 2, 8)).__setitem__(slice(2), 1.0), "obs is not all there"),
    ],
)
def test_a_field_that_is_no_array_in_the_file_is_refused(replace: Callable[[h5py.File], Any], message: str, tmp_path: Path) -> None:
    source = save(tmp_path / "x.h5", navigation_fields())
    with h5py.File(source, "a") as file:
        del file["obs"]
        replace(file)
    assert_refused(source, "cn-2", message)


def test_what_is_not_hdf5_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.h5").write_text("not HDF5 at all")
    assert_refused(tmp_path / "text.h5", "cn-2", "cannot be read as HDF5")
    assert_refused(tmp_path / "absent.h5", "cn-2", "is no file and no folder")
    (tmp_path / "loop.h5").symlink_to("loop.h5")
    assert_refused(tmp_path / "loop.h5", "cn-2", "is no file and no folder")
    os.mkfifo(tmp_path / "part_0.h5")
    assert_refused(tmp_path, "cn-2", "part_0.h5: is a pipe, not a file")


def test_files_are_not_replaced_by_their_own_import(tmp_path: Path) -> None:
    source = save(tmp_path / "part_0.h5", navigation_fields())
    for given_source, destination in ((tmp_path, tmp_path), (source, tmp_path.parent)):
        with pytest.raises(UserError, match="would be replaced"):
            import_hdf5(given_source, "cn-2", "expert", destination)
    assert list(tmp_path.iterdir()) == [source]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(place=st.floats(0, 1, exclude_max=True), flip=st.integers(0, 255))
def test_a_damaged_file_is_refused_or_says_the_same(place: float, flip: int, tmp_path: Path) -> None:
    fields = starcraft_fields()
    source = save(tmp_path / "x.h5", fields)
    data = bytearray(source.read_bytes())
    cut = int(place * len(data))
    data[cut] ^= flip
    # Flipping nothing stands for cutting off.
    source.write_bytes(data if flip else data[:cut])
    try:
        dataset = import_hdf5(source, "2s1z_vs_3z", "expert", tmp_path / "dataset")
    except UserError as error:
        assert str(source) in str(error)
    else:
        assert_gives_back(dataset, fields)


def test_other_worlds_are_exported_as_own_allies_targets(tmp_path: Path) -> None:
    spec, draw = make("lbf-8x8-3p-2f").spec, np.random.default_rng(2)
    stored = {column.name: draw.integers(1, 4, (2, *column.stored_shape)).astype(column.dtype) for column in columns(spec)}
    stored |= {column.name: np.ones(1, column.dtype) for column in EPISODE_COLUMNS}
    dataset = dataclasses.replace(imported(tmp_path, navigation_fields(), "cn-2"), spec=spec, arrays=stored)
    fields = load(export_hdf5(dataset, tmp_path / "deep" / "lbf.h5"))
    agents, foods = stored["state.agents"], stored["state.targets"]
    assert fields["obs"].shape == (1, 51, 3, 15) and not fields["obs"][0, 2:].any()
    assert (fields["obs"][0, :2, 1].reshape(2, 5, 3) == np.concatenate([agents[:, [1, 0, 2]], foods], axis=1)).all()
    assert (fields["state"][0, :2].reshape(2, 5, 3) == np.concatenate([agents, foods], axis=1)).all()


def test_continuous_actions_and_places_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    dataset = imported(tmp_path, navigation_fields(), "cn-2")
    continuous = dataclasses.replace(dataset, spec=dataclasses.replace(dataset.spec, actions=Continuous(("x", "y"))))
    with pytest.raises(UserError, match="continuous"):
        export_hdf5(continuous, tmp_path / "never.h5")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UserError, match=re.escape(f"{tmp_path / 'dataset'}: could not be written")):
        export_hdf5(dataset, tmp_path / "dataset")
    assert sorted(tmp_path.iterdir()) == before
