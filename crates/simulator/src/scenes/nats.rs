//! NATS clients in virtual time, before a scripted server: one deviation or one limit each.

use plan::{Outcomes, Payload, Population, Property, PropertyValue, Publication, Reason};
use testkit::{Broker, Script};

use crate::case::case;
use crate::course::Run;
use crate::features::nats::{as_server, protocol};
use crate::nats::{Conduct, NatsScript, NatsServer};
use crate::peer::Peer;
use crate::totals::Totals;
use crate::weather::{Fault, MS, S, Weather};
use testkit::plans::{self, publication, subscription, template};

/// Clients that do not come back.
fn clients(name: &str, count: u32, filters: &[&str]) -> Population {
    let mut population = plans::population(name, count);
    population.protocol = protocol(true);
    population.reconnect = None;
    population.subscriptions = filters.iter().map(|filter| subscription(filter, 0)).collect();
    population
}

/// One client that publishes ten messages a second.
fn publisher(subject: &str) -> Population {
    let publications = vec![publication(subject, 0, 100 * MS)];
    Population { publications, ..clients("publisher", 1, &[]) }
}

fn played(populations: Vec<Population>, weather: Weather, script: NatsScript) -> Run {
    let mut case = case(populations, S, weather);
    case.plan.targets.iter_mut().for_each(as_server);
    case.plan.targets[0].tls = case.plan.populations[0].tls.is_some();
    let mut peer = Peer::new(Broker::new(Script::reliable()));
    peer.nats = NatsServer::new(script, 1);
    Run::play(case, 1, 1, peer)
}

fn totals(populations: Vec<Population>, script: NatsScript) -> Totals {
    Totals::of(&played(populations, Weather::fair(), script))
}

#[test]
fn each_deviation_of_a_server_has_its_reason() {
    let line = Conduct::Line;
    for (conduct, has_login, reason) in [
        (Conduct::Mute, false, Reason::ConnectTimeout),
        (Conduct::NotNats, false, Reason::ProtocolError),
        (Conduct::EndBehindInfo, false, Reason::ConnectClosed),
        (Conduct::EndBehindPong, false, Reason::ClosedByBroker),
        (Conduct::NoPong, false, Reason::ConnectTimeout),
        (Conduct::NeedsTls, false, Reason::ConnectRejected),
        (Conduct::Refuse("Authorization Violation"), true, Reason::BadCredentials),
        (Conduct::Refuse("Authorization Violation"), false, Reason::NotAuthorized),
        (Conduct::Refuse("Authentication Timeout"), true, Reason::NotAuthorized),
        (Conduct::Refuse("maximum connections exceeded"), true, Reason::ServerUnavailable),
        (Conduct::Refuse("Something New"), true, Reason::ConnectRejected),
        (line("-ERR 'Stale Connection'\r\n"), false, Reason::ClosedByBroker),
        (line("-ERR 'Slow Consumer'\r\n"), false, Reason::SlowConsumer),
        (line("HELLO\r\n"), false, Reason::ProtocolError),
        (line("MSG\r\n"), false, Reason::ProtocolError),
        (line("MSG a 2 x\r\n\r\n"), false, Reason::ProtocolError),
        (line("MSG a 2 1\r\nxyz\r\n"), false, Reason::ProtocolError),
        (line("MSG a 2 99999999999\r\n"), false, Reason::ProtocolError),
        (line("HMSG a 2 9 4\r\nNATS\r\n"), false, Reason::ProtocolError),
        (line("HMSG a 2 4 4\r\nhttp\r\n"), false, Reason::ProtocolError),
        (line("PONG\r\nPONG\r\nPONG\r\n"), false, Reason::ProtocolError),
        (line("INFO {\r\n"), false, Reason::ProtocolError),
    ] {
        let mut population = clients("client", 3, &["a.*"]);
        population.username = has_login.then(|| template("user"));
        let totals = totals(vec![population], NatsScript::always(conduct));
        assert_eq!(totals.outcomes[0], [(reason, 3)].into(), "{conduct:?}");
        let failed = totals.counters[0].connect_failed_total;
        let has_connected = matches!(conduct, Conduct::Line(_) | Conduct::EndBehindPong);
        assert_eq!(failed, if has_connected { 0 } else { 3 }, "{conduct:?}");
    }
}

