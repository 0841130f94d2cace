"""The loop that every method is trained by: task after task, with evaluations, checkpoints and exact resumption."""
