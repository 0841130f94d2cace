"""Settings of methods as words of the command line."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import tyro

from comad.errors import UserError
from comad.methods import find
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
    return shlex.join(["comad", "train", identity["method"], *what, *words, *changed(identity["method"], identity["settings"])])


def changed(method: str, wanted: Mapping[str, Any]) -> list[str]:
    """The options that turn a method as it is into one with some settings; none for what it has by itself."""
    defaults = dict(flat(settings(find(method)())))
    words = []
    for name, value in flat(wanted):
        if name not in defaults:
            raise UserError(f"{method} has no setting {name!r}; 'comad train {method} --help' shows those it has")
        if value != defaults[name]:
            words += [f"--{'' if value else 'no-'}{_dashed(name)}"] if isinstance(value, bool) else [f"--{_dashed(name)}", str(value)]
    return words


def flat(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Settings and those inside them, by the one name that the command line has for each."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value)
        else:
            yield name, value


def _dashed(name: str) -> str:
    return name.replace("_", "-")
