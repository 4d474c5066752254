//! A broker that is restarted while the receivers are away: it keeps its sessions with the messages
//! that wait, or loses them.

use plan::{Counters, FlowCounters, MqttVersion, Plan, PlannedProtocol, Population};
use testkit::{Broker, Script};

use crate::case::Case;
use crate::course::Run;
use crate::peer::Peer;
use crate::totals::Totals;
use crate::weather::{Climate, Fault, MS, S, Weather};
use testkit::plans::{self, number, publication, receivers_away, speaking, subscription};

const RECEIVERS: u32 = 3;
/// Messages while the receivers are away, and while they are connected.
const AWAY: i64 = 40;
const PRESENT: i64 = 30;

/// Sessions of the receivers: version of MQTT, and session expiry in seconds; `None`: clean.
type Persistence = (MqttVersion, Option<u32>);

const WITHOUT_END: Persistence = (MqttVersion::V5, Some(u32::MAX));
const OLDER: Persistence = (MqttVersion::V311, Some(u32::MAX));

fn populations((version, expiry_s): Persistence) -> Vec<Population> {
    let mut device = plans::population("device", 1);
    device.publications = vec![publication("t", 1, 100 * MS)];
    let mut receivers = speaking(version, "receiver", RECEIVERS);
    receivers.subscriptions = vec![subscription("t", 1)];
    if let (PlannedProtocol::Mqtt(mqtt), Some(expiry_s)) = (&mut receivers.protocol, expiry_s) {
        mqtt.clean_session = false;
        if version == MqttVersion::V5 {
            mqtt.properties = vec![number("session_expiry_interval", expiry_s)];
        }
    }
    vec![device, receivers]
}

/// Publishes for 2 s while the receivers are connected, and for 4 s while all but `staying` of them
/// are away. The broker is restarted meanwhile and loses its sessions if it `forgets`. The
/// receivers return, and the device publishes for 1 s more. Returns the flow to the receivers, and
/// their counters.
fn played(
    sessions: Persistence,
    forgets: bool,
    staying: u32,
    agents: u32,
) -> (FlowCounters, Counters) {
    let stages = receivers_away(staying, 0);
    let plan = Plan { populations: populations(sessions), stages, ..plans::empty(1) };
    let faults = vec![(4 * S, Fault::Restart { down_ns: 0, forgets })];
    let mut case = Case::playing(plan, Climate::Storm, Weather { faults, ..Weather::fair() });
    case.agents = agents;
    let run = Run::play(case, 1, agents, Peer::new(Broker::new(Script::reliable())));
    let totals = Totals::of(&run);
    assert_eq!(totals.counters[0].sessions_resumed_total, 0, "the device has a clean session");
    assert_eq!(totals.counters[0].sessions_lost_total, 0, "the device has a clean session");
    (totals.flow(0, 1), totals.counters[1])
}

const fn queue(flow: &FlowCounters) -> [i64; 3] {
    [flow.queued_total, flow.queued_received_total, flow.queued_lost_total]
}

const CASES: [(Persistence, u32, u32); 6] = [
    (WITHOUT_END, 0, 1),
    (WITHOUT_END, 0, 2),
    (WITHOUT_END, 1, 1),
    (OLDER, 0, 1),
    (OLDER, 1, 2),
    (OLDER, 2, 2),
];

#[test]
fn a_broker_that_keeps_its_sessions_delivers_what_is_queued() {
    for (sessions, staying, agents) in CASES {
        let (flow, counters) = played(sessions, false, staying, agents);
        let queued = i64::from(RECEIVERS - staying) * AWAY;
        assert_eq!(queue(&flow), [queued, queued, 0], "{staying} stay: {flow:?}");
        assert_eq!(flow.received_total, i64::from(RECEIVERS) * (PRESENT + AWAY));
        assert_eq!((flow.expected_total, flow.missing_total), (flow.received_total, 0));
        // Each one returns once from its absence; those that stay also after the restart.
        let returns = u64::from(RECEIVERS + staying);
        assert_eq!((counters.sessions_resumed_total, counters.sessions_lost_total), (returns, 0));
    }
}

#[test]
fn a_broker_that_loses_its_sessions_loses_what_is_queued() {
    for (sessions, staying, agents) in CASES {
        let (flow, counters) = played(sessions, true, staying, agents);
        let away = RECEIVERS - staying;
        let queued = i64::from(away) * AWAY;
        assert_eq!(queue(&flow), [queued, 0, queued], "{staying} stay: {flow:?}");
        // The receivers subscribe again: what was published after their return arrives.
        let lost = flow.expected_total - flow.received_total;
        let after = i64::from(staying) * AWAY;
        assert!((queued..=queued + after).contains(&lost), "{lost} lost: {flow:?}");
        assert!(flow.received_total >= i64::from(RECEIVERS) * PRESENT);
        let found = (counters.sessions_resumed_total, counters.sessions_lost_total);
        assert_eq!(found, (u64::from(staying), u64::from(RECEIVERS)));
    }
}

#[test]
fn who_has_no_session_or_returns_after_its_expiry_loses_none() {
    for sessions in [(MqttVersion::V311, None), (MqttVersion::V5, None)] {
        let (flow, counters) = played(sessions, true, 0, 1);
        assert_eq!(queue(&flow), [0; 3]);
        assert_eq!((counters.sessions_resumed_total, counters.sessions_lost_total), (0, 0));
    }
    // The receivers are away for four seconds at least, and for less than an hour.
    for (expiry_s, lost) in [(3, 0), (3600, u64::from(RECEIVERS))] {
        let (_, counters) = played((MqttVersion::V5, Some(expiry_s)), true, 0, 1);
        assert_eq!(counters.sessions_lost_total, lost, "an expiry of {expiry_s} s");
    }
    // CONNACK of MQTT 3.1 does not say if there was a session.
    let (flow, counters) = played((MqttVersion::V31, Some(u32::MAX)), true, 0, 1);
    assert_eq!(flow.queued_lost_total, i64::from(RECEIVERS) * AWAY);
    assert_eq!((counters.sessions_resumed_total, counters.sessions_lost_total), (0, 0));
}
