"""What it takes to play StarCraft II, and whether it is there: found out without running anything of it."""

import ast
import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from comad.errors import UserError

PACKAGES = {
    "smac": ("smac.env.starcraft2", "pip install git+https://github.com/oxwhirl/smac.git"),
    "smacv2": ("smacv2.env.starcraft2", "pip install git+https://github.com/oxwhirl/smacv2.git"),
}
"""The module that proves each package is there (the package index has another ``smac``), and the line that gets it."""
GET_GAME = "install StarCraft II and set SC2PATH to its folder"
GET_MAPS = (
    "copy SMAC_Maps from the sources of SMACv2 (smacv2/env/starcraft2/maps), which has SMAC's as well, into Maps in the game's folder"
)
GET_ODIS = "get github.com/LAMDA-RL/ODIS and copy its smac_patch over smac's maps, as its install_smac_patch.sh does"


@dataclass(frozen=True)
class Needs:
    """What a world takes to be played, besides the game itself."""

    package: str
    map_name: str
    """As the package's registry has it."""
    file: str
    """The file of the map, without its ending."""
    origin: str
    """Where a map comes from that the registry does not have."""


def check_playable(env: str, needs: Needs) -> None:
    """Refuse a world that cannot be played here, saying what is missing and where it comes from."""
    package = needs.package
    module, line = PACKAGES[package]
    if not installed(module):
        raise UserError(f"{env} needs {package}, which is not installed: {line}")
    folder = starcraft_folder()
    if not folder.is_dir():
        raise UserError(f"{env} needs StarCraft II, but there is no folder {folder}: {GET_GAME}")
    known = known_maps(package)
    if known and needs.map_name not in known:
        raise UserError(f"{env}: the installed {package} has no map {needs.map_name}, {needs.origin}")
    path = maps_folder() / f"{needs.file}.SC2Map"
    if not path.is_file():
        raise UserError(f"{env}: there is no map file {path}: {GET_MAPS}")


def starcraft_folder() -> Path:
    """Where the game is looked for: ``$SC2PATH``, else the place its Python packages assume."""
    given = os.environ.get("SC2PATH")
    return Path(given) if given else Path(os.path.expanduser("~/StarCraftII"))


def maps_folder() -> Path:
    """Where the packages look for their maps."""
    return starcraft_folder() / "Maps" / "SMAC_Maps"


def known_maps(package: str) -> set[str]:
    """The maps a package has registered, read from its source because importing it needs the game's client; empty if nothing is found."""
    found = find_module(f"{PACKAGES[package][0]}.maps.smac_maps")
    if found is None or found.origin is None:
        return set()
    try:
        return set(_registered(ast.parse(Path(found.origin).read_text())))
    except (OSError, SyntaxError, ValueError):
        return set()


def _registered(source: ast.AST) -> Iterator[str]:
    """Names under which a source text describes a map by, among other things, its number of agents."""
    for node in ast.walk(source):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                entries = [ast.unparse(entry) for entry in value.keys if entry] if isinstance(value, ast.Dict) else []
                if isinstance(key, ast.Constant) and "'n_agents'" in entries:
                    yield str(key.value)


def installed(module: str) -> bool:
    """Whether a module is there, without running any of it: it need not even import."""
    return find_module(module) is not None


def find_module(module: str) -> ModuleSpec | None:
    """Where a module is, without running any of it or of the packages it is in."""
    package, *parts = module.split(".")
    name, spec = package, importlib.util.find_spec(package)
    for part in parts:
        if spec is None or spec.submodule_search_locations is None:
            return None
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    return spec
