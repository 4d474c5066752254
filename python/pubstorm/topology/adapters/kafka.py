"""Kafka without ZooKeeper: one process that is broker and controller, with its log in its folder.
Each broker is a cluster of its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from pubstorm.errors import TopologyError
from pubstorm.host.preflight.need import Appetite
from pubstorm.topology.adapters.command import BROKERS, READY_TIMEOUT_S
from pubstorm.topology.broker import BrokerProcess

CLUSTER_ID = "cHVic3Rvcm0tcHVic3Rvcg"
"""Any identifier of 22 characters of base 64."""
OPTIONS = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options of the JVM, for a small broker that starts soon."""


class KafkaBroker(BrokerProcess):
    """Kafka as a child process."""

    kind: ClassVar[str] = "kafka"
    appetite: ClassVar[Appetite] = Appetite(600 * 2**20, 200, threads_per_core=40)
    programs: ClassVar[Sequence[str]] = ("java",)
    ready_timeout_s = READY_TIMEOUT_S

    async def program(self) -> str:
        """Returns the path of Java; raises TopologyError where Java or Kafka is missing."""
        java = self.place.binary or shutil.which("java")
        if java is None:
            text = f"broker {self.name}: java is not installed"
            raise TopologyError(text, "apt-get install openjdk-17-jre-headless", exit_code=2)
        if not (_folder() / "VERSION").is_file():
            text = f"broker {self.name}: {_folder()} has no Kafka"
            raise TopologyError(text, "scripts/install-brokers kafka", exit_code=2)
        return java

    async def version_of(self, program: str) -> str:  # noqa: ARG002
        """Returns the version that was installed."""
        return (_folder() / "VERSION").read_text().strip()

    async def configure(self, program: str) -> Sequence[str]:
        """Writes server.properties, and the file that makes the folder one of a cluster."""
        machine = self.place.machine
        self.port = self.observer_port = self.place.port or await machine.free_port()
        controller = await machine.free_port()
        log = self.folder / "log"
        self.write("log/meta.properties", f"version=1\ncluster.id={CLUSTER_ID}\nnode.id=1\n")
        ours = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{self.host}:{controller}",
            "listeners": f"PLAINTEXT://{self.host}:{self.port},"
            f"CONTROLLER://{self.host}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.host}:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(log.absolute()),
        }
        path = self.write("server.properties", properties(self.place.settings, ours))
        return (program, *OPTIONS, "-cp", f"{_folder()}/*", "kafka.Kafka", str(path.absolute()))


def properties(settings: Mapping[str, object], ours: Mapping[str, str]) -> str:
    """The text of server.properties: the user's settings win over our defaults, not over `ours`.
    Groups of one broker begin at once, and have one copy of their offsets."""
    defaults: dict[str, object] = {
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
    }
    return "".join(f"{k}={_written(v)}\n" for k, v in {**defaults, **settings, **ours}.items())


def _written(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(_written, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _folder() -> Path:
    """The folder of its jars."""
    folder = os.environ.get(BROKERS) or Path.home() / ".cache/pubstorm/brokers"
    return Path(folder) / "kafka"
