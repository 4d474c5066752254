//! Unexpected deliveries, in virtual time: wills of other clients, second wills and copies make up
//! for no message. Reason codes of success are acknowledgements.

use plan::{
    Action, End, FlowCounters, MqttVersion, Payload, Plan, PlannedProtocol, PlannedWill,
    Population, Publication, Shard,
};
use testkit::{Broker, Script};

use crate::case::Case;
use crate::course::Run;
use crate::peer::Peer;
use crate::totals::Totals;
use crate::weather::{Climate, MS, S, Weather};
use engine::Setup;
use testkit::plans::{self, publication, stage, subscription, template};

/// Clients with a will on `topic`, of which the first has number `first`.
fn mortals(topic: &str, (first, clients): (u64, u32), end: End) -> Population {
    let mut population = plans::population(&format!("device-{first}"), clients);
    (population.first, population.end) = (first, end);
    if let PlannedProtocol::Mqtt(mqtt) = &mut population.protocol {
        mqtt.will = Some(Box::new(PlannedWill {
            topic: template(topic),
            payload: template("offline"),
            qos: 1,
            retain: false,
            properties: Vec::new(),
        }));
    }
    population
}

/// Subscribers of these filters.
fn watchers(version: MqttVersion, filters: &[&str]) -> Population {
    let mut population = plans::speaking(version, "watcher", 2);
    population.subscriptions = filters.iter().map(|filter| subscription(filter, 1)).collect();
    population
}

/// Plays populations that publish for half a second, of which all but the last leave before it.
fn play(populations: Vec<Population>, agents: u32, script: Script) -> Totals {
    let all: Vec<usize> = (0..populations.len()).collect();
    let (last, leaving) = all.split_last().expect("there are some");
    let connect =
        Action::Connect { rate_per_s: None, parallelism: None, timeout_ns: S, clients: None };
    let publish = Action::Publish {
        duration_ns: 500 * MS,
        changes: Vec::new(),
        rate_profile: Vec::new(),
        messages: None,
    };
    let disconnect = Action::Disconnect { rate_per_s: None };
    let stages = vec![
        stage(connect, &all),
        stage(publish, &all),
        stage(disconnect.clone(), leaving),
        stage(Action::Hold { duration_ns: S, changes: Vec::new() }, &[*last]),
        stage(disconnect, &[*last]),
    ];
    let plan = Plan { populations, stages, ..plans::empty(1) };
    let (changes, exclusions) = (Vec::new(), Vec::new());
    let (climate, weather) = (Climate::Fair, Weather::fair());
    let case = Case { plan, changes, exclusions, agents, climate, weather, files: None };
    Totals::of(&Run::play(case, 1, agents, Peer::new(Broker::new(script))))
}

/// Expected and received wills of a flow.
fn wills(totals: &Totals, from: usize, to: usize) -> (i64, i64) {
    let flow = totals.flow(from, to);
    (flow.wills_expected_total, flow.wills_received_total)
}

/// Expected and received deliveries of a flow without wills.
const fn messages(flow: &FlowCounters) -> (i64, i64) {
    (
        flow.expected_total - flow.wills_expected_total,
        flow.received_total - flow.wills_received_total,
    )
}

#[test]
fn wills_belong_to_the_share_of_their_client() {
    for agents in [1, 2] {
        let rest = mortals("gone/{n}", (5, 3), End::Disconnect);
        let dying = mortals("gone/{n}", (8, 2), End::Abort);
        let populations = vec![rest, dying, watchers(MqttVersion::V311, &["gone/#"])];
        let totals = play(populations, agents, Script::reliable());
        assert_eq!((wills(&totals, 0, 2), wills(&totals, 1, 2)), ((0, 0), (4, 4)));
    }
}

#[test]
fn wills_without_a_number_belong_to_the_first_population_with_their_topic() {
    for agents in [1, 2] {
        let rest = mortals("gone", (0, 3), End::Disconnect);
        let dying = mortals("gone", (3, 2), End::Abort);
        let populations = vec![rest, dying, watchers(MqttVersion::V311, &["gone"])];
        let totals = play(populations, agents, Script::reliable());
        assert_eq!((wills(&totals, 0, 2), wills(&totals, 1, 2)), ((4, 4), (0, 0)));
    }
}

#[test]
fn a_will_on_the_topic_of_messages_without_a_stamp_is_a_will() {
    let mut device = mortals("status/{n}", (0, 3), End::Abort);
    let payload = Payload::Text { template: template("online"), is_json: false };
    device.publications = vec![Publication { payload, ..publication("status/{n}", 1, 100 * MS) }];
    let populations = vec![device, watchers(MqttVersion::V311, &["status/#"])];
    let totals = play(populations, 1, Script::reliable());
    assert_eq!(wills(&totals, 0, 1), (6, 6));
    let sent = totals.counters[0].sent_total.cast_signed();
    assert_eq!(messages(&totals.flow(0, 1)), (2 * sent, 2 * sent));
}

