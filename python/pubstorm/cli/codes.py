"""Exit codes of the command line, apart from those of verdicts and errors."""

HOST_SHORT = 3
