"""Scenario: what the user wrote, read from YAML into values that cannot be wrong."""

from pubstorm.scenario.faults import Fault
from pubstorm.scenario.fleet import ScenarioFleet
from pubstorm.scenario.flows import Publication, Subscription
from pubstorm.scenario.load import load_scenario, parse_scenario, searched, varied
from pubstorm.scenario.model import Scenario, Step, Validity
from pubstorm.scenario.populations import Population
from pubstorm.scenario.series import Search, Sweep
from pubstorm.scenario.stages import Connect, Disconnect, Hold, Publish, Stage
from pubstorm.scenario.topology import Bridge, Broker, ScenarioTopology

__all__ = [
    "Bridge",
    "Broker",
    "Connect",
    "Disconnect",
    "Fault",
    "Hold",
    "Population",
    "Publication",
    "Publish",
    "Scenario",
    "ScenarioFleet",
    "ScenarioTopology",
    "Search",
    "Stage",
    "Step",
    "Subscription",
    "Sweep",
    "Validity",
    "load_scenario",
    "parse_scenario",
    "searched",
    "varied",
]
