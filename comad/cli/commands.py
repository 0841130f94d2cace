"""Settings of methods as words of the command line."""

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import tyro

from comad import envs
from comad.cli.options import OPTIONS
from comad.continual.method import settled
from comad.errors import UserError
from comad.methods import find
from comad.runs.folder import is_older
from comad.runs.record import flat
from comad.settings import identifying, names_of, settings

SPELLING = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes)
"""How options are called, everywhere."""


def command(identity: Mapping[str, Any], folder: str) -> str:
    """What makes a run again, in a folder of this name: its budget, and those settings that are not what the method has by itself."""
    method, stream, quality, seed = (identity[name] for name in ("method", "stream", "quality", "seed"))
    # A stream that was made in a program has no name to be called by.
    what = ["--tasks", *(task["env"] for task in identity["tasks"])] if stream == "custom" else ["--stream", stream]
    if gone := _unrecorded(identity):
        why = f"made before {method} had {gone[0]}, and the {method} of today is another"
        raise UserError(f"it was {why}")
    budget = {"quality": quality, "seed": seed, **identity["budget"]}
    words = [word for name, value in budget.items() for word in (f"--{name}", str(value))]
    out = [] if folder == f"{method}-seed{seed}" else ["--out", f"runs/{stream}-{quality}/{folder}"]
    return shlex.join(["comad", "train", method, *what, *words, *_changed(identity), *out])


def departures(identity: Mapping[str, Any]) -> list[str]:
    """The options by which a run's method is not what it is by itself in the run's world, and whatever it did not have yet."""
    options: list[str] = []
    for word in _changed(identity):
        if word.startswith("--"):
            options.append(word)
        else:
            options[-1] += f" {word}"
    gone = _unrecorded(identity)
    return [*options, f"(before {', '.join(gone)})"] if gone else options


def _changed(identity: Mapping[str, Any]) -> list[str]:
    return changed(identity["method"], identity["settings"], _plain(identity["method"], identity["tasks"][0]["env"]))


def _unrecorded(identity: Mapping[str, Any]) -> list[str]:
    """Returns options that came after the run was made, and since when its method is another."""
    if is_older(identity):
        return []  # what its method had no options for, it did as today's does by itself
    recorded = dict(flat(identity["settings"]))
    plain = _plain(identity["method"], identity["tasks"][0]["env"])
    called = _called(find(identity["method"]))
    return [_dashed(called[name]) for name, _ in flat(identifying(plain)) if name not in recorded]


def changed(method: str, wanted: Mapping[str, Any], plain: Any = None) -> list[str]:
    """Returns the options that give a method some settings; none for what it has by itself.

    Args:
        method: its name.
        wanted: settings, by the names that files have for them or by those of options.
        plain: the method as it is in some environment; by default as it is by itself.
    """
    called = _called(find(method))
    written = {option: name for name, option in called.items()}
    own = dict(flat(settings(find(method))))
    defaults = own if plain is None else dict(flat(settings(plain)))
    words = []
    for given, value in flat(wanted):
        name = given if given in defaults else written.get(given, given)
        if name not in defaults:
            raise UserError(f"{method} has no setting {name!r}; 'comad train {method} --help' shows those it has")
        option = _dashed(called[name])
        if value != defaults[name]:
            flag = isinstance(value, bool) and own[name] is not None  # what a world decides is no flag
            negation = "no-" if flag and not value else ""
            words += [f"--{negation}{option}", *([] if flag else [str(value)])]
    return words


def _called(thing: Any) -> dict[str, str]:
    """Returns the attributes of a method's settings, and of those inside them, by written names."""
    found: dict[str, str] = {}
    for name, written in names_of(thing).items():
        value = getattr(thing, name)
        found |= _called(value) if dataclasses.is_dataclass(value) else {written: name}
    return found


def read_method(name: str, words: Sequence[str]) -> Any:
    """Returns a method with the settings that options give it; exits in silence if it cannot."""
    method = find(name)
    return tyro.cli(
        type(method),
        default=method,
        args=words,
        config=SPELLING,
        registry=OPTIONS,
        console_outputs=False,
    )


@cache
def _plain(method: str, env: str) -> Any:
    """A method as it is in a world; as it is by itself, if nobody here knows that world."""
    try:
        return settled(find(method), envs.find(env).spec)
    except UserError:
        return find(method)


def _dashed(name: str) -> str:
    return name.replace("_", "-")
