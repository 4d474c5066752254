"""Publishers and subscribers of pyzmq, as agents of a run: `python -m pubstorm.fleet.zmq_agent`.
They speak the same contract as engines."""
