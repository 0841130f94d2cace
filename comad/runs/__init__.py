"""The record of a training run on disk: it survives being killed at any moment and goes on exactly where it was."""
