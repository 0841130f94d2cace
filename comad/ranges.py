"""Ranges of settings: each number states its range beside its default.

    @dataclass(frozen=True)
    @ranged
    class Learner:
        learning_rate: Annotated[float, Range(above=0, most=1)] = 5e-4
        discount: Share = 0.99

No instance is outside its ranges, whether the command line, a grid, a program or a file asks for
it.
"""

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from comad.errors import OutOfRangeError

Kind = TypeVar("Kind", bound=type)
SHOWN, LONGEST = 40, 1000
"""Letters of a refused value that an error repeats; bits of a whole number that it writes down."""


@dataclass(frozen=True)
class Range:
    """An interval with two ends: `least` and `most` belong to it, `above` and `below` do not."""

    least: int | float | None = None
    most: int | float | None = None
    above: int | float | None = None
    below: int | float | None = None

    def __post_init__(self) -> None:
        pairs = (self.least, self.above), (self.most, self.below)
        if any(pair.count(None) != 1 for pair in pairs):
            raise TypeError("a range has one lower end (least, above) and one upper (most, below)")

    def __contains__(self, value: Any) -> bool:
        """Tells whether a number is in the interval; NaN and infinity are in none."""
        low = value >= self.least if self.least is not None else value > self.above
        high = value <= self.most if self.most is not None else value < self.below
        return bool(low and high)

    def __str__(self) -> str:
        low = f"{self.least} <=" if self.least is not None else f"{self.above} <"
        high = f"<= {self.most}" if self.most is not None else f"< {self.below}"
        return f"{low} x {high}"


@dataclass(frozen=True)
class Numeric:
    """What the annotation of a field says of its numbers."""

    kind: type
    """Either int or float."""
    range: Range | None
    optional: bool = False
    several: bool = False

    def check(self, name: str, value: Any) -> None:
        """Refuses a value that is no such number, or outside the range."""
        if self.optional and value is None:
            return
        values = value if self.several and isinstance(value, tuple) else (value,)
        wrong = [one for one in values if not self._holds(one)]
        if wrong or (self.several and not isinstance(value, tuple)):
            number = "whole number" if self.kind is int else "number"
            what = f"{number}s" if self.several else f"a {number}"
            raise OutOfRangeError(
                name,
                f"must be {what} x with {self.range}, not {_shown(wrong[0] if wrong else value)}",
            )

    def _holds(self, value: Any) -> bool:
        kinds = int if self.kind is int else int | float
        known = isinstance(value, kinds) and not isinstance(value, bool)
        return known and (self.range is None or value in self.range)


def _shown(value: Any) -> str:
    """Returns a refused value as it is repeated in the error: in short."""
    if isinstance(value, int) and value.bit_length() > LONGEST:
        return f"one of {value.bit_length()} bits"  # Python refuses to write down very long ones
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def numeric(annotation: Any) -> Numeric | None:
    """Reads the annotation of a field: a number, optional or not, or a tuple of them; else None."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in (int, float):
        return Numeric(annotation, None)
    if origin is Annotated:
        found = numeric(arguments[0])
        stated = next((entry for entry in arguments[1:] if isinstance(entry, Range)), None)
        return dataclasses.replace(found, range=stated) if found and stated else found
    if origin in (Union, UnionType):
        choices = [choice for choice in arguments if choice is not type(None)]
        found = numeric(choices[0]) if len(choices) == 1 else None
        return dataclasses.replace(found, optional=True) if found else None
    if origin is tuple:
        found = numeric(arguments[0])
        return dataclasses.replace(found, several=True) if found else None
    return None


@cache
def numeric_fields(kind: Any) -> Mapping[str, Numeric]:
    """Returns the numeric fields of a dataclass by name."""
    found = {field.name: numeric(field.type) for field in dataclasses.fields(kind)}
    return {name: entry for name, entry in found.items() if entry is not None}


def check(annotation: Any, name: str, value: Any) -> None:
    """Refuses a value that an annotation does not allow, under the name that the user knows."""
    if entry := numeric(annotation):
        entry.check(name, value)


def ranged(kind: Kind) -> Kind:
    """Decorates a class below ``@dataclass``: no instance is outside the ranges of its fields."""
    for name, annotation in inspect.get_annotations(kind).items():
        if (entry := numeric(annotation)) and entry.range is None:
            raise TypeError(f"{kind.__name__}.{name} is a number without a range; state one")
    before = kind.__dict__.get("__post_init__")

    def check_all(self: Any) -> None:
        own: Any = type(self)
        for name, entry in numeric_fields(own).items():
            entry.check(name, getattr(self, name))
        if before is not None:
            before(self)

    kind.__post_init__ = check_all  # type: ignore[attr-defined]
    return kind


LARGEST_SEED = 2**32 - 1
"""Keys are made of 32 bits: beyond them, two seeds would mean the same."""
MOST_UPDATES = 10**7
"""Per task: updates of several tasks are numbered in blocks of 2**24 (`comad.continual.schedules`)."""

Seed = Annotated[int, Range(least=0, most=LARGEST_SEED)]
Updates = Annotated[int, Range(least=1, most=MOST_UPDATES)]
Steps = Annotated[int, Range(least=1, most=10**9)]
"""Steps of an environment: they are counted in 32 bits."""
StepsOrZero = Annotated[int, Range(least=0, most=10**9)]
Count = Annotated[int, Range(least=1, most=10**6)]
"""A number of episodes, evaluations or samples, which have to be played and kept."""
AtOnce = Annotated[int, Range(least=1, most=10**5)]
"""Episodes that are played or learned from at once: memory grows with them."""
CountOrZero = Annotated[int, Range(least=0, most=10**6)]
Size = Annotated[int, Range(least=1, most=1024)]
"""A width, or a number of heads, tasks, processes or cores."""
SizeOrZero = Annotated[int, Range(least=0, most=1024)]
Units = Annotated[float, Range(least=0, most=1024)]
"""Processors or accelerators, also in parts."""

Share = Annotated[float, Range(least=0, most=1)]
"""A probability, a discount, a rate at which one thing flows into another."""
LearningRate = Annotated[float, Range(above=0, most=1)]
Strength = Annotated[float, Range(least=0, most=10**9)]
"""The coefficient of a loss or a penalty."""
Scale = Annotated[float, Range(least=1e-6, most=10**6)]
"""What something is divided or bounded by: in 32 bits, too, more than nothing."""
Spread = Annotated[float, Range(least=0, most=1000)]
"""A standard deviation, or an amount of information."""
Nats = Annotated[float, Range(least=-(10**9), most=10**9)]
"""A threshold of log densities, or an entropy."""
Seconds = Annotated[float, Range(least=0, most=10**8)]
Duration = Annotated[float, Range(above=0, most=86_400)]
"""Seconds in which something is measured."""
