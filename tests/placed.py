"""Finished runs as files alone: what a report reads, without a training."""

import json
from pathlib import Path
from typing import Any

from comad.runs.seal import seal_run


def command(identity: Any, folder: str) -> str:
    """What might make a run again."""
    return f"comad train {identity['method']} --out {folder}"


def place(
    folder: Path,
    name: str,
    seed: int,
    final: list[float],
    learned: float = 1.0,
    greedily: float = 1.0,
    actions: str = "numbered",
    **other: Any,
) -> Path:
    """A finished run of two tasks with one evaluation each: task 0 was done ``learned`` well when it had just been learned.

    Greedy play scores ``greedily`` times as much.
    """
    path = folder / "lbf-expert" / f"{name}-seed{seed}"
    path.mkdir(parents=True)
    identity = {
        "method": name.split("-")[0],
        "stream": "lbf",
        "quality": "expert",
        "seed": seed,
        "tasks": [{"name": "first"}, {"name": "second"}],
        "budget": {"updates": 10, "evaluations": 1},
        **other,
    }
    (path / "settings.json").write_text(json.dumps({"identity": identity, "actions": actions}))
    curves = [(0, 0, [0.0, 0.0]), (0, 1, [learned, 0.0]), (1, 0, [learned, 0.0]), (1, 1, final)]
    lines = [
        {"task": task, "point": point, "sampled": {"score": score}, "greedy": {"score": [greedily * one for one in score]}}
        for task, point, score in curves
    ]
    (path / "scores.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for journal in ("heads", "logs"):
        (path / f"{journal}.jsonl").write_text("")
    seal_run(path)
    return path
