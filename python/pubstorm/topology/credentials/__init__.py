"""What a run makes for its brokers, bridges and clients so that they know one another, and forgets
at its end: keys and certificates, user names and passwords."""
