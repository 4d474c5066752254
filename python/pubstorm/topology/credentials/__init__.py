"""Credentials that a run makes for its brokers, bridges and clients, and deletes at its end: keys
and certificates, user names and passwords."""
