"""MT: multi-task learning. One network learns all tasks at once; every update is on a task drawn at random."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Array, Int

from comad.methods import plain, single
from comad.methods.base import Lot
from comad.methods.plain import Learner, PlainState
from comad.methods.turns import BLOCK
from comad.ranges import ranged
from comad.types import Batch, PRNGKey

LONGEST = 4
"""Updates in a row on one task that are made in one call."""


@dataclass(frozen=True)
@ranged
class Mt:
    """Learns all tasks of the stream at once, with one network: what could be reached if nothing had to wait."""

    learner: Learner = field(default_factory=Learner)
    """The offline learner."""

    def schedule(self, seed: int, task: int, num_tasks: int, update: int, count: int) -> Sequence[Lot]:
        """A task drawn anew for every update; neighbors of one task are made together."""
        lots: list[Lot] = []
        for number in range(update, update + count):
            drawn = np.random.default_rng([seed, task, number])
            source = int(drawn.integers(num_tasks))
            if lots and lots[-1].source == source and lots[-1].count < LONGEST:
                lots[-1] = Lot(source, lots[-1].first, lots[-1].count + 1)
            else:
                lots.append(Lot(source, task * BLOCK + number, 1))
        return lots

    def begin(self, state: PlainState, task: Int[Array, ""], sample: Batch, key: PRNGKey) -> PlainState:
        """Tasks do not begin here: all are there from the start."""
        return state

    init = plain.init
    update = plain.update
    finish = single.finish
    route = single.route
    describe = single.describe
    start = plain.start
    act = plain.act
