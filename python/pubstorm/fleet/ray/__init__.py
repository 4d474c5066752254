"""Agents on the hosts of a Ray cluster: the only part of Pubstorm that knows Ray. `site` is what
the run sees; `cluster` is joined and left; `choice` says which host; `slot` is one agent there,
`runner` what goes there with it; `words` are for what Ray raises; `security` is what a cluster must
have."""

from pubstorm.fleet.ray import settings  # Before any other: it is for the import of Ray.
from pubstorm.fleet.ray.site import RaySite

__all__ = ["RaySite", "settings"]
