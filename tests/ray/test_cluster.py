"""The pretended cluster itself: its nodes are there under TLS and with a token, and what is killed
or unplugged comes back."""

from __future__ import annotations

from tests.ray.cluster import Cluster


def test_every_host_is_a_node(cluster: Cluster) -> None:
    cluster.wait_for(cluster.hosts)


def test_a_host_without_power_or_cable_is_lost_and_comes_back(cluster: Cluster) -> None:
    _, second, third, fourth = cluster.hosts
    second.kill()
    cluster.unplug(third)
    cluster.wait_for([cluster.head, fourth])
    assert not second.processes()
    cluster.restore()
    cluster.wait_for(cluster.hosts)
