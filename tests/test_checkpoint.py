import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from comad import checkpoint
from comad.errors import UserError
from comad.files import new_folder, read_json, write_bytes, write_json

TREE = {"layers": (jnp.arange(6.0).reshape(2, 3), jnp.array([True])), "key": jax.random.key(7), "count": jnp.int32(4), "none": None}


def test_a_tree_comes_back_bit_for_bit(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "tree.safetensors", TREE, update=12, name="x")
    blank = jax.tree.map(jnp.zeros_like, {**TREE, "key": jnp.zeros(2, jnp.uint32)}) | {"key": jax.random.key(0)}
    back = checkpoint.load(tmp_path / "tree.safetensors", blank)
    assert (back["layers"][0] == TREE["layers"][0]).all() and back["layers"][1].dtype == bool and back["none"] is None
    assert (jax.random.key_data(back["key"]) == jax.random.key_data(TREE["key"])).all()
    assert checkpoint.notes(tmp_path / "tree.safetensors") == {"update": 12, "name": "x"}


@pytest.mark.parametrize(
    ("like", "message"),
    [
        ({"a": jnp.zeros(3), "b": jnp.zeros(1)}, "other arrays than expected, for instance 'b'"),
        ({"a": jnp.zeros(4)}, r"array 'a' is float32\[3\] where float32\[4\] is expected"),
        ({"a": jnp.zeros(3, jnp.int32)}, r"where int32\[3\] is expected"),
    ],
)
def test_a_tree_of_another_shape_is_refused_by_name(tmp_path: Path, like: dict[str, jax.Array], message: str) -> None:
    checkpoint.save(tmp_path / "tree.safetensors", {"a": jnp.zeros(3)})
    with pytest.raises(UserError, match=message):
        checkpoint.load(tmp_path / "tree.safetensors", like)


@pytest.mark.promise("damage")
@pytest.mark.parametrize("keep", [0, 5, 40])
def test_a_cut_file_is_refused(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "tree.safetensors"
    checkpoint.save(path, {"a": jnp.arange(3.0)})
    path.write_bytes(path.read_bytes()[:keep])
    for read in (lambda: checkpoint.load(path, {"a": jnp.zeros(3)}), lambda: checkpoint.notes(path)):
        with pytest.raises(UserError, match="not a readable checkpoint"):
            read()


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "tree.safetensors")
    for read in (lambda: checkpoint.load(path, {"a": jnp.zeros(3)}), lambda: checkpoint.notes(path)):
        with pytest.raises(UserError, match="is a pipe, not a file"):
            read()


@pytest.mark.promise("full-disk")
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_bytes(path, b"old")

    def fail(*_: object) -> None:
        raise OSError("broken")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="broken"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old" and [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    with pytest.raises(RuntimeError), new_folder(target) as folder:
        np.save(folder / "part.npy", np.zeros(3))
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with new_folder(target) as folder:
        write_json(folder / "part.json", {"a": 1})
        assert not target.exists()
    assert read_json(target / "part.json") == {"a": 1}
    with pytest.raises(UserError, match="cannot be read as JSON"):
        read_json(tmp_path / "absent.json")
    # What a link leads to belongs to somebody else: the name is taken, that folder is left alone.
    (tmp_path / "link").symlink_to(target)
    with new_folder(tmp_path / "link") as folder:
        write_json(folder / "part.json", {"a": 2})
    assert read_json(tmp_path / "link" / "part.json") == {"a": 2} and read_json(target / "part.json") == {"a": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "link"]


def test_a_simulators_numbers_keep_their_double_precision(tmp_path: Path) -> None:
    tree: dict[str, Any] = {"bodies": np.array([1.0 / 3.0, 1e-300]), "weights": jnp.ones(2)}
    checkpoint.save(tmp_path / "tree", tree)
    loaded = checkpoint.load(tmp_path / "tree", tree)
    assert loaded["bodies"].dtype == np.float64 and loaded["bodies"].tolist() == tree["bodies"].tolist()
    assert isinstance(loaded["weights"], jax.Array)
    with pytest.raises(UserError, match="float64"):
        checkpoint.load(tmp_path / "tree", {**tree, "bodies": np.zeros(2, np.float32)})
