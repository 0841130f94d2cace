"""What a run is, written down so that it can be told from others and made again."""

import hashlib
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from comad import __version__
from comad.continual.method import Method
from comad.machine import describe_machine
from comad.settings import identifying, settings
from comad.training.lessons import Lesson
from comad.training.loop import Budget
from comad.types import Spec, Stream

LIBRARIES = ("jax", "jaxlib", "equinox", "optax", "numpy", "safetensors")


def identify(
    name: str, method: Method[Any], stream: Stream, quality: str, lessons: Sequence[Lesson], seed: int, budget: Budget
) -> dict[str, Any]:
    """Settings of a run: what makes it this one, and what it is being made with."""
    specs = [lesson.env.spec for lesson in lessons]
    datasets = {lesson.dataset.spec.env: lesson.dataset.content for lesson in lessons}
    return {
        "identity": make_identity(name, method, stream, quality, specs, datasets, seed, budget),
        "actions": "vectors" if lessons[0].env.spec.continuous else "numbered",
        "comad": {"version": __version__, "source": source_hash()},
        "libraries": {library: version(library) for library in LIBRARIES},
        "python": sys.version.split()[0],
        "machine": describe_machine(),
    }


def make_identity(
    name: str,
    method: Method[Any],
    stream: Stream,
    quality: str,
    specs: Sequence[Spec],
    datasets: Mapping[str, str],
    seed: int,
    budget: Budget,
) -> dict[str, Any]:
    """Returns what makes a run this one; another value anywhere makes it another run.

    Args:
        name: the method's registered name.
        method: its settings.
        stream: what is learned.
        quality: which data.
        specs: of the tasks' environments, whose rules count.
        datasets: hash of what each dataset says, by environment.
        seed: decides what chance has a part in.
        budget: how long.
    """
    return {
        "method": name,
        "settings": identifying(method),
        "stream": stream.name,
        "tasks": [settings(task) for task in stream.tasks],
        "threshold": stream.threshold,
        "metric": stream.metric,
        "quality": quality,
        "datasets": dict(datasets),
        "worlds": {spec.env: spec.rules_hash for spec in specs},
        "seed": seed,
        "budget": settings(budget),
    }


def source_hash() -> str:
    """A hash of the package's code: it says whether two runs were made by the same program."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]
