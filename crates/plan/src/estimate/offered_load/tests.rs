use super::*;
use crate::fan_out::tests::{plan, population};
use crate::model::flows::{Late, Order, Payload, Phase, Process, Publication};
use crate::text::template::Template;

const PUBLISH: Action = Action::Publish {
    duration_ns: 10 * SECOND_NS,
    changes: Vec::new(),
    rate_profile: Vec::new(),
    messages: None,
};

fn publication(topic: &str, pace: Pace) -> Publication {
    Publication {
        topic: Template::new(topic).unwrap(),
        order: Order::Turn,
        weights: Vec::new(),
        qos: 0,
        retain: false,
        pace,
        window: 1,
        payload: Payload::Fixed { bytes: 1 },
        properties: Vec::new(),
        topic_alias: false,
        request: false,
    }
}

fn every_second() -> Pace {
    let (phase, late) = (Phase::Spread, Late::Send);
    Pace::Open {
        period_ns: SECOND_NS,
        spread: 0.0,
        jitter: 0.0,
        phase,
        late,
        burst: 1,
        arrivals: Process::Even,
    }
}

/// `clients` clients that publish to a topic and subscribe to a filter, for ten seconds.
fn load_of(clients: u32, filter: &str, topic: &str) -> OfferedLoad {
    let mut one = population(clients, 0, &[filter]);
    one.publications.push(publication(topic, every_second()));
    OfferedLoad::of(&played(plan(vec![one], 1, true), PUBLISH))
}

fn played(mut plan: Plan, action: Action) -> Plan {
    let connect = Action::Connect {
        rate_per_s: None,
        parallelism: None,
        timeout_ns: SECOND_NS,
        clients: None,
    };
    let populations: Vec<usize> = (0..plan.populations.len()).collect();
    for (name, action) in [("connect", connect), ("publish", action)] {
        let populations = populations.clone();
        plan.stages.push(PlannedStage { name: name.into(), action, populations });
    }
    plan
}

#[test]
fn deliveries_are_rate_times_clients_times_receivers() {
    for (filter, topic, receivers) in [
        ("a/#", "a/{n}", 100.0),
        ("a/{n}", "a/{n}", 1.0),
        ("a/{n%10}", "a/{n}", 1.0),
        ("a/{1..5}", "a/{1..5}", 100.0),
        ("+/a", "$SYS/a", 0.0),
        ("$share/g/a/+", "a/{n}", 1.0),
        ("$share/g{n%2}/a/+", "a/{n}", 2.0),
    ] {
        let load = load_of(100, filter, topic);
        let [flow] = load.stages[1].phases[0].flows.as_slice() else { panic!("{load:?}") };
        assert_eq!(flow.sent_per_s, 100.0);
        let sampled = load.populations[0].publications[0].receivers;
        assert_eq!(flow.delivered_per_s, [sampled * 100.0]);
        let expected = if filter == "a/{n%10}" { 0.1 * 10.0 } else { receivers };
        assert!((sampled - expected).abs() < 1e-9, "{filter} {topic}: {sampled}");
    }
}

#[test]
fn phases_follow_clients_and_rates() {
    let change = |at_s: u64, population, action| {
        let name = format!("change at {at_s}");
        Change { name, after_ns: at_s * SECOND_NS, population, action }
    };
    let changes = vec![
        change(2, 0, ChangeAction::Remove { clients: 6, over_ns: SECOND_NS }),
        change(4, 0, ChangeAction::Rate { factor: 3.0 }),
        change(5, 0, ChangeAction::Add { clients: 99, over_ns: 0 }),
        change(5, 1, ChangeAction::Remove { clients: 1, over_ns: 0 }),
    ];
    let mut publishers = population(10, 0, &[]);
    publishers.publications.push(publication("t", every_second()));
    publishers.publications.push(publication("t", Pace::Closed));
    let (offline_ns, recorded) = (Some(1), None);
    publishers.lifetime = Some(Lifetime { min_ns: 2, max_ns: 4, offline_ns, recorded });
    let plan = plan(vec![publishers, population(7, 0, &["t"])], 1, true);
    let action = Action::Publish {
        duration_ns: 10 * SECOND_NS,
        changes,
        rate_profile: Vec::new(),
        messages: None,
    };
    let plan = played(plan, action);
    let load = OfferedLoad::of(&plan);
    assert!(load.stages[1].closed_loop && !load.stages[0].closed_loop);
    let read = |phase: &PhaseLoad| {
        let flow = &phase.flows[0];
        let seconds = phase.duration_ns / SECOND_NS;
        (seconds, phase.clients[0], flow.sent_per_s, flow.delivered_per_s[1])
    };
    let phases: Vec<_> = load.stages[1].phases.iter().map(read).collect();
    let expected = [(2, 10, 7.5, 52.5), (2, 4, 3.0, 21.0), (1, 4, 9.0, 63.0), (5, 10, 22.5, 135.0)];
    assert_eq!(phases, expected);
    assert_eq!(load.populations[0].clients_max, 10);
}

