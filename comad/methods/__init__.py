"""What learns: a strategy per file, or a method of its own. A new one is a file and a line here."""

import dataclasses
import inspect
from itertools import chain
from typing import Any

from comad.continual.learner import Continual
from comad.continual.method import Method
from comad.continual.schedules import AllTasks, OwnTask, Rehearse
from comad.errors import unknown
from comad.methods.comad import Comad
from comad.methods.comad_plus import ComadPlus
from comad.methods.ewc import Ewc
from comad.methods.fine_tuning import FineTuning, FromScratch, Snapshots
from comad.methods.hissd import Hissd
from comad.methods.odis import Odis
from comad.methods.owl import Owl

METHODS: dict[str, Method[Any]] = {
    "comad": Comad(),
    "comad-plus": ComadPlus(),
    "ft": Continual(FineTuning()),
    "ft-snapshots": Continual(Snapshots()),
    "fs": Continual(FromScratch()),
    "ewc": Continual(Ewc()),
    "owl": Continual(Owl()),
    "mt": Continual(FineTuning(), AllTasks()),
    "rehearsal": Continual(FineTuning(), Rehearse()),
    "odis": Odis(),
    "hissd": Hissd(),
}


def find(name: str) -> Any:
    """Returns the method of a name, with its default settings."""
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]


def name_of(method: Any) -> str:
    """Returns the name of a method, whatever the values of its settings."""
    return next(name for name, known in METHODS.items() if _parts(known) == _parts(method))


def _parts(thing: Any) -> list[type]:
    """Returns the types of a method and of everything in it that has settings of its own."""
    inside = [getattr(thing, field.name) for field in dataclasses.fields(thing)]
    nested = (_parts(one) for one in inside if dataclasses.is_dataclass(one))
    return [type(thing), *chain.from_iterable(nested)]


def summary(name: str) -> str:
    """Returns what a method does, in one paragraph."""
    method = find(name)
    own = type(getattr(method, "strategy", method))
    if isinstance(method, Continual) and method.data != OwnTask():
        own = type(method.data)
    return " ".join((inspect.getdoc(own) or "").split("\n\n")[0].split())
