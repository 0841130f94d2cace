"""What happens when one thing is changed: methods with other settings beside the plain ones, and the same tasks in other orders."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from comad.reports.results import Result, identity_of, place_of
from comad.runs.record import flat, one_grid


@dataclass(frozen=True)
class Variation:
    """A method with settings of its own."""

    result: Result
    differences: dict[str, tuple[Any, Any]]
    """Settings that differ, by name: of the plain method and here."""

    def described(self) -> str:
        """What differs, for people."""
        return ", ".join(f"{name.replace('_', ' ')} {_shown(here)}" for name, (_, here) in self.differences.items()) or "as it is"


@dataclass(frozen=True)
class Family:
    """A method on a stream, and its variations there."""

    base: Result
    variations: tuple[Variation, ...]

    def swept(self) -> dict[str, list[tuple[float, Result]]]:
        """Results by the value of each number that alone was changed, the plain method among them."""
        found: dict[str, list[tuple[float, Result]]] = {}
        for variation in self.variations:
            if len(variation.differences) == 1:
                ((name, (before, here)),) = variation.differences.items()
                if _is_number(before) and _is_number(here):
                    found.setdefault(name, [(before, self.base)]).append((here, variation.result))
        return {name: sorted(values, key=lambda pair: pair[0]) for name, values in sorted(found.items())}


def families(results: Sequence[Result]) -> list[Family]:
    """Plain methods that have variations on the same stream with the same data and budget."""
    found = []
    for base in results:
        if base.label == base.method:
            same = [other for other in results if _comparable(base, other) and other.method == base.method and other is not base]
            if same:
                found.append(Family(base, tuple(Variation(other, _differences(base, other)) for other in same)))
    return found


def orphans(results: Sequence[Result]) -> list[Result]:
    """Methods with settings of their own that have no plain one beside them: nobody can say what the change did."""
    plain = [result for result in results if result.label == result.method]
    changed = [result for result in results if result.label != result.method]
    return [one for one in changed if not any(base.method == one.method and _comparable(base, one) for base in plain)]


def orders(results: Sequence[Result]) -> list[tuple[Result, ...]]:
    """Results of one method on the same tasks in several orders."""
    found: dict[Any, list[Result]] = {}
    for result in results:
        found.setdefault((tuple(sorted(result.tasks)), result.quality, result.updates, result.label), []).append(result)
    return [tuple(same) for same in found.values() if len({result.stream for result in same}) > 1]


def _comparable(one: Result, other: Result) -> bool:
    return place_of(one) == place_of(other) and one_grid(identity_of(one), identity_of(other))


def _differences(base: Result, other: Result) -> dict[str, tuple[Any, Any]]:
    before, here = (_settings(result) for result in (base, other))
    return {name: (before.get(name), here.get(name)) for name in sorted(before.keys() | here.keys()) if before.get(name) != here.get(name)}


def _settings(result: Result) -> dict[str, Any]:
    """A method's settings and those inside them; one that is left to the stream has the stream's value."""
    identity = identity_of(result)
    settings = dict(flat(identity.get("settings", {})))
    if "threshold" in settings and settings["threshold"] is None:
        settings["threshold"] = identity.get("threshold")
    return settings


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
