import errno
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recorded import FULL_VIEW, SHORT_SIGHT, record
from reliability import tried

from comad.datasets import store
from comad.datasets.store import Dataset, check, check_world, open_dataset, seal
from comad.envs.navigation import Navigation
from comad.errors import UserError
from comad.files import read_json


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return record(tmp_path_factory.mktemp("pristine") / "random")


@pytest.fixture
def copy(pristine: Dataset, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine.path, tmp_path / "copy"))


def edit_manifest(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    change(manifest)
    manifest["seal"] = seal(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))


def edit_array(path: Path, name: str, change: Callable[[np.ndarray], np.ndarray | None]) -> None:
    array = np.load(path / f"{name}.npy")
    changed = change(array)
    np.save(path / f"{name}.npy", array if changed is None else changed)


def test_what_is_read_back_is_what_was_recorded(pristine: Dataset) -> None:
    assert check(pristine) == []
    assert pristine.spec == FULL_VIEW.spec
    cells = pristine.read("state.agents") * 6
    assert set(np.unique(cells)) <= set(range(1, 7)) and pristine.arrays["state.agents"].dtype == np.uint8
    assert "tokens.own" not in pristine.arrays
    assert pristine.recorded.moments == int(pristine.lengths.sum()) + 40 == len(pristine.arrays["reward"])


def test_partial_views_are_stored_with_their_masks(tmp_path: Path) -> None:
    dataset = record(tmp_path / "partial", SHORT_SIGHT)
    assert check(dataset) == []
    seen = dataset.read("tokens.ally_seen")
    assert seen.shape == (dataset.recorded.moments, 3, 2) and 0 < seen.mean() < 1
    assert not dataset.read("tokens.allies")[~seen].any()


def test_the_same_seed_gives_the_same_content_and_another_does_not(tmp_path: Path, pristine: Dataset) -> None:
    assert record(tmp_path / "again").content == pristine.content
    assert record(tmp_path / "other", seed=1).content != pristine.content


def test_more_episodes_begin_with_the_same_ones(tmp_path: Path, pristine: Dataset) -> None:
    longer = record(tmp_path / "longer", episodes=60)
    moments = pristine.recorded.moments
    assert (longer.arrays["state.agents"][:moments] == pristine.arrays["state.agents"]).all()


def test_statistics_are_those_of_the_episodes(pristine: Dataset) -> None:
    found = pristine.recorded
    assert found.length == pristine.lengths.mean() and found.longest <= 9
    assert found.total == found.success == pristine.read("reward").sum() / 40
    assert sum(found.actions) == 2 * pristine.lengths.sum()


def test_a_flipped_byte_is_named_by_array(copy: Path) -> None:
    file = copy / "available.npy"
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(bytes(data))
    assert any(problem.startswith("available.npy") for problem in check(open_dataset(copy)))


@pytest.mark.promise("damage")
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(which=st.integers(0, 99), place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_no_changed_byte_anywhere_goes_unnoticed(pristine: Dataset, tmp_path: Path, which: int, place: float, bit: int) -> None:
    tried()
    path = Path(shutil.copytree(pristine.path, tmp_path / "flipped", dirs_exist_ok=True))
    files = sorted(path.iterdir())
    file = files[which % len(files)]
    content = bytearray(file.read_bytes())
    content[int(place * len(content))] ^= 1 << bit
    file.write_bytes(bytes(content))
    try:
        assert check(open_dataset(path)) != []
    except UserError as error:
        assert file.name in str(error)


def shorten(path: Path) -> None:
    file = path / "reward.npy"
    file.write_bytes(file.read_bytes()[:-7])


def traverse(path: Path) -> None:
    edit_manifest(path, lambda manifest: manifest["arrays"]["reward"].update(file="../../reward.npy"))


def other_shape(path: Path) -> None:
    edit_array(path, "actions", lambda array: array[:, :1])


def other_type(path: Path) -> None:
    edit_array(path, "reward", lambda array: array.astype(np.float64))


def objects(path: Path) -> None:
    edit_array(path, "reward", lambda array: np.array([{}] * len(array), object))


def other_format(path: Path) -> None:
    edit_manifest(path, lambda manifest: manifest.update(format=99))


def no_spec(path: Path) -> None:
    edit_manifest(path, lambda manifest: manifest.pop("spec"))


def unsealed(path: Path) -> None:
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(text.replace('"quality": "random"', '"quality": "expert"'))


def pipe(path: Path) -> None:
    (path / "reward.npy").unlink()
    os.mkfifo(path / "reward.npy")


def no_json(path: Path) -> None:
    (path / "manifest.json").write_text("{")


@pytest.mark.promise("two-processes")
def test_a_dataset_that_is_replaced_while_it_is_opened_is_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path / "data", episodes=4)
    seen: list[Any] = []

    def read_and_replace(path: Path) -> Any:
        seen.append(read_json(path))
        if len(seen) == 1:
            monkeypatch.setattr(store, "read_json", read_json)
            record(tmp_path / "data", episodes=6)
        return seen[0]

    monkeypatch.setattr(store, "read_json", read_and_replace)
    assert open_dataset(tmp_path / "data").recorded.episodes == 6


