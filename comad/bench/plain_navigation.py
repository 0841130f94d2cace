"""Cooperative navigation in plain Python: one game, one agent after the other, as anybody would write it first.

It shares nothing with `comad.envs.navigation`, so it is both the yardstick for its speed and the second opinion on its rules.
"""

from collections.abc import Iterator, Sequence
from random import Random

Cell = tuple[int, int]

CHANGES: tuple[Cell, ...] = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))
"""Row and column change of stay, north, south, west, east."""


class PlainNavigation:
    """One game of CN on a square field; succeeds when everybody can have a landmark in reach for themselves."""

    def __init__(self, num_agents: int, size: int, limit: int, reach: int = 2) -> None:
        self.num_agents = num_agents
        self.size = size
        self.limit = limit
        self.reach = reach
        self.place([], [])

    def reset(self, random: Random) -> None:
        """Start anew: agents anywhere on cells of their own, landmarks out of everybody's reach while there is room."""
        cells = [(row, column) for row in range(self.size) for column in range(self.size)]
        agents = random.sample(cells, self.num_agents)
        far = [cell for cell in cells if not any(self.in_reach(agent, cell) for agent in agents)]
        near = sorted(set(cells) - set(far))
        spare = random.sample(near, max(0, self.num_agents - len(far)))
        self.place(agents, random.sample(far, self.num_agents - len(spare)) + spare)

    def place(self, agents: Sequence[Cell], landmarks: Sequence[Cell]) -> None:
        """Start anew from a given position."""
        self.agents = list(agents)
        self.landmarks = list(landmarks)
        self.time = 0

    def step(self, actions: Sequence[int]) -> tuple[float, bool]:
        """All agents move at once; the team's reward and whether the game is over."""
        wishes = [self.wish(agent, action) for agent, action in zip(self.agents, actions, strict=True)]
        self.agents = [agent if wishes.count(wish) > 1 else wish for agent, wish in zip(self.agents, wishes, strict=True)]
        self.time += 1
        success = self.everybody_has_a_landmark()
        return float(success), success or self.time == self.limit

    def wish(self, agent: Cell, action: int) -> Cell:
        """The cell an action leads to; an action that leaves the field leads nowhere."""
        row, column = agent[0] + CHANGES[action][0], agent[1] + CHANGES[action][1]
        return (row, column) if self.on_field(row, column) else agent

    def available(self) -> list[list[bool]]:
        """For every agent, which of the five actions stay on the field."""
        return [[self.on_field(row + down, column + right) for down, right in CHANGES] for row, column in self.agents]

    def legal_actions(self) -> Iterator[list[int]]:
        """For every agent, the numbers of its available actions."""
        for mask in self.available():
            yield [action for action, allowed in enumerate(mask) if allowed]

    def on_field(self, row: int, column: int) -> bool:
        """Whether there is such a cell."""
        return 0 <= row < self.size and 0 <= column < self.size

    def in_reach(self, agent: Cell, landmark: Cell) -> bool:
        """Whether the landmark is at most ``reach`` king's moves away."""
        return abs(agent[0] - landmark[0]) <= self.reach and abs(agent[1] - landmark[1]) <= self.reach

    def everybody_has_a_landmark(self) -> bool:
        """Whether landmarks in reach can be dealt out, one to each agent."""
        choices = [[index for index, landmark in enumerate(self.landmarks) if self.in_reach(agent, landmark)] for agent in self.agents]
        if not all(choices):
            return False
        holder: dict[int, int] = {}
        return all(find_landmark(agent, choices, holder, set()) for agent in range(self.num_agents))


def find_landmark(agent: int, choices: Sequence[Sequence[int]], holder: dict[int, int], asked: set[int]) -> bool:
    """Give the agent a landmark, asking those who hold one to take another; ``asked`` are the landmarks already tried."""
    for landmark in choices[agent]:
        if landmark not in asked:
            asked.add(landmark)
            if landmark not in holder or find_landmark(holder[landmark], choices, holder, asked):
                holder[landmark] = agent
                return True
    return False