#[test]
fn a_profile_has_a_mean_and_a_peak_in_each_phase() {
    let mut one = population(100, 0, &["a"]);
    one.publications.push(publication("a", every_second()));
    let point = |at_s: u64, factor| RatePoint { after_ns: at_s * SECOND_NS, factor };
    let profile = vec![point(0, 0.0), point(4, 2.0), point(8, 0.0)];
    let faster = ChangeAction::Rate { factor: 3.0 };
    let change =
        Change { name: "x3".into(), after_ns: 4 * SECOND_NS, population: 0, action: faster };
    let action = Action::Publish {
        duration_ns: 10 * SECOND_NS,
        changes: vec![change],
        rate_profile: profile,
        messages: None,
    };
    let load = OfferedLoad::of(&played(plan(vec![one], 1, true), action));
    let read = |phase: &PhaseLoad| (phase.flows[0].sent_per_s, phase.peak);
    let phases: Vec<_> = load.stages[1].phases.iter().map(read).collect();
    assert_eq!(phases, [(100.0, 2.0), (200.0, 3.0)]);
}

#[test]
fn topics_and_filters_that_lead_nowhere_are_found() {
    let found = |filter, topic| {
        let load = load_of(10, filter, topic);
        let of = |found: &Option<Unmatched>| {
            found.as_ref().map(|each| (each.share, each.example.clone()))
        };
        let one = &load.populations[0];
        (of(&one.publications[0].unmatched), of(&one.subscriptions[0]))
    };
    let some = |share: f64, text: &str| Some((share, text.to_owned()));
    assert_eq!(found("a/{n}", "a/{n}"), (None, None));
    assert_eq!(found("$SYS/#", "a"), (some(1.0, "a"), None));
    assert_eq!(found("a/#", "a"), (None, None));
    assert_eq!(found("a/{n}", "a/{0..39}"), (some(0.75, "a/39"), None));
    assert_eq!(found("a/{n}", "a/{0..4}"), (None, some(0.5, "a/9")));
    assert_eq!(found("$share/g/b", "a"), (some(1.0, "a"), some(1.0, "$share/g/b")));
    assert_eq!(found("+/{n}/+", "x/{n%5}/{n/5}"), (None, some(0.5, "+/9/+")));
}

#[test]
fn samples_are_spread_from_the_first_pair_to_the_last() {
    assert_eq!(sampled(2, 2).collect::<Vec<_>>(), [(0, 0), (1, 0), (0, 1), (1, 1)]);
    assert_eq!(sampled(0, 5).count(), 0);
    let many: Vec<_> = sampled(u32::MAX, u32::MAX).collect();
    assert_eq!(many.len() as u64, SAMPLES);
    let last = u32::MAX - 1;
    assert_eq!((many[0], many[many.len() - 1]), ((0, 0), (last, last)));
}

#[test]
fn answers_to_requests_are_published_on_their_response_topics() {
    let found = |request| {
        let mut requesting = population(10, 0, &["reply/{n}"]);
        let value = crate::PropertyValue::Text(Template::new("reply/{n}").unwrap());
        let property = crate::Property { name: "response_topic".into(), key: None, value };
        let properties = vec![property];
        requesting.publications =
            vec![Publication { request, properties, ..publication("request", Pace::Closed) }];
        let load = OfferedLoad::of(&played(plan(vec![requesting], 1, true), PUBLISH));
        load.populations[0].subscriptions[0].as_ref().map(|unmatched| unmatched.share)
    };
    assert_eq!((found(true), found(false)), (None, Some(1.0)));
}

#[test]
fn bytes_of_packets_are_those_of_the_codec() {
    let mut one = population(1000, 0, &["a/{n}", "b/{1..20}/#"]);
    one.publications.push(publication("a/{n}/up", every_second()));
    one.publications[0].qos = 1;
    one.publications[0].payload = Payload::Fixed { bytes: 300 };
    one.username = Some(Template::new("user-{n}").unwrap());
    let text = one.mqtt().unwrap().client_id.text(999, 0);
    let connect =
        mqtt::Connect { client_id: &text, username: Some("user-999"), ..Default::default() };
    let load = &OfferedLoad::of(&played(plan(vec![one], 1, true), PUBLISH)).populations[0];
    let (mut out, version) = (Vec::new(), mqtt::Version::V311);
    connect.encode(version, &mut out).unwrap();
    let opening = load.opening.unwrap();
    assert_eq!(opening.connect_bytes, out.len() as u64);
    out.clear();
    let mut filters = vec!["a/999".to_owned()];
    filters.extend((1..=20).map(|n| format!("b/{n}/#")));
    let own = filters.iter().map(|filter| (&**filter, mqtt::SubscriptionOptions::default()));
    mqtt::encode_subscribe(version, (1, mqtt::Properties::NONE), own, &mut out).unwrap();
    assert_eq!(opening.subscribe_bytes, out.len() as u64);
    assert_eq!(opening.suback_bytes, 2 + 2 + 21);
    assert_eq!(load.publications[0].message_bytes, 1 + 2 + 2 + 8 + 2 + 300);
}
