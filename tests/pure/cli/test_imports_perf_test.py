"""Command lines of PerfTest: those of its manual, options whose meaning depends on others, and the
words before the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pubstorm import cli
from pubstorm.errors import UsageError
from tests.kit.imported import at, scenario_of

RATE = "populations.consumer.read_rate"
FLOW = "populations.producer.publications.0"
QUEUE = "populations.consumer.subscriptions.0"
PATTERN = "perf-test -qp 'q-%d' -qpf 1 -qpt 10"
ROWS: list[tuple[str, str, Any]] = [
    # The routing keys and queues of both sides.
    ("perf-test -u a,b", f"{FLOW}.key", "perf-test"),
    ("perf-test -u a,b", "populations.consumer.subscriptions.1.queue", "b"),
    ("perf-test -u a,b", "populations.consumer.subscriptions.1.key", "perf-test"),
    ("perf-test", "topology.exchanges.direct.durable", True),
    (f"{PATTERN} -x 10 -y 10", f"{QUEUE}.queue", "q-{n}"),
    (f"{PATTERN} -x 10 -y 10", f"{FLOW}.key", "q-{n}"),
    (f"{PATTERN} -x 10 -y 10", "populations.producer.first", 1),
    (f"{PATTERN} -x 100 -y 30", f"{QUEUE}.queue", "q-{n%10}"),
    (f"{PATTERN} -x 100 -y 30", f"{FLOW}.key", "q-{n%10}"),
    (f"{PATTERN} -x 100 -y 30", f"{QUEUE}.key", "q-{n%10}"),
    (f"{PATTERN} -x 100 -y 30 -k all", f"{QUEUE}.exchange", "direct"),
    # Queues that exist already.
    ("perf-test -p -u q", f"{QUEUE}.declare", False),
    ("perf-test -p -u q", f"{QUEUE}.durable", None),
    ("perf-test -p -u q -k rk -y 0", f"{FLOW}.key", "q"),
    ("perf-test -p -u q -k rk -y 0", f"{FLOW}.exchange", None),
    ("perf-test -p -u q -e x -k rk", f"{FLOW}.exchange", "x"),
    ("perf-test -p -u q -e x -k rk", f"{QUEUE}.key", "rk"),
    ("perf-test -p -u q -e x -k rk", "topology", None),
    ("perf-test -p -u q -qa x-max-length=9 -E", f"{QUEUE}.arguments", None),
    # Limits of consumers: one message at a time takes its latency.
    ("perf-test -L 1000", RATE, "1000/s"),
    ("perf-test -L 1000 -R 50", RATE, "50/s"),
    ("perf-test -L 1000 -R 5000", RATE, "1000/s"),
    ("perf-test -Q 30", f"{QUEUE}.prefetch", 30),
    ("perf-test -Q 30 -q 20", f"{QUEUE}.prefetch", 20),
    ("perf-test -u a,b -Q 30", f"{QUEUE}.prefetch", None),
    ("perf-test -a -q 20", f"{QUEUE}.prefetch", None),
    ("perf-test -u s -sq", f"{QUEUE}.prefetch", 200),
    # Settings of queues.
    ("perf-test -u s -sq", f"{QUEUE}.arguments.x-max-length-bytes", 20_000_000_000),
    ("perf-test -u s -sq -mlb 0", f"{QUEUE}.arguments.x-max-length-bytes", None),
    ("perf-test -u s -sq -mlb 1gb", f"{QUEUE}.arguments.x-max-length-bytes", 1_000_000_000),
    ("perf-test -u s -sq -ma PT10M30S", f"{QUEUE}.arguments.x-max-age", "630s"),
    ("perf-test -u q -qq -ll balanced", f"{QUEUE}.arguments.x-queue-leader-locator", "balanced"),
    ("perf-test -u q -qa x-queue-type=quorum -ad false", f"{QUEUE}.type", "quorum"),
    ("perf-test -u q -qa x-single-active-consumer=true", f"{QUEUE}.arguments", {"X": True}),
    ("perf-test -u q -qa a=1 b=2", f"{QUEUE}.arguments", {"a": 1, "b": 2}),
    ("perf-test -qa x-dead-letter-exchange=amq.default", f"{QUEUE}.arguments", {"D": ""}),
    ("perf-test -u q -E", f"{QUEUE}.exclusive", True),
    ("perf-test -u q -E -y 2", f"{QUEUE}.exclusive", None),
    # Messages.
    ("perf-test -c 0", f"{FLOW}.confirm", True),
    ("perf-test -c 0", f"{FLOW}.window", None),
    ("perf-test -f persistent mandatory", f"{FLOW}.mandatory", True),
    ("perf-test -u q -qq", f"{FLOW}.persistent", True),
    ("perf-test -mp priority=5,source=hall", f"{FLOW}.headers", {"source": "hall"}),
    ("perf-test -mp sent=true,n=05", f"{FLOW}.headers", {"sent": "true", "n": "5"}),
    ("perf-test -mp deliveryMode=2", f"{FLOW}.persistent", True),
    ("perf-test -X 2 -r 5", "populations.producer.publications.1.rate", "5/s"),
    ("perf-test -X 2 -r 5", "populations.producer.channels", 2),
    ("perf-test -X 3 -C 60 -r 20", "stages.2.publish.messages", "180/client"),
    ("perf-test -Y 2", "populations.consumer.channels", 2),
    ("perf-test -Y 2 -u q", "populations.consumer.channels", None),
    ("perf-test -vs 1000:30 -vs 100:10", f"{FLOW}.size.histogram", {"1000B": 30, "100B": 10}),
    # The load over time.
    ("perf-test -vr 100:6 -vr 0:1", "stages.2.publish.for", "7s"),
    ("perf-test -vr 100:6 -vr 0:1 -z 9", "stages.2.publish.for", "9s"),
    ("perf-test -vr 100:6 0:1 -z 9", "stages.2.publish.rate_profile.points.2.factor", 0),
    ("perf-test -vr 100:6 0:1 -z 9", "stages.2.publish.rate_profile.points.5.at", "9s"),
    ("perf-test -vr 100:6", f"{FLOW}.rate", "1/s"),
    ("perf-test -pmessages 50 -r 10", "stages.2.publish.messages", "50/client"),
    # Addresses and logins.
    ("perf-test -h amqps://h", "populations.producer.tls", {"verify": False}),
    ("perf-test -h amqps://h -udsc", "populations.producer.tls", None),
    ("perf-test -h amqps://h -sni a,b", "populations.producer.tls.server_name", "a"),
    ("perf-test -h amqp://a:p%40s@h", "populations.producer.password", "p@s"),
    ("perf-test -h amqp://h/v?heartbeat=5", "target", "amqp://h:5672/v"),
    ("perf-test -h amqps://h -se -b 5", "populations.producer.keep_alive", "5s"),
    ("perf-test -h amqps://h -se", "populations.producer.tls", None),
    # Words before the program.
    ("java -jar perf-test.jar -x 3", "populations.producer.clients", 3),
    ("java -jar /opt/perf-test-2.24.0.jar -x 3", "populations.producer.clients", 3),
    ("docker run --network perf-test -it p/perf-test:latest -x 3", f"{FLOW}.key", "perf-test"),
    ("docker run --name perf-test -e X=1 p/perf-test:latest -u a", f"{QUEUE}.queue", "a"),
    ("docker run -e URI=amqp://rabbit -e RATE=5 p/perf-test", "target", "amqp://rabbit:5672"),
    ("docker run -e URI=amqp://rabbit -e RATE=5 p/perf-test -r 9", f"{FLOW}.rate", "5/s"),
    ("RABBITMQ_PERF_TEST_ENV_PREFIX=P P_AUTOACK=true perf-test", f"{QUEUE}.acknowledge", "none"),
    ("FLAG=persistent,mandatory perf-test", f"{FLOW}.mandatory", True),
]
NAMES = {"X": "x-single-active-consumer", "D": "x-dead-letter-exchange"}


@pytest.mark.parametrize(("line", "path", "value"), ROWS)
def test_an_option_is_a_key(line: str, path: str, value: Any) -> None:
    if isinstance(value, dict):
        value = {NAMES.get(name, name): each for name, each in value.items()}
    assert at(scenario_of("perf-test", line), path) == value


REMARKS = [
    ("perf-test --id 'test 1'", "-d 'test 1'"),
    ("perf-test --metrics-prometheus -mpp 8090", "-mpr"),
    ("perf-test -u q -E -y 2", "-E"),
    ("perf-test -p", "-p"),
    ("perf-test -u q -Y 2", "-Y 2"),
    ("perf-test -u a,b -Q 5", "-Q 5"),
    ("perf-test -mp priority=5", "-mp priority=5"),
    ("perf-test -na -re false", "-re false"),
    ("perf-test -vr 5:1 -r 4", "-r 4"),
    ("perf-test -vr 5:1 -C 4", "-C 4"),
    ("java -Djavax.net.ssl.keyStorePassword=hidden -jar perf-test.jar", "-Djavax"),
    ("perf-test -h amqp://h?heartbeat=5", "?heartbeat"),
]


@pytest.mark.parametrize(("line", "shown"), REMARKS)
def test_what_has_no_key_is_a_comment(line: str, shown: str) -> None:
    text = scenario_of("perf-test", line)
    assert any(each.startswith("# without ") for each in text.splitlines()), text
    assert f"# without {shown}".replace("'", "") in text.replace("'", "")
    assert "hidden" not in text


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("perf-test -y 0 -u q -C 10", "-y 0 has none"),
        (f"{PATTERN} -x 20 -y 20", "counts from 0"),
        (f"{PATTERN} -x 10 -y 5", "10 queues for 5 consumers"),
        ("perf-test -qp q-%03d -qpf 0 -qpt 9 -x 10 -y 10", "no zeros in front"),
    ],
)
def test_a_difference_that_stays_is_a_comment(line: str, words: str) -> None:
    text = scenario_of("perf-test", line)
    assert any(each.startswith("#") and words in each for each in text.splitlines()), text


@pytest.mark.parametrize(
    "line",
    [
        "perf-test -t headers",
        "perf-test -t x-consistent-hash -e hash",
        "perf-test -qq",
        "perf-test -sq -y 2",
        "perf-test -u 'a b'",
        "perf-test -u q/a",
        "perf-test -t topic -k a.#",
        "perf-test -e a/b",
        "perf-test -qp q-%d",
        "perf-test -qp q -qpf 1 -qpt 2",
        "perf-test -qp q-%d -qpf 3 -qpt 2",
        "perf-test -vr 100",
        "perf-test -vr 100:0",
        "perf-test -vr 100:1 -vr 5:1 -z 100000",
        "perf-test -vs big:5",
        "perf-test -u q -mlb 1 GB",
        "perf-test -h amqp://h/a%2Fb",
        "perf-test -h amqp://h:0",
        "perf-test -u q -qa x-max-length=many",
        "perf-test -u q -sq -ma 10m",
    ],
)
def test_a_line_without_a_scenario_is_an_error(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["import", "perf-test", f"{line} "]) == 2
    assert capsys.readouterr().err.startswith("error: found ")


@pytest.mark.parametrize("line", ["perf-test -t headers", "perf-test -qq", "perf-test -qp q"])
def test_an_error_says_what_to_do(line: str) -> None:
    with pytest.raises(UsageError) as error:
        scenario_of("perf-test", line)
    assert error.value.hint


MANUAL = """\
java -jar perf-test.jar -x 1 -y 2 -u "throughput-test-1" -a --id "test 1"
java -jar perf-test.jar -x 2 -y 4 -u "throughput-test-2" -a --id "test 2"
java -jar perf-test.jar -x 1 -y 2 -u "throughput-test-4" --id "test 4" -s 4000
java -jar perf-test.jar -x 1 -y 2 -u "throughput-test-6" -f persistent --multi-ack-every 100
java -jar perf-test.jar -x 1 -y 2 -u "t" -f persistent --multi-ack-every 200 -q 500
java -jar perf-test.jar -x 1 -y 2 -u "throughput-test-8" -f persistent -q 500 -c 500
java -jar perf-test.jar -x 1 -y 2 -u "t" -f persistent -q 500 -pmessages 100000
java -jar perf-test.jar -x 1 -y 2 -u "t" -f persistent --rate 5000 --consumer-rate 2000
java -jar perf-test.jar -x 1 -y 2 -u "throughput-test-13" --id "test-13" -f persistent -z 30
java -jar perf-test.jar -y0 -p -u "t" -s 1000 -C 1000000 --id "test-14" -f persistent
java -jar perf-test.jar -x0 -y10 -p -u "throughput-test-14" --id "test-15"
java -jar perf-test.jar --producers 1 --consumers 0 --predeclared --routing-key rk --exchange x
java -jar perf-test.jar --queue-args x-max-length=10
java -jar perf-test.jar --queue-args x-max-length=10,x-dead-letter-exchange=some.exchange.name
java -jar perf-test.jar --quorum-queue --queue qq
java -jar perf-test.jar --stream-queue --queue sq
java -jar perf-test.jar --message-properties priority=10,header1=value1,header2=value2
java -jar perf-test.jar --consumers 0 --body content1.json,content2.json --body-content-type a/b
java -jar perf-test.jar --json-body --size 16000
java -jar perf-test.jar --variable-rate 100:60 --variable-rate 1000:10 --variable-rate 500:15
java -jar perf-test.jar --variable-size 1000:30 --variable-size 10000:20 --variable-size 5000:45
java -jar perf-test.jar --consumer-latency 1000
java -jar perf-test.jar --variable-latency 1000:60 --variable-latency 1000000:30
java -jar perf-test.jar -qp 'perf-test-%d' -qpf 1 -qpt 10 --producers 100 --consumers 100
java -jar perf-test.jar -qp 'perf-test-%d' -qpf 501 -qpt 1000 --producers 500 --consumers 1500
java -jar perf-test.jar --publishing-interval 5 --producer-random-start-delay 120
java -jar perf-test.jar -x 0 -y 1 --predeclared --queue invoices --qos 200
java -jar perf-test.jar -x 0 -y 1 -p --queue i --qos 200 --stream-consumer-offset first
java -jar perf-test.jar --id auto-delete-vs-qq --expected-instances 2 --quorum-queue --queue qq
java -jar perf-test.jar -h amqps://localhost:5671
java -Djavax.net.ssl.trustStore=/k.p12 -jar perf-test.jar -h amqps://localhost:5671
java -jar perf-test.jar --metrics-prometheus --metrics-tags type=publisher,deployment=eu
docker run -it --rm pivotalrabbitmq/perf-test:latest -x 1 -y 2 -u "t" -a --id "test 1"
docker run -it --rm --network perf-test pivotalrabbitmq/perf-test:latest --uri amqp://rabbitmq
"""


@pytest.mark.parametrize("line", MANUAL.splitlines())
def test_a_line_of_the_manual_passes_the_check(line: str, tmp_path: Path) -> None:
    file = tmp_path / "imported.yaml"
    file.write_text(scenario_of("perf-test", line), encoding="utf-8")
    assert cli.main(["check", str(file)]) == 0
