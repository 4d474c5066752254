"""Pubstorm in Python programs and tests: `run` plays a scenario, `load` reads a stored one."""

from pubstorm.api.play import PopulationFigures, StageFigures, run
from pubstorm.api.stored import Quantity, Result, load

__all__ = ["PopulationFigures", "Quantity", "Result", "StageFigures", "load", "run"]
