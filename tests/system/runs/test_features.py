"""One run with all features of MQTT at once on mosquitto, and one on the embedded broker. Each test
looks at another side of them: counts, other clients' messages, and Wireshark's decoded packets."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from pubstorm.contract.template import stamp_in_text
from tests.kit.runs import RunMaker
from tests.system.runs.dissector import assert_decoded
from tests.system.runs.features import CALM, OWN_REQUESTS, VERSIONS, Played, played

CASES = [
    pytest.param(kind, marks=pytest.mark.xdist_group(f"features of {kind}"))
    for kind in ("mosquitto", "embedded")
]
ON_BOTH = pytest.mark.parametrize("kind", CASES)
ON_MOSQUITTO = pytest.mark.parametrize("kind", CASES[:1])
COPIES = {
    **dict.fromkeys(("five", "three", "old"), ("device", 2)),
    **{name: (name, 1) for name in CALM},
    "crowd": ("crowd", 3),
    "early": ("kept", 1),
    "plain": ("kept", 1),
    "member": ("up", 4),
    "pool": ("up", 1),
    "teams": ("up", 2),
    "identified": ("up", 2),
    "backend": ("asker", 3),
}
"""Publishers of receivers that stay, and copies of a message for all of them. Each member has one,
and the group of the members."""
ENDINGS = {"closed_by_broker", "reset_by_broker", "disconnect_session_taken_over"}
"""Both brokers close the connection without DISCONNECT, also with MQTT 5."""


@pytest.fixture(scope="module")
def plays(shared_start: RunMaker, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return cache(lambda kind: played(shared_start, kind, tmp_path_factory.mktemp(kind)))


@pytest.fixture
def run(plays: Callable[[str], Played], kind: str) -> Played:
    return plays(kind)


@ON_BOTH
def test_all_thresholds_are_met(run: Played) -> None:
    thresholds = run.result["verdict"]["thresholds"]
    assert thresholds and all(each["passed"] for each in thresholds), thresholds


@ON_BOTH
@pytest.mark.parametrize("name", COPIES)
def test_receivers_that_stay_lose_and_double_nothing(run: Played, name: str) -> None:
    source, copies = COPIES[name]
    found, sent = run.of(name), run.of(source)["sent_total"]
    own = found["received_total"] - found["answered_total"]
    assert sent > 0 and own == copies * sent
    assert found["received_total"] == found["expected_total"]
    assert found["lost_total"] == found["duplicate_total"] == found["reordered_total"] == 0
    assert run.missing[name] == 0


@ON_BOTH
def test_each_version_is_played_on_each_transport(run: Played) -> None:
    for name, version in zip(CALM, 2 * [*VERSIONS], strict=True):
        assert (run.of(name)["version"], run.of(name)["outcomes"]) == (f"mqtt-{version}", {})
    assert run.result["targets"][1].startswith("ws://")


@ON_BOTH
def test_another_client_receives_each_property(run: Played) -> None:
    """The payload of the user is unchanged: the stamp is a user property beside it."""
    numbers: dict[str, list[int]] = {}
    for message in run.messages.at("device"):
        n = message.topic.removeprefix("device/")
        number = len(numbers.setdefault(n, []))
        found: Any = message.properties
        assert_marked(found, n, f"no. {number}")
        assert message.payload == f"no. {number}, a text longer than a stamp".encode()
        ((_, text),) = (pair for pair in found.UserProperty if pair[0] == "pubstorm")
        stamp = stamp_in_text(text.encode())
        assert stamp is not None and len(text) == 48
        numbers[n].append(int.from_bytes(stamp[4:8], "little"))
    assert all(places == [*range(len(places))] for places in numbers.values())
    assert sum(map(len, numbers.values())) == run.of("device")["sent_total"]
    assert len(numbers) == 4


@ON_BOTH
def test_another_client_sees_each_property_of_a_will(run: Played) -> None:
    messages = run.messages.at("gone")
    for message in messages:
        n = message.topic.removeprefix("gone/")
        assert (message.payload, message.qos) == (f"gone {n}".encode(), 1)
        assert_marked(message.properties, n, f"no. {n}")
    assert sorted(message.topic for message in messages) == [f"gone/{n}" for n in range(4)]


def assert_marked(found: Any, n: str, correlation_data: str) -> None:
    """Checks the properties that the scenario gives messages and wills of client `n`."""
    assert found.ContentType == f"text/{n}"
    assert found.PayloadFormatIndicator == 1
    assert found.ResponseTopic == f"reply/{n}"
    assert found.CorrelationData == correlation_data.encode()
    own = sorted(pair for pair in found.UserProperty if pair[0] != "pubstorm")
    assert own == [("client", n), ("site", "north")]
    assert 0 < found.MessageExpiryInterval <= 100


@ON_BOTH
def test_only_mqtt_5_follows_the_stamp_beside_a_payload(run: Played) -> None:
    for name in VERSIONS.values():
        found = run.of(name)
        followed = found["received_total"] if name == "five" else 0
        assert found["latency_us"]["intended"]["count"] == followed
        assert found["foreign_total"] == 0


@ON_BOTH
def test_forwarded_messages_are_in_the_ledger_with_the_flag_of_their_publisher(run: Played) -> None:
    """The late observer also receives the messages that the broker has kept."""
    for name, kept, is_as_published in (
        ("early", 0, True),
        ("plain", 0, False),
        ("late", 4, True),
    ):
        found = run.of(name)
        as_published = found["received_total"] if is_as_published else 0
        flags = (found["retained_total"], found["retained_as_published_total"])
        assert flags == (kept, as_published), name
    late = run.of("late")
    sent = [stage["populations"]["kept"]["sent_total"] for stage in of_kind(run, "publish")]
    assert late["received_total"] == late["expected_total"] == sum(sent[1:]) > 0
    assert late["duplicate_total"] == 0


def of_kind(run: Played, kind: str) -> list[dict[str, Any]]:
    """Returns the stages of a kind."""
    return [stage for stage in run.result["stages"] if stage["kind"] == kind]


@ON_BOTH
def test_a_topic_alias_saves_the_bytes_of_the_topic(run: Played) -> None:
    named, alias = run.of("named"), run.of("alias")
    sent = alias["sent_total"]
    assert sent == named["sent_total"]
    # An alias is a property of three bytes. The first message of each client has the topic too.
    without = len("a/long/topic/that/no/alias/replaces/0") * sent
    first = 4 * len("a/long/topic/that/an/alias/replaces/0")
    assert named["bytes_sent_total"] - alias["bytes_sent_total"] == without - first - 3 * sent


@ON_BOTH
def test_a_group_of_two_populations_gets_each_message_once(run: Played) -> None:
    crew, others = run.of("crew"), run.of("others")
    for each in (crew, others):
        assert each["expected_total"] == each["received_total"] > 0
        assert each["lost_total"] == each["duplicate_total"] == 0
    assert run.missing["crew"] == run.missing["others"] == 0
    assert crew["received_total"] + others["received_total"] == run.of("up")["sent_total"]


@ON_BOTH
def test_the_shares_of_members_are_measured(run: Played) -> None:
    share = run.of("pool")["group_share"]
    assert share["count"] == 3 * len(of_kind(run, "publish")[:2])
    assert 0 < share["min"] <= share["p50"] <= share["max"] <= 3
    assert 1 / 3 <= share["fairness"] <= 1
    assert run.of("member")["group_share"]["count"] == 0


@ON_BOTH
def test_copies_with_other_identifiers_are_no_duplicates(run: Played) -> None:
    """The embedded broker sends one copy with both identifiers."""
    found = run.of("identified")
    further = {"embedded": 0, "mosquitto": 1}[run.kind]
    assert found["copies_total"] == further * found["received_total"]


@ON_BOTH
@pytest.mark.parametrize("name", ["fifth", "third"])
def test_messages_that_expire_while_their_receiver_is_offline_are_not_lost(
    run: Played, name: str
) -> None:
    receiver, brief = run.of(name), run.of("brief")["sent_total"]
    published = run.of("expiring")["sent_total"] + brief
    # Each message is for three receivers.
    assert 0 < receiver["expired_total"] <= 3 * brief
    assert receiver["expired_received_total"] == 0
    assert receiver["received_total"] == receiver["expected_total"]
    assert receiver["received_total"] == 3 * published - receiver["expired_total"]
    assert (receiver["expiry_reduced_total"] > 0) == (name == "fifth")


@ON_BOTH
def test_each_end_has_its_wills(run: Played) -> None:
    """A client that returns before the end of its will delay has no will."""
    flows = [flow for flow in run.result["flows"] if flow["to"] == "watcher"]
    expected = Counter({flow["source"]: flow["wills_expected_total"] for flow in flows})
    # A client that has no processor within its keep-alive dies, and then has a second connection.
    ends = {name: run.of(name)["connected_total"] for name in ("dying", "silent", "delayed")}
    ends |= {"victim": 2, "parting": 4 if run.kind == "mosquitto" else 0}
    assert +expected == +Counter({name: 2 * count for name, count in ends.items()})
    watcher = run.of("watcher")
    assert watcher["wills_received_total"] == watcher["received_total"] == expected.total()
    latency = watcher["will_latency_us"]
    assert 0 < latency["count"] + latency["negative_total"] <= expected.total()
    assert run.of("returning")["left_total"] > 4
    assert run.of("polite")["disconnected_total"] == 0


@ON_BOTH
def test_clients_whose_connection_is_taken_over_have_an_outcome(run: Played) -> None:
    victim, thief = run.of("victim"), run.of("thief")
    assert victim["disconnected_total"] == sum(victim["outcomes"].values()) == 2
    assert (thief["connected_total"], thief["connect_time_us"]["count"]) == (2, 2)
    assert thief["disconnected_total"] == 0
    # Those that reconnect take their connections back.
    for name, clients in (("robbed", 3), ("robber", 2)):
        assert run.of(name)["connected_total"] > clients
    for name in ("victim", "robbed", "robber"):
        assert {*run.of(name)["outcomes"]} <= ENDINGS


@ON_BOTH
@pytest.mark.parametrize("name", ["flapper", "keeper"])
def test_flapping_clients_miss_messages_and_the_others_are_exact(run: Played, name: str) -> None:
    filters, flapper = 2, run.of(name)
    assert flapper["expected_total"] == flapper["received_total"] > 0
    assert (flapper["lost_total"], flapper["outcomes"]) == (0, {})
    removed = flapper["unsubscribed_total"]
    assert removed == filters * flapper["unsubscribe_time_us"]["count"] > 0
    # All clients subscribe once as they connect.
    again = flapper["subscribed_total"] - filters * flapper["clients"]
    assert again == filters * flapper["subscribe_time_us"]["count"]
    assert 0 <= removed - again <= filters * flapper["clients"]
    assert flapper["retained_total"] > 0
    steady, source = run.of("steady"), run.of("source")
    assert steady["received_total"] == steady["expected_total"] == 2 * source["acked_total"]
    assert steady["unsubscribed_total"] == 0
    assert name in of_kind(run, "publish")[-1]["excluded"]
    assert any(each["kind"] == "unsubscribe" for each in run.result["samplers"])


@ON_BOTH
def test_each_client_of_the_backend_answers_each_request(run: Played) -> None:
    asker, backend = run.of("asker"), run.of("backend")
    requests = asker["requests_total"]
    assert requests == asker["sent_total"] > 0
    assert asker["answers_expected_total"] == asker["answered_total"] == 3 * requests
    assert asker["round_trip_us"]["count"] == 3 * requests
    assert (asker["unanswered_total"], asker["answers_duplicate_total"]) == (0, 0)
    assert asker["latency_us"]["intended"]["count"] == 0, "answers are no one-way deliveries"
    assert backend["answers_total"] == backend["sent_total"] == 3 * (requests + OWN_REQUESTS)
    stages = [stage["populations"]["asker"] for stage in of_kind(run, "publish")]
    assert sum(stage["answered_total"] for stage in stages) == 3 * requests


@ON_BOTH
def test_requests_without_an_answer_are_counted(run: Played) -> None:
    lonely = run.third["populations"]["lonely"]
    assert lonely["unanswered_total"] == lonely["requests_total"] > lonely["answered_total"] == 0


@ON_BOTH
def test_another_program_answers_requests(run: Played) -> None:
    """A second answer is a duplicate."""
    device, seen = (run.second["populations"][name] for name in ("stranger", "overhearing"))
    requests = device["requests_total"]
    assert device["answered_total"] == device["round_trip_us"]["count"] == requests
    assert (device["unanswered_total"], device["foreign_total"]) == (0, 0)
    assert device["answers_duplicate_total"] == device["duplicate_total"]
    online = run.second["stages"][1]["populations"]["stranger"]["requests_total"]
    assert 0 < online / 4 <= device["duplicate_total"] <= requests / 4
    assert seen["latency_us"]["intended"]["count"] == requests
    assert (seen["received_total"], seen["lost_total"]) == (requests, 0)


@ON_BOTH
def test_requests_of_another_program_are_answered(run: Played) -> None:
    answers = run.messages.at("mine")
    counts = Counter(message.topic for message in answers)
    assert counts == {f"mine/{number}": 3 for number in range(OWN_REQUESTS)}
    for message in answers:
        asked: Any = message.properties
        assert asked.CorrelationData == f"no. {message.topic.removeprefix('mine/')}".encode()
        assert len(message.payload) == 40


@ON_BOTH
def test_json_of_device_data_is_seen_by_others_and_followed_by_the_ledger(run: Played) -> None:
    data, reader = run.of("data"), run.of("reader")
    assert reader["expected_total"] == reader["received_total"] == 2 * data["sent_total"]
    assert reader["lost_total"] == reader["foreign_total"] == reader["reordered_total"] == 0
    assert reader["latency_us"]["intended"]["count"] == reader["received_total"]
    sites = {"TH-0001": "hall 1", "TH-0002": 'hall "2"', "TH-0003": "yard"}
    numbers: dict[str, list[int]] = {serial: [] for serial in sites}
    for message in run.messages.at("site"):
        said = json.loads(message.payload)
        assert message.topic in {f"site/{said['id']}/up", f"site/{said['id']}/log"}
        assert said["where"]["site"] == sites[said["id"]]
        assert 20 <= said["temperature"] <= 30
        assert said["state"] in {"ok", "fault"}
        assert len(said["nonce"]) == 16
        numbers[said["id"]].append(said["number"])
    assert sum(map(len, numbers.values())) == data["sent_total"]
    assert all(found == list(range(len(found))) for found in numbers.values())


@ON_BOTH
def test_agents_follow_a_profile_from_a_file(run: Played) -> None:
    """The mean factor is one, so 10 messages a second for 2 s are due to each client."""
    stage = of_kind(run, "publish")[-1]["populations"]
    for name in ("alias", "kept", "named"):
        assert stage[name]["sent_total"] + stage[name]["skipped_total"] == 4 * 10 * 2


@ON_MOSQUITTO
def test_no_more_messages_are_in_flight_than_the_broker_receives(run: Played) -> None:
    """mosquitto disconnects a client that exceeds its Receive Maximum."""
    bursts = run.of("bursts")
    assert (bursts["acked_total"], bursts["outcomes"]) == (bursts["sent_total"], {})
    # A snapshot sees what is in flight at its instant, which may be nothing. The waits below show
    # that the limit was reached.
    assert bursts["in_flight_max"] <= 4 * 6
    waits = bursts["receive_maximum_waits_total"]
    assert bursts["receive_maximum_wait_us"]["count"] == waits > 0


@ON_MOSQUITTO
def test_messages_beyond_the_limit_of_the_broker_are_left_out(run: Played) -> None:
    large = run.of("large")
    assert large["outcomes"] == {"message_too_large": large["skipped_total"]}
    assert (large["sent_total"], large["disconnected_total"]) == (0, 0)
    assert large["skipped_total"] > 0


@ON_MOSQUITTO
def test_a_subscriber_that_the_broker_forgets_is_named_with_the_time(run: Played) -> None:
    """The client stays connected, its subscription stands, and nothing comes."""
    online = run.third["stages"][1]
    (stall, *_) = (each for each in run.third["stalls"] if each["number"] == 3)
    assert (stall["population"], stall["stage"]) == ("mobile", online["name"])
    assert stall["since_s"] < online["start_s"] + online["duration_s"]
    assert (stall["until_s"], stall["lasted"]) == (None, True)
    assert stall["due"] >= 3
    mobile, state = (run.third["populations"][name] for name in ("mobile", "state"))
    assert mobile["disconnected_total"] == 0
    assert mobile["lost_total"] == state["sent_total"] / 5 > 0


@pytest.mark.slow("tshark reads each of two recordings twice")
@ON_MOSQUITTO
def test_each_packet_is_decoded_by_an_independent_dissector(run: Played) -> None:
    """Of clients that leave while packets are under way, the dissector may see more."""
    for recording, way in zip(run.recordings, ("tcp", "ws"), strict=True):
        names = [name for name in CALM if name.startswith(way)]
        assert_decoded(recording, [run.result], names=names)
