"""Observers in a process that has more descriptors than `select` takes, as beside a thousand
brokers."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import pytest

from pubstorm.measure.monitors.sys_topics import SysTopicsMonitor
from pubstorm.play.clean_start.observer import Deadline, TargetObserver
from pubstorm.topology.observer import ANONYMOUS
from tests.kit import made
from tests.system.monitors.conftest import BrokerMaker, read_until

SELECT_TAKES = 1024


@pytest.fixture
def no_low_descriptor() -> Iterator[None]:
    """All that `select` takes are in use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * SELECT_TAKES:
        pytest.skip("the limit of descriptors is too low")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * SELECT_TAKES), hard))
    taken: list[int] = []
    while not taken or taken[-1] < SELECT_TAKES:
        taken.append(os.open(os.devnull, os.O_RDONLY))
    yield
    for descriptor in taken:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_broker_is_observed(mosquitto: BrokerMaker, request: pytest.FixtureRequest) -> None:
    """Its figures are read, and stale state is looked for."""
    target = mosquitto()
    request.getfixturevalue("no_low_descriptor")
    monitor = SysTopicsMonitor(made.source("broker"), target, ("$SYS/#",))
    monitor.start()
    assert read_until(monitor, "$SYS/clients/connected")
    monitor.stop()
    with TargetObserver(target, ANONYMOUS, "look", Deadline(10), clean=True) as observer:
        assert observer.look(("a/#",)).retained == {}
