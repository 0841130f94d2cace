"""Teams that play where they did not learn: agents are sets, so that a battle of another size is played by the team of the nearest one."""

from collections.abc import Iterable

from comad.envs.battle import Battle
from comad.envs.units import RACES


def nearest_kin(env: Battle, others: Iterable[Battle]) -> Battle | None:
    """Of battles whose teams know all kinds of units that fight here, the one most like it; none if there is none.

    Whether units are drawn or given counts most, for that decides where battles start, then how many there are on both sides.
    """

    def distance(other: Battle) -> tuple[bool, int, str]:
        sizes = abs(other.num_agents - env.num_agents) + abs(other.num_enemies - env.num_enemies)
        return other.race != env.race, sizes, other.name

    return min((other for other in others if kinds(env) <= kinds(other)), key=distance, default=None)


def kinds(env: Battle) -> set[str]:
    """Who fights in a battle, or may be drawn to."""
    return set(env.units or RACES[env.race])
