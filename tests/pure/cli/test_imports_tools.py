"""`pubstorm import` of command lines other than those of emqtt_bench: each option as its key."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path

import pytest

from pubstorm import cli
from pubstorm.cli.imports import (
    COMMANDS,
    imported,
    mosquitto,
    mqttx,
    omq,
    perf_test,
    stressers,
)
from pubstorm.cli.imports.words import Grammar
from pubstorm.errors import UsageError
from tests.kit.imported import at, scenario_of


def each(messages: int) -> dict[str, str]:
    """The load of clients that send a number of messages each."""
    return {"messages": f"{messages}/client"}


PUB, SUB = "populations.pub.publications.0.", "populations.sub.subscriptions.0."
MQTTX = [
    ("mqttx bench conn", "populations.conn.clients", 1000),
    ("mqttx bench conn -c 50 -i 4", "stages.0.connect.rate", "250/s"),
    ("mqttx conn", "populations.conn.clients", 1),
    ("mqttx bench conn -I dev -c 5", "populations.conn.client_id", "dev_{n}"),
    ("mqttx bench conn -I dev-%i -c 5", "populations.conn.client_id", "dev-{n}"),
    ("mqttx conn -V 3.1.1", "populations.conn.version", "3.1.1"),
    ("mqttx conn --no-clean", "populations.conn.session", "persistent"),
    ("mqttx conn -k 5", "populations.conn.keep_alive", "5s"),
    ("mqttx conn -rp 0", "populations.conn.reconnect", "never"),
    ("mqttx conn -rp 500", "populations.conn.reconnect.up_to", "500ms"),
    ("mqttx conn -h a -p 99", "target", "mqtt://a:99"),
    ("mqttx conn -h ::1", "target", "mqtt://[::1]:1883"),
    ("mqttx conn -l wss --path x", "target", "wss://localhost:1883/x"),
    ("mqttx conn -l mqtts --ca a --cert b --key c", "populations.conn.tls.key", "c"),
    ("mqttx conn -l mqtts --insecure", "populations.conn.tls.verify", False),
    ("mqttx conn -l ws -wh 'a: b'", "populations.conn.headers", {"a": "b"}),
    ("mqttx conn -se 60", "populations.conn.session_expiry", "60s"),
    ("mqttx conn --rcv-max 7", "populations.conn.receive_maximum", 7),
    ("mqttx conn --receive-maximum 7", "populations.conn.receive_maximum", 7),
    ("mqttx conn --maximum-packet-size 9000", "populations.conn.maximum_packet_size", "9000B"),
    ("mqttx conn --topic-alias-maximum 3", "populations.conn.topic_aliases", 3),
    ("mqttx conn -up 'a: b' 'c: d'", "populations.conn.user_properties.c", "d"),
    ("mqttx conn -Wt w -Wm gone -Wq 1 -Wr", "populations.conn.will.retain", True),
    ("mqttx conn -Wt w -Wd 5 -se 9", "populations.conn.will.delay", "5s"),
    ("mqttx conn -Wt w -Wct text", "populations.conn.will.content_type", "text"),
    ("mqttx bench pub -t a/%i", f"{PUB}topic", "a/{n}"),
    ("mqttx bench pub -t a/%c -I dev", f"{PUB}topic", "a/dev"),
    ("mqttx bench pub -t a/%u -u me", f"{PUB}topic", "a/me"),
    ("mqttx pub -t a/%i", f"{PUB}topic", "a/%i"),
    ("mqttx bench pub -t a", f"{PUB}payload", "Hello From MQTTX CLI"),
    ("mqttx bench pub -t a -im 250", f"{PUB}interval", "250ms"),
    ("mqttx bench pub -t a -S 2KB", f"{PUB}size", "2048B"),
    ("mqttx bench pub -t a -m 'x{'", f"{PUB}payload", "x{{"),
    ("mqttx bench pub -t a -q 1 -r", f"{PUB}retain", True),
    ("mqttx bench pub -t a -e 60", f"{PUB}expiry", "60s"),
    ("mqttx bench pub -t a -pf", f"{PUB}payload_format", "text"),
    ("mqttx bench pub -t a -rt b -cd c", f"{PUB}correlation_data", "c"),
    ("mqttx bench pub -t a -up 'a: b'", f"{PUB}user_properties.a", "b"),
    ("mqttx bench pub -t a -Cup 'a: b'", "populations.pub.user_properties.a", "b"),
    ("mqttx bench pub -t a -c 10 -L 100", "stages.1.publish", {"messages": 100}),
    ("mqttx pub -t a -m hi", "stages.1.publish", each(1)),
    ("mqttx sub -t a b -q 1 2", "populations.sub.subscriptions.1", {"topic": "b", "qos": 2}),
    ("mqttx sub -t a -nl true", f"{SUB}no_local", True),
    ("mqttx sub -t a -nl", f"{SUB}no_local", True),
    ("mqttx sub -nl true true -t a b", "populations.sub.subscriptions.1.no_local", True),
    ("mqttx sub -nl false true -t a b", "populations.sub.subscriptions.1.no_local", None),
    ("mqttx conn -up 'on: b'", "populations.conn.user_properties.on", "b"),
    ("mqttx sub -t a -rap true", f"{SUB}retain_as_published", True),
    ("mqttx sub -t a -rh 2", f"{SUB}retain_handling", "never"),
    ("mqttx sub -t a -si 4", f"{SUB}identifier", 4),
    ("mqttx simulate -sc tesla -c 5", f"{PUB}topic", "mqttx/simulate/tesla/mqttx"),
]
MOSQUITTO = [
    ("mosquitto_pub -t a -m hi", f"{PUB}payload", "hi"),
    ("mosquitto_pub -t a -m hi", "stages.1.publish", each(1)),
    ("mosquitto_pub -t a -n", f"{PUB}size", "0B"),
    ("mosquitto_pub -t a -m hi -r", f"{PUB}retain", True),
    ("mosquitto_pub -t a -m hi -q 2", f"{PUB}window", 1),
    ("mosquitto_pub -t a -m hi --repeat 20 --repeat-delay 0.5", "stages.1.publish", each(20)),
    ("mosquitto_pub -t a -m hi --repeat 20 --repeat-delay 0.5", f"{PUB}interval", "500ms"),
    ("mosquitto_pub -t a -m hi --repeat 20", f"{PUB}rate", "max"),
    ("mosquitto_pub -L mqtts://u:p@h/a/b -m x", "target", "mqtts://h:8883"),
    ("mosquitto_pub -L mqtt://u:p@h:9/a/b -m x", f"{PUB}topic", "a/b"),
    ("mosquitto_pub -L mqtt://u:p@h:9/a/b -m x", "populations.pub.password", "p"),
    ("mosquitto_pub -h ::1 -p 99 -t a -m x", "target", "mqtt://[::1]:99"),
    ("mosquitto_pub --ws -t a -m x", "target", "ws://localhost:1883/mqtt"),
    ("mosquitto_pub --cafile c -t a -m x", "populations.pub.tls", {"ca": "c"}),
    (
        "mosquitto_pub --cafile c --tls-version tlsv1.3 -t a -m x",
        "populations.pub.tls.min_version",
        "1.3",
    ),
    (
        "mosquitto_pub --cafile c --tls-alpn mqtt --tls-keylog k -t a -m x",
        "populations.pub.tls",
        {"ca": "c", "alpn": ["mqtt"], "key_log": "k"},
    ),
    ("mosquitto_pub -A 127.0.0.2 -t a -m x", "sources", ["127.0.0.2"]),
    ("mosquitto_sub -t a/# -t b", "populations.sub.subscriptions.1.topic", "b"),
    ("mosquitto_sub -t a -W 60", "stages.1.hold", "60s"),
    ("mosquitto_sub -t a -i me -c", "populations.sub.session", "persistent"),
    ("mosquitto_sub -t a -I me-", "populations.sub.client_id", "me-{n}"),
    ("mosquitto_sub -t a -V mqttv5 -x -1", "populations.sub.session_expiry", "never"),
    ("mosquitto_sub -t a -V 5 --retain-handling new", f"{SUB}retain_handling", "send_if_new"),
    ("mosquitto_sub -t a -k 7", "populations.sub.keep_alive", "7s"),
    ("mosquitto_sub -t a --will-topic w --will-payload p", "populations.sub.will.payload", "p"),
]
STRESSER = "mqtt-stresser -broker tcp://h:1883"
FLOW = "populations.publisher.publications.0."
STRESSERS = [
    (STRESSER, "populations.publisher.clients", 10),
    (f"{STRESSER} -num-clients 5", "populations.subscriber.clients", 5),
    (f"{STRESSER} -num-messages 50 -pause-between-messages 100ms", "stages.2.publish", each(50)),
    (f"{STRESSER} -pause-between-messages=1m30s", f"{FLOW}interval", "90s"),
    (STRESSER, f"{FLOW}rate", "max"),
    (f"{STRESSER} --rampup-size 10 --rampup-delay 2s", "stages.0.connect.rate", "5/s"),
    (f"{STRESSER} -num-messages 0 -pause-between-messages 1s", "stages.2.publish", each(1)),
    (f"{STRESSER} -publisher-qos 1", f"{FLOW}window", 1),
    (f"{STRESSER} -subscriber-qos 2", "populations.subscriber.subscriptions.0.qos", 2),
    (f"{STRESSER} -constant-payload x -retain", f"{FLOW}payload", "x"),
    (f"{STRESSER} -topic-base-path b", f"{FLOW}topic", "b/worker{n}"),
    ("mqtt-stresser -broker ssl://h:1 -skip-tls-verification", "target", "mqtts://h:1"),
    ("mqtt-stresser -broker ssl://h:1 -cafile c", "populations.publisher.tls.ca", "c"),
]
BENCHMARK = [
    ("mqtt-benchmark", "target", "mqtt://localhost:1883"),
    ("mqtt-benchmark", f"{FLOW}size", "100B"),
    ("mqtt-benchmark", "stages.1.publish", each(100)),
    ("mqtt-benchmark --clients 7", "populations.publisher.clients", 7),
    ("mqtt-benchmark --count 5 --message-interval 2", "stages.1.publish", each(5)),
    ("mqtt-benchmark --message-interval 0", f"{FLOW}rate", "max"),
    ("mqtt-benchmark --ramp-up-time 5", "stages.0.connect.over", "5s"),
    ("mqtt-benchmark --topic a --payload b", f"{FLOW}payload", "b"),
    ("mqtt-benchmark --client-prefix p", "populations.publisher.client_id", "p-{n}"),
    ("mqtt-benchmark --broker ssl://h:8 --insecure", "populations.publisher.tls.verify", False),
]
OMQ = [
    ("omq mqtt", "populations.publisher.publications.0.topic", "/queues/omq-{n}"),
    ("omq mqtt -x 10 -y 2", "populations.consumer.clients", 2),
    ("omq mqtt -t /topic/a/%d", f"{FLOW}topic", "a/{n}"),
    ("omq mqtt -T 'sensor/#'", "populations.consumer.subscriptions.0.topic", "sensor/#"),
    ("omq mqtt -r 0.5 -z 1m", f"{FLOW}rate", "0.5/s"),
    ("omq mqtt -z 1m", "stages.2.publish", "60s"),
    ("omq mqtt -r 10 -C 100", "stages.2.publish", each(100)),
    ("omq mqtt -C 100", "stages.2.publish", each(100)),
    ("omq mqtt -s 10kb", f"{FLOW}size", "10240B"),
    ("omq mqtt -s 1", f"{FLOW}size", "12B"),
    ("omq mqtt --mqtt-publisher-qos 1 -c 30", f"{FLOW}window", 30),
    ("omq mqtt --mqtt-consumer-qos=1", "populations.consumer.subscriptions.0.qos", 1),
    ("omq mqtt --mqtt-consumer-version 4", "populations.consumer.version", "3.1.1"),
    ("omq mqtt --mqtt-consumer-clean-session=false", "populations.consumer.session", "persistent"),
    ("omq mqtt --mqtt-user-property a=b", f"{FLOW}user_properties.a", "b"),
    ("omq mqtt --uri mqtt://a,mqtt://b:9", "target", ["mqtt://a:1883", "mqtt://b:9"]),
    ("omq mqtt --consumer-uri mqtt://c", "populations.consumer.at.count", 1),
    ("omq mqtt --uri mqtts://a --tls-skip-verify", "populations.consumer.tls.verify", False),
    (
        "omq mqtt --mqtt-subscriptions-per-consumer 3 -T a",
        "populations.consumer.subscriptions.0.topic",
        "a/{1..3}",
    ),
    ("omq mqtt --mqtt-consumer-version 3", "populations.consumer.version", "3.1"),
    ("omq mqtt --publisher-id p%d", "populations.publisher.client_id", "p{n}"),
    ("omq mqtt -x 0", "populations.publisher", None),
]
PERF = "populations.producer.publications.0."
QUEUE = "populations.consumer.subscriptions.0."
PERF_TEST = [
    ("perf-test -x 3 -y 2", "populations.producer.clients", 3),
    ("perf-test -k a -r 100", f"{PERF}rate", "100/s"),
    ("perf-test -k a", f"{PERF}rate", "max"),
    ("perf-test -k a -P 5", f"{PERF}interval", "5s"),
    ("perf-test -s 1000", f"{PERF}size", "1000B"),
    ("perf-test -c 10", f"{PERF}window", 10),
    ("perf-test -c 10", f"{PERF}confirm", True),
    ("perf-test -f persistent -f mandatory", f"{PERF}persistent", True),
    ("perf-test -f persistent -f mandatory", f"{PERF}mandatory", True),
    ("perf-test", f"{PERF}exchange", "direct"),
    ("perf-test", "topology.exchanges.direct.type", "direct"),
    ("perf-test -t topic -e telemetry", "topology.exchanges.telemetry.type", "topic"),
    ("perf-test -e amq.topic -t topic -k a.b", "topology", None),
    ("perf-test -e amq.default -u q", f"{PERF}exchange", None),
    ("perf-test -e amq.default -u q", f"{PERF}key", "q"),
    ("perf-test -z 20", "stages.2.publish", "20s"),
    ("perf-test -r 10 -C 100", "stages.2.publish", each(100)),
    ("perf-test -r 10 -C 100 -z 5", "stages.2.publish", "5s"),
    ("perf-test -r 10 -C 100 -z 50", "stages.2.publish", each(100)),
    ("perf-test -C 100 -z 50", "stages.2.publish", "50s"),
    ("perf-test -R -1", "populations.consumer.read_rate", None),
    ("perf-test -h amqps://h", "target", "amqps://h:5671"),
    ("perf-test -h amqp://h/%2f", "target", "amqp://h:5672/%2f"),
    ("perf-test -H amqp://a,amqp://b:9", "target", ["amqp://a:5672", "amqp://b:9"]),
    ("perf-test -u q -y 2", f"{QUEUE}queue", "q"),
    ("perf-test -u q -y 2", f"{QUEUE}key", "q"),
    ("perf-test -y 2", f"{QUEUE}queue", None),
    ("perf-test -u q -f persistent -ad false", f"{QUEUE}auto_delete", False),
    ("perf-test -u q -f persistent", f"{QUEUE}durable", True),
    ("perf-test -u q -qq", f"{QUEUE}type", "quorum"),
    ("perf-test -u q -sq -q 10", f"{QUEUE}prefetch", 10),
    ("perf-test -A 10 -q 20", f"{QUEUE}acknowledge.every", 10),
    ("perf-test -a", f"{QUEUE}acknowledge", "none"),
    (
        "perf-test -u q -qa x-max-length=10,x-overflow=drop-head",
        f"{QUEUE}arguments.x-max-length",
        10,
    ),
    ("perf-test -t fanout", f"{QUEUE}key", None),
    ("perf-test -b 5", "populations.consumer.keep_alive", "5s"),
    ("perf-test -R 5", "populations.consumer.read_rate", "5/s"),
    ("runjava com.rabbitmq.perf.PerfTest -x 2", "populations.producer.clients", 2),
]
TABLES = {
    "mqttx": MQTTX,
    "mosquitto": MOSQUITTO,
    "mqtt-stresser": STRESSERS,
    "mqtt-benchmark": BENCHMARK,
    "omq": OMQ,
    "perf-test": PERF_TEST,
}
ROWS = [(tool, *row) for tool, rows in TABLES.items() for row in rows]
GRAMMARS: dict[str, list[tuple[str, Grammar]]] = {
    "mqttx": [
        *((f"mqttx {action}", mqttx.SINGLE) for action in ("conn", "pub -t a", "sub -t a")),
        *((f"mqttx bench {action}", mqttx.BENCH) for action in ("conn", "pub -t a", "sub -t a")),
        ("mqttx simulate", mqttx.SIMULATE),
    ],
    "mosquitto": [
        ("mosquitto_pub -t a", mosquitto.MOSQUITTO),
        ("mosquitto_sub -t a", mosquitto.MOSQUITTO),
    ],
    "mqtt-stresser": [(STRESSER, stressers.STRESSER)],
    "mqtt-benchmark": [("mqtt-benchmark", stressers.BENCHMARK)],
    "omq": [("omq mqtt", omq.OMQ)],
    "perf-test": [("perf-test", perf_test.PERF_TEST)],
}


@pytest.mark.parametrize(("tool", "line", "path", "value"), ROWS)
def test_an_option_is_a_key(tool: str, line: str, path: str, value: object) -> None:
    assert at(scenario_of(tool, line), path) == value


def test_the_tables_have_each_tool() -> None:
    assert {*TABLES, "emqtt-bench"} == set(COMMANDS) == {*GRAMMARS, "emqtt-bench"}


@pytest.mark.parametrize(
    ("tool", "line", "grammar"), [(tool, *row) for tool, rows in GRAMMARS.items() for row in rows]
)
def test_an_option_without_an_equal_is_a_comment(tool: str, line: str, grammar: Grammar) -> None:
    options = {
        name: option
        for name, option in grammar.options.items()
        if option.remark and (not option.of or action_of(line) in option.of)
    }
    assert options
    for name, option in options.items():
        dashes = "-" if grammar.has_one_dash else "--"
        text = scenario_of(tool, f"{line} {dashes}{name}{'' if option.is_flag else ' 7'}")
        is_needless = option.is_flag and option.unless == "true"
        assert (f": {option.remark}" in text) != is_needless, name


@pytest.mark.parametrize(
    ("tool", "line"),
    [
        ("mqttx", "mqttx conn -P hidden -u me"),
        ("mqttx", "mqttx conn --password=hidden -u me"),
        ("mqttx", "mqttx conn -l ws -wh 'Authorization: hidden'"),
        ("mosquitto", "mosquitto_sub -u me -P hidden -t a"),
        ("mosquitto", "mosquitto_sub -L mqtt://me:hidden@h/a"),
        ("mqtt-stresser", f"{STRESSER} -username me -password hidden -num-clients 1"),
        ("mqtt-benchmark", "mqtt-benchmark -username me -password=hidden"),
        ("omq", "omq mqtt -y 0 --uri mqtt://me:hidden@h"),
        ("perf-test", "perf-test -y 0 -h amqp://me:hidden@h"),
    ],
)
def test_a_password_stands_in_its_key_only(tool: str, line: str) -> None:
    found = [each for each in scenario_of(tool, line).splitlines() if "hidden" in each]
    assert [each.split()[0] in {"password:", "headers:"} for each in found] in ([True], [True] * 2)


@pytest.mark.parametrize("option", ["--psk", "--proxy", "--tls-engine-kpass-sha1"])
def test_a_secret_without_a_key_is_not_repeated(option: str) -> None:
    text = scenario_of("mosquitto", f"mosquitto_sub -t a {option} hidden")
    assert f"# without {option} ***: " in text
    assert "hidden" not in text


@pytest.mark.parametrize(
    ("tool", "line"),
    [
        ("mqttx", "mqttx"),
        ("mqttx", "mqttx bench"),
        ("mqttx", "mqttx bench pub"),
        ("mqttx", "mqttx conn -V 6"),
        ("mqttx", "mqttx conn -l tcp"),
        ("mqttx", "mqttx conn --pasword=hidden"),
        ("mqttx", "mqttx conn -P"),
        ("mqttx", "mqttx pub -t a -q 3"),
        ("mqttx", "mqttx bench pub -t a -S big"),
        ("mqttx", "mqttx conn -c 5"),
        ("mqttx", "mqttx conn -up x"),
        ("mosquitto", "mosquitto_rr -t a"),
        ("mosquitto", "mosquitto_pub -m hidden"),
        ("mosquitto", "mosquitto_pub -t a -W 5"),
        ("mosquitto", "mosquitto_sub -L http://u:hidden@h/a"),
        ("mosquitto", "mosquitto_sub -t a -p port"),
        ("mqtt-stresser", "mqtt-stresser -num-clients 5"),
        ("mqtt-stresser", "mqtt-stresser -broker ftp://u:hidden@h"),
        ("mqtt-stresser", f"{STRESSER} -pause-between-messages 5"),
        ("mqtt-stresser", f"{STRESSER} -pasword=hidden"),
        ("mqtt-benchmark", "mqtt-benchmark --clients many"),
        ("omq", "omq amqp"),
        ("omq", "omq mqtt -x 0 -y 0"),
        ("omq", "omq mqtt -t '{{ mod .id 2 }}'"),
        ("omq", "omq mqtt -s 1,2"),
        ("perf-test", "perf-test -x"),
        ("perf-test", "perf-test --fast"),
        ("perf-test", "perf-test -x 0 -y 0"),
        ("perf-test", "perf-test -r fast"),
    ],
)
def test_a_line_without_a_scenario_is_an_error_without_secrets(
    tool: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["import", tool, f"{line} "]) == 2
    complaint = capsys.readouterr().err
    assert complaint.startswith("error: found ")
    assert "hidden" not in complaint


def test_an_option_that_is_almost_one_has_a_hint() -> None:
    for tool, line, hint in (
        ("mqttx", "mqttx bench pub -t a --mesage-interval 5", "write --message-interval"),
        ("mqtt-stresser", f"{STRESSER} -num-client 5", "write -num-clients"),
        ("omq", "omq mqtt --publisher 5", "write --publishers"),
    ):
        with pytest.raises(UsageError) as error:
            scenario_of(tool, line)
        assert error.value.hint == hint


def test_keys_of_mqtt_5_are_comments_with_an_older_version() -> None:
    text = scenario_of("mqttx", "mqttx sub -t a -V 3.1.1 -se 60 -nl true -l mqtt --ca c --path x")
    for option in ("-se 60", "-nl", "--ca c", "--path x"):
        assert f"# without {option}" in text
    text = scenario_of("mosquitto", "mosquitto_sub -t a -x 60 --insecure --no-tls")
    assert "# without -x 60: only MQTT 5 has it" in text


def test_a_subscriber_and_a_publisher_of_mosquitto_are_one_scenario() -> None:
    text = scenario_of("mosquitto", "mosquitto_sub -t a -W 60", "mosquitto_pub -t a -m x")
    assert list(at(text, "populations")) == ["sub", "pub"]
    assert at(text, "stages.2") == {"publish": each(1)}


@pytest.mark.parametrize(
    ("tool", "lines"),
    [
        ("emqtt-bench", ("emqtt_bench sub -c 20 -t bench/#", "emqtt_bench pub -c 50 -t bench/%i")),
        ("mqttx", ("mqttx bench sub -c 20 -t bench/#", "mqttx bench pub -c 50 -t bench/%i -q 1")),
        ("mosquitto", ("mosquitto_sub -t a/#", "mosquitto_pub -t a/b -m hi -q 1")),
        ("mqtt-stresser", (f"{STRESSER} -num-clients 100 -num-messages 10",)),
        ("mqtt-benchmark", ("mqtt-benchmark --broker tcp://h:1883 --count 10 --size 100",)),
        ("omq", ("omq mqtt -x 10 -y 1 -t sensor/%d -T sensor/# -r 1 -s 100 -z 10s",)),
        ("perf-test", ("perf-test -x 10 -y 2 -u q -r 100 -s 256 -c 10 -z 10 -A 5 -f persistent",)),
    ],
)
def test_a_typical_line_passes_the_check(tool: str, lines: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "imported.yaml"
    file.write_text(scenario_of(tool, *lines), encoding="utf-8")
    assert cli.main(["check", str(file)]) == 0


ODD = (
    "",
    "-1",
    "0",
    "true",
    "a b",
    "{n}",
    "%i",
    "%rand_5",
    "1.5",
    "5s",
    "::1",
    "amqp://",
    "#",
    "é\n",
)
"""Values that few options expect."""


def action_of(line: str) -> str:
    return line.removesuffix(" -t a").rpartition(" ")[2].removeprefix("mosquitto_")


@pytest.mark.parametrize("tool", GRAMMARS)
def test_an_odd_value_of_any_option_is_a_scenario_or_an_error(tool: str) -> None:
    for line, grammar in GRAMMARS[tool]:
        dashes = "-" if grammar.has_one_dash else "--"
        for (name, option), value in itertools.product(grammar.options.items(), ODD):
            if option.of and action_of(line) not in option.of:
                continue
            with contextlib.suppress(UsageError):
                words = [*line.split(), f"{dashes}{name}={value}"]
                text = "\n".join(imported(tool, words).lines())
                assert {"target", "populations", "stages"} <= set(at(text, "")), words
