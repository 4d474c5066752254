"""Runs with clients of AMQP at a real RabbitMQ, whose numbers are known beforehand. Counts agree
with those of the broker and of an independent client, for each mode. Nothing stays on the
broker."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from pubstorm.contract.snapshot import SNAPSHOTS_FILE, Snapshot
from tests.kit.rabbitmq import Rabbit, rabbit_in
from tests.kit.runs import Play, RunMaker
from tests.kit.serving import until
from tests.kit.starved import passes
from tests.system.runs.underway import end_stage, until_sampled, until_sampled_after, whole

pytestmark = pytest.mark.xdist_group("amqp")

CONFIRMED, PLAIN, INDEPENDENT, RETURNED = 100, 100, 40, 20
"""Messages of the publishers."""
FOREIGN = 30
"""Messages of the independent client."""
SCENARIO = """\
target: URL
topology: {exchanges: {telemetry: {type: topic}, jobs: {type: direct, durable: true}}}
populations:
  confirmed:
    clients: 5
    publications:
      - {exchange: telemetry, key: "c.{n}", rate: 20/s, confirm: true, window: 50, persistent: true}
  plain:
    clients: 5
    publications: [{exchange: telemetry, key: "p.{n}", rate: 20/s, headers: {source: "{n}"}}]
  independent:
    clients: 2
    channels: 2
    publications: [{exchange: amq.topic, key: "i.{n}", rate: 20/s, confirm: true}]
    subscriptions: [{exchange: amq.topic, key: i.#}]
  mandatory:
    clients: 1
    publications:
      - {exchange: jobs, key: nowhere, rate: 20/s, confirm: true, mandatory: true}
  own: {clients: 2, subscriptions: [{exchange: telemetry}]}
  worker:
    clients: 1
    subscriptions:
      - {exchange: telemetry, key: c.*, queue: work, prefetch: 20, acknowledge: {every: 10}}
  late:
    clients: 1
    subscriptions:
      - {exchange: telemetry, key: p.#, queue: late, prefetch: 50, acknowledge: {after: 200ms}}
  unacknowledged:
    {clients: 1, subscriptions: [{exchange: telemetry, key: p.1, acknowledge: none}]}
  never:
    clients: 1
    subscriptions:
      - {exchange: telemetry, key: p.2, queue: never, prefetch: 5, acknowledge: never}
  refusing:
    clients: 1
    subscriptions: [{exchange: telemetry, key: p.3, queue: refusing, prefetch: 1, refuse: 50%}]
  quorum:
    clients: 2
    subscriptions: [{exchange: telemetry, key: c.#, queue: replicated, type: quorum}]
  stream:
    clients: 2
    subscriptions: [{exchange: telemetry, key: c.#, queue: log, type: stream}]
  customer:
    clients: 2
    virtual_host: "vh-{n}"
    publications: [{exchange: amq.topic, key: data, rate: 10/s}]
    subscriptions: [{exchange: amq.topic, key: data, queue: data}]
stages: [connect, {publish: 1s}, disconnect]
thresholds: ["sent == 280", "never.received == 5"]
defaults: "off"
"""


@dataclass
class Seen:
    """View of a run from outside."""

    result: dict[str, Any]
    before: dict[str, int]
    after: dict[str, int]
    names: tuple[set[tuple[str, str, str]], set[tuple[str, str, str]]]
    keys: list[str] = field(default_factory=list)
    """Routing keys that the independent client received."""

    def counted(self, key: str) -> int:
        """Returns what the broker counted in the run."""
        return self.after.get(key, 0) - self.before.get(key, 0)

    def population(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.result["populations"][name]
        return found

    def flow(self, source: str, to: str) -> dict[str, Any]:
        (found,) = (f for f in self.result["flows"] if (f["source"], f["to"]) == (source, to))
        return dict(found)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Certificates that one authority signed: of the broker, and of a client called guest."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("keys")

    def made(name: str, *words: str) -> None:
        key = f"-newkey rsa:2048 -nodes -keyout {name}.key -out {name}.crt -days 2 -batch"
        command = ["openssl", "req", "-x509", *key.split(), *words]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)

    made("ca", "-subj", "/CN=authority")
    signed = ("-CA", "ca.crt", "-CAkey", "ca.key")
    made("broker", "-subj", "/CN=rabbit", "-addext", "subjectAltName=IP:127.0.0.1", *signed)
    made("guest", "-subj", "/CN=guest", *signed)
    return {path.name: path for path in folder.iterdir()}


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory, keys: dict[str, Path]) -> Iterator[Rabbit]:
    """A RabbitMQ that the runs of this module do not start."""
    files = {"cacertfile": "ca.crt", "certfile": "broker.crt", "keyfile": "broker.key"}
    folder = tmp_path_factory.mktemp("rabbit")
    with rabbit_in(folder, {key: keys[name] for key, name in files.items()}) as started:
        yield started


@pytest.fixture(scope="module")
def seen(rabbit: Rabbit, shared_run: Play) -> Seen:
    """A run of two agents at all modes, beside an independent client."""
    received: list[str] = []
    names, before = rabbit.names(), rabbit.counts()
    with rabbit.channel() as channel:
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_bind(queue, "amq.topic", "i.*")
        code, result = shared_run(SCENARIO.replace("URL", rabbit.url), "--set", "fleet.agents=2")
        # The broker has confirmed each message, so all that come are in the queue.
        count = channel.queue_declare(queue, passive=True).method.message_count
        for method, _, _ in islice(channel.consume(queue, auto_ack=True), count):
            received.append(method.routing_key)
    assert passes(code, result), result["verdict"]
    populations = result["populations"].values()
    sent = sum(each["sent_total"] for each in populations)
    acked = sum(each["acked_total"] for each in populations)
    requeued = sum(each["requeued_total"] for each in populations)
    came = sum(each["received_total"] for each in populations) + requeued
    never = ("unacknowledged", "never")
    taken = came - requeued - sum(result["populations"][each]["received_total"] for each in never)

    def grown(found: dict[str, int], *keys: str) -> int:
        return sum(found.get(key, 0) - before.get(key, 0) for key in keys)

    # Each channel reports its counts by itself, at its end or every few seconds.
    after = rabbit.until(
        lambda found: (
            grown(found, "publish") >= sent
            and grown(found, "deliver", "deliver_no_ack") >= came + len(received)
            and grown(found, "confirm") >= acked
            and grown(found, "ack") >= taken
        )
    )
    return Seen(result, before, after, (names, rabbit.names()), received)


def test_the_broker_counts_what_the_run_counts(seen: Seen) -> None:
    populations = seen.result["populations"].values()
    assert seen.counted("publish") == sum(each["sent_total"] for each in populations) == 280
    confirmed = CONFIRMED + INDEPENDENT + RETURNED
    assert seen.counted("confirm") == sum(each["acked_total"] for each in populations) == confirmed
    assert seen.counted("return_unroutable") == RETURNED
    assert seen.counted("redeliver") == sum(each["redelivered_total"] for each in populations)
    # The independent client needs no acknowledgements either.
    unacknowledged = seen.population("unacknowledged")["received_total"]
    assert seen.counted("deliver_no_ack") == unacknowledged + INDEPENDENT
    deliveries = sum(each["received_total"] + each["requeued_total"] for each in populations)
    assert seen.counted("deliver") == deliveries - unacknowledged
    assert seen.counted("ack") == deliveries - unacknowledged - 5 - sum(
        each["requeued_total"] for each in populations
    )


def test_the_independent_client_receives_what_clients_publish(seen: Seen) -> None:
    assert sorted(seen.keys) == ["i.0"] * 20 + ["i.1"] * 20


def test_each_queue_receives_what_its_binding_asks_for(seen: Seen) -> None:
    for source, to, expected in (
        ("confirmed", "own", 2 * CONFIRMED),
        ("plain", "own", 2 * PLAIN),
        ("confirmed", "worker", CONFIRMED),
        ("confirmed", "quorum", CONFIRMED),
        ("confirmed", "stream", 2 * CONFIRMED),
        ("plain", "late", PLAIN),
        ("plain", "unacknowledged", PLAIN // 5),
        ("plain", "refusing", PLAIN // 5),
        ("independent", "independent", 2 * INDEPENDENT),
        ("customer", "customer", 20),
    ):
        flow = seen.flow(source, to)
        assert flow["expected_total"] == flow["received_total"] == expected, (source, to)
        assert flow["latency_us"]["intended"]["count"] == expected, (source, to)


def test_confirms_are_acknowledgements(seen: Seen) -> None:
    confirmed, plain = seen.population("confirmed"), seen.population("plain")
    assert confirmed["acked_total"] == confirmed["ack_latency_us"]["intended"]["count"] == CONFIRMED
    assert (confirmed["in_flight"], plain["acked_total"]) == (0, 0)


def test_mandatory_messages_without_a_queue_come_back(seen: Seen) -> None:
    mandatory = seen.population("mandatory")
    assert mandatory["returned_total"] == mandatory["sent_total"] == RETURNED
    assert mandatory["outcomes"] == {"amqp_no_route": RETURNED}


def test_a_client_that_acknowledges_nothing_receives_its_prefetch(seen: Seen) -> None:
    never = seen.population("never")
    assert (never["received_total"], never["expected_total"]) == (5, PLAIN // 5)


def test_refused_deliveries_come_again(seen: Seen) -> None:
    refusing = seen.population("refusing")
    assert refusing["requeued_total"] == refusing["redelivered_total"] > 0
    assert refusing["duplicate_total"] == 0


def test_nothing_stays_on_the_broker(seen: Seen) -> None:
    before, after = seen.names
    assert before == after
    texts = [each["text"] for each in seen.result["stale_state"]]
    assert any("of this run" in text for text in texts), texts


def test_messages_of_others_are_foreign(rabbit: Rabbit, start: RunMaker) -> None:
    played = start(
        f"target: {rabbit.url}\n"
        "populations: {own: {clients: 1, subscriptions: [{exchange: amq.topic, key: x.#}]}}\n"
        "stages: [connect, {hold: {name: strangers, for: 10min}}, disconnect]\n"
        'thresholds: ["own.ready_max == 1"]\ndefaults: "off"\n'
    )
    played.wait_for("  strangers ")
    with rabbit.channel() as channel:
        channel.confirm_delivery()
        for _ in range(FOREIGN):
            channel.basic_publish("amq.topic", "x.y", b"theirs", mandatory=True)

    def counted() -> int:
        *lines, _ = (played.directory / SNAPSHOTS_FILE).read_text().split("\n")
        snapshots = map(Snapshot.model_validate_json, lines)
        return sum(each.populations[0].counters.foreign_total for each in snapshots)

    until(lambda: counted() >= FOREIGN)
    end_stage(played.directory)
    code = played.finish()
    result = played.result()
    assert passes(code, result), result["verdict"]
    assert result["populations"]["own"]["foreign_total"] == FOREIGN


BAD = """\
target: URL
populations:
  bad: {clients: 1, reconnect: never, KEYS}
  other: {clients: 1, publications: [{exchange: amq.topic, key: a, rate: 10/s}]}
stages: [connect, {publish: 500ms}]
thresholds: [CONDITION]
defaults: "off"
"""


@pytest.mark.parametrize(
    ("written", "outcome"),
    [
        ("virtual_host: nowhere, subscriptions: [q]", "amqp_not_allowed"),
        ("username: guest, password: wrong, subscriptions: [q]", "bad_credentials"),
        ("subscriptions: [{exchange: nowhere, key: a}]", "amqp_not_found"),
        ("publications: [{exchange: nowhere, key: a, rate: 10/s}]", "amqp_not_found"),
        ("subscriptions: [{queue: taken, durable: false}]", "amqp_precondition_failed"),
        ("subscriptions: [locked]", "amqp_resource_locked"),
    ],
)
def test_what_the_broker_refuses_has_a_name_and_stays_as_it_was(
    rabbit: Rabbit, run: Play, written: str, outcome: str
) -> None:
    with rabbit.channel() as channel:
        channel.queue_declare("taken", durable=True)
        channel.queue_declare("locked", exclusive=True)
        before = rabbit.names()
        text = BAD.replace("URL", rabbit.url).replace("KEYS", written)
        _, result = run(text.replace("CONDITION", "bad.connect_attempts >= 1"))
        assert rabbit.names() == before
        channel.queue_delete("taken")
    outcomes = result["populations"]["bad"]["outcomes"]
    assert outcomes.get(outcome, 0) >= 1, outcomes
    if outcome == "amqp_precondition_failed":
        assert result["verdict"]["limited_by"] == "scenario", result["verdict"]
    if outcome != "bad_credentials":
        assert result["populations"]["bad"]["explanations"], "the broker's own text"


def test_a_client_has_several_queues_on_one_channel(rabbit: Rabbit, run: Play) -> None:
    code, result = run(
        f"target: {rabbit.url}\n"
        "populations:\n"
        "  reader:\n"
        "    clients: 20\n"
        '    subscriptions: ["a-{n}", "b-{n}", {exchange: amq.topic, key: "c.{n}"}]\n'
        "    publications:\n"
        '      - {key: "a-{n}", rate: 5/s}\n'
        '      - {key: "b-{n}", rate: 5/s}\n'
        '      - {exchange: amq.topic, key: "c.{n}", rate: 5/s}\n'
        "stages: [connect, {publish: 1s}, disconnect]\n"
        'thresholds: ["reader.received == 300", "reader.connected == 20"]\ndefaults: "off"\n'
    )
    assert passes(code, result), result["verdict"]
    assert result["populations"]["reader"]["outcomes"] == {}


def test_loss_is_found_in_each_of_several_queues_that_clients_share(
    rabbit: Rabbit, run: Play
) -> None:
    few = "acknowledge: never, prefetch: 2, arguments: {x-max-length: 5}"
    code, result = run(
        f"target: {rabbit.url}\n"
        "populations:\n"
        "  source:\n"
        "    clients: 6\n"
        "    publications:\n"
        '      - {key: "work-{n%3}", rate: 10/s}\n'
        '      - {exchange: amq.direct, key: "job-{n%2}", rate: 10/s}\n'
        "      - {exchange: amq.fanout, rate: 10/s}\n"
        '  worker: {clients: 6, subscriptions: ["work-{n%3}"]}\n'
        "  few:\n"
        "    clients: 4\n"
        "    subscriptions:\n"
        f'      - {{exchange: amq.direct, key: "job-{{n%2}}", queue: "few-{{n%2}}", {few}}}\n'
        '  copies: {clients: 9, subscriptions: [{exchange: amq.fanout, queue: "copy-{n%3}"}]}\n'
        "stages: [connect, {publish: 2s}, disconnect]\n"
        'thresholds: ["copies.lost == 0", "worker.lost == 0"]\ndefaults: "off"\n'
    )
    assert passes(code, result), result["verdict"]
    found = {
        name: [clients[f"{key}_total"] for key in ("expected", "received", "lost")]
        for name, clients in result["populations"].items()
    }
    assert found["worker"] == [120, 120, 0]
    assert found["copies"] == [360, 360, 0], "three queues receive each message"
    assert found["few"] == [120, 8, 112], "four consumers have their prefetch, of two queues"


def test_a_queue_that_is_not_the_run_s_stays(rabbit: Rabbit, run: Play) -> None:
    with rabbit.channel() as channel:
        channel.queue_declare("theirs", durable=True)
        code, result = run(
            f"target: {rabbit.url}\n"
            "populations:\n"
            "  reader:\n"
            "    clients: 1\n"
            "    subscriptions: [{queue: theirs, auto_delete: false}]\n"
            "    publications: [{key: theirs, rate: 10/s}]\n"
            "  owner: {clients: 1, subscriptions: [{queue: ours, auto_delete: false}]}\n"
            "stages: [connect, {publish: 1s}, disconnect]\n"
            'thresholds: ["reader.received == 10"]\ndefaults: "off"\n'
        )
        assert passes(code, result), result["verdict"]
        queues = {name for kind, _, name in rabbit.names() if kind == "queue"}
        assert queues == {"theirs"}
        channel.queue_delete("theirs")
    whats = {(each["when"], each["what"]) for each in result["stale_state"]}
    assert {("before", "declared"), ("after", "declared")} <= whats


def test_a_queue_with_other_settings_is_consumed_as_it_is(rabbit: Rabbit, run: Play) -> None:
    with rabbit.channel() as channel:
        channel.queue_declare("limited", durable=True, arguments={"x-max-length": 100})
        before = rabbit.names()
        code, result = run(
            f"target: {rabbit.url}\n"
            "populations:\n"
            "  reader:\n"
            "    clients: 2\n"
            "    subscriptions: [{queue: limited, declare: false}]\n"
            "    publications: [{key: limited, rate: 10/s}]\n"
            "stages: [connect, {publish: 1s}, disconnect]\n"
            'thresholds: ["reader.received == 20"]\ndefaults: "off"\n'
        )
        assert passes(code, result), result["verdict"]
        assert rabbit.names() == before
        assert rabbit.queue("limited")["arguments"] == {"x-max-length": 100}
        channel.queue_delete("limited")
    assert result["stale_state"] == []


def test_the_next_run_deletes_what_a_killed_one_left(rabbit: Rabbit, start: RunMaker) -> None:
    text = (
        f"target: {rabbit.url}\n"
        "topology: {exchanges: {mine: {durable: true}}}\n"
        "populations:\n"
        "  reader:\n"
        "    clients: 2\n"
        "    subscriptions:\n"
        '      - {exchange: mine, key: a, queue: "kept-{n}", type: quorum}\n'
        "stages: [connect, {hold: LENGTH}, disconnect]\n"
        'thresholds: ["reader.ready_max == 2"]\ndefaults: "off"\n'
    )
    before = rabbit.names()
    killed = start(text.replace("LENGTH", "60s"), "--progress", "1s")
    killed.wait_for_stage("hold")
    killed.process.send_signal(signal.SIGKILL)
    killed.process.wait()
    left = {name for kind, _, name in rabbit.names() - before if kind == "queue"}
    assert left == {"kept-0", "kept-1"}
    following = start(text.replace("LENGTH", "1s"))
    code = following.finish()
    result = following.result()
    assert passes(code, result), result["verdict"]
    assert rabbit.names() == before
    cleared = [each["total"] for each in result["stale_state"] if each["what"] == "cleared"]
    assert cleared == [3]


def test_clients_log_in_by_their_certificates_under_tls(
    rabbit: Rabbit, keys: dict[str, Path], run: Play
) -> None:
    tls = f"ca: {keys['ca.crt']}"
    own = f"{tls}, certificate: {keys['guest.crt']}, key: {keys['guest.key']}"
    code, result = run(f"""\
target: amqps://127.0.0.1:{rabbit.tls_port}
populations:
  external:
    clients: 3
    mechanism: external
    tls: {{{own}}}
    subscriptions: [{{exchange: amq.topic, key: "t.{{n}}"}}]
    publications: [{{exchange: amq.topic, key: "t.{{n}}", rate: 10/s}}]
  plain: {{clients: 1, tls: {{{tls}}}, subscriptions: [{{exchange: amq.topic, key: t.0}}]}}
stages: [connect, {{publish: 1s}}, disconnect]
thresholds: [lost == 0, "external.ready_max == 3", "sent == 30", "plain.received == 10"]
defaults: "off"
""")
    assert passes(code, result), result["verdict"]


UNACKNOWLEDGED = """\
topology: {brokers: {main: {kind: rabbitmq}}}
populations:
  sender:
    protocol: amqp
    clients: 10
    publications: [{exchange: amq.topic, key: "d.{n}", rate: 100/s, size: 10kB, confirm: true}]
  never:
    protocol: amqp
    clients: 1
    subscriptions: [{exchange: amq.topic, key: d.#, queue: kept, acknowledge: never, PREFETCH}]
stages:
  - connect
  - hold: {name: idle, for: 10min}
  - publish: 5s
  - hold: {name: kept, for: 10min}
  - disconnect
thresholds: ["sender.sent == 5000"]
defaults: "off"
"""


@pytest.mark.slow("RabbitMQ starts")
@pytest.mark.parametrize("prefetch", [0, 10])
def test_memory_that_unacknowledged_deliveries_take_is_named(
    start: RunMaker, prefetch: int
) -> None:
    run = start(UNACKNOWLEDGED.replace("PREFETCH", f"prefetch: {prefetch}"))
    run.wait_for("  idle ")
    until_sampled(run.directory, "main-0", "rss_bytes", 1)
    end_stage(run.directory)
    run.wait_for("  kept ")
    until_sampled_after(run.directory, "main-0", "rss_bytes")
    end_stage(run.directory)
    run.finish()
    result = run.result()
    never = result["populations"]["never"]
    assert never["received_total"] == (prefetch or 5000)
    assert never["leaves_deliveries"]
    memory = whole(result, "main-0", "rss_bytes")
    # The payloads alone are 50 MB.
    assert memory["max"] - memory["first"] > 20e6
    assert any("its memory grew by" in each for each in result["verdict"]["evidence"])


BLOCKED = """\
topology:
  brokers: {main: {kind: rabbitmq, settings: {vm_memory_high_watermark.absolute: 1MB}}}
populations:
  sender:
    {protocol: amqp, clients: 2,
     publications: [{exchange: amq.topic, key: a, rate: 50/s, confirm: true, window: 10}]}
stages: [connect, {publish: 2s}]
"""


def test_a_broker_that_blocks_publishers_limits_the_run(run: Play) -> None:
    _, result = run(BLOCKED)
    sender = result["populations"]["sender"]
    assert sender["blocked_total"] >= 2
    assert sender["blocked_ns"] > 0
    assert result["verdict"]["limited_by"] == "broker", result["verdict"]
    assert any("blocked publications" in each for each in result["verdict"]["evidence"])
