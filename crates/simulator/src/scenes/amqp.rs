//! AMQP clients in virtual time, before a scripted broker: one deviation or one mode each.

use plan::{
    Acknowledge, Family, Outcomes, Payload, PlannedProtocol, Population, Publication, Reason,
};
use testkit::{Broker, Script};

use crate::amqp::{AmqpBroker, AmqpConduct, AmqpScript, GARBAGE};
use crate::case::case;
use crate::course::Run;
use crate::features::amqp::{as_broker, protocol, queue};
use crate::peer::Peer;
use crate::totals::Totals;
use crate::weather::{Fault, MS, S, Weather};
use testkit::plans::{self, publication, subscription, template};

/// Clients that do not come back, with a queue of their own for each filter.
fn clients(name: &str, count: u32, filters: &[&str], acknowledge: Acknowledge) -> Population {
    let mut population = plans::population(name, count);
    population.protocol = protocol(filters.iter().map(|_| queue("", acknowledge)).collect());
    population.reconnect = None;
    population.subscriptions = filters.iter().map(|filter| subscription(filter, 0)).collect();
    population
}

/// Readers that acknowledge each delivery.
fn readers(count: u32, filters: &[&str]) -> Population {
    clients("reader", count, filters, Acknowledge::Each)
}

/// One client that publishes ten messages a second.
fn publisher(name: &str, qos: u8) -> Population {
    let publications = vec![publication(name, qos, 100 * MS)];
    Population { publications, ..clients("publisher", 1, &[], Acknowledge::Each) }
}

/// Changes the queues of a population.
fn with(mut population: Population, change: impl Fn(&mut plan::Amqp)) -> Population {
    if let PlannedProtocol::Amqp(options) = &mut population.protocol {
        change(options);
    }
    population
}

fn played(populations: Vec<Population>, weather: Weather, script: AmqpScript) -> Run {
    let mut case = case(populations, S, weather);
    case.plan.targets.iter_mut().for_each(as_broker);
    let mut peer = Peer::new(Broker::new(Script::reliable()));
    peer.amqp = AmqpBroker::new(script, 1);
    Run::play(case, 1, 1, peer)
}

fn totals(populations: Vec<Population>, script: AmqpScript) -> Totals {
    Totals::of(&played(populations, Weather::fair(), script))
}

#[test]
fn each_deviation_of_a_broker_has_its_reason() {
    let code = |code| Reason::of(Family::Amqp, code);
    let bytes = AmqpConduct::Bytes;
    for (conduct, has_connected, reason) in [
        (AmqpConduct::Mute, false, Reason::ConnectTimeout),
        (AmqpConduct::NotAmqp, false, Reason::ProtocolError),
        (AmqpConduct::OtherVersion, false, Reason::ProtocolError),
        (AmqpConduct::EndBehindStart, false, Reason::ConnectClosed),
        (AmqpConduct::EndBehindOpen, true, Reason::ClosedByBroker),
        (AmqpConduct::Refuse((403, "ACCESS_REFUSED")), false, Reason::BadCredentials),
        (AmqpConduct::Refuse((530, "NOT_ALLOWED")), false, code(530)),
        (AmqpConduct::Refuse((320, "CONNECTION_FORCED")), false, code(320)),
        (AmqpConduct::CloseChannel((406, "PRECONDITION_FAILED")), true, code(406)),
        (AmqpConduct::CloseChannel((404, "NOT_FOUND")), true, code(404)),
        (AmqpConduct::CloseChannel((999, "NEW")), true, code(999)),
        (AmqpConduct::Cancels, true, Reason::ConsumerCancelled),
        (bytes(GARBAGE), true, Reason::ProtocolError),
        (bytes(b"\x01\0\x01\0\0\0\x04\0\x63\0\x63\xce"), true, Reason::ProtocolError),
        (bytes(b"\x03\0\x01\0\0\0\0\xce"), true, Reason::ProtocolError),
        (bytes(b"\x01\0\x01\x7f\0\0\0"), true, Reason::ProtocolError),
        (bytes(b"\x08\0\0\0\0\0\0\0"), true, Reason::ProtocolError),
        (bytes(b"\x01\0\x09\0\0\0\x04\0\x14\0\x29\xce"), true, Reason::ProtocolError),
    ] {
        let totals = totals(vec![readers(3, &["/e/a.*"])], AmqpScript::always(conduct));
        assert_eq!(totals.outcomes[0], [(reason, 3)].into(), "{conduct:?}");
        let failed = totals.counters[0].connect_failed_total;
        assert_eq!(failed, if has_connected { 0 } else { 3 }, "{conduct:?}");
    }
}

