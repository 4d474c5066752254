//! Scenes in virtual time with one broker that breaks a rule, or one limit that is reached, and the
//! outcomes that clients count.

use mqtt::PacketType;
use plan::{MqttVersion, Pace, Payload, Population, Reason};
use testkit::{Broker, Fate, Script};

use crate::case::case;
use crate::course::{Run, played};
use crate::peer::{Manner, Peer};
use crate::totals::Totals;
use crate::weather::{MS, S, Weather};
use testkit::plans::{self, number, publication, speaking, subscription};

/// One client with one filter that does not come back.
fn subscriber(filter: &str) -> Population {
    let mut population = plans::population("subscriber", 1);
    population.subscriptions = vec![subscription(filter, 0)];
    population.reconnect = None;
    population
}

#[test]
fn a_packet_is_refused_by_its_size_however_it_arrives() {
    // PUBLISH: one byte of type, two of length, two for the length of the topic, the topic.
    const HEADER: u32 = 1 + 2 + 2 + 1;
    for (over, refused) in [(0, None), (1, Some(&1))] {
        let mut publisher = plans::population("publisher", 1);
        let bytes = 1000 - HEADER + over;
        publisher.publications = vec![plan::Publication {
            payload: Payload::Fixed { bytes },
            ..publication("t", 0, 100 * MS)
        }];
        let mut case = case(vec![publisher, subscriber("t")], S, Weather::fair());
        case.plan.max_packet_bytes = 1000;
        for seed in 0..10 {
            let peer = Peer::new(Broker::new(Script::reliable()));
            let totals = Totals::of(&Run::play(case.clone(), seed, 1, peer));
            assert_eq!(totals.outcomes[1].get(&Reason::PacketTooLarge), refused, "seed {seed}");
            let received = totals.flows[&(0, 1)].received_total;
            assert_eq!(received, if over > 0 { 0 } else { 10 }, "seed {seed}");
        }
    }
}

#[test]
fn acknowledgements_that_fit_nothing_are_counted_and_end_nothing() {
    let mut publisher = plans::population("publisher", 1);
    publisher.publications = vec![publication("t", 1, 100 * MS)];
    let case = case(vec![publisher], S, Weather::fair());
    let twice = |packet| if packet == PacketType::PubAck { Fate::Duplicate } else { Fate::Send };
    let run = Run::play(case, 1, 1, Peer::new(Broker::new(Script::with_fates(twice))));
    let totals = Totals::of(&run);
    assert_eq!(totals.outcomes[0], [(Reason::UnexpectedAck, 10)].into());
    let counters = &totals.counters[0];
    assert_eq!((counters.sent_total, counters.acked_total), (10, 10));
    assert_eq!((counters.connected_total, counters.disconnected_total), (1, 0));
}

#[test]
fn packets_beyond_what_the_client_announced_are_counted_and_end_nothing() {
    // The scripted broker does not obey the limits of its clients.
    for (property, most, reason) in [
        ("maximum_packet_size", 40, Some(Reason::PacketSizeExceeded)),
        ("maximum_packet_size", 400, None),
        ("receive_maximum", 4, Some(Reason::ReceiveMaximumExceeded)),
        ("receive_maximum", 5, None),
    ] {
        let mut publisher = speaking(MqttVersion::V5, "publisher", 1);
        publisher.publications = vec![publication("t", 1, 100 * MS)];
        if let Pace::Open { burst, .. } = &mut publisher.publications[0].pace {
            *burst = 5;
        }
        let mut subscriber = speaking(MqttVersion::V5, "subscriber", 1);
        subscriber.subscriptions = vec![subscription("t", 1)];
        if let plan::PlannedProtocol::Mqtt(mqtt) = &mut subscriber.protocol {
            mqtt.properties = vec![number(property, most)];
        }
        let totals = Totals::of(&played(vec![publisher, subscriber], S, Weather::fair()));
        let found: Vec<Reason> = totals.outcomes[1].keys().copied().collect();
        assert_eq!(found, Vec::from_iter(reason), "{property} {most}");
        assert_eq!(totals.counters[1].breaches_total, totals.outcomes[1].values().sum::<u64>());
        assert_eq!(totals.counters[1].disconnected_total, 0);
        let flow = &totals.flows[&(0, 1)];
        assert_eq!(flow.received_total, flow.expected_total);
    }
}

