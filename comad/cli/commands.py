"""Settings of methods as words of the command line."""

import shlex
from collections.abc import Mapping
from functools import cache
from typing import Any

import tyro

from comad import envs
from comad.errors import UserError
from comad.methods import find
from comad.methods.base import settled
from comad.runs.record import flat
from comad.settings import identifying, settings

SPELLING = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes)
"""How options are called, everywhere."""


def command(identity: Mapping[str, Any], folder: str) -> str:
    """What makes a run again, in a folder of this name: its budget, and those settings that are not what the method has by itself."""
    method, stream, quality, seed = (identity[name] for name in ("method", "stream", "quality", "seed"))
    # A stream that was made in a program has no name to be called by.
    what = ["--tasks", *(task["env"] for task in identity["tasks"])] if stream == "custom" else ["--stream", stream]
    if gone := _unrecorded(identity):
        raise UserError(f"it was made before {method} had {_dashed(gone[0])}, and the {method} of today is another")
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
    gone = [_dashed(name) for name in _unrecorded(identity)]
    return [*options, f"(before {', '.join(gone)})"] if gone else options


def _changed(identity: Mapping[str, Any]) -> list[str]:
    return changed(identity["method"], identity["settings"], _plain(identity["method"], identity["tasks"][0]["env"]))


def _unrecorded(identity: Mapping[str, Any]) -> list[str]:
    """Settings that the method got after the run was made, and by which it does something else since then."""
    recorded = dict(flat(identity["settings"]))
    plain = _plain(identity["method"], identity["tasks"][0]["env"])
    return [name for name, _ in flat(identifying(plain)) if name not in recorded]


def changed(method: str, wanted: Mapping[str, Any], plain: Any = None) -> list[str]:
    """The options that turn a method as it is, or as it is in some world, into one with some settings; none for what it has by itself."""
    own = dict(flat(settings(find(method)())))
    defaults = own if plain is None else dict(flat(settings(plain)))
    words = []
    for name, value in flat(wanted):
        if name not in defaults:
            raise UserError(f"{method} has no setting {name!r}; 'comad train {method} --help' shows those it has")
        if value != defaults[name]:
            flag = isinstance(value, bool) and own[name] is not None  # what a world decides is no flag
            words += [f"--{'' if value else 'no-'}{_dashed(name)}"] if flag else [f"--{_dashed(name)}", str(value)]
    return words


@cache
def _plain(method: str, env: str) -> Any:
    """A method as it is in a world; as it is by itself, if nobody here knows that world."""
    try:
        return settled(find(method)(), envs.find(env).spec)
    except UserError:
        return find(method)()


def _dashed(name: str) -> str:
    return name.replace("_", "-")
