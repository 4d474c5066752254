"""The needs of a run against the limits of its host, before the run: descriptors, processes, ports,
addresses, memory, connection tracking and backlogs, each with its exact fix. Changes nothing on the
host."""

from pubstorm.host.preflight.engines import agents_here, agents_needed, largest_share, queues_bytes
from pubstorm.host.preflight.host import HostLimits
from pubstorm.host.preflight.need import Fix, Need
from pubstorm.host.preflight.needs import MEMORY, broker_host_needs, needs

__all__ = [
    "MEMORY",
    "Fix",
    "HostLimits",
    "Need",
    "agents_here",
    "agents_needed",
    "broker_host_needs",
    "largest_share",
    "needs",
    "queues_bytes",
]
