"""Rehearsal: fine-tuning, with a few episodes of old tasks kept and learned again at every second step."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from comad.methods import plain, single
from comad.methods.base import Lot
from comad.methods.plain import Learner
from comad.methods.turns import BLOCK
from comad.ranges import CountOrZero, Updates, ranged


@dataclass(frozen=True)
@ranged
class Rehearsal:
    """Fine-tunes one network while learning kept episodes of old tasks again at every second step."""

    learner: Learner = field(default_factory=Learner)
    """The offline learner."""
    memory: CountOrZero = 128
    """Episodes kept in all, in equal shares of all old tasks."""
    every: Updates = 2
    """Steps after which one more is made on an old task, drawn at random."""

    def schedule(self, seed: int, task: int, num_tasks: int, update: int, count: int) -> Sequence[Lot]:
        """The task's own data, and after every few updates one more on an old task's kept episodes."""
        share = self.memory // max(task, 1)
        if task == 0 or share == 0:
            return [Lot(task, update, count)]
        lots: list[Lot] = []
        for number in range(update, update + count):
            if lots and lots[-1].kept is None and lots[-1].count < self.every:
                lots[-1] = Lot(task, lots[-1].first, lots[-1].count + 1)
            else:
                lots.append(Lot(task, number, 1))
            if number % self.every == self.every - 1:
                old = int(np.random.default_rng([seed, task, number]).integers(task))
                lots.append(Lot(old, BLOCK * task + number, 1, kept=share))
        return lots

    init = plain.init
    begin = plain.begin
    update = plain.update
    finish = single.finish
    route = single.route
    describe = single.describe
    start = plain.start
    act = plain.act
