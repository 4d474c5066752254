"""Parts that agents in Python share: they speak the same contract as engines."""
