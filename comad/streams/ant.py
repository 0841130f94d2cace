"""The Ant: running in eight directions, and running straight with one, two, three or none of its legs out of order."""

from comad.types import Stream, Task

DIRECTIONS = tuple(range(0, 360, 45))
BROKEN = ("Back", "Diagonal", "Front", "Mixed", "Right")

STREAMS = (
    Stream(
        "ant-reward", tuple(Task(f"Reward-{angle}", f"ant-reward-{angle}") for angle in DIRECTIONS), 100_000, threshold=8.0, metric="return"
    ),
    Stream(
        "ant-dynamics",
        # With all legs in order it is the world of the other stream's first task, and has its name.
        (*(Task(word, f"ant-dynamics-{word.lower()}") for word in BROKEN), Task("Normal", "ant-reward-0")),
        100_000,
        threshold=8.0,
        metric="return",
    ),
)
