"""Publishers and subscribers of ZeroMQ: from the file to the plan."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubstorm.cli.describe.plan import plan_in_words
from pubstorm.contract.commands import ActiveClients
from pubstorm.contract.plan import Plan, PlannedLifetime
from pubstorm.contract.protocol import Mqtt, OpenPace, Zmtp
from pubstorm.contract.target import PublisherTarget, Target
from pubstorm.errors import ScenarioError, UsageError
from pubstorm.host.binaries import offered_load
from pubstorm.host.keys.clients import check_host_files
from pubstorm.host.preflight import HostLimits, agents_needed, largest_share, needs
from pubstorm.plan import planned_targets, provisional_plan, targets_by_name
from pubstorm.play.changes import parse_change
from pubstorm.play.clean_start import CleanStart
from pubstorm.play.clean_start.topics import looked_at
from pubstorm.scenario import Scenario, load_scenario, parse_scenario
from tests.pure.scenario.bases import FEED, SMALL, changed

SECOND_NS = 10**9
PORTS = HostLimits(20_000, 2**40, ports=28_232, memory_bytes=8 * 2**30, cores=4)
REAL = "populations.subscriber.subscriber=libzmq"
BESIDE_MQTT = changed(FEED, "target: 'mqtt://localhost'")


def scenario(*overrides: str, text: str = FEED) -> Scenario:
    return parse_scenario(text, "s.yaml", overrides)


def plan(*overrides: str, text: str = FEED) -> Plan:
    return provisional_plan(scenario(*overrides, text=text))


def test_a_publisher_is_a_population_and_a_target_of_its_own() -> None:
    feed, subscriber = plan().populations
    assert plan().targets == (Target(host="127.0.0.1", port=0),)
    assert (feed.player, feed.is_publisher) == ("libzmq", True)
    assert feed.protocol == Zmtp(player="libzmq", high_water_mark=1000, io_threads=1)
    assert subscriber.protocol == Zmtp(player="engine", high_water_mark=0)
    assert feed.at == subscriber.at
    assert feed.publications[0].topic == subscriber.subscriptions[0].filter == ""


def test_publishers_come_after_brokers_each_with_its_port() -> None:
    device = "populations.device: {clients: 10, subscriptions: [a/b]}"
    text = changed(FEED, f"topology.brokers.cloud: {{kind: embedded, count: 2}}, {device}")
    many = ("populations.feed.clients=3", "populations.feed.publisher={kind: pyzmq, port: 5550}")
    read = scenario(*many, text=text)
    assert targets_by_name(read) == {"cloud": range(2), "feed": range(2, 5)}
    assert [target.port for target in planned_targets(read)] == [0, 0, 5550, 5551, 5552]
    populations = provisional_plan(read).populations
    assert [(p.at.first, p.at.count) for p in populations] == [(2, 3), (2, 3), (0, 2)]
    assert populations[2].protocol == Mqtt(client_id="device-{n}", clean_session=True)


def test_publishers_stand_beside_bridged_brokers() -> None:
    brokers = "{cloud: mosquitto, box: {kind: mosquitto, count: 2}}"
    bridges = "{up: {from: box, to: cloud, topics: [{topic: a/#, direction: out}]}}"
    compiled = plan(text=changed(FEED, f"topology: {{brokers: {brokers}, bridges: {bridges}}}"))
    assert [p.at.first for p in compiled.populations] == [3, 3]


def test_options_of_publishers_and_real_subscribers_reach_the_plan() -> None:
    feed, subscriber = plan(
        "populations.feed.publisher={kind: pyzmq, high_water_mark: 100k, io_threads: 2}",
        "populations.feed.publications.0.burst=100",
        REAL,
        "populations.subscriber.high_water_mark=0",
    ).populations
    assert feed.protocol == Zmtp(player="pyzmq", high_water_mark=100_000, io_threads=2)
    assert subscriber.protocol == Zmtp(player="libzmq", high_water_mark=0)
    pace = feed.publications[0].pace
    assert isinstance(pace, OpenPace)
    assert (pace.period_ns, pace.burst) == (100_000, 100)
    default = plan(REAL).populations[1]
    assert default.protocol == Zmtp(player="libzmq", high_water_mark=1000)


def test_mqtt_has_bursts_too() -> None:
    burst = "populations.device.publications.0.burst: 10"
    pace = plan(text=changed(SMALL, burst)).populations[0].publications[0].pace
    assert isinstance(pace, OpenPace)
    assert pace.burst == 10


def test_security_is_that_of_the_publisher() -> None:
    plain = (
        "populations.feed.publisher.security=plain",
        "populations.feed.username=me",
        "populations.feed.password=secret",
        "populations.subscriber.username=me",
        "populations.subscriber.password=secret",
    )
    curve = ("populations.feed.publisher.security=curve", REAL)
    text = changed(FEED, "populations.feed.publisher: {kind: pyzmq}")
    for name, overrides in (("plain", plain), ("curve", curve)):
        populations = plan(*overrides, text=text).populations
        assert [p.zmtp.security for p in populations if p.zmtp] == [name, name]
    assert [p.player for p in populations] == ["pyzmq", "pyzmq"]


def test_a_publisher_that_already_runs_is_a_target() -> None:
    text = "target: zmq://10.0.0.5:5556\npopulations:\n"
    text += '  subscriber: {clients: 10, subscriptions: ["a"], username: me, password: secret}\n'
    text += "stages: [connect, {hold: 5s}]\n"
    compiled = plan(text=text)
    (subscriber,) = compiled.populations
    assert compiled.targets == (PublisherTarget(host="10.0.0.5", port=5556),)
    assert str(compiled.targets[0]) == "zmq://10.0.0.5:5556"
    assert subscriber.protocol == Zmtp(high_water_mark=0, security="plain")
    assert Plan.model_validate_json(compiled.to_line()).targets[0].port == 5556


def test_a_read_rate_in_percent_is_of_what_is_due() -> None:
    slow = plan("populations.subscriber.read_rate=50%").populations[1]
    assert slow.read_rate_per_s == 5000
    text = FEED.replace('topic: ""', 'topic: "{red|green|blue|black}/x"')
    slow = plan(
        "populations.subscriber.read_rate=20%",
        "populations.subscriber.subscriptions=[red, bl]",
        text=text,
    ).populations[1]
    assert slow.read_rate_per_s == pytest.approx(0.2 * 0.75 * 10_000)
    both = plan("populations.subscriber.read_rate=50%", "populations.feed.clients=2").populations[1]
    assert both.read_rate_per_s == 5000


def test_a_share_may_be_slow_and_another_come_and_go() -> None:
    shares = "{slow: {part: 10%, read_rate: 50%}, restless: {part: 10%, lifetime: {rate: 10/s}}}"
    found = {p.name: p for p in plan(f"populations.subscriber.shares={shares}").populations}
    assert found["subscriber/rest"].read_rate_per_s is None
    assert found["subscriber/slow"].read_rate_per_s == 5000
    lifetime = found["subscriber/restless"].lifetime
    assert lifetime == PlannedLifetime(min_ns=1, max_ns=20 * SECOND_NS, offline_ns=None)


@given(
    clients=st.integers(1, 10_000),
    rate_per_s=st.integers(1, 100),
    again_ms=st.integers(0, 5000),
    part=st.integers(1, 100),
)
def test_so_many_clients_go_a_second_as_their_lifetime_says(
    clients: int, rate_per_s: int, again_ms: int, part: int
) -> None:
    lifetime = f"lifetime={{rate: {rate_per_s}/s, offline: {again_ms}ms}}"
    shares = f"populations.subscriber.shares={{some: {part}%}}"
    overrides = (f"populations.subscriber.clients={clients}", f"populations.subscriber.{lifetime}")
    if clients / rate_per_s <= again_ms / 1000:
        with pytest.raises(ScenarioError):
            scenario(*overrides)
        return
    lives = [p.lifetime for p in plan(*overrides).populations if p.lifetime is not None]
    if clients >= 100:
        divided = plan(*overrides, shares).populations
        lives += [p.lifetime for p in divided if p.lifetime is not None]
    for life in lives:
        turn_ns = (life.min_ns + life.max_ns) / 2 + (life.offline_ns or 0)
        assert clients / (turn_ns / SECOND_NS) == pytest.approx(rate_per_s, rel=1e-6)


def test_what_is_offered_follows_prefixes() -> None:
    text = FEED.replace('topic: ""', 'topic: "news/{0..9}"')
    overrides = ('populations.subscriber.subscriptions=["news/{n%10}", "news/3"]',)
    compiled = plan(*overrides, text=text)
    load = offered_load(compiled).stages[-1].phases[0]
    # Each topic has a tenth of the subscribers, number 3 has all of them.
    assert load.sent_per_s == 10_000
    assert load.delivered_per_s == pytest.approx(10_000 * (9 * 100 + 1000) / 10)


def test_mqtt_and_zeromq_do_not_receive_from_each_other() -> None:
    device = "{clients: 7, subscriptions: ['#'], publications: [{topic: a/b, rate: 1/s}]}"
    topic = "populations.feed.publications.0.topic: a/b"
    compiled = plan(text=changed(BESIDE_MQTT, f"populations.device: {device}, {topic}"))
    load = offered_load(compiled).stages[-1].phases[0]
    assert load.delivered_per_s == pytest.approx(10_000 * 1000 + 7 * 7)


def test_publishers_are_not_scaled() -> None:
    feed, subscriber = plan("scale=3").populations
    assert (feed.clients, subscriber.clients) == (1, 3000)


def test_a_change_by_hand_is_one_of_their_rate_too() -> None:
    active = ActiveClients(plan())
    assert parse_change("rate 2 feed").actions(active, [0])
    with pytest.raises(UsageError):
        parse_change("add 1 feed").actions(active, [0])


def test_engines_are_for_simulated_clients() -> None:
    few = plan("populations.subscriber.clients=7680", "populations.feed.publications.0.rate=1/s")
    assert agents_needed(few, descriptors=20_000, cores=4) == 1
    assert largest_share(few, 1) == 7680
    real = plan(REAL)
    assert agents_needed(real, descriptors=300, cores=4) == 1
    assert largest_share(real, 1) == 0


def test_the_busiest_engine_leaves_a_core_to_the_publisher() -> None:
    busy = plan("populations.feed.publications.0.rate=200k/s")
    assert agents_needed(busy, descriptors=20_000, cores=4) == 3
    assert agents_needed(busy, descriptors=20_000, cores=1) == 1


def test_a_publisher_needs_a_descriptor_for_each_subscriber() -> None:
    def files(*overrides: str) -> dict[str, int]:
        found = needs(plan(*overrides), PORTS, agents=1, brokers={})
        return {need.what: need.needed for need in found if need.unit in {"files", "ports"}}

    assert files()["open files of feed"] == 1200
    assert files()["open files of an agent"] == 1200
    assert files()["ports for publishers to listen on"] == 1
    real = files(REAL, "populations.feed.clients=2")
    assert real["open files of feed"] == 700
    assert real["open files of subscriber"] == 7200
    assert real["open files of an agent"] == 200


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            (),
            """\