#[test]
fn operations_arrive_whole_though_each_byte_comes_by_itself() {
    let value = PropertyValue::Text(template("site {n}"));
    let header = Property { name: "header".into(), key: Some("Site".into()), value };
    for properties in [vec![], vec![header]] {
        let mut publisher = publisher("a.{n}.b");
        publisher.publications[0].properties = properties;
        let populations = vec![publisher, clients("reader", 2, &["a.>"])];
        let totals = totals(populations, NatsScript::always(Conduct::Bytewise));
        let flow = totals.flow(0, 1);
        assert_eq!((flow.expected_total, flow.received_total), (20, 20));
        assert!(totals.outcomes.iter().all(Outcomes::is_empty));
    }
}

#[test]
fn packets_are_counted_as_they_are_on_the_wire() {
    for conduct in [Conduct::Plain, Conduct::Verbose] {
        let populations = vec![publisher("a"), clients("reader", 2, &["a", "b"])];
        let script = NatsScript { ping_ns: 100 * MS, ..NatsScript::always(conduct) };
        let run = played(populations, Weather::fair(), script);
        let counters = Totals::of(&run).counters;
        let network = run.network();
        let sent: u64 = counters.iter().map(|own| own.packets_sent_total).sum();
        let received: u64 = counters.iter().map(|own| own.packets_received_total).sum();
        assert_eq!(sent, network.wire.packets_sent, "{conduct:?}");
        assert_eq!(received, network.wire.packets_received, "{conduct:?}");
    }
}

#[test]
fn tls_begins_behind_info() {
    let populations = [publisher("a.{n}"), clients("reader", 2, &["a.>"])]
        .map(|population| Population { tls: Some(plans::unverified()), ..population });
    let totals = totals(populations.into(), NatsScript::always(Conduct::NeedsTls));
    let flow = totals.flow(0, 1);
    assert_eq!((flow.expected_total, flow.received_total), (20, 20));
    assert!(totals.outcomes.iter().all(Outcomes::is_empty), "{:?}", totals.outcomes);
}

#[test]
fn each_queue_group_receives_a_message_once_whatever_the_filters_of_its_members() {
    let populations = vec![
        publisher("a.{n}"),
        clients("all", 3, &["a.*"]),
        clients("worker", 3, &["$share/g/a.>"]),
        clients("other", 3, &["$share/h/a.>"]),
        clients("more", 3, &["$share/h/*.0"]),
    ];
    let totals = totals(populations, NatsScript::plain());
    let flows = [1, 2, 3, 4].map(|to| totals.flow(0, to));
    let [all, workers, others, more] = flows.map(|flow| flow.received_total);
    assert_eq!((all, workers, others + more), (30, 10, 10));
    for flow in flows {
        assert_eq!((flow.expected_total, flow.duplicate_total), (flow.received_total, 0));
    }
}

#[test]
fn a_client_without_echo_receives_what_others_publish() {
    for (echo, expected) in [(true, 40), (false, 20)] {
        let mut devices = clients("device", 2, &["a.*"]);
        devices.protocol = protocol(echo);
        devices.publications = vec![publication("a.{n}", 0, 100 * MS)];
        let flow = totals(vec![devices], NatsScript::plain()).flow(0, 0);
        assert_eq!((flow.expected_total, flow.received_total), (expected, expected), "{echo}");
    }
}

#[test]
fn copies_for_overlapping_subscriptions_are_copies() {
    let readers = clients("reader", 2, &["a.*", "a.0", "a.0", "b"]);
    let flow = totals(vec![publisher("a.{n}"), readers], NatsScript::plain()).flow(0, 1);
    assert_eq!((flow.received_total, flow.copies_total, flow.duplicate_total), (20, 40, 0));
}

#[test]
fn a_message_above_max_payload_is_not_sent() {
    for (bytes, sent) in [(400, 10), (401, 0)] {
        let payload = Payload::Fixed { bytes };
        let publications = vec![Publication { payload, ..publication("a", 0, 100 * MS) }];
        let publishers = Population { publications, ..publisher("a") };
        let script = NatsScript { payload_max: 400, ..NatsScript::plain() };
        let totals = totals(vec![publishers, clients("reader", 1, &["a"])], script);
        let (counters, outcomes) = (&totals.counters[0], &totals.outcomes[0]);
        let too_large = outcomes.get(&Reason::MessageTooLarge).copied().unwrap_or(0);
        assert_eq!((counters.sent_total, too_large), (sent, 10 - sent), "{bytes} bytes");
        assert_eq!(totals.flow(0, 1).expected_total, sent.cast_signed());
    }
}

