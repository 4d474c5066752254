"""Consumers of Kafka, as agents of a run: `python -m pubstorm.fleet.kafka_agent`. They speak the
same contract as engines."""
