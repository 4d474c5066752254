"""Identities: the users of a scenario's populations, their passwords and what they may publish and
subscribe to, put where a broker looks them up. It plays nothing."""
