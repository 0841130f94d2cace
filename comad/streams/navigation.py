"""Cooperative navigation with two to five agents: related tasks that grow, in four orders, and a stream in which they come back."""

from collections.abc import Sequence

from comad.types import Stream, Task


def order(name: str, team_sizes: Sequence[int]) -> Stream:
    """CN tasks by team size."""
    tasks = tuple(Task(f"CN-{size}", f"cn-{size}") for size in team_sizes)
    return Stream(name, tasks, updates=20_000, threshold=2.0, metric="return")


STREAMS = (
    order("cn", (2, 3, 4, 5)),
    order("cn-seq1", (5, 4, 3, 2)),
    order("cn-seq2", (3, 5, 2, 4)),
    order("cn-seq3", (4, 2, 5, 3)),
    order("repeated-cn", (2, 3, 4, 5, 2, 3, 4, 5)),
)
