"""RabbitMQ outside a run, with its management plugin: its own counts, and its names. It runs in a
process of its own, `python -m tests.kit.rabbitmq FOLDER`, until stdin closes."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import pika
import pytest

from pubstorm.host.children import find
from pubstorm.plan import placed_plan, planned_targets, provisional_plan
from pubstorm.scenario import parse_scenario
from pubstorm.topology import Topology
from tests.kit.ports import free_port

READY_TIMEOUT_S = 120.0
STATS_TIMEOUT_S = 60.0
POLL_S = 0.05
HOSTS = ("/", "vh-0", "vh-1")
"""Virtual hosts of the broker."""
SCENARIO = """\
topology: {brokers: {main: {kind: rabbitmq, plugins: PLUGINS, settings: SETTINGS}}}
populations:
  a: {protocol: amqp, clients: 2, virtual_host: "vh-{n}", subscriptions: [q]}
stages: [connect]
"""


@dataclass
class Rabbit:
    """A RabbitMQ of the tests' own."""

    port: int
    """Port of AMQP."""
    tls_port: int
    management: int

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def channel(
        self, host: str = "/"
    ) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
        """A channel of the independent client."""
        parameters = pika.ConnectionParameters("127.0.0.1", self.port, host)
        connection = pika.BlockingConnection(parameters)
        try:
            yield connection.channel()
        finally:
            if connection.is_open:
                connection.close()

    def ask(self, path: str) -> Any:
        """Returns the broker's own words."""
        request = Request(f"http://127.0.0.1:{self.management}/api/{path}")
        login = base64.b64encode(b"guest:guest").decode()
        request.add_header("Authorization", f"Basic {login}")
        with urlopen(request, timeout=READY_TIMEOUT_S) as answer:
            return json.load(answer)

    def counts(self) -> dict[str, int]:
        """Returns the counts of messages since the start, over all virtual hosts."""
        found = self.ask("overview").get("message_stats", {})
        return {key: value for key, value in found.items() if isinstance(value, int)}

    def until(self, is_there: Callable[[dict[str, int]], bool]) -> dict[str, int]:
        """Waits for counts: the broker states them once a second."""
        deadline_s = time.monotonic() + STATS_TIMEOUT_S
        while not is_there(found := self.counts()) and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
        return found

    def names(self) -> set[tuple[str, str, str]]:
        """Returns kind, virtual host and name of each exchange and queue that somebody declared."""
        found = {("queue", each["vhost"], each["name"]) for each in self.ask("queues")}
        exchanges = {(e["vhost"], e["name"]) for e in self.ask("exchanges") if e["name"]}
        own = {("exchange", *each) for each in exchanges if not each[1].startswith("amq.")}
        return found | own

    def queue(self, name: str, host: str = "/") -> Mapping[str, Any]:
        """Returns a queue in the broker's own words."""
        found: Mapping[str, Any] = self.ask(f"queues/{quote(host, safe='')}/{quote(name)}")
        return found


@contextlib.contextmanager
def rabbit_in(folder: Path, keys: Mapping[str, Path]) -> Iterator[Rabbit]:
    """Starts RabbitMQ with a listener under TLS, which takes clients by their certificates."""
    if find("rabbitmq-server") is None:
        pytest.skip("rabbitmq-server is not installed")
    management, tls_port = free_port(), free_port()
    settings = {
        "management.tcp.ip": "127.0.0.1",
        "management.tcp.port": management,
        "collect_statistics_interval": 1000,
        "listeners.ssl.1": f"127.0.0.1:{tls_port}",
        **{f"ssl_options.{key}": str(path) for key, path in keys.items()},
        "ssl_options.verify": "verify_peer",
        "ssl_options.fail_if_no_peer_cert": False,
        "ssl_cert_login_from": "common_name",
        "auth_mechanisms.1": "PLAIN",
        "auth_mechanisms.2": "EXTERNAL",
    }
    plugins = ["rabbitmq_management", "rabbitmq_auth_mechanism_ssl"]
    text = SCENARIO.replace("SETTINGS", json.dumps(settings)).replace(
        "PLUGINS", json.dumps(plugins)
    )
    command = [sys.executable, "-m", "tests.kit.rabbitmq", str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(text) + "\n")
        process.stdin.flush()
        port = process.stdout.readline()
        assert port, "RabbitMQ does not start"
        yield Rabbit(int(port), tls_port, management)
        process.stdin.close()
        process.wait(READY_TIMEOUT_S)


async def _serve(folder: Path, text: str) -> None:
    scenario = parse_scenario(text, "rabbitmq.yaml")
    topology = Topology(scenario.topology, folder, lambda _event: None)
    try:
        await topology.start()
        placed = zip(
            planned_targets(scenario), topology.addresses, topology.other_ports, strict=True
        )
        targets = [
            target.model_copy(update={"host": host, "port": port, "ports": ports})
            for target, (host, port), ports in placed
        ]
        plan = placed_plan(scenario, provisional_plan(scenario), targets, run_tag=1)
        await topology.provide(plan)
        print(targets[0].ports["amqp"], flush=True)
        await asyncio.to_thread(sys.stdin.read)
    finally:
        await topology.stop()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), json.loads(sys.stdin.readline())))
