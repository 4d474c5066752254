"""Kafka outside a run: a port of TLS with logins, and a plain one."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pubstorm.host.keys.certificates import Authority, CertificateDates
from tests.kit.ports import free_ports

JARS = Path(os.environ.get("PUBSTORM_BROKERS") or Path.home() / ".cache/pubstorm/brokers") / "kafka"
READY_TIMEOUT_S = 120.0
POLL_S = 0.2
LOGIN = "org.apache.kafka.common.security"
SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners={listeners},CONTROLLER://127.0.0.1:{controller}
advertised.listeners={listeners}
listener.security.protocol.map=SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
listener.name.sasl_ssl.plain.sasl.jaas.config={login}.plain.PlainLoginModule required \\
  user_reader="secret";
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config={login}.scram.ScramLoginModule required;
ssl.keystore.type=PEM
ssl.keystore.location={folder}/server.pem
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
super.users=User:ANONYMOUS
log.dirs={folder}/log
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
"""


@dataclass(frozen=True)
class KafkaServer:
    """A Kafka of the test's own."""

    secure: int
    """Port of TLS, for the user reader with the password secret."""
    plain: int
    """Port without TLS and logins, whose clients may do everything."""
    authority: Path
    """Certificate of the authority that signed the server's."""


@contextlib.contextmanager
def kafka_in(folder: Path) -> Iterator[KafkaServer]:
    """Starts a server; it is gone afterwards."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    secure, plain, controller = free_ports(3)
    (folder / "log").mkdir()
    meta = "version=1\ncluster.id=cHVic3Rvcm0tcHVic3Rvcg\nnode.id=1\n"
    (folder / "log/meta.properties").write_text(meta)
    authority = Authority.new("ours", CertificateDates.of_days(2))
    (folder / "ca.crt").write_bytes(authority.credential.certificate)
    server = authority.server(("127.0.0.1",), CertificateDates.of_days(2))
    (folder / "server.pem").write_bytes(server.key + server.certificate)
    listeners = f"SASL_SSL://127.0.0.1:{secure},PLAINTEXT://127.0.0.1:{plain}"
    facts = {"listeners": listeners, "controller": controller, "folder": folder, "login": LOGIN}
    (folder / "server.properties").write_text(SETTINGS.format(**facts))
    words = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*")
    command = (shutil.which("java") or "java", *words, "kafka.Kafka", folder / "server.properties")
    with (folder / "kafka.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{plain}", "log_level": "0"})
        while process.poll() is None and time.monotonic() < deadline_s:
            with contextlib.suppress(KafkaException):
                admin.list_topics(timeout=1)
                break
            time.sleep(POLL_S)
        else:
            pytest.fail(f"Kafka does not start: {(folder / 'kafka.log').read_text()[-2000:]}")
        yield KafkaServer(secure, plain, folder / "ca.crt")
    finally:
        process.kill()
        process.wait()
