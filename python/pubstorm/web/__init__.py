"""The live page: follows the files of a run directory and serves them to browsers, in a process
of its own, so that no browser delays the load."""