targets      1 publisher of ZeroMQ: feed (libzmq), started and stopped by the run
  feed: 1 PUB socket of libzmq at 127.0.0.1, a free port, high-water mark 1,000, 1 I/O thread
    sends 32B with no topic, every 100us
    queues up to 1,000 messages for each subscriber: 61 MiB in all, beside payloads
  subscriber: 1,000 clients at feed, simulated SUB sockets, heartbeats every 60s
    subscribes to everything""",
        ),
        (
            (
                "populations.feed.publisher={kind: libzmq, high_water_mark: 0, port: 5000}",
                "populations.feed.publications.0={topic: news, rate: 1k/s, burst: 50}",
                "populations.subscriber.subscriptions=[ne]",
                REAL,
            ),
            """\
    sends 100B with topic news, bursts of 50 every 50ms
    queues without end: its memory grows while subscribers are slower than it
  subscriber: 1,000 clients at feed, SUB sockets of libzmq, high-water mark 1,000
    subscribes to topics that begin with ne""",
        ),
        (
            ("populations.subscriber.lifetime={rate: 100/s, offline: 0s}",),
            "  subscriber: 1,000 clients at feed, simulated SUB sockets, heartbeats every 60s, "
            "stays up to 20s, back after 0s",
        ),
    ],
)
def test_the_plan_is_described_in_words(overrides: tuple[str, ...], said: str) -> None:
    words = list(plan_in_words(scenario(*overrides), plan(*overrides)))
    assert [line for line in said.splitlines() if line not in words] == []


def test_there_is_no_stale_state_at_publishers() -> None:
    device = "populations.device: {clients: 1, session: persistent, subscriptions: [a/+]}"
    compiled = plan(text=changed(BESIDE_MQTT, device))
    assert looked_at(compiled) == ("a/+",)
    assert CleanStart(compiled, "report", (0, 1)).has_work_after
    assert not CleanStart(compiled, "report", (1,)).has_work_after


def test_a_program_of_the_users_own_is_looked_for(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(FEED)
    own = 'populations.feed.publisher={kind: command, command: [./feed, "--port={port}"]}'
    read = load_scenario(tmp_path / "s.yaml", [own])
    assert read.publishers["feed"].publisher.command == (str(tmp_path / "feed"), "--port={port}")
    with pytest.raises(ScenarioError) as caught:
        check_host_files(read, provisional_plan(read))
    assert caught.value.problems[0].place == "populations.feed.publisher.command.0"
    (tmp_path / "feed").touch(mode=0o700)
    check_host_files(read, provisional_plan(read))


def test_publishers_need_no_brokers_in_number() -> None:
    text = changed(FEED, "topology.brokers.cloud: {kind: embedded, count: auto}")
    assert scenario(text=text).topology.brokers["cloud"].count == 1
