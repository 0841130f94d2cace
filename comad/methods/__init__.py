"""What learns: one file per method, each a frozen dataclass of its settings with pure verbs. A new one is a file and a line here."""

from typing import Any

from comad.errors import unknown
from comad.methods.comad import Comad
from comad.methods.comad_plus import ComadPlus
from comad.methods.ewc import Ewc
from comad.methods.fs import Fs
from comad.methods.ft import Ft
from comad.methods.hissd import Hissd
from comad.methods.mt import Mt
from comad.methods.odis import Odis
from comad.methods.owl import Owl
from comad.methods.rehearsal import Rehearsal

METHODS: dict[str, type[Any]] = {
    "comad": Comad,
    "comad-plus": ComadPlus,
    "ft": Ft,
    "fs": Fs,
    "ewc": Ewc,
    "owl": Owl,
    "mt": Mt,
    "rehearsal": Rehearsal,
    "odis": Odis,
    "hissd": Hissd,
}


def find(name: str) -> type[Any]:
    """The method of that name: the class of its settings."""
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]
