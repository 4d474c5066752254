//! Retain As Published in simulated runs: forwarded messages with the RETAIN flag of their
//! publisher take part in the ledger, messages that the broker has kept do not.

use plan::{Action, MqttVersion, Plan, Population, Reason};
use testkit::{Broker, Script};

use crate::case::Case;
use crate::course::Run;
use crate::peer::{Manner, Peer};
use crate::totals::Totals;
use crate::weather::{Climate, Fault, MS, S, Weather};
use testkit::plans::{self, number, publication, speaking, stage, subscription};

/// Two publishers of ten retained messages a second each, and three receivers, of which two have
/// RETAIN as published and one of these joins `late`.
fn populations(qos: u8) -> Vec<Population> {
    let mut devices = speaking(MqttVersion::V5, "device", 2);
    devices.publications = vec![publication("t/{n}", qos, 100 * MS)];
    devices.publications[0].retain = true;
    let receiver = |name: &str, as_published| {
        let mut receiver = speaking(MqttVersion::V5, name, 1);
        let mut own = subscription("t/#", qos);
        own.retain_as_published = as_published;
        receiver.subscriptions = vec![own];
        receiver
    };
    vec![devices, receiver("early", true), receiver("plain", false), receiver("late", true)]
}

fn played(qos: u8, weather: Weather) -> Totals {
    play(populations(qos), weather, Script::reliable())
}

fn play(populations: Vec<Population>, weather: Weather, script: Script) -> Totals {
    let connect =
        || Action::Connect { rate_per_s: None, parallelism: None, timeout_ns: S, clients: None };
    let publish = || Action::Publish {
        duration_ns: S,
        changes: Vec::new(),
        rate_profile: Vec::new(),
        messages: None,
    };
    let stages = vec![
        stage(connect(), &[0, 1, 2]),
        stage(publish(), &[0]),
        stage(Action::Hold { duration_ns: 3 * S, changes: Vec::new() }, &[0]),
        stage(connect(), &[3]),
        stage(publish(), &[0]),
        stage(Action::Disconnect { rate_per_s: None }, &[0, 1, 2, 3]),
    ];
    let plan = Plan { populations, stages, ..plans::empty(1) };
    let case = Case::playing(plan, Climate::Storm, weather);
    Totals::of(&Run::play(case, 1, 1, Peer::new(Broker::new(script))))
}

/// Messages of the ledger, kept messages, and messages with the flag of their publisher.
fn counts(totals: &Totals, to: usize) -> (i64, u64, u64) {
    let (flow, counters) = (totals.flow(0, to), &totals.counters[to]);
    assert_eq!((flow.expected_total, flow.duplicate_total), (flow.received_total, 0), "to {to}");
    (flow.received_total, counters.retained_total, counters.retained_as_published_total)
}

#[test]
fn messages_with_the_flag_of_their_publisher_are_in_the_ledger() {
    for qos in 0..=2 {
        let totals = played(qos, Weather::fair());
        assert_eq!(counts(&totals, 1), (40, 0, 40));
        assert_eq!(counts(&totals, 2), (40, 0, 0));
        assert_eq!(counts(&totals, 3), (20, 2, 20), "the kept messages of both devices");
    }
}

#[test]
fn kept_messages_after_a_reconnect_are_no_duplicates() {
    let hang = Fault::Hang { per_cent: 100, manner: Manner::End };
    let totals = played(1, Weather { faults: vec![(2_500 * MS, hang)], ..Weather::fair() });
    assert_eq!(totals.counters[1].disconnected_total, 1);
    assert_eq!(counts(&totals, 1), (40, 2, 40));
    assert_eq!(counts(&totals, 2), (40, 2, 0));
    assert_eq!(counts(&totals, 3), (20, 2, 20));
}

#[test]
fn the_expiry_left_of_kept_messages_is_checked() {
    // The kept messages of both devices wait for three seconds and more.
    for (expiry_s, ignores_expiry, version, (kept, checked, violations)) in [
        (60, false, MqttVersion::V5, (2, 2, None)),
        (60, true, MqttVersion::V5, (2, 2, Some(Reason::ExpiryWrong))),
        (1, false, MqttVersion::V5, (0, 0, None)),
        (1, true, MqttVersion::V5, (2, 2, Some(Reason::ExpiryPassed))),
        (60, true, MqttVersion::V311, (2, 0, None)),
    ] {
        for qos in [0, 1] {
            let mut populations = populations(qos);
            let own = &mut populations[0].publications[0];
            own.properties = vec![number("message_expiry_interval", expiry_s)];
            if version == MqttVersion::V311 {
                let mut late = plans::population("late", 1);
                late.subscriptions = vec![subscription("t/#", qos)];
                populations[3] = late;
            }
            let script = Script { ignores_expiry, ..Script::reliable() };
            let totals = play(populations, Weather::fair(), script);
            let (found, what) = (&totals.counters[3], format!("{expiry_s} s, QoS {qos}"));
            assert_eq!((found.retained_total, found.expiries_checked_total), (kept, checked));
            let count = violations.map_or(0, |_| checked);
            assert_eq!(found.expiry_violations_total, count, "{what}");
            let reasons = violations.into_iter().map(|reason| (reason, count)).collect();
            assert_eq!(totals.outcomes[3], reasons, "{what}");
            // The others have received nothing that was kept.
            assert_eq!(totals.counters[2].expiries_checked_total, 0, "{what}");
        }
    }
}
