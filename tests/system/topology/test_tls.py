"""mosquitto with keys of the run: each mode takes the handshake of other people's TLS, and refuses
clients without the key."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import stat
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pubstorm.contract.plan import Plan
from pubstorm.errors import TopologyError
from pubstorm.plan import compile_plan, planned_targets
from pubstorm.plan.stages import PlannedFault
from pubstorm.scenario import Scenario, parse_scenario
from pubstorm.topology import BrokerEvent, Topology
from pubstorm.topology.faults import Faults
from tests.system.topology.conftest import needs_mosquitto, up

CONNECT = bytes.fromhex("100c00044d5154540402003c0000")
CONNACK = bytes.fromhex("20020000")
PING, PONG = bytes.fromhex("c000"), bytes.fromhex("d000")
SCENARIO = """\
topology: {{brokers: {{broker: {{kind: mosquitto, tls: {mode}}}}}}}
populations:
  device:
    clients: 3
    client_id: "dev-{{n}}"
    first: 5
    subscriptions: [a]
    tls: {tls}
stages: [connect]
"""

pytestmark = needs_mosquitto


def scenario_of(mode: str, tls: str = "{}") -> Scenario:
    return parse_scenario(SCENARIO.format(mode=mode, tls=tls), "s.yaml")


def planned(scenario: Scenario) -> Plan:
    return compile_plan(scenario, planned_targets(scenario), run_tag=1)


@asynccontextmanager
async def secured(mode: str, folder: Path) -> AsyncIterator[tuple[Topology, dict[str, Any]]]:
    """A broker that is up with keys, which are private, and its clients' TLS; the keys are gone
    afterwards."""
    scenario, died = scenario_of(mode), list[BrokerEvent]()
    topology = Topology(scenario.topology, folder, died.append)
    topology.keys.make(planned(scenario))
    async with up(topology):
        assert stat.S_IMODE((folder / "keys").stat().st_mode) == 0o700
        private = [path for path in (folder / "keys").rglob("*") if path.suffix != ".crt"]
        files = [path for path in private if path.is_file()]
        assert files and {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
        yield topology, tls_of(topology.keys.equip(planned(scenario)))
    assert died == []
    assert not (folder / "keys").exists()
    assert (folder / "keys-deleted.txt").read_text()


def answer(address: tuple[str, int], context: ssl.SSLContext) -> bytes:
    """Answer of the broker to CONNECT."""
    with (
        socket.create_connection(address, 10) as plain,
        context.wrap_socket(plain, server_hostname=address[0]) as secure,
    ):
        secure.sendall(CONNECT)
        return secure.recv(4)


def tls_of(plan: Plan) -> dict[str, Any]:
    tls = plan.populations[0].tls
    assert tls is not None
    return tls.model_dump()


async def test_a_server_certificate_of_the_run_is_good_for_its_address(tmp_path: Path) -> None:
    async with secured("server", tmp_path) as (topology, tls):
        assert (tls["certificate"], tls["psk"]) == (None, None)
        context = ssl.create_default_context(cafile=tls["ca"])
        assert answer(topology.addresses[0], context) == CONNACK
        with pytest.raises(ssl.SSLCertVerificationError):
            answer(topology.addresses[0], ssl.create_default_context())


async def test_a_rotated_certificate_is_served_and_connections_stay(tmp_path: Path) -> None:
    async with secured("server", tmp_path) as (topology, tls):
        context = ssl.create_default_context(cafile=tls["ca"])
        address = topology.addresses[0]

        def serial() -> str:
            with (
                socket.create_connection(address, 10) as plain,
                context.wrap_socket(plain, server_hostname=address[0]) as secure,
            ):
                return str((secure.getpeercert() or {})["serialNumber"])

        fault = PlannedFault(0, "rotate", "rotate", 0, 0, "broker", (0,))
        faults = Faults(topology, topology.bridges.links)
        with (
            socket.create_connection(address, 10) as plain,
            context.wrap_socket(plain, server_hostname=address[0]) as stays,
        ):
            stays.sendall(CONNECT)
            assert stays.recv(4) == CONNACK
            before = serial()
            assert await faults.begin(fault) == ()
            async with asyncio.timeout(30):
                while serial() == before:
                    await asyncio.sleep(0.01)
            assert await faults.repair(fault) == ()
            stays.sendall(PING)
            assert stays.recv(2) == PONG
        assert stat.S_IMODE((tmp_path / "keys" / "server.key").stat().st_mode) == 0o600


async def test_mutual_tls_takes_clients_with_a_key_and_no_others(tmp_path: Path) -> None:
    async with secured("mutual", tmp_path) as (topology, tls):
        for n in (5, 6, 7):
            context = ssl.create_default_context(cafile=tls["ca"])
            paths = (tls[part].replace("{n}", str(n)) for part in ("certificate", "key"))
            context.load_cert_chain(*paths)
            assert answer(topology.addresses[0], context) == CONNACK
        with pytest.raises((ssl.SSLError, ConnectionError)):
            assert answer(topology.addresses[0], ssl.create_default_context(cafile=tls["ca"]))


async def test_pre_shared_keys_are_those_of_the_clients(tmp_path: Path) -> None:
    """This machine observes the broker without a key, and settings of the user win."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")

    def succeeds(port: int, identity: str, key: str, version: str = "-tls1_3") -> bool:
        where = ("-connect", f"127.0.0.1:{port}", version, "-cipher", "PSK")
        words = (openssl, "s_client", *where, "-psk_identity", identity, "-psk", key)
        return not subprocess.run(words, input=b"", capture_output=True, timeout=60).returncode

    mode = "psk, settings: {use_identity_as_username: true}"
    async with secured(mode, tmp_path) as (topology, tls):
        assert tls["psk"]["identity"] == "dev-{n}"
        lines = Path(tls["psk"]["file"]).read_text().splitlines()
        keys = dict(line.split(":") for line in lines)
        assert list(keys) == ["dev-5", "dev-6", "dev-7"]
        port = topology.addresses[0][1]
        assert all(succeeds(port, identity, key) for identity, key in keys.items())
        assert succeeds(port, "dev-5", keys["dev-5"], "-tls1_2")
        assert not succeeds(port, "dev-8", keys["dev-5"])
        assert not succeeds(port, "dev-6", keys["dev-5"])
        [target] = topology.observer_targets
        assert not target.tls and target.port != port
        with socket.create_connection((target.host, target.port), 10) as plain:
            plain.sendall(CONNECT)
            assert plain.recv(4) == CONNACK
        lines = (tmp_path / "broker-0" / "mosquitto.conf").read_text().splitlines()
        words = [line for line in lines if line.startswith("use_identity_as_username")]
        assert words == ["use_identity_as_username true"]