@pytest.mark.promise("damage")
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (shorten, "reward.npy: is .* bytes long where .* it has been cut"),
        (traverse, "must be in the file reward.npy of the same folder, not in '../../reward.npy'"),
        (other_shape, r"actions.npy: its header says .*1\).* where uint8\[.*, 2\] is expected"),
        (other_type, "reward.npy: its header says .*<f8.* where float32"),
        (objects, r"reward.npy: its header says .*\|O.* where float32"),
        (other_format, "dataset format 99"),
        (lambda path: (path / "reward.npy").unlink(), "reward.npy: cannot be read"),
        (pipe, "reward.npy: is a pipe, not a file"),
        (no_spec, "not a dataset's manifest"),
        (unsealed, "manifest.json: is not as it was written"),
        (no_json, "cannot be read as JSON"),
    ],
)
def test_a_damaged_dataset_does_not_open(copy: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(copy)
    with pytest.raises(UserError, match=message):
        open_dataset(copy)


def put(row: int, value: float) -> Callable[[np.ndarray], None]:
    def change(array: np.ndarray) -> None:
        array[row] = value

    return change


@pytest.mark.promise("damage")
@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("reward", put(3, np.nan), "reward: holds NaN"),
        ("actions", put(0, 200), "actions: action 200 does not exist"),
        ("available", put(2, 0), "not available"),
        ("episode.start", put(1, 0), "episodes overlap"),
        ("reward", put(-1, 1.0), "a last moment"),
    ],
)
def test_values_that_cannot_be_are_named(copy: Path, name: str, change: Callable[[np.ndarray], None], message: str) -> None:
    edit_array(copy, name, change)
    assert any(message in problem for problem in check(open_dataset(copy)))


def test_a_lying_card_is_found(copy: Path) -> None:
    edit_manifest(copy, lambda manifest: manifest["statistics"].update(total=0.999))
    assert check(open_dataset(copy)) == ["manifest.json: the statistics are not those of the arrays"]


def test_another_world_is_refused_by_what_differs(pristine: Dataset) -> None:
    check_world(pristine, FULL_VIEW.spec)
    with pytest.raises(UserError, match="limit 9 instead of 10"):
        check_world(pristine, Navigation(2, 6, limit=10).spec)
    for rules in ('{"family"', "[]", '{"family": 1}', '{"family": 1, "version": 1, "settings": 1}'):
        with pytest.raises(UserError, match="does not tell the rules"):
            check_world(replace(pristine, spec=replace(pristine.spec, rules=rules)), FULL_VIEW.spec)


@pytest.mark.promise("full-disk")
def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(UserError, match="No space left on device"):
        record(tmp_path / "full")
    assert list(tmp_path.iterdir()) == []


def test_a_dataset_is_replaced_as_a_whole(tmp_path: Path) -> None:
    first = record(tmp_path / "data")
    second = record(tmp_path / "data", seed=1)
    assert check(second) == [] and second.content != first.content
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
