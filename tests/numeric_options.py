"""Every number that can be set, found by walking verbs, methods and trainers themselves."""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from comad.cli import VERBS
from comad.experts.library import TRAINERS
from comad.grid.cells import Grid
from comad.grid.remote import Needs
from comad.methods import METHODS
from comad.ranges import Range, numeric_fields
from comad.training.loop import Budget
from comad.types import Stream, Task

OTHER_SETTINGS: tuple[type[Any], ...] = (
    *map(type, METHODS.values()),
    *TRAINERS.values(),
    Budget,
    Stream,
    Grid,
    Needs,
)
"""Classes of settings that are made in programs and read from files, besides the verbs."""
NEEDED: dict[Any, dict[str, Any]] = {
    Budget: {"updates": 10**7},  # as many as any number of evaluations fits into
    Stream: {
        "name": "own",
        "tasks": (Task("CN-2", "cn-2"),),
        "updates": 1,
        "threshold": 0.0,
        "metric": "return",
    },
    Grid: {"streams": ("cn",)},
}
"""What a class cannot be made without."""
POSITIONAL: dict[tuple[str, ...], list[str]] = {
    ("play",): ["cn-2", "out.gif"],
    ("heads",): ["run"],
    ("watch",): ["runs"],
    ("experts", "compare"): ["cn"],
}
"""What a verb cannot be called without."""


@dataclass(frozen=True)
class Option:
    """A number on the command line."""

    words: tuple[str, ...]
    """The verb, and what it is about."""
    kind: Any
    """The dataclass that has it."""
    name: str

    @property
    def flag(self) -> str:
        """How the command line calls it."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def whole(self) -> bool:
        """Whether it is a whole number."""
        return numeric_fields(self.kind)[self.name].kind is int

    @property
    def range(self) -> Range:
        """What it may be."""
        stated = numeric_fields(self.kind)[self.name].range
        assert stated is not None
        return stated

    def given(self, *values: str) -> list[str]:
        """Returns the words of a command that sets it; without values, of one that sets nothing."""
        return [
            *self.words,
            *POSITIONAL.get(self.words, []),
            *([self.flag, *values] if values else []),
        ]


def options() -> list[Option]:
    """Returns every numeric option of every verb and method."""
    return [Option(words, kind, name) for words, kind in walk() for name in numeric_fields(kind)]


def walk() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields every dataclass that the command line can make, after the words that lead to it."""
    for verb, kind in VERBS.items():
        yield from _below((verb,), kind)


def _below(
    words: tuple[str, ...],
    kind: Any,
    default: Any = None,
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields a dataclass and those inside it, which are of the types that its default has there."""
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    yield words, origin
    for field in dataclasses.fields(origin):
        wanted = arguments[0] if isinstance(field.type, TypeVar) else field.type
        inside = getattr(default, field.name, None)
        if dataclasses.is_dataclass(inside):
            yield from _below(words, type(inside), inside)
        elif dataclasses.is_dataclass(get_origin(wanted) or wanted):
            yield from _below(words, wanted)
        for choice in get_args(wanted) if get_origin(wanted) in (Union, UnionType) else ():
            inner = get_args(choice) if get_origin(choice) is Annotated else (choice,)
            if dataclasses.is_dataclass(get_origin(inner[0]) or inner[0]):
                yield from _below((*words, inner[1].name), inner[0], inner[1].default)


def classes() -> list[Any]:
    """Returns every class of settings, once."""
    nested = [field.type for kind in OTHER_SETTINGS for field in dataclasses.fields(kind)]
    within = filter(dataclasses.is_dataclass, nested)
    return list(dict.fromkeys([*OTHER_SETTINGS, *within, *(kind for _, kind in walk())]))


def mentions_number(annotation: Any) -> bool:
    """Tells whether a number is anywhere in an annotation."""
    if get_origin(annotation) is Literal:
        return False
    return annotation in (int, float) or any(map(mentions_number, get_args(annotation)))


def make(kind: Any, **values: Any) -> Any:
    """Returns an instance with these values, and any that it cannot be made without.

    Args:
        kind: a class, or an instance from which other values are taken.
        values: by name.
    """
    if not isinstance(kind, type):
        return dataclasses.replace(kind, **values)
    required = {
        field.name: ()
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    return kind(**{**required, **NEEDED.get(kind, {}), **values})


def ends(stated: Range, whole: bool) -> tuple[Any, Any]:
    """Returns the least and the most that a range allows, to the last bit."""
    low, high = (
        stated.least if stated.least is not None else stated.above,
        stated.most if stated.most is not None else stated.below,
    )
    assert low is not None and high is not None
    if whole:
        return low + (stated.least is None), high - (stated.most is None)
    within = (
        (low if stated.least is not None else math.nextafter(low, math.inf)),
        (high if stated.most is not None else math.nextafter(high, -math.inf)),
    )
    return float(within[0]), float(within[1])


def outside(stated: Range, whole: bool) -> dict[str, Any]:
    """Returns what no number of this range can be: by what is wrong with it."""
    low, high = ends(stated, whole)
    below = low - 1 if whole else math.nextafter(low, -math.inf)
    above = high + 1 if whole else math.nextafter(high, math.inf)
    return {
        **{"below": below, "above": above, "nan": math.nan, "inf": math.inf, "-inf": -math.inf},
        **{"20 digits": 99_999_999_999_999_999_999, "text": "some", "empty": ""},
    }
