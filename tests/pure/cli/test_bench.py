"""`pubstorm bench`: each option as the value that it stands for, and the scenario that a line
prints."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pubstorm import cli
from pubstorm.cli.run import KINDS, options_of
from pubstorm.errors import UsageError
from pubstorm.plan import provisional_plan
from pubstorm.scenario import parse_scenario

Shell = Callable[..., tuple[int, str, str]]


@pytest.fixture
def bench(capsys: pytest.CaptureFixture[str]) -> Shell:
    """Runs `pubstorm bench` with words; exit code, stdout, stderr."""

    def call(*words: str) -> tuple[int, str, str]:
        code = cli.main(("bench", *words))
        return (code, *capsys.readouterr())

    return call


@pytest.fixture
def printed(bench: Shell) -> Callable[..., dict[str, Any]]:
    """The values of the scenario that a line prints, which can be planned."""

    def call(*words: str) -> dict[str, Any]:
        code, text, errors = bench(*words, "--print")
        assert code == 0, errors
        if "--tls-cert" not in words:
            provisional_plan(parse_scenario(text, "bench.yaml"))
        values: dict[str, Any] = yaml.safe_load(text)
        return values

    return call


Printed = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_a_scenario_for_the_embedded_broker(kind: str, printed: Printed) -> None:
    values = printed(kind, "-c", "20", "--for", "1s")
    assert 20 in {each["clients"] for each in values["populations"].values()}
    assert values["topology"]["brokers"]


def test_options_are_values_of_the_printed_scenario(printed: Printed) -> None:
    values = printed(
        "pairs",
        "mqtts://broker.example",
        *("-c", "50", "--rate", "20/s", "--size", "1kB", "--qos", "1", "--topic", "a/{n}/b"),
        *("--for", "10s", "--ramp", "100/s", "--v5", "--username", "user-{n}"),
        *("--password", "${env:PATH}", "--tls-ca", "ca.crt", "--tls-insecure"),
        *("--tls-cert", "c-{n}.crt", "--tls-key", "c-{n}.key"),
    )
    assert values["target"] == "mqtts://broker.example"
    assert "topology" not in values
    publisher, subscriber = (values["populations"][name] for name in ("publisher", "subscriber"))
    for each in (publisher, subscriber):
        assert (each["clients"], each["version"], each["username"]) == (50, 5, "user-{n}")
        assert each["password"] == "${env:PATH}"
        files = {"ca": "ca.crt", "certificate": "c-{n}.crt", "key": "c-{n}.key"}
        absolute = {key: str(Path(file).absolute()) for key, file in files.items()}
        assert each["tls"] == {**absolute, "verify": False}
    (publication,) = publisher["publications"]
    assert publication == {"topic": "a/{n}/b", "rate": "20/s", "size": "1kB", "qos": 1}
    assert subscriber["subscriptions"] == [{"topic": "a/{n}/b", "qos": 1}]
    assert values["stages"][:2] == [{"connect": {"rate": "100/s"}}, {"publish": "10s"}]


def test_a_total_rate_takes_the_place_of_the_rate(printed: Printed) -> None:
    values = printed("pairs", "-c", "50", "--total-rate", "100/s")
    (publication,) = values["populations"]["publisher"]["publications"]
    assert publication["total_rate"] == "100/s"
    assert "rate" not in publication


@pytest.mark.parametrize(
    ("words", "written"),
    [
        (("fan-in", "--topic", "a/x{n}/b"), "a/+/b"),
        (("fan-out", "--topic", "a/b"), "a/b"),
        (("sub", "--topic", "a/{n}"), "a/{n}"),
        (("fan-in", "nats://b", "--topic", "a.x{n}.b"), "a.*.b"),
        (("sub", "zmq://b:1", "--topic", "a/"), "a/"),
    ],
)
def test_subscribers_have_a_filter_for_the_topic(
    words: tuple[str, ...], written: str, printed: Printed
) -> None:
    subscriber = printed(*words)["populations"]["subscriber"]
    assert subscriber["subscriptions"][0]["topic"] == written


@pytest.mark.parametrize(
    ("kind", "filters", "topics"),
    [
        ("conn", [], []),
        ("pub", [], ["bench.{n}"]),
        ("sub", ["bench.>"], []),
        ("pairs", ["bench.{n}"], ["bench.{n}"]),
        ("fan-in", ["bench.*"], ["bench.{n}"]),
        ("fan-out", ["bench"], ["bench"]),
    ],
)
def test_each_kind_has_subjects_for_nats(
    kind: str, filters: list[str], topics: list[str], printed: Printed
) -> None:
    values = printed(kind, "nats://b natss://c", "-c", "20", "--for", "1s")
    populations = values["populations"].values()
    for key, expected in (("subscriptions", filters), ("publications", topics)):
        flows = [flow for each in populations for flow in each.get(key, [])]
        assert [flow["topic"] for flow in flows] == expected


def test_options_of_nats_are_values_of_the_printed_scenario(printed: Printed) -> None:
    logins = ("--token", "t-{n}", "--nkey", "${env:PATH}", "--jwt", "${env:PATH}")
    values = printed("pairs", "natss://b", "--group", "g", "--tls-insecure", *logins)
    publisher, subscriber = (values["populations"][name] for name in ("publisher", "subscriber"))
    for each in (publisher, subscriber):
        assert (each["token"], each["nkey"], each["jwt"]) == logins[1::2]
        assert each["tls"] == {"verify": False}
    assert subscriber["subscriptions"] == [{"topic": "bench.{n}", "group": "g"}]


def test_publishers_of_zeromq_have_prefixes(printed: Printed) -> None:
    (subscription,) = printed("sub", "zmq://b:1")["populations"]["subscriber"]["subscriptions"]
    assert subscription == {"topic": "bench/"}


def test_until_is_a_search_whose_threshold_is_the_opposite(printed: Printed) -> None:
    values = printed("pairs", "--rate", "5/s", "--until", "p99 > 100ms")
    assert values["thresholds"] == ["subscriber.latency.p99 <= 100ms"]
    rate = "populations.publisher.publications.0.rate"
    assert values["search"] == {"vary": rate, "from": "5/s", "to": "1M/s"}
    values = printed("pairs", "--total-rate", "1k/s", "--until", "p99 > 100ms")
    total_rate = "populations.publisher.publications.0.total_rate"
    assert values["search"] == {"vary": total_rate, "from": "1k/s", "to": "10M/s"}
    values = printed("conn", "--clients", "50", "--until", "p99.5 > 100ms")
    assert values["search"] == {"vary": "populations.client.clients", "from": 50, "to": "10M"}
    assert values["thresholds"] == ["client.connect_time.p99.5 <= 100ms"]
    values = printed("pub", "--qos", "1", "--until", "publisher.skipped >= 1")
    assert values["thresholds"] == ["publisher.skipped < 1"]


def test_until_a_number_is_a_search_of_the_most_clients_that_stay_connected(
    printed: Printed,
) -> None:
    values = printed("conn", "--clients", "2k", "--until", "100k")
    search = {"vary": "populations.client.clients", "from": "2k", "to": "100k", "repeat": 1}
    assert values["search"] == search
    assert values["thresholds"] == ["client.never_ready == 0", "client.disconnected == 0"]
    assert values["stages"][1] == {"hold": "5s"}
    values = printed("conn", "--until", "100k", "--for", "1min")
    assert (values["search"]["from"], values["stages"][1]) == (1000, {"hold": "1min"})


def test_a_number_of_messages_takes_the_place_of_the_length(printed: Printed) -> None:
    for words in ("10k", "100/client"):
        assert printed("pairs", "-n", words)["stages"][1] == {"publish": {"messages": words}}
        stage = printed("pairs", "-n", words, "--max", "--for", "1min")["stages"][1]
        assert stage == {"publish": {"messages": words, "for": "1min"}}


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        ("conn", {"rate": "1/s"}, "--rate with conn, which publishes nothing"),
        ("sub", {"size": "1kB"}, "--size with sub, which publishes nothing"),
        ("conn", {"qos": "1"}, "--qos with conn, which only connects"),
        ("pub", {"rate": "1/s", "as_fast": True}, "found --rate and --max"),
        ("pub", {"tls_cert": "a.crt"}, "found --tls-cert without --tls-key"),
        ("conn", {"group": "g"}, "--group with conn, which only connects"),
        ("pub", {"group": "g"}, "--group with pub, which subscribes to nothing"),
        ("pub", {"until": "p99 > 100ms"}, "QoS 0, which has no acknowledgements"),
        ("pairs", {"until": "it breaks"}, "allowed is METRIC > VALUE"),
        ("pairs", {"until": "100k"}, "found --until '100k', allowed is METRIC > VALUE"),
        ("conn", {"until": "lots"}, "allowed is METRIC > VALUE or a number of clients"),
        ("pairs", {"until": "p99 > 1s", "as_fast": True}, "found --until and --max"),
        ("sub", {"messages": "9"}, "--messages with sub, which publishes nothing"),
        ("pub", {"messages": "9", "until": "loss > 1%"}, "found --messages and --until"),
        ("pub", {"topic": "a/%i"}, "--topic: found %i, which would be taken as it is"),
        ("pub", {"username": "%c", "password": "x"}, "--username: found %c"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    kind: str, given: dict[str, object], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        options_of(kind, given)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("pairs", "-c", "0"), "error: --clients: found 0, allowed is 1 to 4_294_967_295"),
        (("pub", "--size", "much"), "error: --size: found 'much', allowed is a size"),
        (("pub", "--total-rate", "much"), "error: --total-rate: found 'much', allowed is a rate"),
        (("pub", "-n", "0"), "error: --messages: found 0, allowed is 1 to 1_000_000_000_000, or"),
        (("pub", "--for", "0s"), "error: --for: found '0s', allowed is more than 0s"),
        (("pairs", "--until", "foo > 1"), "error: --until: found 'foo', allowed are the metrics"),
        (("pub", "localhost"), "error: TARGET: found 'localhost', allowed is mqtt[s]://HOST"),
        (("pub", "--password", "a"), "error: --password: found password without username"),
        (("pub", "--tls-ca", "a"), "error: found --tls-ca without TARGET"),
        (("pub", "mqtt://a", "--tls-insecure"), "error: found --tls-insecure with mqtt://a, "),
        (("pub", "--set", "drain=soon"), "error: --set drain=soon: drain: found 'soon'"),
        (("pub", "nats://a", "--qos", "1"), "error: --qos: found qos with NATS clients, allowed "),
        (("pub", "nats://a", "--v5"), "error: --v5: found version with NATS clients, allowed "),
        (("pub", "nats://a", "--topic", "a/#.>"), "error: --topic: found 'a/#.>', allowed is a "),
        (("sub", "mqtt://a", "--group", "g"), "error: --group: found group with MQTT clients, "),
        (("sub", "mqtt://a", "--token", "t"), "error: --token: found token with MQTT clients, "),
        (("pub", "nats://a", "--tls-insecure"), "error: found --tls-insecure with nats://a, "),
        (("pub", "nats://a", "--until", "p99 > 1s"), "error: found --until 'p99 > 1s' with pub at"),
        (("pub", "zmq://a:1"), "error: found pub with zmq://a:1, "),
        (("pairs", "--details", "--json"), "error: found --details and --json, allowed is one"),
        (("pairs", "--details", "--quiet"), "error: found --details and --quiet, allowed is one"),
        (("pairs", "--progress", "fast"), "error: --progress: found 'fast', allowed is a duration"),
        (("pairs", "--progress", "1ms"), "error: --progress: found '1ms', allowed is 1s to"),
    ],
)
def test_a_wrong_value_is_named_by_its_option(
    words: tuple[str, ...], error: str, bench: Shell
) -> None:
    code, _, errors = bench(*words)
    assert code == 2
    assert errors.startswith(error)
    assert re.search(r"\n *hint: ", errors)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("pair",), "did you mean pairs?"),
        (("pub", "-I", "100"), "the interval of a client is a rate here: -I 100 (ms) is --rate"),
        (("pub", "-t", "a"), "write --topic"),
        (("pub", "--nothing"), "pubstorm bench --help"),
    ],
)
def test_habits_from_other_tools_have_a_hint(
    words: tuple[str, ...], hint: str, bench: Shell
) -> None:
    code, _, errors = bench(*words)
    assert code == 2
    assert f"\n  hint: {hint}" in errors


def test_a_password_is_any_text(printed: Printed) -> None:
    found = printed("pub", "--username", "a", "--password", "%i")
    assert found["populations"]["publisher"]["password"] == "%i"


def test_other_commands_have_no_hints_about_options_of_bench(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(("run", "quickstart", "-t", "a")) == 2
    assert capsys.readouterr().err.endswith("hint: pubstorm run --help\n")
