//! The stage of a message, by the commands that the agent has taken.

use plan::{MqttVersion, Plan, PlannedProtocol, Property, PropertyValue, SentAt, Shard, StreamId};

use super::*;
use testkit::plans::{self, publication, speaking, stage, subscription};

const RECEIVER: usize = 1;

/// A device whose messages expire after a minute, and a receiver with a session.
fn setup() -> Setup {
    let number = |name: &str, value| Property {
        name: name.into(),
        key: None,
        value: PropertyValue::Number(value),
    };
    let mut device = speaking(MqttVersion::V5, "device", 1);
    device.publications = vec![publication("t", 1, SECOND_NS)];
    device.publications[0].properties = vec![number("message_expiry_interval", 60)];
    let mut receiver = speaking(MqttVersion::V5, "receiver", 1);
    receiver.subscriptions = vec![subscription("t", 1)];
    if let PlannedProtocol::Mqtt(mqtt) = &mut receiver.protocol {
        mqtt.clean_session = false;
        mqtt.properties = vec![number("session_expiry_interval", u32::MAX)];
    }
    let plan = Plan { populations: vec![device, receiver], ..plans::empty(1) };
    Setup::new(plan, Shard::WHOLE, 0).expect("the plan needs no files")
}

fn publish() -> PlannedStage {
    let (changes, rate_profile) = (Vec::new(), Vec::new());
    stage(Action::Publish { duration_ns: SECOND_NS, changes, rate_profile }, &[0])
}

fn connect() -> PlannedStage {
    let (rate_per_s, parallelism, clients) = (None, None, None);
    let action = Action::Connect { rate_per_s, parallelism, timeout_ns: SECOND_NS, clients };
    stage(action, &[RECEIVER])
}

/// Absence of the only receiver for a message that was scheduled at `intended_ns`, if `active`
/// receivers are active now.
fn absence(expiry: &Expiry, active: u32, intended_ns: u64) -> Option<Absence> {
    let stream = StreamId { publication: 0, variant: 0, client: 0 };
    let sent = SentAt::plain(intended_ns);
    let stamp = Stamp { run_tag: 1, stream, sequence: 0, intended_ns, sent };
    expiry.absence((RECEIVER, 0), active, &stamp)
}

const OFFLINE: Option<Absence> = Some(Absence::Now { is_expired: false, expiry_s: 60 });

#[test]
fn a_message_of_a_stage_that_is_not_entered_yet_finds_its_receivers_as_they_are_there() {
    let mut expiry = Expiry::new(&setup());
    for (stage, start_ns) in [(publish(), 1_000), (connect(), 2_000)] {
        expiry.announce(&stage, start_ns, &[1, 0]);
        expiry.begin_stage(&stage);
    }
    expiry.announce(&publish(), 3_000, &[1, 1]);
    assert_eq!(absence(&expiry, 1, 1_500), OFFLINE);
    assert_eq!(absence(&expiry, 1, 3_000), Some(Absence::Earlier));
    // An exclusion concerns the stage that is played.
    expiry.exclude_from_loss(RECEIVER);
    assert_eq!(expiry.stages[1].active, [1, 1]);
    expiry.begin_stage(&publish());
    expiry.exclude_from_loss(RECEIVER);
    assert_eq!(expiry.stages[1].active, [1, u32::MAX]);
}

#[test]
fn a_message_of_a_stage_whose_command_has_not_come_finds_its_receivers_as_they_are_now() {
    let mut expiry = Expiry::new(&setup());
    expiry.announce(&publish(), SECOND_NS, &[1, 0]);
    assert_eq!(absence(&expiry, 0, 2 * SECOND_NS - 1), OFFLINE);
    assert_eq!(absence(&expiry, 0, 2 * SECOND_NS), OFFLINE);
    assert_eq!(absence(&expiry, 1, 2 * SECOND_NS - 1), OFFLINE);
    assert_eq!(absence(&expiry, 1, 2 * SECOND_NS), Some(Absence::Earlier));
    // Somebody ended the stage early.
    expiry.announce(&connect(), SECOND_NS + 500, &[1, 0]);
    assert_eq!(absence(&expiry, 1, SECOND_NS + 499), OFFLINE);
    assert_eq!(absence(&expiry, 1, SECOND_NS + 500), Some(Absence::Earlier));
}
