"""Monitors of another host: `pubstorm monitor` serves them there, a run reads them over HTTP."""
