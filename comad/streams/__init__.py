"""Streams: which tasks a team learns, in which order. A new one is a file with ``STREAMS``, and a line here."""

from collections.abc import Sequence

from comad.errors import unknown
from comad.streams import ant, battle, foraging, navigation
from comad.types import Metric, Stream, Task

STREAMS: dict[str, Stream] = {stream.name: stream for family in (navigation, foraging, battle, ant) for stream in family.STREAMS}


def find(name: str) -> Stream:
    """The stream of that name."""
    if name not in STREAMS:
        raise unknown("stream", name, STREAMS)
    return STREAMS[name]


def custom(tasks: Sequence[str], name: str = "custom", updates: int = 20_000, threshold: float = 8.0, metric: Metric = "return") -> Stream:
    """A stream of one's own: worlds by name, in the order in which they are to be learned."""
    return Stream(name, tuple(Task(task, task) for task in tasks), updates, threshold, metric)
