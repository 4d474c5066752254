"""Publishers and subscribers of pyzmq, as agents of a run: `python -m pubstorm.zmq_agent`. They
speak the same contract as engines and know nothing of the run that starts them."""
