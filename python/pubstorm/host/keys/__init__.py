"""Keys: pre-shared keys and certificates for the clients of a run. `psk` and `authority` make them,
`check` looks at those that a plan names before anything starts."""
