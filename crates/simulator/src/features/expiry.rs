//! Messages that expire in simulated runs, while their receivers are offline: they are not
//! expected, and count as expired unless they arrive.

use plan::{FlowCounters, MqttVersion, Plan, PlannedProtocol, Population, PropertyValue};
use testkit::{Broker, Rng, Script};

use crate::case::Case;
use crate::course::Run;
use crate::peer::Peer;
use crate::totals::Totals;
use crate::weather::{Climate, MS, S, Weather};
use testkit::plans::{self, number, publication, receivers_away, speaking, subscription};

const RECEIVERS: u32 = 3;

/// Draws short expiries for some of the messages that expire, apart from the other draws. Without
/// storms, messages expire behind slow readers only, and those count as lost.
pub fn draw(case: &mut Case, seed: u64) {
    let mut rng = Rng::new(seed ^ 0xe791_7e00);
    if case.climate != Climate::Storm {
        return;
    }
    let publications = case.plan.populations.iter_mut().flat_map(|p| &mut p.publications);
    for property in publications.flat_map(|publication| &mut publication.properties) {
        if property.name == "message_expiry_interval" && rng.chance(50) {
            property.value = PropertyValue::Number(1 + rng.below(3) as u32);
        }
    }
}

/// The broker delivers no message that has expired, and lowers the expiry of those it has kept.
pub fn check(_: &Run, totals: &Totals) {
    for counters in &totals.counters {
        assert_eq!(counters.expiry_violations_total, 0, "{counters:?}");
    }
    for (populations, flow) in &totals.flows {
        assert!(flow.expired_total >= 0, "flow {populations:?}: {flow:?}");
        assert_eq!(flow.expired_received_total, 0, "flow {populations:?}: {flow:?}");
    }
}

/// A device that publishes ten messages a second, which expire after `expiry_s` seconds, and
/// receivers whose session has no end.
fn populations(expiry_s: u32) -> Vec<Population> {
    let mut device = speaking(MqttVersion::V5, "device", 1);
    device.publications = vec![publication("t", 1, 100 * MS)];
    device.publications[0].properties = vec![number("message_expiry_interval", expiry_s)];
    let mut receivers = speaking(MqttVersion::V5, "receiver", RECEIVERS);
    receivers.subscriptions = vec![subscription("t", 1)];
    if let PlannedProtocol::Mqtt(mqtt) = &mut receivers.protocol {
        mqtt.clean_session = false;
        mqtt.properties = vec![number("session_expiry_interval", u32::MAX)];
    }
    vec![device, receivers]
}

/// Publishes for 2 s while the receivers are online, and for 4 s while all but `staying` of them
/// are offline. They return after `wait_ns`, and the device publishes for 1 s more. Returns also
/// the number of messages whose expiry the broker has reduced.
fn played(
    (expiry_s, wait_ns): (u32, u64),
    staying: u32,
    script: Script,
    agents: u32,
) -> (FlowCounters, u64) {
    let stages = receivers_away(staying, wait_ns);
    let plan = Plan { populations: populations(expiry_s), stages, ..plans::empty(1) };
    let mut case = Case::playing(plan, Climate::Storm, Weather::fair());
    case.agents = agents;
    let run = Run::play(case, 1, agents, Peer::new(Broker::new(script)));
    let totals = Totals::of(&run);
    let flow = totals.flow(0, 1);
    assert_eq!(flow.expected_total, flow.received_total, "nothing is lost");
    (flow, totals.counters[1].expiry_reduced_total)
}

#[test]
fn what_expires_while_its_receiver_is_offline_is_not_lost() {
    for (staying, agents) in [(0, 1), (0, 2), (1, 1), (1, 2)] {
        let (flow, _) = played((2, 0), staying, Script::reliable(), agents);
        let offline = i64::from(RECEIVERS - staying);
        let kept = flow.received_total - i64::from(RECEIVERS) * 30 - i64::from(staying) * 40;
        assert_eq!(flow.expired_total, offline * 40 - kept, "{flow:?}");
        // The drain and the connections take a part of the two seconds.
        assert!(kept > 0 && kept <= offline * 20, "{kept} arrived");
        assert_eq!((flow.expired_received_total, flow.missing_total), (0, 0));
    }
}

#[test]
fn a_message_that_has_time_left_arrives_and_is_expected_as_received() {
    let (flow, reduced) = played((60, S), 0, Script::reliable(), 1);
    let all = i64::from(RECEIVERS) * 70;
    assert_eq!((flow.received_total, flow.expired_total), (all, 0));
    assert_eq!(reduced, u64::from(RECEIVERS) * 40, "all messages that waited, and no other");
}

#[test]
fn a_broker_that_delivers_what_has_expired_is_seen() {
    let script = Script { ignores_expiry: true, ..Script::reliable() };
    let (flow, reduced) = played((1, 2 * S), 0, script, 1);
    assert_eq!((flow.received_total, flow.expired_total), (i64::from(RECEIVERS) * 70, 0));
    assert_eq!(flow.expired_received_total, i64::from(RECEIVERS) * 40);
    assert_eq!(reduced, 0);
}

#[test]
fn a_gap_of_expired_messages_is_no_loss() {
    for staying in [0, 2] {
        let (flow, _) = played((1, 2 * S), staying, Script::reliable(), 1);
        assert_eq!(flow.expired_total, i64::from(RECEIVERS - staying) * 40);
        assert_eq!((flow.expired_received_total, flow.missing_total), (0, 0));
    }
}
