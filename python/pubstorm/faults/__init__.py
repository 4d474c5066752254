"""Faults: played in a run, and what came of each."""