#[test]
fn unexpected_and_second_wills_are_wills_and_no_messages() {
    let dying = |end| {
        let mut device = mortals("gone/{n}", (0, 3), end);
        device.publications = vec![publication("t/{n}", 1, 100 * MS)];
        vec![device, watchers(MqttVersion::V311, &["gone/#", "t/#"])]
    };
    for (end, expected, received) in [(End::Disconnect, 0, 6), (End::Abort, 6, 12)] {
        let each = Box::new(|is_due: bool| 1 + usize::from(is_due));
        let totals = play(dying(end), 1, Script { wills: each, ..Script::reliable() });
        assert_eq!(wills(&totals, 0, 1), (expected, received), "{end:?}");
        let sent = totals.counters[0].sent_total.cast_signed();
        assert_eq!(messages(&totals.flow(0, 1)), (2 * sent, 2 * sent), "{end:?}");
    }
}

#[test]
fn legal_copies_for_overlapping_filters_are_copies() {
    for version in [MqttVersion::V311, MqttVersion::V5] {
        let mut device = plans::population("device", 3);
        device.publications = vec![publication("a/b", 1, 100 * MS)];
        let filters = ["a/#", "a/+", "a/b", "other/#"];
        let populations = vec![device, watchers(version, &filters)];
        let script = Script { sends_copies: true, ..Script::reliable() };
        let flow = play(populations, 1, script).flow(0, 1);
        assert_eq!((flow.expected_total, flow.duplicate_total), (flow.received_total, 0));
        assert_eq!(flow.copies_total, 2 * flow.received_total, "{version:?}: {flow:?}");
    }
}

#[test]
fn reason_codes_of_success_are_acknowledgements() {
    for qos in [1, 2] {
        let mut device = plans::speaking(MqttVersion::V5, "device", 3);
        device.publications = vec![publication("t/{n}", qos, 100 * MS)];
        let populations = vec![device, watchers(MqttVersion::V5, &["t/#"])];
        let mut number = 0;
        // No matching subscribers, and quota exceeded.
        let code = Box::new(move || {
            number += 1;
            [0, 0x10, 0x97][number % 3]
        });
        let totals = play(populations, 1, Script { code, ..Script::reliable() });
        let counters = &totals.counters[0];
        assert_eq!(counters.acked_total + counters.rejected_total, counters.sent_total);
        assert_eq!(counters.rejected_total, counters.sent_total / 3);
    }
}

/// The plan of populations with clients of these numbers, and wills on topics of these templates.
fn of_wills(wills: &[(&str, u64, u32)]) -> Setup {
    let population =
        |&(topic, first, clients): &(&str, u64, u32)| mortals(topic, (first, clients), End::Abort);
    prepared(wills.iter().map(population).collect())
}

fn prepared(populations: Vec<Population>) -> Setup {
    Setup::new(Plan { populations, ..plans::empty(1) }, Shard::WHOLE, 0).unwrap()
}

#[test]
fn the_owner_of_a_will_is_the_first_population_with_a_client_of_its_topic() {
    let setup = of_wills(&[("a/{n}", 5, 3), ("a/{n}", 8, 2), ("b/{n/2}", 5, 3), ("c", 0, 1)]);
    for (topic, owner) in [
        ("a/4", None),
        ("a/5", Some(0)),
        ("a/7", Some(0)),
        ("a/8", Some(1)),
        ("a/9", Some(1)),
        ("a/10", None),
        ("a/x", None),
        ("b/1", None),
        ("b/3", Some(2)),
        ("c", Some(3)),
        ("d", None),
    ] {
        assert_eq!(setup.owner_of_will(0, topic), owner, "{topic}");
    }
    let both = of_wills(&[("c", 0, 1), ("c", 1, 1)]);
    assert_eq!(both.owner_of_will(0, "c"), Some(0));
    // No arithmetic follows two variables in one level.
    let two = of_wills(&[("a/{n}-{n}", 5, 3)]);
    assert_eq!(two.owner_of_will(0, "a/7-7"), Some(0));
}

#[test]
fn a_copy_has_a_number_of_its_own_for_each_filter() {
    let distinguishing = |identifiers: &[Option<u32>]| {
        let mut population = plans::population("p", 1);
        population.subscriptions = identifiers
            .iter()
            .map(|&identifier| plan::Subscription { identifier, ..subscription("a", 0) })
            .collect();
        prepared(vec![population])
    };
    let plain = distinguishing(&[None, Some(7)]);
    let numbers = |setup: &Setup, identifier| {
        [0, 1, 2].map(|place| setup.populations[0].copy_of(identifier, place))
    };
    assert_eq!(numbers(&plain, None), [None, Some(254), Some(253)]);
    assert_eq!(numbers(&plain, Some(7)), [None, Some(254), Some(253)]);
    let two = distinguishing(&[Some(7), Some(9), None]);
    assert_eq!(numbers(&two, None), [Some(255), Some(252), Some(249)]);
    assert_eq!(numbers(&two, Some(7)), [Some(1), Some(251), Some(248)]);
    assert_eq!(numbers(&two, Some(9)), [Some(2), Some(250), Some(247)]);
    assert_eq!(numbers(&two, Some(8)), [None; 3]);
    assert_eq!(two.populations[0].copy_of(Some(9), 1000), None);
}
