//! Clients that unsubscribe and subscribe again.

use mqtt::PacketType;
use plan::{Flapping, MqttVersion, OfferedLoad, PlannedProtocol, Population, Reason, Reconnect};
use testkit::{Announced, Broker, Fate, Script};

use crate::case::{Case, case};
use crate::checks::check;
use crate::course::Run;
use crate::peer::{Manner, Peer};
use crate::totals::Totals;
use crate::weather::{Fault, MS, S, Weather};
use testkit::plans::{self, publication, subscription};

/// A publisher of ten messages a second, and four clients that are subscribed for a second and
/// unsubscribed for half a second.
fn populations(version: MqttVersion) -> Vec<Population> {
    let mut publisher = plans::population("publisher", 1);
    publisher.publications = vec![publication("t/0", 1, 100 * MS)];
    let mut flapper = plans::population("flapper", 4);
    flapper.subscriptions = vec![subscription("t/#", 1), subscription("u/{n}/{1..2}", 0)];
    flapper.flapping = Some(Flapping { min_ns: S, max_ns: S, unsubscribed_ns: 500 * MS });
    flapper.reconnect = Some(Reconnect { min_ns: 10 * MS, max_ns: 10 * MS });
    if let PlannedProtocol::Mqtt(mqtt) = &mut flapper.protocol {
        mqtt.version = version;
    }
    vec![publisher, flapper]
}

fn play(case: Case, script: Script) -> (Run, Totals) {
    let run = Run::play(case, 1, 1, Peer::new(Broker::new(script)));
    let totals = check(&run);
    (run, totals)
}

/// Filters of a client of these plans.
const FILTERS: u64 = 3;

#[test]
fn clients_flap_at_their_rate_and_miss_what_is_sent_meanwhile() {
    for version in [MqttVersion::V31, MqttVersion::V311, MqttVersion::V5] {
        let mut case = case(populations(version), 30 * S, Weather::fair());
        // A client that has unsubscribed has not stalled.
        case.plan.stall_ns = Some(300 * MS);
        let (_, totals) = play(case, Script::reliable());
        let counters = &totals.counters[1];
        // Twenty turns of a second and a half, by four clients.
        assert_eq!(counters.unsubscribed_total, 4 * 20 * FILTERS, "{version:?}");
        let subscribed = counters.subscribed_total / FILTERS;
        assert!((4 * 20..=4 * 21).contains(&subscribed), "{version:?}: {subscribed}");
        assert_eq!(counters.stalled_total, 0, "{version:?}");
        let flow = totals.flow(0, 1);
        assert_eq!((flow.expected_total, flow.duplicate_total), (flow.received_total, 0));
        // Of 1,200 messages, a third was sent to none.
        assert!((760..=840).contains(&flow.received_total), "{version:?}: {flow:?}");
        assert!(totals.outcomes[1].is_empty(), "{version:?}: {:?}", totals.outcomes[1]);
    }
}

#[test]
fn a_broker_that_refuses_unsubscribe_is_counted_by_its_reason() {
    let script = Script { refuses_unsubscribe: true, ..Script::reliable() };
    let (_, totals) = play(case(populations(MqttVersion::V5), 10 * S, Weather::fair()), script);
    let counters = &totals.counters[1];
    let refused = plan::AnswerCode::of(PacketType::UnsubAck, 0x87).expect("it has the code");
    let refused = totals.outcomes[1].get(&Reason::Answer(refused)).copied();
    assert_eq!(refused, Some(counters.unsubscribe_failed_total));
    assert_eq!(counters.unsubscribed_total, 0);
    assert!(counters.unsubscribe_failed_total >= 4 * 6 * FILTERS, "{counters:?}");
    assert_eq!(counters.disconnected_total, 0, "the clients continue");
}

#[test]
fn a_broker_that_does_not_answer_is_noticed_and_ends_the_connection() {
    for (silent, reason) in [
        (PacketType::UnsubAck, Reason::UnsubscribeTimeout),
        (PacketType::SubAck, Reason::SubscribeTimeout),
    ] {
        let mut subscribes = 0;
        let script = Script::with_fates(move |packet| {
            subscribes += u32::from(packet == PacketType::SubAck);
            // The clients become ready first.
            let is_silent = packet == silent && (packet != PacketType::SubAck || subscribes > 4);
            if is_silent { Fate::Drop } else { Fate::Send }
        });
        let mut populations = populations(MqttVersion::V311);
        populations[1].reconnect = None;
        let (_, totals) = play(case(populations, 10 * S, Weather::fair()), script);
        assert_eq!(totals.outcomes[1], [(reason, 4)].into());
        assert_eq!(totals.counters[1].disconnected_total, 4);
    }
}

#[test]
fn requests_above_the_maximum_packet_size_of_the_broker_are_split() {
    // Each filter has a SUBSCRIBE and an UNSUBSCRIBE of its own.
    let announced = Announced { packet_bytes_max: Some(23), ..Announced::PLAIN };
    let script = Script { announce: Box::new(move || announced), ..Script::reliable() };
    let (_, totals) = play(case(populations(MqttVersion::V5), 10 * S, Weather::fair()), script);
    let counters = &totals.counters[1];
    assert_eq!((counters.unsubscribe_failed_total, counters.disconnected_total), (0, 0));
    assert!(counters.unsubscribed_total >= 4 * 6 * FILTERS, "{counters:?}");
    assert_eq!(totals.outcomes[1], [].into());
}

