"""Settings of Ray for a conductor. Ray reads them as it is imported: who imports any part of this
package has them set before. Set otherwise in the environment, they stay so."""

import os

SETTINGS = {
    # Nothing goes to the makers of Ray, and there is no warning of graphics cards.
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # No cluster is started by a call that comes after the end.
    "RAY_ENABLE_AUTO_CONNECT": "0",
    # Attempts to join, one a second: what is refused stays so.
    "RAY_gcs_server_port_wait_time_s": "2",
    # How long a node is looked for on this host, shorter than the time for joining.
    "RAY_GCS_SERVER_REQUEST_TIMEOUT_SECONDS": "20",
}
for _name, _value in SETTINGS.items():
    os.environ.setdefault(_name, _value)
