"""Effects of the faults of a run."""
