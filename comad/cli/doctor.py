"""`comad doctor`: what this machine has, and the one line that gets what it lacks."""

import importlib.metadata
import os
import platform
from dataclasses import dataclass
from typing import Any

import jax

from comad import __version__
from comad.cache import cache_folder, compile_folder
from comad.cli.terminal import show_json, show_table
from comad.envs import starcraft_site
from comad.envs.starcraft_maps import ODIS_LIMITS
from comad.envs.starcraft_site import installed
from comad.envs.threads import usable_cores

PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy")
SIMULATORS = {
    "mujoco": ("mujoco", "pip install 'comad[ant]'"),
    "jaxmarl": ("jaxmarl", "pip install 'comad[battle]'"),
    "ray": ("ray", "pip install 'comad[ray]'"),
    "lbforaging": ("lbforaging", "pip install 'comad[dev]'"),
    **starcraft_site.PACKAGES,
}
"""The module that proves each optional package is there, and the line that gets it."""


@dataclass(frozen=True)
class Doctor:
    """Show versions, devices, and which optional simulators are there."""

    json: bool = False
    """Print JSON instead of tables."""

    def run(self) -> None:
        """Look, and print."""
        found = examine()
        if self.json:
            show_json(found)
            return
        show_table("This machine", ("what", "found"), describe_machine(found))
        optional = [(name, *(("yes", "") if state["found"] else ("no", state["get"]))) for name, state in found["optional"].items()]
        show_table("Optional", ("what", "found", "how to get it"), optional)


def examine() -> dict[str, Any]:
    """Everything the doctor knows, as plain JSON values."""
    optional = {name: {"found": installed(module), "get": line} for name, (module, line) in SIMULATORS.items()}
    for name, found, line in starcraft():
        optional[name] = {"found": found, "get": line}
    return {
        "versions": {
            "comad": __version__,
            "python": platform.python_version(),
            **{package: importlib.metadata.version(package) for package in PACKAGES},
        },
        "devices": [str(device) for device in jax.devices()],
        "cores": usable_cores(),
        "memory_gib": memory_gib(),
        "cache": {"folder": str(cache_folder()), "used": compile_folder() is not None},
        "optional": optional,
    }


def starcraft() -> list[tuple[str, bool, str]]:
    """What the game takes besides its packages; none of it is run."""
    has_odis_maps = ODIS_LIMITS.keys() <= starcraft_site.known_maps("smac")
    return [
        ("StarCraft II", starcraft_site.starcraft_folder().is_dir(), starcraft_site.GET_GAME),
        ("SMAC_Maps", starcraft_site.maps_folder().is_dir(), starcraft_site.GET_MAPS),
        ("maps of ODIS", has_odis_maps, starcraft_site.GET_ODIS),
    ]


def memory_gib() -> float | None:
    """Main memory of the machine, where the system tells."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, ValueError, OSError):
        return None


def describe_machine(found: dict[str, Any]) -> list[tuple[str, str]]:
    """What was found, in words."""
    memory, cache = found["memory_gib"], found["cache"]
    unused = " (not used: it cannot be made, or others may write to it)"
    return [
        *found["versions"].items(),
        ("devices", ", ".join(found["devices"])),
        ("cores", str(found["cores"])),
        ("memory", "unknown" if memory is None else f"{memory} GiB"),
        ("cache", cache["folder"] + ("" if cache["used"] else unused)),
    ]
