"""The pretended cluster itself: nothing that another session has left is in its way."""

from __future__ import annotations

import subprocess

from tests.world.ray.cluster import MARKS, NAMESPACES, PREFIX, Cluster, delete_leftovers

pytestmark = MARKS


def test_what_a_killed_session_has_left_is_deleted_and_no_other(cluster: Cluster) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = f"{PREFIX}-{gone.pid}-1"
    subprocess.run(["ip", "netns", "add", left], check=True)
    delete_leftovers()
    names = {path.name for path in NAMESPACES.iterdir()}
    assert left not in names
    assert {host.name for host in cluster.hosts} <= names
