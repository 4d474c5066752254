//! Limits in simulated runs: those that clients announce and the broker does not keep, those that
//! the broker announces anew on each connection, and the memory for a peer that does not read.

use mqtt::QoS;
use plan::{Outcomes, PlannedProtocol, Reason};
use testkit::{Announced, Rng};

use crate::case::Case;
use crate::course::Run;
use crate::totals::{Totals, population_of};
use crate::weather::{Climate, Fault, S};
use testkit::plans::number;

/// Outcomes of messages that a limit of the broker keeps from being sent.
const UNSENT: [Reason; 3] =
    [Reason::MessageTooLarge, Reason::QosUnsupported, Reason::RetainUnsupported];
/// Outcomes of packets beyond a limit of the client.
const BEYOND: [Reason; 2] = [Reason::PacketSizeExceeded, Reason::ReceiveMaximumExceeded];

/// Draws limits of clients of MQTT 5, and a broker that sends without reading, apart from the other
/// draws.
pub fn draw(case: &mut Case, seed: u64) {
    let mut rng = Rng::new(seed ^ 0x11a1_75ed);
    for population in &mut case.plan.populations {
        let PlannedProtocol::Mqtt(mqtt) = &mut population.protocol else { continue };
        if mqtt.version != plan::MqttVersion::V5 {
            continue;
        }
        if rng.chance(15) {
            mqtt.properties.push(number("maximum_packet_size", rng.pick(&[40, 150, 500])));
        }
        if rng.chance(15) {
            mqtt.properties.push(number("receive_maximum", rng.pick(&[1, 3, 20])));
        }
    }
    // Bytes that flow in small pieces need more time than a run has.
    if case.climate == Climate::Storm && case.weather.gulp_max == 0 && rng.chance(4) {
        let deaf = Fault::Deaf { bytes: 3 << 19, ns: rng.bits() % (3 * S), per_cent: 15 };
        case.weather.faults.push((rng.bits() % (6 * S), deaf));
    }
}

/// Draws the limits of each connection.
pub fn announce(seed: u64) -> Box<dyn FnMut() -> Announced> {
    let mut rng = Rng::new(seed ^ 0x11a1_ac4d);
    Box::new(move || Announced {
        receive_maximum: rng.pick(&[1, 2, 5, u16::MAX]),
        packet_bytes_max: rng.pick(&[None, None, Some(10), Some(14), Some(60), Some(400)]),
        topic_alias_maximum: rng.pick(&[0, 1, 3]),
        qos_max: rng.pick(&[QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce, QoS::ExactlyOnce]),
        retains: rng.chance(80),
    })
}

/// Number of outcomes that are failures of connections, subscriptions and acknowledged messages.
pub fn failures(outcomes: &Outcomes) -> u64 {
    let is_apart = |reason: &Reason| {
        UNSENT.contains(reason) || BEYOND.contains(reason) || *reason == Reason::UnexpectedAck
    };
    let failures = outcomes.iter().filter(|(reason, _)| !is_apart(reason));
    failures.map(|(_, count)| count).sum()
}

/// The names of packets and messages beyond limits, with their counts.
pub fn seen(totals: &Totals) -> impl Iterator<Item = (&'static str, u64)> {
    let of = |reasons: &[Reason]| sum(totals, |_| true, reasons);
    let counts = [
        ("packet above the client's maximum", of(&BEYOND[..1])),
        ("messages above the client's receive maximum", of(&BEYOND[1..])),
        ("message above the broker's maximum", of(&UNSENT[..1])),
        ("QoS above the broker's maximum", of(&UNSENT[1..2])),
        ("message that the broker does not retain", of(&UNSENT[2..])),
        ("filter above the broker's maximum", of(&[Reason::FiltersTooLarge])),
    ];
    counts.into_iter().filter(|(_, count)| *count > 0)
}

/// Messages beyond limits of the broker are not sent, or given up; packets beyond those of a client
/// are counted.
pub fn check(run: &Run, totals: &Totals) {
    let network = run.network();
    for (p, population) in run.plan().populations.iter().enumerate() {
        let counters = &totals.counters[p];
        let of = |reasons: &[Reason]| sum(totals, |index| index == p, reasons);
        let unsent =
            counters.skipped_total + counters.abandoned_total + counters.answers_dropped_total;
        assert!(of(&UNSENT) <= unsent, "{}: {counters:?}", population.name);
        let large = network.wire.large.iter();
        let own = large.filter(|(client, _)| population_of(run, **client) == p);
        let read: u64 = own.map(|(_, packets)| packets).sum();
        let counted = of(&BEYOND[..1]);
        assert!(counted <= read, "{}: {counted} of {read}", population.name);
        if run.case.handles_all(p) {
            assert_eq!(counted > 0, read > 0, "{}: {read}", population.name);
        }
        let limits = population.mqtt().map_or(&[][..], |mqtt| &mqtt.properties);
        let has_maximum = limits.iter().any(|property| property.name == "receive_maximum");
        assert!(has_maximum || of(&BEYOND[1..]) == 0, "{}", population.name);
    }
}

/// Number of outcomes of some populations with these reasons.
fn sum(totals: &Totals, is_meant: impl Fn(usize) -> bool, reasons: &[Reason]) -> u64 {
    let meant = totals.outcomes.iter().enumerate().filter(|(index, _)| is_meant(*index));
    meant.flat_map(|(_, outcomes)| reasons.iter().filter_map(|reason| outcomes.get(reason))).sum()
}
