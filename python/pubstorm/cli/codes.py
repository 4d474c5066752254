"""Exit codes of the command line, apart from those of verdicts and errors."""

HOST_SHORT = 3
INTERRUPTED = 130
BROKEN_PIPE = 141
