"""Agents and servers on the hosts of a Ray cluster. `site` is the interface to the run, `choice`
chooses hosts, `hosts` and `runner` keep the processes there, and `cluster` joins and leaves."""

import os

# Ray reads its settings as it is imported, by any part of this package.
os.environ.update(
    {
        # Nothing goes to the makers of Ray, and there is no warning of graphics cards.
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        # No cluster is started by a call that comes after the end.
        "RAY_ENABLE_AUTO_CONNECT": "0",
        # Attempts to join, one a second: what is refused stays so.
        "RAY_gcs_server_port_wait_time_s": "2",
        # Time to look for a node on this host, shorter than the time for joining.
        "RAY_GCS_SERVER_REQUEST_TIMEOUT_SECONDS": "20",
        # Variables that the user has set stay.
        **os.environ,
    }
)

from pubstorm.fleet.ray.choice import Labels
from pubstorm.fleet.ray.hosts import RayHosts
from pubstorm.fleet.ray.site import RaySite

__all__ = ["Labels", "RayHosts", "RaySite"]
