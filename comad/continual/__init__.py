"""Learning one task after another: the learner, its strategies, and the weights they share."""
