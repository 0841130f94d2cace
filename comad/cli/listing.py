"""`comad list`: what there is to play and to learn."""

import inspect
from dataclasses import dataclass
from typing import Any

from comad import envs, streams
from comad.cli.terminal import show_lines, show_table
from comad.methods import METHODS, summary
from comad.types import Continuous, Spec, Stream


@dataclass(frozen=True)
class List:
    """Show the worlds, the streams of tasks and the methods."""

    def run(self) -> None:
        """Print one table each."""
        specs = [envs.find(name).spec for name in envs.names()]
        show_table(
            "Worlds", ("name", "agents", "targets", "actions", "limit", "version", "rules"), [describe_world(spec) for spec in specs]
        )
        show_lines(["Names with settings:", *[f"  {describe_family(family)}" for family in envs.ENVS.values()], ""])
        show_table(
            "Streams", ("name", "tasks", "updates", "d0", "metric"), [describe_stream(stream) for stream in streams.STREAMS.values()]
        )
        show_table("Methods", ("name", "what it does"), [(name, summary(name)) for name in METHODS])


def describe_world(spec: Spec) -> tuple[str | int, ...]:
    """A row of the table of worlds."""
    actions = f"{len(spec.actions.components)} continuous" if isinstance(spec.actions, Continuous) else spec.num_actions
    return spec.env, spec.num_agents, spec.num_targets, actions, spec.limit, spec.version, spec.rules_hash


def describe_family(family: Any) -> str:
    """How a family's worlds are named, in the words of its ``make``."""
    return " ".join((inspect.getdoc(family.make) or "").replace("``", "").split())


def describe_stream(stream: Stream) -> tuple[str | int | float, ...]:
    """A row of the table of streams."""
    return stream.name, " ".join(task.name for task in stream.tasks), stream.updates, stream.threshold, stream.metric
