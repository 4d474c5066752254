"""Keys: pre-shared keys and certificates for the clients of a run. `files` and `certificates` make
them, `clients` looks at those that a plan names before anything starts."""
