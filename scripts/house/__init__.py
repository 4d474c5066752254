"""Counts what the structure of the tree costs a reader."""
