"""One run, from its start to its stored result."""