#[test]
fn a_slow_reader_sees_messages_beyond_its_receive_maximum_though_they_come_one_by_one() {
    for (window, is_breach) in [(20, true), (2, true), (1, false)] {
        let mut publisher = speaking(MqttVersion::V5, "publisher", 1);
        publisher.publications = vec![publication("t", 1, 10 * MS)];
        let mut reader = speaking(MqttVersion::V5, "reader", 1);
        reader.subscriptions = vec![subscription("t", 1)];
        reader.read_rate_per_s = Some(20.0);
        if let plan::PlannedProtocol::Mqtt(mqtt) = &mut reader.protocol {
            mqtt.properties = vec![number("receive_maximum", 1)];
        }
        let case = case(vec![publisher, reader], S, Weather::fair());
        let script = Script { window, ..Script::reliable() };
        let totals = Totals::of(&Run::play(case, 1, 1, Peer::new(Broker::new(script))));
        let found = totals.outcomes[1].contains_key(&Reason::ReceiveMaximumExceeded);
        assert_eq!(found, is_breach, "window {window}: {:?}", totals.outcomes[1]);
        let breaches = totals.counters[1].breaches_total;
        // A read is counted once, however many turns handle its messages.
        assert!(breaches <= totals.flows[&(0, 1)].received_total.cast_unsigned() / 2, "{breaches}");
    }
}

#[test]
fn properties_of_publishers_are_counted_where_they_arrive() {
    let text = |name: &str, key: Option<&str>| plan::Property {
        name: name.to_owned(),
        key: key.map(str::to_owned),
        value: plan::PropertyValue::Text(plans::template("text/{n}")),
    };
    let expiry = number("message_expiry_interval", 60);
    for (properties, of_each) in [
        (vec![], 0),
        (vec![expiry.clone()], 0),
        (vec![text("user_property", Some("site")), text("user_property", Some("unit"))], 2),
        (
            vec![
                text("content_type", None),
                number("payload_format_indicator", 1),
                text("response_topic", None),
                text("correlation_data", None),
                expiry,
            ],
            4,
        ),
    ] {
        let mut publisher = speaking(MqttVersion::V5, "publisher", 1);
        publisher.publications = vec![publication("t", 1, 100 * MS)];
        publisher.publications[0].properties = properties;
        let mut receiver = speaking(MqttVersion::V5, "subscriber", 1);
        receiver.subscriptions = vec![subscription("t", 1)];
        let totals = Totals::of(&played(vec![publisher, receiver], S, Weather::fair()));
        assert_eq!(totals.flows[&(0, 1)].received_total, 10);
        assert_eq!(totals.counters[1].properties_total, 10 * of_each);
        assert_eq!(totals.counters[1].identifiers_total, 0);
    }
}

#[test]
fn a_connection_that_ends_before_suback_was_accepted_and_is_closed_by_the_broker() {
    let manners = vec![(Manner::EndBehindConnAck, 100)];
    let run = played(vec![subscriber("t")], S, Weather { manners, ..Weather::fair() });
    let totals = Totals::of(&run);
    assert_eq!(totals.outcomes[0], [(Reason::ClosedByBroker, 1)].into());
    let counters = &totals.counters[0];
    assert_eq!((counters.connected_total, counters.disconnected_total), (1, 1));
    assert_eq!((counters.connect_failed_total, counters.subscribed_total), (0, 0));
}

#[test]
fn a_suback_with_more_codes_than_filters_breaks_the_protocol() {
    let manners = vec![(Manner::ManyCodes, 100)];
    let run = played(vec![subscriber("t")], S, Weather { manners, ..Weather::fair() });
    let totals = Totals::of(&run);
    assert_eq!(totals.outcomes[0], [(Reason::ProtocolError, 1)].into());
    let counters = &totals.counters[0];
    assert_eq!((counters.subscribed_total, counters.disconnected_total), (0, 1));
}

