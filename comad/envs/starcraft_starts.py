"""How battles of SMACv2 begin: which units fight, and where they stand.

SMACv2 can draw this itself, but from generators nobody can seed. It also takes a finished draw, so this is one, from the episode's seed.
"""

from typing import Any

import numpy as np

from comad.envs.starcraft_maps import RACES, RaceMap

WEIGHTS = (0.45, 0.45, 0.1)
"""How often each unit of a race comes, in the race's order."""
HELPLESS = {"medivac", "baneling"}
"""A team of nothing but these would be no team: medivacs cannot fight, banelings die of it."""
SIZE = 32.0
"""Width and height of the map, in cells."""
GAP = 2.0
"""Cells kept free between the sides: the game cannot put enemies on the same spot."""
MIRRORED = 0.5
"""Chance of a start in which the sides mirror each other; else the agents are surrounded."""


def draw_start(rules: RaceMap, seed: int, attempt: int) -> dict[str, Any]:
    """An episode's configuration as SMACv2's ``reset`` takes it. A start the game refuses is followed by another attempt's."""
    draw = np.random.default_rng((seed, attempt))
    team = draw_team(draw, rules.race, rules.agents)
    extra = draw_team(draw, rules.race, rules.enemies - rules.agents)
    places = mirrored(draw, rules.agents, rules.enemies) if draw.random() < MIRRORED else surrounded(draw, rules.agents, rules.enemies)
    return {
        "team_gen": {"ally_team": team, "enemy_team": [*team, *extra][: rules.enemies], "id": 0},
        "ally_start_positions": {"item": places[0], "id": 0},
        "enemy_start_positions": {"item": places[1], "id": 0},
    }


def draw_team(draw: np.random.Generator, race: str, count: int) -> list[str]:
    """Units of a race, each drawn by itself; a team that cannot fight is drawn again."""
    if count < 1:
        return []
    while True:
        team = [str(unit) for unit in draw.choice(RACES[race], count, p=WEIGHTS)]
        if set(team) - HELPLESS or len(set(team)) > 1:
            return team


def mirrored(draw: np.random.Generator, agents: int, enemies: int) -> tuple[np.ndarray, np.ndarray]:
    """Agents anywhere in the left half, enemies opposite; enemies without an opposite number anywhere in the right half."""
    ours = draw.uniform((0.0, 0.0), (SIZE / 2 - GAP / 2, SIZE), (agents, 2))
    opposite = np.stack([SIZE - ours[:, 0], ours[:, 1]], axis=-1)
    extra = draw.uniform((SIZE / 2, 0.0), (SIZE, SIZE), (max(0, enemies - agents), 2))
    return ours, np.concatenate([opposite, extra])[:enemies]


def surrounded(draw: np.random.Generator, agents: int, enemies: int) -> tuple[np.ndarray, np.ndarray]:
    """Agents in the middle, enemies in one to four groups, each somewhere on the way to a corner of its own."""
    middle = np.full(2, SIZE / 2)
    groups = int(draw.integers(1, 5))
    sizes = draw.multinomial(enemies, np.full(groups, 1 / groups))
    nearness = draw.random((groups, 1))
    corners = SIZE * np.array([(0, 0), (0, 1), (1, 1), (1, 0)])[draw.permutation(4)[:groups]]
    inner = middle + GAP * np.sign(corners - middle)
    return np.tile(middle, (agents, 1)), np.repeat(nearness * inner + (1 - nearness) * corners, sizes, axis=0)
