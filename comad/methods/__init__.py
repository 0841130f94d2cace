"""What learns: one file per method, each a frozen dataclass of its settings with five pure verbs."""
