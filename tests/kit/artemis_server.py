"""Artemis: as a broker of a run, which is that of the ready scenario, and outside a run with users,
rights, and ports of AMQP 1.0 with TLS and without."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from pubstorm.host.keys.certificates import Authority, CertificateDates
from tests.kit.ports import free_ports

ROOT = Path(__file__).parents[2]
HOME = Path("/opt/apache-artemis-2.44.0")
READY_TIMEOUT_S = 120.0
POLL_S = 0.2
SCENARIO = ROOT / "scenarios/mqtt-to-amqp1.yaml"
TEXTS = {
    "bootstrap.xml": """\
<broker xmlns="http://activemq.apache.org/schema">
  <jaas-security domain="activemq"/>
  <server configuration="file:{folder}/broker.xml"/>
</broker>
""",
    "management.xml": '<management-context xmlns="http://activemq.apache.org/schema"/>',
    "login.config": """\
activemq {{
  org.apache.activemq.artemis.spi.core.security.jaas.PropertiesLoginModule required
    org.apache.activemq.jaas.properties.user="users.properties"
    org.apache.activemq.jaas.properties.role="roles.properties";
}};
certificates {{
  org.apache.activemq.artemis.spi.core.security.jaas.TextFileCertificateLoginModule required
    org.apache.activemq.jaas.textfiledn.user="certificates.properties"
    org.apache.activemq.jaas.textfiledn.role="roles.properties";
}};
""",
    "users.properties": "reader = secret\n",
    "roles.properties": "readers = reader\n",
    "certificates.properties": "reader = CN=reader\n",
    "broker.xml": """\
<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
  <persistence-enabled>false</persistence-enabled>
  <acceptors>
    <acceptor name="plain">tcp://127.0.0.1:{plain}?protocols=AMQP</acceptor>
    <acceptor name="secure">tcp://127.0.0.1:{secure}?protocols=AMQP;{keys}</acceptor>
    <acceptor name="mutual">tcp://127.0.0.1:{mutual}?protocols=AMQP;{keys};\
{trust};needClientAuth=true;saslMechanisms=EXTERNAL;securityDomain=certificates</acceptor>
  </acceptors>
  <security-settings>
    <security-setting match="#">
      <permission type="consume" roles="readers"/>
      <permission type="createNonDurableQueue" roles="readers"/>
      <permission type="createDurableQueue" roles="readers"/>
      <permission type="deleteNonDurableQueue" roles="readers"/>
      <permission type="createAddress" roles="readers"/>
      <permission type="deleteAddress" roles="readers"/>
    </security-setting>
    <security-setting match="denied"/>
  </security-settings>
  <address-settings>
    <address-setting match="#"/>
    <address-setting match="absent">
      <auto-create-addresses>false</auto-create-addresses>
      <auto-create-queues>false</auto-create-queues>
    </address-setting>
  </address-settings>
</core></configuration>
""",
}


def artemis_entry() -> str:
    """Returns the broker of the ready scenario, as a line of YAML."""
    found: Any = yaml.safe_load(SCENARIO.read_text())
    return json.dumps(found["topology"]["brokers"]["broker"])


@dataclass(frozen=True)
class ArtemisServer:
    """An Artemis of the test's own, for the user reader with the password secret."""

    plain: int
    """Port without TLS."""
    secure: int
    """Port of TLS."""
    mutual: int
    """Port of TLS for clients with a certificate of the user reader."""
    folder: Path
    """Folder with `ca.crt`, and `reader.crt` and `reader.key`."""


@contextlib.contextmanager
def artemis_in(folder: Path) -> Iterator[ArtemisServer]:
    """Starts a server; it is gone afterwards."""
    plain, secure, mutual = free_ports(3)
    dates = CertificateDates.of_days(2)
    authority = Authority.new("ours", dates)
    server, client = authority.server(("127.0.0.1",), dates), authority.client("reader", dates)
    (folder / "ca.crt").write_bytes(authority.credential.certificate)
    (folder / "server.pem").write_bytes(server.key + server.certificate)
    (folder / "reader.crt").write_bytes(client.certificate)
    (folder / "reader.key").write_bytes(client.key)
    facts = {
        "folder": folder,
        "plain": plain,
        "secure": secure,
        "mutual": mutual,
        "keys": f"sslEnabled=true;keyStoreType=PEM;keyStorePath={folder}/server.pem",
        "trust": f"trustStoreType=PEMCA;trustStorePath={folder}/ca.crt",
    }
    for name, text in TEXTS.items():
        (folder / name).write_text(text.format(**facts))
    command = [
        shutil.which("java") or "java",
        *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
        *(f"-Dartemis.home={HOME}", f"-Dartemis.instance={folder}"),
        *(f"-Dartemis.instance.etc={folder}", f"-Ddata.dir={folder}/data"),
        f"-Djava.security.auth.login.config={folder}/login.config",
        *("-cp", f"{HOME}/lib/*", "org.apache.activemq.artemis.cli.Artemis"),
        *("run", "--", f"xml:{folder}/bootstrap.xml"),
    ]
    with (folder / "artemis.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        for port in (plain, secure, mutual):
            _wait_for(process, port, folder / "artemis.log")
        yield ArtemisServer(plain, secure, mutual, folder)
    finally:
        process.kill()
        process.wait()


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline_s:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        time.sleep(POLL_S)
    pytest.fail(f"Artemis does not start: {log.read_text()[-2000:]}")