#[test]
fn a_client_that_no_request_fits_does_not_flap() {
    let mut populations = populations(MqttVersion::V5);
    populations[1].reconnect = None;
    let announced = Announced { packet_bytes_max: Some(8), ..Announced::PLAIN };
    let script = Script { announce: Box::new(move || announced), ..Script::reliable() };
    let case = case(populations, 10 * S, Weather::fair());
    let totals = Totals::of(&Run::play(case, 1, 1, Peer::new(Broker::new(script))));
    let counters = &totals.counters[1];
    assert_eq!((counters.subscribe_failed_total, counters.disconnected_total), (4 * FILTERS, 4));
    assert_eq!(totals.outcomes[1], [(Reason::FiltersTooLarge, 4 * FILTERS + 4)].into());
}

#[test]
fn a_kept_session_is_subscribed_again_after_a_reconnect() {
    let mut populations = populations(MqttVersion::V311);
    if let PlannedProtocol::Mqtt(mqtt) = &mut populations[1].protocol {
        mqtt.clean_session = false;
    }
    populations[1].flapping = Some(Flapping { min_ns: S, max_ns: S, unsubscribed_ns: 10 * S });
    // All connections end while the clients are unsubscribed.
    let hang = Fault::Hang { per_cent: 100, manner: Manner::End };
    let weather = Weather { faults: vec![(3 * S, hang)], ..Weather::fair() };
    let (_, totals) = play(case(populations, 6 * S, weather), Script::reliable());
    let counters = &totals.counters[1];
    assert_eq!(counters.disconnected_total, 4);
    assert_eq!(counters.subscribed_total, 2 * 4 * FILTERS, "at the start, and again");
    assert_eq!(counters.unsubscribed_total, 2 * 4 * FILTERS);
}

#[test]
fn a_group_whose_first_population_stays_is_exact_while_other_members_flap() {
    let mut populations = populations(MqttVersion::V311);
    let mut member = plans::population("member", 2);
    member.subscriptions = vec![subscription("$share/g/t/#", 1)];
    populations[1].subscriptions = member.subscriptions.clone();
    populations.insert(1, member);
    let (_, totals) = play(case(populations, 30 * S, Weather::fair()), Script::reliable());
    let (member, flapper) = (totals.flow(0, 1), totals.flow(0, 2));
    assert_eq!(totals.counters[0].sent_total, 300);
    assert_eq!(member.expected_total + flapper.expected_total, 300);
    assert_eq!(member.expected_total, member.received_total);
    assert!(flapper.received_total > 50 && member.received_total > 100, "{flapper:?}");
}

/// Packets and bytes that the flapping clients sent, and bytes that they received, in these seconds
/// without a message.
fn requests(mut populations: Vec<Population>, seconds: u64) -> [f64; 3] {
    populations[0].publications.clear();
    let (_, totals) = play(case(populations, seconds * S, Weather::fair()), Script::reliable());
    let counters = &totals.counters[1];
    let [sent, received] = [counters.packets_sent_total, counters.packets_received_total];
    // CONNECT and DISCONNECT of each client, and CONNACK.
    assert_eq!(sent - 2 * 4, received - 4, "each request has an answer");
    let figures = [sent, counters.bytes_sent_total, counters.bytes_received_total];
    figures.map(|figure| figure as f64)
}

#[test]
fn the_offered_load_has_the_packets_and_bytes_of_flapping_clients() {
    for (version, identifier) in
        [(MqttVersion::V31, None), (MqttVersion::V311, None), (MqttVersion::V5, Some(200))]
    {
        for min_ns in [S, S / 2] {
            let mut populations = populations(version);
            populations[1].first = 98;
            populations[1].subscriptions[0].identifier = identifier;
            let max_ns = 2 * S - min_ns;
            populations[1].flapping = Some(Flapping { min_ns, max_ns, unsubscribed_ns: S / 2 });
            let plan = case(populations.clone(), S, Weather::fair()).plan;
            let load = OfferedLoad::of(&plan);
            let [flaps] = &load.stages[1].phases[0].flaps[..] else { panic!("{load:?}") };
            let computed =
                [flaps.requests_per_s, flaps.sent_bytes_per_s, flaps.received_bytes_per_s];
            // The difference of two runs has neither connections nor first turns.
            let (short, long) =
                (requests(populations.clone(), 30), requests(populations.clone(), 930));
            for (i, computed) in computed.into_iter().enumerate() {
                let played = (long[i] - short[i]) / 900.0;
                // Drawn times have a mean that differs by chance: 2,400 of them, each by 20 %.
                let most = if min_ns == max_ns { 1e-9 } else { 0.02 };
                let error = (played / computed - 1.0).abs();
                assert!(error < most, "{version:?}, {i}: {played} played, {computed} computed");
            }
        }
    }
}
