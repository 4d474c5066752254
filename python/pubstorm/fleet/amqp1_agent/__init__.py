"""Receivers of AMQP 1.0, as agents of a run: `python -m pubstorm.fleet.amqp1_agent`. They speak the
same contract as engines."""
