"""Twins: the same classes with every attribute renamed, and the names in files given."""

import dataclasses
import types
from functools import cache
from typing import Any

import equinox as eqx

from comad.settings import names_of, written_names


def renamed(name: str) -> str:
    """Returns what a twin calls an attribute."""
    return f"other_{name}_now"


def twin(thing: Any) -> Any:
    """Returns a tree of modules or of settings in which every attribute has another name."""
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        values = {renamed(name): twin(getattr(thing, name)) for name in names_of(thing)}
        kind: Any = type(thing)
        return twin_of(kind)(**values)
    if isinstance(thing, tuple):
        inner = map(twin, thing)
        return type(thing)(*inner) if hasattr(thing, "_fields") else tuple(inner)
    return thing


@cache
def twin_of(kind: Any) -> Any:
    """Returns the twin of a class of modules or of settings."""
    written = {renamed(name): stated for name, stated in written_names(kind).items()}
    old = dataclasses.fields(kind)
    fields = [(renamed(field.name), type_of(field.type), copied(field)) for field in old]
    name = f"Other{kind.__name__}"
    if issubclass(kind, eqx.Module):
        body: dict[str, Any] = {own: field for own, _, field in fields}
        body |= {"__annotations__": {own: Any for own, _, _ in fields}, "WRITTEN": written}
        return types.new_class(name, (eqx.Module,), {}, lambda namespace: namespace.update(body))
    return dataclasses.make_dataclass(name, fields, frozen=True, namespace={"WRITTEN": written})


def type_of(annotation: Any) -> Any:
    """Returns the annotation of a twin's field."""
    inner: Any = annotation
    return twin_of(inner) if dataclasses.is_dataclass(annotation) else annotation


def copied(field: Any) -> Any:
    """Returns a field with the same default and the same metadata."""
    default = field.default if field.default is dataclasses.MISSING else twin(field.default)
    return dataclasses.field(
        default=default,
        default_factory=field.default_factory,
        metadata=field.metadata,
        kw_only=True,
    )
