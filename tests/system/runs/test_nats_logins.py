"""Runs at servers of NATS that somebody else runs: logins, TLS, refusals and limits of the server,
each with the outcome that names it."""

from __future__ import annotations

from typing import Any

import pytest

from pubstorm.host.children import find
from pubstorm.host.keys.certificates import Authority, CertificateDates
from tests.kit.nats_server import USER, operator_configuration, servers_in, user_token
from tests.kit.runs import Play

pytestmark = [
    pytest.mark.skipif(find("nats-server") is None, reason="nats-server is not installed"),
    pytest.mark.xdist_group("nats"),
]

ONE_DAY = CertificateDates.of_days(1)
RULES = f"""\
max_payload: 1024
authorization {{
  users: [
    {{user: u, password: p}}
    {{user: reader, password: p, permissions: {{publish: [ok.>], subscribe: [ok.>]}}}}
    {{nkey: {USER.public}}}
  ]
}}
"""
FULL = "max_connections: 2\n"
LEAVING = 'lame_duck_grace_period: "100ms", lame_duck_duration: "30s"'
ORDER = ("rules", "operator", "tls", "full", "leaving")
"""Servers in the order of the targets."""
ACCEPTED = ("password", "nkey", "jwt", "secure")
SCENARIO = """\
target: [{targets}]
defaults: "off"
populations:
  password: {{at: {rules}, username: u, password: p, clients: 2, {flows[password]}}}
  nkey: {{at: {rules}, nkey: "${{env:SEED}}", clients: 2, {flows[nkey]}}}
  jwt: {{at: {operator}, nkey: "${{env:SEED}}", jwt: "${{env:JWT}}", clients: 2, {flows[jwt]}}}
  secure: {{at: {tls}, tls: {{ca: {ca}}}, clients: 2, {flows[secure]}}}
  stranger: {{at: {tls}, clients: 1, {once}}}
  guess: {{at: {rules}, username: u, password: x, clients: 1, {once}}}
  anonymous: {{at: {rules}, clients: 1, {once}}}
  unknown-key: {{at: {operator}, nkey: "${{env:SEED}}", jwt: x.y.z, clients: 1, {once}}}
  hidden: {{at: {rules}, {reader}, clients: 1, subscriptions: [ok.a, secret.b]}}
  intruder:
    {{at: {rules}, {reader}, clients: 1, {once}, publications: [{{topic: secret.b, rate: 10/s}}]}}
  large:
    {{at: {rules}, username: u, password: p, clients: 1,
     publications: [{{topic: ok.large, rate: 10/s, size: 1025B}}]}}
  crowd: {{at: {full}, clients: 5, {once}}}
  tenant: {{at: {leaving}, clients: 2, {once}}}
stages:
  - connect
  - publish:
      for: 2s
      faults: [{{at: 0s, command: "kill -USR2 {pid}", for: ever, name: lame duck}}]
  - disconnect
"""
FLOWS = """\
subscriptions: ["ok.{name}.{{n}}"], publications: [{{topic: "ok.{name}.{{n}}", rate: 10/s}}]"""


@pytest.fixture(scope="module")
def result(shared_run: Play, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of one run with all of them."""
    folder = tmp_path_factory.mktemp("servers")
    authority = Authority.new("test", ONE_DAY)
    own = authority.server(["127.0.0.1"], ONE_DAY)
    files = {"ca": authority.credential.certificate, "crt": own.certificate, "key": own.key}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    tls = f'tls {{cert_file: "{folder}/crt", key_file: "{folder}/key"}}'
    with servers_in(folder) as start:
        servers = [start(each) for each in (RULES, operator_configuration(), tls, FULL, LEAVING)]
        urls = [each.url for each in servers]
        urls[ORDER.index("tls")] = urls[ORDER.index("tls")].replace("nats:", "natss:")
        places = {
            name: f"{{brokers: target, first: {n}, count: 1}}" for n, name in enumerate(ORDER)
        }
        words = {"reader": "username: reader, password: p", "once": "reconnect: never"}
        text = SCENARIO.format(
            targets=", ".join(urls),
            flows={name: FLOWS.format(name=name) for name in ACCEPTED},
            ca=folder / "ca",
            pid=servers[-1].process.pid,
            **places,
            **words,
        )
        environment = {"SEED": USER.seed, "JWT": user_token()}
        code, found = shared_run(text, environment=environment)
    assert code == 0, found["verdict"]
    return found


@pytest.mark.parametrize("name", ACCEPTED)
def test_each_login_is_accepted_and_its_messages_arrive(result: dict[str, Any], name: str) -> None:
    population = result["populations"][name]
    assert (population["outcomes"], population["connected_total"]) == ({}, 2)
    assert population["sent_total"] == population["received_total"] == 40


@pytest.mark.parametrize(
    ("name", "outcomes"),
    [
        ("guess", {"bad_credentials": 1}),
        ("anonymous", {"not_authorized": 1}),
        ("unknown-key", {"bad_credentials": 1}),
        ("stranger", {"certificate_untrusted": 1}),
        ("hidden", {"subscribe_refused": 1}),
        ("intruder", {"not_authorized": 1}),
        ("large", {"message_too_large": 20}),
        ("crowd", {"server_unavailable": 3}),
        ("tenant", {"closed_by_broker": 2}),
    ],
)
def test_each_refusal_is_an_outcome_with_a_name(
    result: dict[str, Any], name: str, outcomes: dict[str, int]
) -> None:
    assert result["populations"][name]["outcomes"] == outcomes


def test_the_verdict_has_the_words_of_the_server_and_advice(result: dict[str, Any]) -> None:
    evidence = "\n".join(result["verdict"]["evidence"])
    for text in (
        'server_unavailable: the peer\'s reason is "maximum connections exceeded" (3 ×)',
        "server_unavailable (3 ×): the broker took no more clients",
        "message_too_large (20 ×): the messages are larger than the broker says",
        "subscribe_refused: the peer's reason is \"Permissions Violation for Subscription",
        "lame duck at ",
    ):
        assert text in evidence
    assert result["verdict"]["limited_by"] == "broker"