#[test]
fn a_publication_without_packet_ids_goes_on_with_the_next_acknowledgement() {
    const IDS: u64 = 65_535;
    const ACKED: u64 = 10;
    let mut publisher = plans::population("publisher", 1);
    publisher.publications = [40_000, 30_000]
        .map(|count| {
            let mut publication = publication("t", 1, 100 * S);
            (publication.window, publication.payload) = (65_535, Payload::Fixed { bytes: 32 });
            if let Pace::Open { burst, phase, .. } = &mut publication.pace {
                (*burst, *phase) = (count, plan::Phase::Aligned);
            }
            publication
        })
        .into();
    let room = (16 << 20, 16 << 20);
    // The first acknowledgement comes when all ids are taken.
    let weather = Weather { room, latency_max_ns: 200 * MS, ..Weather::fair() };
    let case = case(vec![publisher], S, weather);
    let mut acknowledged = 0;
    let script = Script::with_fates(move |packet| {
        acknowledged += u64::from(packet == PacketType::PubAck);
        if acknowledged <= ACKED { Fate::Send } else { Fate::Drop }
    });
    let run = Run::play(case, 1, 1, Peer::new(Broker::new(script)));
    assert_eq!(Totals::of(&run).counters[0].sent_total, IDS + ACKED);
}

#[test]
fn waits_for_the_receive_maximum_are_apart_from_the_window() {
    /// Messages that the broker of MQTT 5 allows in flight.
    const RECEIVE_MAXIMUM: u64 = 5;
    for (version, window) in [(MqttVersion::V5, 3), (MqttVersion::V5, 8), (MqttVersion::V311, 8)] {
        let mut publishers = speaking(version, "publisher", 2);
        let pace = Pace::Closed;
        publishers.publications =
            vec![plan::Publication { pace, window, ..publication("t", 2, S) }];
        let weather = Weather { latency_max_ns: 20 * MS, ..Weather::fair() };
        let run = played(vec![publishers], S, weather);
        let populations = || run.snapshots.iter().flat_map(|snapshot| &snapshot.populations);
        let counters = &Totals::of(&run).counters[0];
        let is_held = version == MqttVersion::V5 && u64::from(window) > RECEIVE_MAXIMUM;
        let most = if is_held { RECEIVE_MAXIMUM } else { u64::from(window) };
        let in_flight = populations().map(|population| population.gauges.in_flight).max();
        assert_eq!(in_flight, Some(2 * most), "{version:?}, window {window}");
        let waited: u64 = populations().map(|p| p.receive_maximum_wait.count()).sum();
        let waits = counters.receive_maximum_waits_total;
        assert_eq!((waits > 0, waited), (is_held, waits), "{version:?}, window {window}");
        assert!(counters.sent_total > 20 * most, "{counters:?}");
        // Several acknowledgements in one read end one wait.
        let messages = counters.sent_total - 2 * most;
        assert!(!is_held || waits * RECEIVE_MAXIMUM >= messages, "{waits} of {messages}");
    }
}

#[test]
fn a_client_sends_more_than_four_billion_messages() {
    const BEFORE: u64 = (1 << 32) - 20;
    let mut publisher = plans::population("publisher", 1);
    publisher.publications = vec![publication("t/{1..3}", 1, 10 * MS)];
    let mut receiver = plans::population("subscriber", 1);
    receiver.subscriptions = vec![subscription("t/1", 0), subscription("t/2", 0)];
    let case = case(vec![publisher, receiver], S, Weather::fair());
    let peer = Peer::new(Broker::new(Script::reliable()));
    let run = Run::prepared(case, 1, 1, peer, |agents| {
        agents.clients_mut().for_each(|client| client.set_next_number(BEFORE));
    });
    let totals = Totals::of(&run);
    let flow = totals.flows[&(0, 1)];
    let of_variants = (BEFORE..BEFORE + 100).filter(|number| number % 3 < 2).count() as i64;
    assert_eq!((flow.expected_total, flow.received_total), (of_variants, of_variants));
    assert_eq!((flow.stale_total, flow.missing_total, flow.duplicate_total), (0, 0, 0));
}
