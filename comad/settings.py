"""Settings as plain values: how dataclasses are written down, hashed, told apart and read again.

A field is written by its own name unless its class states another one, so that a rename in the
program changes nothing in files:

    @dataclass(frozen=True)
    class Walking:
        WRITTEN: ClassVar[Mapping[str, str]] = {"pace": "speed"}

        pace: float = 1.0

`comad.checkpoint` names arrays in the same way.
"""

import copy
import dataclasses
from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

LARGEST = 10**15
"""No setting and no statistic is larger; a file that says so says it by mistake or to do harm."""


def settings(thing: Any) -> dict[str, Any]:
    """A frozen dataclass as plain JSON values, the form in which settings are hashed and written down."""
    return {written: _plain(getattr(thing, name)) for name, written in names_of(thing).items()}


def _plain(value: Any) -> Any:
    """Returns a value with every dataclass in it as plain values; nothing is shared with it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return settings(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_plain, value))
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value))
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return copy.deepcopy(value)


def names_of(thing: Any) -> Mapping[str, str]:
    """Returns the same as `written_names`, for an instance."""
    kind: Any = type(thing)
    return written_names(kind)


@cache
def written_names(kind: Any) -> Mapping[str, str]:
    """Returns the name in files of every field of a dataclass, by its name in the program."""
    stated: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        stated |= vars(base).get("WRITTEN", {})
    fields = [field.name for field in dataclasses.fields(kind)]
    if strange := sorted(stated.keys() - set(fields)):
        raise TypeError(f"WRITTEN of {kind.__name__} names {strange[0]!r}, which is no field")
    names = {name: stated.get(name, name) for name in fields}
    written = list(names.values())
    if twice := [name for name in written if written.count(name) > 1]:
        raise TypeError(f"{kind.__name__} writes two fields by one name, {twice[0]!r}")
    return names


def by_attribute(kind: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns written values by the names of the fields that they belong to; refuses others."""
    attributes = {written: name for name, written in written_names(kind).items()}
    if strange := [name for name in values if name not in attributes]:
        raise TypeError(f"{kind.__name__} has no {strange[0]!r}"[:200])
    return {attributes[name]: value for name, value in values.items()}


LATER = "later"
"""Metadata of a setting that came later: the value with which nothing is other than before."""


def identifying(thing: Any) -> dict[str, Any]:
    """Settings by which runs are told apart: without those that came later and are at rest, so that older runs remain the same ones."""
    came_later = [field for field in dataclasses.fields(thing) if LATER in field.metadata]
    names = names_of(thing)
    rest = {field.name: field.metadata[LATER] for field in came_later}
    at_rest = {names[name] for name, value in rest.items() if getattr(thing, name) == value}
    return {name: value for name, value in settings(thing).items() if name not in at_rest}


def from_settings(like: Any, values: Mapping[str, Any]) -> Any:
    """Returns the dataclass that `settings` described; refuses what is left over or of another type.

    Args:
        like: a class, or an instance: then what is inside it has the types that it has there, and
            what the values leave out is as it is there.
        values: plain values by the names in files, which come from others.
    """
    kind: Any = like if isinstance(like, type) else type(like)
    found = {field.name: field.type for field in dataclasses.fields(kind)}
    inside = found if kind is like else {name: getattr(like, name) for name in found}
    given = {
        name: from_settings(within, value) if dataclasses.is_dataclass(within := inside[name]) else value
        for name, value in by_attribute(kind, values).items()
    }
    made = kind(**given) if kind is like else dataclasses.replace(like, **given)
    for name, wanted in found.items():
        if not dataclasses.is_dataclass(inside[name]) and not _fits(getattr(made, name), wanted):
            written = written_names(kind)[name]
            raise TypeError(f"{written} of {kind.__name__} cannot be {getattr(made, name)!r}"[:200])
    return made


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a value is what a field is declared to be, as far as plain numbers, texts and choices go."""
    if get_origin(wanted) is Annotated:  # its range was checked when the dataclass was made
        return _fits(value, get_args(wanted)[0])
    if get_origin(wanted) is Literal:
        return any(type(value) is type(choice) and value == choice for choice in get_args(wanted))
    if get_origin(wanted) in (Union, UnionType):
        return any(_fits(value, choice) for choice in get_args(wanted))
    if wanted is float:
        return type(value) in (int, float) and abs(value) < LARGEST
    if wanted is int:
        return type(value) is int and abs(value) < LARGEST
    return not isinstance(wanted, type) or isinstance(value, wanted)
