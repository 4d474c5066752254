"""Failures of the program of receivers of AMQP 1.0 before it connects, for a library or a file that
is missing, and the words of failed connections."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pubstorm.contract.plan import PlannedTls
from pubstorm.contract.reasons import Reason
from pubstorm.fleet.agents.frame import AgentError, AgentShard, AgentTally, ShardArguments
from pubstorm.fleet.amqp1_agent import __main__ as program
from pubstorm.fleet.amqp1_agent.channel import Amqp1Channel, ChannelError, tls_context
from pubstorm.host.keys.certificates import Authority, CertificateDates
from pubstorm.quantities import SECOND_NS
from tests.kit.ports import free_port
from tests.pure.scenario.bases import plan_of

ANSWER_S = 10.0


def test_a_missing_library_has_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "pubstorm.fleet.amqp1_agent"
    for module in (f"{name}.clients", f"{name}.session"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "proton", None)
    make: Callable[[Any, Any], object] = program.KIND.made
    with pytest.raises(AgentError) as refused:
        make(None, None)
    assert refused.value.hint == 'pip install "pubstorm[amqp1]"'


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ({"ca": "absent.crt"}, "absent.crt"),
        ({"ca": "empty.crt"}, "empty.crt"),
        ({"certificate": "absent.crt", "key": "a.key"}, "absent.crt"),
        ({"certificate": "empty.crt", "key": "empty.crt"}, "empty.crt"),
        ({"certificate": "{n}.crt", "key": "{n}.key"}, "7.crt"),
        ({"ciphers": "none-of-them"}, "none-of-them"),
        ({"key_log": "absent/keys.log"}, "absent/keys.log"),
    ],
)
def test_what_cannot_be_used_for_tls_is_named(
    keys: Mapping[str, str], found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.crt").write_text("")
    with pytest.raises(AgentError) as refused:
        tls_context(PlannedTls.model_validate(keys), lambda text: text.replace("{n}", "7"))
    assert f"cannot use {found} for TLS: " in refused.value.message
    assert refused.value.hint == f"look at tls.{next(iter(keys))} of the population"
    assert "_ssl.c" not in refused.value.message


def test_an_encrypted_key_is_not_asked_for_at_the_terminal(tmp_path: Path) -> None:
    dates = CertificateDates.of_days(2)
    made = Authority.new("ours", dates).client("reader", dates)
    for name, data in (("a.crt", made.certificate), ("a.key", made.key)):
        (tmp_path / name).write_bytes(data)
    tls = PlannedTls(certificate=f"{tmp_path}/a.crt", key=f"{tmp_path}/a.key", passphrase="unused")
    assert tls_context(tls, str).minimum_version.name == "TLSv1_2"


def test_a_port_that_nothing_listens_on_refuses() -> None:
    channel = Amqp1Channel((socket.AF_INET, ("127.0.0.1", free_port())), None)
    deadline_s = time.monotonic() + ANSWER_S
    with pytest.raises(ChannelError) as failed:
        while time.monotonic() < deadline_s:
            channel.advance()
    assert failed.value.attempt == Reason.CONNECT_REFUSED
    assert failed.value.words == "Connection refused"
    channel.close()


def test_a_client_whose_tls_cannot_begin_fails_and_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clients = pytest.importorskip("pubstorm.fleet.amqp1_agent.clients")
    with socket.create_server(("127.0.0.1", port := free_port())) as commands:
        # The agent waits for commands too, which is not possible at a file.
        monkeypatch.setattr(clients, "STDIN", commands.fileno())
        plan = plan_of(LONG_NAME.format(port=port, label="x" * 80))
        tally = AgentTally(part := AgentShard(plan, ShardArguments(0, 1, 0, 0, 1)))
        played = clients.Amqp1Clients(part, tally)
        played.enter(plan.stages[0], time.monotonic_ns())
        deadline_s = time.monotonic() + ANSWER_S
        while tally.now.outcomes[Reason.TLS_FAILED] < 2 and time.monotonic() < deadline_s:
            played.turn(time.monotonic_ns())
        played.end()
    assert tally.now.outcomes == {Reason.TLS_FAILED: 2}


def test_an_answer_that_waits_comes_before_the_end_of_the_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clients = pytest.importorskip("pubstorm.fleet.amqp1_agent.clients")
    with (
        socket.create_server(("127.0.0.1", port := free_port())) as server,
        socket.create_server(("127.0.0.1", free_port())) as commands,
    ):
        monkeypatch.setattr(clients, "STDIN", commands.fileno())
        plan = plan_of(ONE_ATTEMPT.format(port=port))
        tally = AgentTally(part := AgentShard(plan, ShardArguments(0, 1, 0, 0, 1)))
        played = clients.Amqp1Clients(part, tally)
        played.enter(plan.stages[0], time.monotonic_ns())
        played.turn(time.monotonic_ns())
        with server.accept()[0] as answering:
            answering.sendall(b"HTTP/1.1 400 Bad Request")
            # The agent had no processor from the answer until after the end of the attempt.
            played.turn(time.monotonic_ns() + 60 * SECOND_NS)
        played.end()
    assert tally.now.outcomes == {Reason.PROTOCOL_ERROR: 1}


ONE_ATTEMPT = """\
target: amqp1://127.0.0.1:{port}
populations: {{reader: {{clients: 1, subscriptions: [a], reconnect: never}}}}
stages: [connect]
"""
LONG_NAME = """\
target: amqp1s://127.0.0.1:{port}
populations:
  reader:
    clients: 1
    subscriptions: [a]
    reconnect: {{after: 10ms, up_to: 10ms}}
    tls: {{verify: false, server_name: {label}.example}}
stages: [connect]
"""
