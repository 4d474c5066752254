"""Measurements of a run: monitors and snapshots as time series, phases and summaries."""
