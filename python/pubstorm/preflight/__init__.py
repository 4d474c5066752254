"""What a run needs against what its host gives, before it starts: descriptors, processes, ports,
addresses, memory, connection tracking and backlogs, each with its exact fix. It changes nothing on
the host.
"""

from pubstorm.descriptors import DESCRIPTORS_KEPT
from pubstorm.preflight.brokers import broker_kinds
from pubstorm.preflight.engines import agents_needed, largest_share
from pubstorm.preflight.fixes import Fix, script
from pubstorm.preflight.host import Host
from pubstorm.preflight.need import Need
from pubstorm.preflight.needs import MEMORY, broker_host_needs, needs
from pubstorm.preflight.network import network_needs_here
from pubstorm.preflight.sockets import queues_bytes

__all__ = [
    "DESCRIPTORS_KEPT",
    "MEMORY",
    "Fix",
    "Host",
    "Need",
    "agents_needed",
    "broker_host_needs",
    "broker_kinds",
    "largest_share",
    "needs",
    "network_needs_here",
    "queues_bytes",
    "script",
]
