"""Battles: marines in four orders, stalkers and zealots, and three races whose units change from episode to episode."""

from collections.abc import Sequence

from comad.types import Stream, Task

RACE_SIZES = ("5v5", "6v6", "10v10", "20v20", "10v11", "20v23")
MARINES = ("3m", "4m", "10m", "12m", "5m_vs_6m", "7m_vs_8m", "9m_vs_10m", "13m_vs_15m")
STALKERS_AND_ZEALOTS = ("1s1z", "2s3z", "2s4z", "3s5z", "4s4z", "2s1z_vs_3z", "2s2z_vs_4z", "4s4z_vs_8z")


def order(name: str, battles: Sequence[str]) -> Stream:
    """Battles by name."""
    return Stream(name, tuple(Task(battle, battle) for battle in battles), updates=20_000, threshold=8.0, metric="success")


STREAMS = (
    order("marines", MARINES),
    order("marines-seq1", MARINES[::-1]),
    order("marines-seq2", ("12m", "3m", "7m_vs_8m", "13m_vs_15m", "4m", "9m_vs_10m", "10m", "5m_vs_6m")),
    order("marines-seq3", ("5m_vs_6m", "10m", "13m_vs_15m", "4m", "9m_vs_10m", "3m", "12m", "7m_vs_8m")),
    order("stalker-zealot", STALKERS_AND_ZEALOTS),
    *(order(race, [f"{race}_{size}" for size in RACE_SIZES]) for race in ("protoss", "terran", "zerg")),
)
