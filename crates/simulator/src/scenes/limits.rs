//! Scenes in virtual time about limits that a broker announces in CONNACK. The broker fails where a
//! client exceeds one.

use std::cell::Cell;
use std::rc::Rc;

use mqtt::{PacketType, QoS};
use plan::{MqttVersion, PlannedProtocol, Population, Publication, Reason};
use testkit::{Announced, Broker, Fate, Script};

use crate::case::case;
use crate::course::Run;
use crate::peer::{Manner, Peer};
use crate::totals::Totals;
use crate::weather::{Fault, MS, S, Weather};
use testkit::plans::{publication, speaking, subscription};

/// Messages that are in flight as the first connection ends.
const WINDOW: u16 = 10;

/// A client of a kept session with [`WINDOW`] messages in flight as its connection ends. The broker
/// acknowledges none of them before, and announces these limits after it.
fn resent(publications: Vec<Publication>, announced: Announced) -> Totals {
    let mut publisher = speaking(MqttVersion::V5, "publisher", 1);
    publisher.publications = publications;
    if let PlannedProtocol::Mqtt(mqtt) = &mut publisher.protocol {
        let expiry = plan::PropertyValue::Number(60);
        let name = "session_expiry_interval".to_owned();
        mqtt.properties = vec![plan::Property { name, key: None, value: expiry }];
        mqtt.clean_session = false;
    }
    let end = Fault::Hang { per_cent: 100, manner: Manner::End };
    let weather = Weather { faults: vec![(S, end)], ..Weather::fair() };
    let links = Rc::new(Cell::new(0));
    let (connects, fates) = (links.clone(), links);
    let first = Announced { receive_maximum: u16::MAX, ..Announced::PLAIN };
    let announce = move || {
        connects.set(connects.get() + 1);
        if connects.get() == 1 { first } else { announced }
    };
    let fate = move |_| if fates.get() == 1 { Fate::Drop } else { Fate::Send };
    let script = Script { announce: Box::new(announce), ..Script::with_fates(fate) };
    let run =
        Run::play(case(vec![publisher], 2 * S, weather), 1, 1, Peer::new(Broker::new(script)));
    let totals = Totals::of(&run);
    assert_eq!(totals.counters[0].connected_total, 2);
    assert_eq!(totals.gauges[0].in_flight, 0);
    totals
}

fn of_qos(qos: u8) -> Publication {
    Publication { window: WINDOW, ..publication("t", qos, 20 * MS) }
}

#[test]
fn as_many_messages_are_sent_again_as_the_new_connection_accepts() {
    for receive_maximum in [1, 3, WINDOW, u16::MAX] {
        for qos in [1, 2] {
            let announced = Announced { receive_maximum, ..Announced::PLAIN };
            let counters = resent(vec![of_qos(qos)], announced).counters[0];
            assert_eq!(counters.resent_total, u64::from(WINDOW), "at most {receive_maximum}");
            assert_eq!(counters.acked_total, counters.sent_total, "at most {receive_maximum}");
            assert_eq!(counters.abandoned_total, 0);
        }
    }
}

#[test]
fn messages_beyond_a_limit_of_the_new_connection_are_given_up() {
    let large = Announced { packet_bytes_max: Some(60), ..Announced::PLAIN };
    let other = Announced { qos_max: QoS::AtLeastOnce, retains: false, ..Announced::PLAIN };
    let retained = Publication { retain: true, ..of_qos(1) };
    for (publication, announced, reason) in [
        (of_qos(1), large, Some(Reason::MessageTooLarge)),
        (of_qos(2), other, Some(Reason::QosUnsupported)),
        (retained, other, Some(Reason::RetainUnsupported)),
        (of_qos(1), other, None),
    ] {
        let totals = resent(vec![publication], announced);
        let counters = &totals.counters[0];
        let given_up = if reason.is_some() { WINDOW.into() } else { 0 };
        assert_eq!(counters.abandoned_total, given_up, "{reason:?}");
        assert_eq!(counters.acked_total + given_up, counters.sent_total);
        let of_limits = counters.skipped_total + given_up;
        let found = reason.map(|reason| totals.outcomes[0].get(&reason).copied());
        assert!(found.is_none_or(|found| found == Some(of_limits)), "{:?}", totals.outcomes[0]);
    }
}

/// Clients with some filters.
fn readers(filters: &[&str]) -> Population {
    let mut readers = speaking(MqttVersion::V5, "reader", 3);
    readers.subscriptions = filters.iter().map(|filter| subscription(filter, 0)).collect();
    readers
}

/// Filters that clients subscribed to and that they left out, and SUBSCRIBE packets.
fn subscribed(readers: Population, packet_bytes_max: Option<u32>) -> (u64, u64, u64) {
    let case = case(vec![readers], S, Weather::fair());
    let announced = Announced { packet_bytes_max, ..Announced::PLAIN };
    let packets = Rc::new(Cell::new(0));
    let counted = packets.clone();
    let fate = move |packet| {
        counted.set(counted.get() + u64::from(packet == PacketType::SubAck));
        Fate::Send
    };
    let script = Script { announce: Box::new(move || announced), ..Script::with_fates(fate) };
    let totals = Totals::of(&Run::play(case, 1, 1, Peer::new(Broker::new(script))));
    let counters = &totals.counters[0];
    assert_eq!((counters.connected_total, counters.disconnected_total), (3, 0));
    let left_out = totals.outcomes[0].get(&Reason::FiltersTooLarge).copied().unwrap_or_default();
    assert_eq!(counters.subscribe_failed_total, left_out);
    (counters.subscribed_total, left_out, packets.get())
}

#[test]
fn a_subscribe_above_the_maximum_packet_size_is_split() {
    // SUBSCRIBE: two bytes of header, two of packet id, one of properties, and filters of three
    // bytes and their text.
    let filters = ["first", "another/#"];
    for (bytes, expected) in
        [(25, (6, 0, 3)), (24, (6, 0, 6)), (17, (6, 0, 6)), (16, (3, 3, 3)), (12, (0, 6, 0))]
    {
        assert_eq!(subscribed(readers(&filters), Some(bytes)), expected, "{bytes} bytes");
    }
}

#[test]
fn a_subscribe_of_many_filters_is_split_though_the_broker_has_no_maximum() {
    // 10,000 filters of about 100 bytes.
    let long = format!("{{1..10000}}/{}", "x".repeat(90));
    let (filters, left_out, packets) = subscribed(readers(&[long.as_str()]), None);
    assert_eq!((filters, left_out), (30_000, 0));
    assert!((3 * 15..=3 * 16).contains(&packets), "{packets} packets");
}
