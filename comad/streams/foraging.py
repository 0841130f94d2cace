"""Foraging for two with the food in five places: tasks that contradict each other, so that forgetting shows."""

from comad.types import Stream, Task

PLACES = ("BottomLeft", "Bottom", "BottomRight", "Right", "TopRight")

STREAMS = (Stream("lbf", tuple(Task(place, f"lbf-{place.lower()}") for place in PLACES), updates=20_000, threshold=8.0, metric="return"),)
