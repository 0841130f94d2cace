"""The flow is visible in the folders: imports point one way."""

import ast
from pathlib import Path

import pytest

import comad
from comad.policy import Policy

PACKAGE = Path(__file__).parent.parent / "comad"

EVERYONE = {"errors", "escaping", "ranges", "settings", "types", "tokens", "files", "checkpoint"}
"""The nouns, and how they get to disk: all stages may use them."""
ALLOWED = {
    "errors": set(),
    "escaping": set(),
    "failpoints": set(),
    "ranges": {"errors"},
    "settings": set(),
    "pieces": set(),
    "repeats": set(),
    "types": {"errors", "pieces", "ranges", "repeats"},
    "tokens": {"errors", "types"},
    "files": {"errors", "failpoints"},
    "checkpoint": {"errors", "files", "settings"},
    "cache": set(),
    "memory": set(),
    "machine": {"cache", "errors"},
    "envs": EVERYONE,
    "streams": EVERYONE,
    "datasets": EVERYONE | {"envs"},
    "networks": EVERYONE | {"pieces"},
    "experts": EVERYONE | {"envs", "streams", "datasets", "networks", "runs", "machine"},
    "continual": EVERYONE | {"networks"},
    "methods": EVERYONE | {"networks", "continual"},
    "evaluation": EVERYONE | {"envs", "continual", "runs"},
    "runs": {"errors", "files", "failpoints", "settings"},
    "tracking": {"errors", "files", "runs"},
    "metrics": {"errors"},
    "theory": {"errors"},
    "training": EVERYONE | {"envs", "streams", "datasets", "continual", "evaluation", "runs", "machine"},
    "policy": EVERYONE | {"envs", "streams", "continual", "methods", "evaluation", "runs"},
    "portrait": EVERYONE | {"envs", "continual", "evaluation", "runs", "policy", "training"},
    "encounters": EVERYONE | {"continual", "runs", "policy", "portrait", "training"},
    "bench": EVERYONE | {"envs", "streams", "datasets", "networks", "continual", "methods", "training", "evaluation", "runs"},
    "grid": {"errors", "files", "ranges", "runs", "failpoints", "settings"},
    "reports": {"errors", "escaping", "files", "metrics", "ranges", "theory", "runs", "settings"},
    "cli": {path.stem for path in PACKAGE.iterdir()},
    "__main__": {"cli"},
}
WITHOUT_JAX = {"errors", "escaping", "failpoints", "memory", "files", "streams", "metrics", "theory", "runs", "tracking", "grid"}
WITHOUT_JAX |= {"reports"}


def imports(source: str) -> set[str]:
    """Every module a source text imports, whatever the form."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def violations(stage: str, source: str) -> list[str]:
    """Imports of a stage that point the wrong way."""
    modules = imports(source)
    ours = {name.split(".")[1] for name in modules if name.startswith("comad.")} - {"__version__"}
    wrong = [f"comad.{other}" for other in sorted(ours - ALLOWED[stage] - {stage})]
    if stage in WITHOUT_JAX:
        wrong += sorted(name for name in modules if name.split(".")[0] in {"jax", "equinox", "optax"})
    return wrong


def sources() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    stage = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert stage in ALLOWED, f"{stage} has no place in the flow yet: give it one above"
    assert violations(stage, path.read_text()) == []


def test_a_forbidden_import_is_found() -> None:
    assert violations("envs", "from comad.datasets import store") == ["comad.datasets"]
    assert violations("envs", "import comad.cli.play") == ["comad.cli"]
    assert violations("continual", "from comad.methods import find") == ["comad.methods"]
    assert violations("methods", "def late():\n    from comad import envs") == ["comad.envs"]
    assert violations("metrics", "import jax.numpy as jnp") == ["jax.numpy"]
    assert violations("envs", "from comad.types import Spec\nimport numpy") == []


def test_the_package_itself_is_imported_without_any_of_its_parts() -> None:
    at_once: list[ast.stmt] = [
        node for node in ast.parse((PACKAGE / "__init__.py").read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert imports(ast.unparse(ast.Module(at_once, []))) == {"typing.Any"}
    assert comad.Policy is Policy


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_command_line_prints(path: Path) -> None:
    calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    printing = [call.id for call in calls if isinstance(call, ast.Name) and call.id == "print"]
    assert path.relative_to(PACKAGE).parts[0] == "cli" or printing == []