#[test]
fn messages_arrive_whole_however_the_broker_splits_them() {
    let payload = Payload::Fixed { bytes: 9000 };
    for (conduct, part) in [(AmqpConduct::Pieces(1), 4088), (AmqpConduct::Plain, 100)] {
        let mut publisher = publisher("/e/a.{n}.b", 0);
        publisher.publications[0].payload = payload.clone();
        let script = AmqpScript { part, ..AmqpScript::always(conduct) };
        let totals = totals(vec![publisher, readers(2, &["/e/a.#"])], script);
        let flow = totals.flow(0, 1);
        assert_eq!((flow.expected_total, flow.received_total), (20, 20), "{conduct:?}");
        assert!(totals.outcomes.iter().all(Outcomes::is_empty), "{:?}", totals.outcomes);
    }
}

#[test]
fn packets_are_counted_as_they_are_on_the_wire() {
    let weather = Weather { keep_alive_check_ns: 50 * MS, ..Weather::fair() };
    for acknowledge in [Acknowledge::Each, Acknowledge::Late { delay_ns: 3 * MS }] {
        let filters = ["/e/a", "/e/b"];
        let mut population = clients("reader", 2, &filters, acknowledge);
        population.keep_alive_s = 1;
        let population = with(population, |options| options.queues[0].refused = 0.5);
        let run =
            played(vec![publisher("/e/a", 1), population], weather.clone(), AmqpScript::plain());
        let counters = Totals::of(&run).counters;
        let wire = &run.network().wire;
        let sent: u64 = counters.iter().map(|own| own.packets_sent_total).sum();
        let received: u64 = counters.iter().map(|own| own.packets_received_total).sum();
        // The answer to `connection.close` comes to a client that has left.
        assert_eq!((sent, received), (wire.packets_sent, wire.packets_received), "{acknowledge:?}");
    }
}

#[test]
fn every_mode_of_acknowledgement_receives_each_message_once() {
    for (acknowledge, prefetch, expected) in [
        (Acknowledge::None, 0, 20),
        (Acknowledge::Each, 1, 20),
        (Acknowledge::Multiple { every: 4 }, 4, 20),
        (Acknowledge::Late { delay_ns: 30 * MS }, 2, 20),
        (Acknowledge::Never, 0, 20),
        (Acknowledge::Never, 3, 6),
    ] {
        let population = clients("reader", 2, &["/e/a"], acknowledge);
        let population = with(population, |options| options.queues[0].prefetch = prefetch);
        let totals = totals(vec![publisher("/e/a", 0), population], AmqpScript::plain());
        let flow = totals.flow(0, 1);
        assert_eq!(flow.received_total, expected, "{acknowledge:?} {prefetch}");
        assert_eq!((flow.expected_total, flow.duplicate_total), (20, 0));
    }
}

#[test]
fn a_refused_delivery_comes_again_and_counts_once() {
    let population = with(readers(2, &["/e/a"]), |options| options.queues[0].refused = 0.5);
    let totals = totals(vec![publisher("/e/a", 0), population], AmqpScript::plain());
    let (flow, counters) = (totals.flow(0, 1), &totals.counters[1]);
    assert_eq!((flow.expected_total, flow.received_total, flow.duplicate_total), (20, 20, 0));
    assert_eq!((counters.requeued_total, counters.redelivered_total), (10, 10));
}

#[test]
fn members_share_a_queue() {
    let mut workers = readers(3, &["$share/jobs//e/a.#"]);
    workers = with(workers, |options| {
        options.queues = vec![queue("jobs", Acknowledge::Each)];
        options.queues[0].exclusive = false;
    });
    let all = readers(2, &["/e/a.#"]);
    let totals = totals(vec![publisher("/e/a.{n}", 1), workers, all], AmqpScript::plain());
    for (to, expected) in [(1, 10), (2, 20)] {
        let flow = totals.flow(0, to);
        assert_eq!((flow.expected_total, flow.received_total), (expected, expected));
        assert_eq!((flow.duplicate_total, flow.copies_total), (0, 0));
    }
    assert_eq!(totals.counters[0].acked_total, 10);
}

#[test]
fn members_of_a_queue_receive_what_they_refused_however_late() {
    let late = Acknowledge::Late { delay_ns: 400 * MS };
    let workers = with(readers(3, &["$share/jobs//e/a"]), |options| {
        options.queues = vec![queue("jobs", late)];
        options.queues[0].exclusive = false;
        options.queues[0].refused = 0.5;
    });
    let fast = Population {
        publications: vec![publication("/e/a", 1, MS)],
        ..clients("publisher", 1, &[], Acknowledge::Each)
    };
    let totals = totals(vec![fast, workers], AmqpScript::plain());
    let flow = totals.flow(0, 1);
    assert_eq!((flow.received_total, flow.stale_total), (flow.expected_total, 0));
    assert_eq!(flow.duplicate_total, 0);
    assert!(totals.counters[1].redelivered_total > 100);
}

