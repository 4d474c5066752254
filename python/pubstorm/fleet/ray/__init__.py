"""Agents on the hosts of a Ray cluster: the only part of Pubstorm that knows Ray. `site` is what
the run sees; `cluster` is joined and left; `choice` says which host; `slot` is one agent there,
`runner` what goes there with it; `words` are for what Ray raises."""

from pubstorm.fleet.ray.site import RaySite

__all__ = ["RaySite"]
