//! The stage of a message, by the commands that the agent has taken.

use plan::{
    MqttVersion, Payload, Plan, PlannedProtocol, Property, PropertyValue, SentAt, Shard, StreamId,
};

use super::*;
use testkit::plans::{self, publication, speaking, stage, subscription};

const RECEIVER: usize = 1;
const LASTS: u16 = 0;
const EXPIRES: u16 = 1;
const UNSTAMPED: u16 = 2;

/// A device, and a receiver with a session. The messages of the device's second publication expire
/// after a minute, and those of its third have no stamp.
fn setup() -> Setup {
    let number = |name: &str, value| Property {
        name: name.into(),
        key: None,
        value: PropertyValue::Number(value),
    };
    let mut device = speaking(MqttVersion::V5, "device", 1);
    device.publications = vec![publication("t", 1, SECOND_NS); 3];
    device.publications[EXPIRES as usize].properties = vec![number("message_expiry_interval", 60)];
    device.publications[UNSTAMPED as usize].payload = Payload::Fixed { bytes: 31 };
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
    stage(Action::Publish { duration_ns: SECOND_NS, changes, rate_profile, messages: None }, &[0])
}

fn connect() -> PlannedStage {
    let (rate_per_s, parallelism, clients) = (None, None, None);
    let action = Action::Connect { rate_per_s, parallelism, timeout_ns: SECOND_NS, clients };
    stage(action, &[RECEIVER])
}

/// Absence of the only receiver for a message that expires and was scheduled at `intended_ns`, if
/// `active` receivers are active now.
fn absence(offline: &Offline, active: u32, intended_ns: u64) -> Option<Absence> {
    absence_of(EXPIRES, offline, active, intended_ns)
}

fn absence_of(
    publication: u16,
    offline: &Offline,
    active: u32,
    intended_ns: u64,
) -> Option<Absence> {
    let stream = StreamId { publication, variant: 0, client: 0 };
    let sent = SentAt::plain(intended_ns);
    let stamp = Stamp { run_tag: 1, stream, sequence: 0, intended_ns, sent };
    offline.absence((RECEIVER, 0), active, &stamp)
}

const OFFLINE: Option<Absence> = Some(Absence::Now { is_expired: false, expiry_s: 60 });

#[test]
fn a_message_of_a_stage_that_is_not_entered_yet_finds_its_receivers_as_they_are_there() {
    let mut offline = Offline::new(&setup());
    for (stage, start_ns) in [(publish(), 1_000), (connect(), 2_000)] {
        offline.announce(&stage, start_ns, &[1, 0]);
        offline.begin_stage(&stage);
    }
    offline.announce(&publish(), 3_000, &[1, 1]);
    assert_eq!(absence(&offline, 1, 1_500), OFFLINE);
    assert_eq!(absence(&offline, 1, 3_000), Some(Absence::Earlier));
    // An exclusion concerns the stage that is played.
    offline.exclude_from_loss(RECEIVER);
    assert_eq!(offline.stages[1].active, [1, 1]);
    offline.begin_stage(&publish());
    offline.exclude_from_loss(RECEIVER);
    assert_eq!(offline.stages[1].active, [1, u32::MAX]);
}

#[test]
fn a_message_of_a_stage_whose_command_has_not_come_finds_its_receivers_as_they_are_now() {
    let mut offline = Offline::new(&setup());
    offline.announce(&publish(), SECOND_NS, &[1, 0]);
    assert_eq!(absence(&offline, 0, 2 * SECOND_NS - 1), OFFLINE);
    assert_eq!(absence(&offline, 0, 2 * SECOND_NS), OFFLINE);
    assert_eq!(absence(&offline, 1, 2 * SECOND_NS - 1), OFFLINE);
    assert_eq!(absence(&offline, 1, 2 * SECOND_NS), Some(Absence::Earlier));
    // The user ended the stage early.
    offline.announce(&connect(), SECOND_NS + 500, &[1, 0]);
    assert_eq!(absence(&offline, 1, SECOND_NS + 499), OFFLINE);
    assert_eq!(absence(&offline, 1, SECOND_NS + 500), Some(Absence::Earlier));
}

#[test]
fn a_message_without_expiry_is_queued_if_its_receiver_was_offline_in_its_stage() {
    let mut offline = Offline::new(&setup());
    offline.announce(&publish(), 1_000, &[1, 0]);
    offline.announce(&connect(), 2_000, &[1, 0]);
    offline.announce(&publish(), 3_000, &[1, 1]);
    let absences = |publication| {
        [1_500, 3_000].map(|intended_ns| absence_of(publication, &offline, 1, intended_ns))
    };
    assert_eq!(absences(LASTS), [Some(Absence::Queued), None], "a gap in front is a loss");
    assert_eq!(absences(EXPIRES), [OFFLINE, Some(Absence::Earlier)]);
    assert_eq!(absences(UNSTAMPED), [None, None]);
    assert_eq!(offline.wait(LASTS, RECEIVER), Some(OfflineWait::Queued));
    assert_eq!(offline.wait(UNSTAMPED, RECEIVER), None);
}

#[test]
fn no_message_is_queued_for_clients_whose_session_ends_or_whose_group_shares_it() {
    let mut plan = setup().plan;
    plan.populations[RECEIVER].subscriptions.push(subscription("$share/g/t", 1));
    let shared = Setup::new(plan.clone(), Shard::WHOLE, 0).expect("the plan needs no files");
    if let PlannedProtocol::Mqtt(mqtt) = &mut plan.populations[RECEIVER].protocol {
        mqtt.clean_session = true;
    }
    plan.populations[RECEIVER].subscriptions.pop();
    let clean = Setup::new(plan, Shard::WHOLE, 0).expect("the plan needs no files");
    for setup in [shared, clean] {
        let offline = Offline::new(&setup);
        assert_eq!([LASTS, EXPIRES].map(|index| offline.wait(index, RECEIVER)), [None; 2]);
        assert!(!offline.keeps_messages_for(RECEIVER) && !offline.may_expire_for(RECEIVER));
    }
}