#[test]
fn a_broker_confirms_or_refuses_messages() {
    for (conduct, acked, rejected) in [(AmqpConduct::Plain, 10, 0), (AmqpConduct::Nacks, 5, 5)] {
        let totals = totals(vec![publisher("/e/a", 1)], AmqpScript::always(conduct));
        let counters = &totals.counters[0];
        assert_eq!((counters.acked_total, counters.rejected_total), (acked, rejected));
        let reasons = if rejected > 0 { vec![(Reason::Nacked, 5)] } else { Vec::new() };
        assert_eq!(totals.outcomes[0], reasons.into_iter().collect::<Outcomes>());
        assert_eq!(totals.gauges[0].in_flight, 0);
    }
}

#[test]
fn a_message_that_comes_back_is_expected_by_no_receiver() {
    let away = readers(2, &["/e/b"]);
    let publisher = with(publisher("/e/a", 1), |options| options.mandatory = vec![true]);
    let totals = totals(vec![publisher, away], AmqpScript::plain());
    let counters = &totals.counters[0];
    assert_eq!((counters.sent_total, counters.returned_total, counters.acked_total), (10, 10, 10));
    assert_eq!(totals.outcomes[0], [(Reason::of(Family::Amqp, 312), 10)].into());
    assert_eq!(totals.flow(0, 1).expected_total, 0);
}

#[test]
fn a_blocked_client_waits_and_the_time_is_counted() {
    let weather = Weather { keep_alive_check_ns: 250 * MS, ..Weather::fair() };
    let populations = vec![publisher("/e/a", 1), readers(1, &["/e/a"])];
    let run = played(populations, weather, AmqpScript::always(AmqpConduct::Blocks));
    let (totals, seen) = (Totals::of(&run), &run.network().peer.amqp.seen);
    let counters = &totals.counters[0];
    assert!(counters.blocked_total > 0 && counters.blocked_total == seen["blocked connection"]);
    assert!((S / 4..=2 * S).contains(&counters.blocked_ns), "{}", counters.blocked_ns);
    assert_eq!(counters.sent_total + counters.skipped_total, 10);
    let flow = totals.flow(0, 1);
    assert_eq!((flow.expected_total, flow.received_total), flow_of(counters.sent_total));
}

const fn flow_of(sent: u64) -> (i64, i64) {
    (sent.cast_signed(), sent.cast_signed())
}

#[test]
fn a_wrong_password_is_a_wrong_password() {
    let script = || AmqpScript { password: Some("letmein"), ..AmqpScript::plain() };
    for (password, expected) in [("letmein", None), ("wrong", Some((Reason::BadCredentials, 2)))] {
        let mut population = readers(2, &["/e/a"]);
        population.username = Some(template("user"));
        population.password = Some(template(password));
        let totals = totals(vec![population], script());
        assert_eq!(totals.outcomes[0], expected.into_iter().collect::<Outcomes>());
    }
}

#[test]
fn silent_ends_show_signs_of_life() {
    let script = || AmqpScript { gives_up: true, ..AmqpScript::plain() };
    let mut idle = readers(5, &["/e/a"]);
    idle.keep_alive_s = 1;
    let weather = Weather { keep_alive_check_ns: 50 * MS, ..Weather::fair() };
    let mut case = case(vec![idle.clone()], 5 * S, weather.clone());
    case.plan.targets.iter_mut().for_each(as_broker);
    let mut peer = Peer::new(Broker::new(Script::reliable()));
    peer.amqp = AmqpBroker::new(script(), 1);
    let totals = Totals::of(&Run::play(case.clone(), 1, 1, peer));
    assert_eq!(totals.counters[0].disconnected_total, 0, "{:?}", totals.outcomes);
    // A broker that stands still is dead for its clients.
    let faults = vec![(500 * MS, Fault::Stall { per_cent: 100, ns: 60 * S })];
    case.weather = Weather { faults, ..weather };
    let mut peer = Peer::new(Broker::new(Script::reliable()));
    peer.amqp = AmqpBroker::new(AmqpScript::plain(), 1);
    let totals = Totals::of(&Run::play(case, 1, 1, peer));
    assert_eq!(totals.outcomes[0], [(Reason::KeepAliveTimeout, 5)].into());
}

#[test]
fn what_is_not_confirmed_is_sent_again_after_a_reconnect() {
    let mut sender = publisher("/e/a", 1);
    sender.reconnect = Some(plan::Reconnect { min_ns: 10 * MS, max_ns: 20 * MS });
    let publications = vec![Publication { window: 100, ..publication("/e/a", 1, MS) }];
    sender.publications = publications;
    let faults = vec![(500 * MS, Fault::Restart { down_ns: 50 * MS, forgets: false })];
    let run = played(vec![sender], Weather { faults, ..Weather::fair() }, AmqpScript::plain());
    let totals = Totals::of(&run);
    let counters = &totals.counters[0];
    assert_eq!((counters.abandoned_total, totals.gauges[0].in_flight), (0, 0));
    assert_eq!(counters.acked_total, counters.sent_total);
    assert!(counters.resent_total > 0, "{counters:?}");
}