#[test]
fn a_refused_subscription_is_counted_and_the_others_stay() {
    let readers = clients("reader", 2, &["b", "a.*", "c"]);
    let script = NatsScript::always(Conduct::Strict);
    let totals = totals(vec![publisher("a.{n}"), readers], script);
    let counters = &totals.counters[1];
    assert_eq!((counters.subscribed_total, counters.subscribe_failed_total), (2, 4));
    assert_eq!(totals.outcomes[1], [(Reason::SubscribeRefused, 4)].into());
    assert_eq!(totals.flow(0, 1).received_total, 20);
}

#[test]
fn silent_ends_ping_each_other() {
    let script = || NatsScript { ping_ns: 200 * MS, gives_up: true, ..NatsScript::plain() };
    let mut readers = clients("reader", 5, &["a"]);
    readers.keep_alive_s = 1;
    let weather = Weather { keep_alive_check_ns: 50 * MS, ..Weather::fair() };
    let run = played(vec![readers.clone()], weather.clone(), script());
    assert_eq!(Totals::of(&run).counters[0].disconnected_total, 0);
    // A server that stands still is dead for its clients.
    let faults = vec![(500 * MS, Fault::Stall { per_cent: 100, ns: 60 * S })];
    let mut case = case(vec![readers], 5 * S, Weather { faults, ..weather });
    case.plan.targets.iter_mut().for_each(as_server);
    let mut peer = Peer::new(Broker::new(Script::reliable()));
    peer.nats = NatsServer::new(NatsScript::plain(), 1);
    let totals = Totals::of(&Run::play(case, 1, 1, peer));
    assert_eq!(totals.outcomes[0], [(Reason::KeepAliveTimeout, 5)].into());
}

#[test]
fn a_slow_consumer_is_cut_off_by_the_server() {
    let mut publisher = publisher("a");
    publisher.publications = vec![publication("a", 0, MS)];
    let mut readers = clients("reader", 8, &["a"]);
    readers.read_rate_per_s = Some(50.0);
    let weather = Weather { room: (200, 4000), ..Weather::fair() };
    let script = NatsScript { pending_max: 20_000, ..NatsScript::plain() };
    let run = played(vec![publisher, readers], weather, script);
    let outcomes = &Totals::of(&run).outcomes[1];
    let of = |reason| outcomes.get(&reason).copied().unwrap_or(0);
    let slow = run.network().peer.nats.seen["slow consumer"];
    assert!(of(Reason::ResetByBroker) > 0, "{outcomes:?}");
    assert!(of(Reason::ResetByBroker) + of(Reason::SlowConsumer) <= slow, "{outcomes:?}");
}

#[test]
fn subscribers_of_one_server_receive_wills_and_texts_of_mqtt() {
    let mut device = plans::population("device", 2);
    device.publications = vec![publication("state/{n}", 1, 100 * MS)];
    device.publications[0].payload = Payload::Text { template: template("on"), is_json: false };
    device.end = plan::End::Abort;
    if let plan::PlannedProtocol::Mqtt(mqtt) = &mut device.protocol {
        mqtt.will = Some(Box::new(plan::PlannedWill {
            topic: template("will/0/{n}"),
            payload: template("gone"),
            qos: 1,
            retain: false,
            properties: Vec::new(),
        }));
    }
    // The device leaves in a change of the stage, so that its will is expected of all readers.
    let mut case = case(vec![device, clients("reader", 3, &[">"])], S, Weather::fair());
    case.plan.targets.iter_mut().for_each(as_server);
    let leaves = plan::ChangeAction::Remove { clients: 2, over_ns: 0 };
    case.changes = vec![(1, S / 2, 0, leaves)];
    let run = Run::play(case, 1, 1, Peer::new(Broker::new(Script::reliable())));
    let totals = Totals::of(&run);
    let (flow, sent) = (totals.flow(0, 1), totals.counters[0].sent_total.cast_signed());
    assert!(sent > 0);
    assert_eq!((flow.wills_expected_total, flow.wills_received_total), (6, 6));
    assert_eq!((flow.expected_total, flow.received_total), (3 * sent + 6, 3 * sent + 6));
    assert_eq!(totals.counters[1].unstamped_total + totals.counters[1].foreign_total, 0);
}