def test_keys_for_several_runs_are_made_once(tmp_path: Path) -> None:
    scenario = scenario_of("psk")
    topology = Topology(scenario.topology, tmp_path, lambda _: None)
    more = planned(parse_scenario(scenario.source_text, "s.yaml", ["populations.device.clients=5"]))
    topology.keys.make(planned(scenario), more)
    text = (tmp_path / "keys" / "psk.txt").read_text()
    topology.keys.make(more)
    assert (tmp_path / "keys" / "psk.txt").read_text() == text
    assert text.count("\n") == 5


@pytest.mark.parametrize(
    ("mode", "said", "kept"),
    [
        ("mutual", "{ca: /my/ca.crt, verify: false}", {"ca": "/my/ca.crt", "verify": False}),
        ("server", "{certificate: /my/c.crt, key: /my/c.key}", {"certificate": "/my/c.crt"}),
        (
            "psk",
            "{psk: {file: /my/psk.txt, identity: one}}",
            {"psk": {"file": "/my/psk.txt", "identity": "one"}},
        ),
    ],
)
def test_what_a_population_says_of_itself_wins(
    tmp_path: Path, mode: str, said: str, kept: dict[str, object]
) -> None:
    scenario = scenario_of(mode, said)
    topology = Topology(scenario.topology, tmp_path, lambda _: None)
    tls = tls_of(topology.keys.equip(planned(scenario)))
    assert {key: tls[key] for key in kept} == kept


async def test_keys_that_cannot_be_written_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TopologyError, match="keys for the run: cannot make the folder"):
        async with secured("psk", tmp_path / "file"):
            pass
