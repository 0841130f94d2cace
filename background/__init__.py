"""Works off long jobs at the lowest priority, over many launches: trainings of behavior policies, runs of comparisons."""
