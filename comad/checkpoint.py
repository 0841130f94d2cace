"""Pytrees on disk as safetensors: named arrays and a little text, nothing that runs."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from jax.tree_util import DictKey, GetAttrKey, SequenceKey, keystr, tree_leaves_with_path

from comad.errors import UserError
from comad.files import open_regular, write_bytes
from comad.settings import names_of

Tree = TypeVar("Tree")
Known = dict[tuple[Any, ...], tuple[str, Any]]
"""Names in files and nodes of a tree, by their paths."""


def save(path: Path, tree: Any, **notes: Any) -> None:
    """Write every array of a tree under its path in it, with notes as JSON in the header."""
    write_bytes(path, _encoded(tree, notes))


def write(path: Path, tree: Any) -> None:
    """Writes the same without a sync, for a caller that syncs the file, as `Run.save` does."""
    path.write_bytes(_encoded(tree, {}))


def load(path: Path, like: Tree) -> Tree:
    """Read a tree of the shape of another one; anything missing, left over or of another shape is refused by name."""
    try:
        open_regular(path).close()  # the library would wait for a pipe
        arrays = safetensors.numpy.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise UserError(f"{path}: not a readable checkpoint ({error})") from error
    expected = dict(named_leaves(like))
    if odd := sorted(arrays.keys() ^ expected.keys()):
        raise UserError(f"{path}: holds other arrays than expected, for instance {odd[0]!r}; it was written with other settings")
    for name, leaf in expected.items():
        wanted = leaf if isinstance(leaf, np.ndarray) else jax.eval_shape(_as_array, leaf)
        if arrays[name].shape != wanted.shape or arrays[name].dtype != wanted.dtype:
            found = f"{arrays[name].dtype}{list(arrays[name].shape)}"
            raise UserError(f"{path}: array {name!r} is {found} where {wanted.dtype}{list(wanted.shape)} is expected")
    leaves = [_like(arrays[name], leaf) for name, leaf in expected.items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def notes(path: Path) -> dict[str, Any]:
    """The notes a checkpoint was written with."""
    try:
        open_regular(path).close()
        with safetensors.safe_open(path, framework="numpy") as file:
            return {name: json.loads(text) for name, text in (file.metadata() or {}).items()}
    except (OSError, safetensors.SafetensorError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not a readable checkpoint ({error})") from error


def fingerprint(tree: Any) -> str:
    """SHA-256 of every array of a tree with its name and kind."""
    digest = hashlib.sha256()
    for name, leaf in named_leaves(tree):
        array = _as_numpy(leaf)
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode() + array.tobytes())
    return digest.hexdigest()


def named_leaves(tree: Any) -> list[tuple[str, Any]]:
    """Every array of a tree with its path in written names, such as ``online.agent.own.weight``."""
    known: Known = {(): ("", tree)}
    return [(_visit(path, known)[0], leaf) for path, leaf in tree_leaves_with_path(tree)]


def _visit(path: tuple[Any, ...], known: Known) -> tuple[str, Any]:
    """Returns the name of a path in files, and what lies there; adds both to what is known."""
    if path not in known:
        (before, node), key = _visit(path[:-1], known), path[-1]
        name = keystr((key,), simple=True)
        if dataclasses.is_dataclass(node) and isinstance(key, GetAttrKey):
            written, child = names_of(node).get(name, name), getattr(node, name)
        else:
            written, child = name, _child(node, key)
        known[path] = f"{before}.{written}" if len(path) > 1 else written, child
    return known[path]


def _child(node: Any, key: Any) -> Any:
    """Returns what a key of a path leads to, in any kind of node."""
    if isinstance(node, list | tuple) and isinstance(key, SequenceKey):
        return node[key.idx]
    if isinstance(node, dict) and isinstance(key, DictKey):
        return node[key.key]
    children = tree_leaves_with_path(node, is_leaf=lambda inner: inner is not node)
    return next(child for path, child in children if path == (key,))


def _encoded(tree: Any, notes: Mapping[str, Any]) -> bytes:
    arrays = {name: _as_numpy(leaf) for name, leaf in named_leaves(tree)}
    header = {name: json.dumps(value, sort_keys=True) for name, value in notes.items()}
    return safetensors.numpy.save(arrays, metadata=header)


def _as_array(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def _as_numpy(leaf: Any) -> np.ndarray:
    return np.asarray(_as_array(leaf), order="C")


def _like(values: np.ndarray, leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):  # a simulator's numbers, whose double precision JAX would take away
        return values
    array = jnp.asarray(values)
    return jax.random.wrap_key_data(array) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else array
