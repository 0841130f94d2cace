"""FT: fine-tuning. One network learns task after task, with nothing against forgetting."""

from dataclasses import dataclass, field

from comad.methods import plain, single
from comad.methods.plain import Learner
from comad.ranges import ranged


@dataclass(frozen=True)
@ranged
class Ft:
    """Fine-tunes one network on task after task, with nothing against forgetting."""

    learner: Learner = field(default_factory=Learner)
    """The offline learner."""

    init = plain.init
    begin = plain.begin
    update = plain.update
    finish = single.finish
    route = single.route
    describe = single.describe
    start = plain.start
    act = plain.act
