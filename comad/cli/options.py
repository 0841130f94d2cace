"""Numbers as options: refused by their range in one sentence, explained with it in the help."""

import dataclasses
from functools import partial
from typing import Annotated, Any

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from comad.errors import OutOfRangeError, UserError
from comad.ranges import numeric

OPTIONS = ConstructorRegistry()
"""How every parser reads and explains numbers."""
_being_explained: list[Any] = []


@OPTIONS.primitive_rule
def number(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Reads a number; other text stays text, which the range refuses in the same sentence."""
    kind: Any = info.type
    if kind not in (int, float):
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=kind.__name__.upper(),
        instance_from_str=partial(_read, kind),
        is_instance=lambda value: type(value) in ((int,) if kind is int else (int, float)),
        str_from_instance=lambda value: [str(value)],
    )


def _read(kind: type, words: list[str]) -> Any:
    try:
        return kind(words[0])
    except ValueError:
        return words[0]


@OPTIONS.struct_rule
def explained(info: StructTypeInfo) -> StructConstructorSpec | None:
    """Adds the range to the help of every number of a dataclass, beside its default.

    Settings inside a dataclass are those of its default: a protocol does not tell which there are.
    """
    if not dataclasses.is_dataclass(info.type) or info.type in _being_explained:
        return None  # the second time, from below: tyro's own rule reads the fields
    _being_explained.append(info.type)
    try:
        found = ConstructorRegistry.get_struct_spec(info)
    finally:
        _being_explained.pop()
    if not isinstance(found, StructConstructorSpec):
        return None
    fields = [dataclasses.replace(field, type=_told(field)) for field in found.fields]
    return dataclasses.replace(found, fields=tuple(fields))


def _told(field: StructFieldSpec) -> Any:
    """Returns the type by which a field becomes options."""
    default = field.default
    settings = dataclasses.is_dataclass(default) and not isinstance(default, type)
    return type(default) if settings else _with_range(field.type)


def _with_range(annotation: Any) -> Any:
    entry = numeric(annotation)
    if entry is None or entry.range is None:
        return annotation
    return Annotated[
        annotation,
        tyro.conf.arg(help_behavior_hint=lambda default: f"(default: {default}; {entry.range})"),
    ]


def as_option(error: OutOfRangeError) -> UserError:
    """Returns the same error with the setting under the name that the command line has for it."""
    return UserError(f"--{error.name.replace('_', '-')} {error.why}")
