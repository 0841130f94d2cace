"""Settings as plain values: how frozen dataclasses are written down, hashed, told apart and read again."""

import dataclasses
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

LARGEST = 10**15
"""No setting and no statistic is larger; a file that says so says it by mistake or to do harm."""


def settings(thing: Any) -> dict[str, Any]:
    """A frozen dataclass as plain JSON values, the form in which settings are hashed and written down."""
    return dataclasses.asdict(thing)


LATER = "later"
"""Metadata of a setting that came later: the value with which nothing is other than before."""


def identifying(thing: Any) -> dict[str, Any]:
    """Settings by which runs are told apart: without those that came later and are at rest, so that older runs remain the same ones."""
    came_later = [field for field in dataclasses.fields(thing) if LATER in field.metadata]
    at_rest = {field.name for field in came_later if getattr(thing, field.name) == field.metadata[LATER]}
    return {name: value for name, value in settings(thing).items() if name not in at_rest}


def from_settings(kind: Any, values: dict[str, Any]) -> Any:
    """The dataclass that `settings` described; anything missing, left over or of another kind is an error, for files come from others."""
    found = {field.name: field.type for field in dataclasses.fields(kind)}
    made = kind(
        **{
            name: from_settings(found[name], value) if dataclasses.is_dataclass(found.get(name)) else value
            for name, value in values.items()
        }
    )
    for name, wanted in found.items():
        if not _fits(getattr(made, name), wanted):
            raise TypeError(f"{name} of {kind.__name__} cannot be {getattr(made, name)!r}"[:200])
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
