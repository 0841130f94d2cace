"""What a run is, written down so that it can be told from others and made again."""

import hashlib
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from comad import __version__
from comad.machine import describe_machine
from comad.methods.base import Method
from comad.settings import identifying, settings
from comad.training.lessons import Lesson
from comad.training.loop import Budget
from comad.types import Stream

LIBRARIES = ("jax", "jaxlib", "equinox", "optax", "numpy", "safetensors")


def identify(
    name: str, method: Method[Any], stream: Stream, quality: str, lessons: Sequence[Lesson], seed: int, budget: Budget
) -> dict[str, Any]:
    """Settings of a run: what makes it this one, and what it is being made with."""
    return {
        "identity": {
            "method": name,
            "settings": identifying(method),
            "stream": stream.name,
            "tasks": [settings(lesson.task) for lesson in lessons],
            "threshold": stream.threshold,
            "metric": stream.metric,
            "quality": quality,
            "datasets": {lesson.dataset.spec.env: lesson.dataset.content for lesson in lessons},
            "worlds": {lesson.env.spec.env: lesson.env.spec.rules_hash for lesson in lessons},
            "seed": seed,
            "budget": settings(budget),
        },
        "actions": "vectors" if lessons[0].env.spec.continuous else "numbered",
        "comad": {"version": __version__, "source": source_hash()},
        "libraries": {library: version(library) for library in LIBRARIES},
        "python": sys.version.split()[0],
        "machine": describe_machine(),
    }


def source_hash() -> str:
    """A hash of the package's code: it says whether two runs were made by the same program."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]
