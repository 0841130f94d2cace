"""Settings of methods as words of the command line."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import tyro

from comad import envs
from comad.errors import UserError
from comad.methods import find
from comad.methods.base import settled
from comad.types import settings

SPELLING = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes)
"""How options are called, everywhere."""


def command(identity: Mapping[str, Any]) -> str:
    """What makes a run again: its budget, and those settings that are not what the method has by itself."""
    # A stream of one's own has no name to be called by.
    own = identity["stream"] == "custom"
    what = ["--tasks", *(task["env"] for task in identity["tasks"])] if own else ["--stream", identity["stream"]]
    budget = {"quality": identity["quality"], "seed": identity["seed"], **identity["budget"]}
    words = [word for name, value in budget.items() for word in (f"--{name}", str(value))]
    plain = _plain(identity["method"], identity["tasks"][0]["env"])
    return shlex.join(["comad", "train", identity["method"], *what, *words, *changed(identity["method"], identity["settings"], plain)])


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


def _plain(method: str, env: str) -> Any:
    """A method as it is in a world; as it is by itself, if nobody here knows that world."""
    try:
        return settled(find(method)(), envs.find(env).spec)
    except UserError:
        return find(method)()


def flat(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Settings and those inside them, by the one name that the command line has for each."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value)
        else:
            yield name, value


def _dashed(name: str) -> str:
    return name.replace("_", "-")
