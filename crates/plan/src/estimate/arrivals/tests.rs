use std::collections::HashMap;
use std::sync::Arc;

use super::*;
use crate::fan_out::FanOut;
use crate::fan_out::tests::{plan, population};
use crate::model::Lifetime;
use crate::model::flows::{Late, Order, Payload, Phase, Publication};
use crate::text::rows::{Column, Rows};
use crate::text::template::Template;
use proptest::prelude::*;

const TOPICS: [&str; 16] = [
    "a/x",
    "a/{n}",
    "a/{n%3}",
    "a/{n/4}",
    "a/{2..5}",
    "a",
    "b/{n}/{1..3}",
    "b/x{n%6}y/{n/2}",
    "{n}/a",
    HALF_HIDDEN,
    "$s/{n}",
    "$s",
    "a/t{3..8}",
    "a/{n%4}/{n%6}",
    "a/{x|y|x|z}",
    "b/{n}/{x|3}",
];
const FILTERS: [&str; 20] = [
    "a/x",
    "a/{n}",
    "a/{n%3}",
    "a/{n/2}",
    "a/{1..4}",
    "a/+",
    "a/#",
    "#",
    "+/{n}",
    "b/{n}/+",
    "b/+/{2..9}",
    "b/x{1..2}y/#",
    "a/t{n}",
    "a/t{1..4}",
    "$s/#",
    "a/{n%4}/{n%3}",
    "+/+/+",
    "a/{x|w|z}",
    "a/y",
    "b/{n}/x",
];

/// Filters with a wildcard at the start match only some of its messages.
const HALF_HIDDEN: &str = "{x|$s}/{n}";

fn publisher(clients: u32, first: u64, topics: &[&str]) -> Population {
    let publication = |topic: &&str| Publication {
        topic: Template::new(topic).unwrap(),
        order: Order::Turn,
        weights: Vec::new(),
        qos: 0,
        retain: false,
        pace: Pace::Open {
            period_ns: 100,
            spread: 0.0,
            jitter: 0.0,
            phase: Phase::Spread,
            late: Late::Send,
            burst: 1,
            arrivals: Process::Even,
        },
        window: 1,
        payload: Payload::Fixed { bytes: 1 },
        properties: Vec::new(),
        topic_alias: false,
        request: false,
    };
    let publications = topics.iter().map(publication).collect();
    Population { publications, ..population(clients, first, &[]) }
}

/// Messages a period that a client of population 1 should receive from population 0.
fn due(plan: &Plan, client: u32) -> f64 {
    let clients = plan.populations[0].clients;
    let publishers = |p| Publishers { clients: [clients, 0][p], schedule_ns: 100.0 };
    Arrivals::new(plan).due(1, client, publishers)
}

/// The same number, computed by matching every topic of every publisher with every filter.
fn tried(plan: &Plan, client: u32) -> f64 {
    let [from, to] = plan.populations.as_slice() else { panic!("the plan has two populations") };
    let target = |p: usize, c| plan.populations[p].at.target(plan.seed, p, c);
    let here = |c: &u32| plan.targets_joined || target(0, *c) == target(1, client);
    let n = to.first + u64::from(client);
    let filters: Vec<String> = to
        .subscriptions
        .iter()
        .flat_map(|s| (0..s.filter.variants()).map(move |v| s.filter.text(n, v)))
        .collect();
    let receives = |topic: &str| filters.iter().any(|filter| matches(filter, topic));
    let mut found = 0.0;
    for publication in &from.publications {
        for publisher in (0..from.clients).filter(here) {
            let all = publication.topic.variants();
            let topic = |v| publication.topic.text(from.first + u64::from(publisher), v);
            let received = (0..all).filter(|&v| receives(&topic(v))).count();
            found += received as f64 / f64::from(all);
        }
    }
    found
}

fn matches(filter: &str, topic: &str) -> bool {
    let wild = filter.starts_with('+') || filter.starts_with('#');
    if wild && topic.starts_with('$') {
        return false;
    }
    let (mut filter, mut topic) = (filter.split('/'), topic.split('/'));
    loop {
        match (filter.next(), topic.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some(f), Some(t)) if f == "+" || f == t => {}
            _ => return false,
        }
    }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

#[test]
fn one_topic_and_one_filter_are_counted_exactly_or_not_at_all() {
    for topic in TOPICS {
        for filter in FILTERS {
            for first in [0, 3] {
                let populations =
                    vec![publisher(30, first, &[topic]), population(20, 2, &[filter])];
                let plan = plan(populations, 1, true);
                // Several remainders of the publisher's number are no set that arithmetic can
                // count.
                let unsaid = matches!((topic, filter), ("a/{n%3}", "a/{1..4}"))
                    || topic == "b/x{n%6}y/{n/2}" && filter == "b/x{1..2}y/#"
                    || topic == HALF_HIDDEN && filter.starts_with(['+', '#']);
                for client in 0..20 {
                    let (found, all) = (due(&plan, client), tried(&plan, client));
                    let expected = if unsaid { 0.0 } else { all };
                    assert!(close(found, expected), "{topic} {filter} {client}: {found} of {all}");
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn the_result_is_a_lower_bound(
        topics in prop::sample::subsequence(TOPICS.to_vec(), 1..4),
        filters in prop::sample::subsequence(FILTERS.to_vec(), 1..4),
        (publishers, first, client) in (1u32..40, 0u64..9, 0u32..20),
        (from, to) in ((0usize..2, 1usize..4, 0usize..5), (0usize..2, 1usize..4, 0usize..5)),
        joined: bool,
    ) {
        let attached = |population, (first, count, shift)| {
            let at = Attachment { first, count, choice: Choice::Turn, shift };
            Population { at, ..population }
        };
        let populations = vec![
            attached(publisher(publishers, first, &topics), from),
            attached(population(20, 2, &filters), to),
        ];
        let plan = plan(populations, 5, joined);
        let (found, all) = (due(&plan, client), tried(&plan, client));
        prop_assert!(found <= all + 1e-9, "{found} of {all}");
        let said = !filters[0].contains("..") && !topics.contains(&HALF_HIDDEN);
        let one = filters.len() == 1 && said;
        prop_assert!(!one || close(found, all), "{found} of {all}");
    }

    #[test]
    fn arrivals_are_the_fan_out_turned_round(
        topic in prop::sample::select(&TOPICS[..4]),
        filter in prop::sample::select(&FILTERS[..9]),
        (publishers, subscribers) in (1u32..30, 1u32..30),
        (from, to) in ((0usize..2, 1usize..4, 0usize..5), (0usize..2, 1usize..4, 0usize..5)),
    ) {
        let at = |(first, count, shift)| Attachment { first, count, choice: Choice::Turn, shift };
        let populations = vec![
            Population { at: at(from), ..publisher(publishers, 3, &[topic]) },
            Population { at: at(to), ..population(subscribers, 2, &[filter]) },
        ];
        prop_assume!((topic, filter) != ("a/{n%3}", "a/{1..4}"));
        let plan = plan(populations, 5, false);
        let fan_out = FanOut::new(&plan);
        let expected = |c: u32| {
            let text = plan.populations[0].publications[0].topic.text(3 + u64::from(c), 0);
            let mut counts = Vec::new();
            fan_out.deliveries(&text, plan.publisher(0, c), &mut counts);
            counts[1]
        };
        let expected: u64 = (0..publishers).map(expected).sum();
        let all_due: f64 = (0..subscribers).map(|client| due(&plan, client)).sum();
        prop_assert!(close(all_due, expected as f64), "{all_due} arrivals, {expected} expected");
    }
}

#[test]
fn only_streams_that_continue_count() {
    let all = |change: &dyn Fn(&mut Plan)| {
        let populations = vec![publisher(10, 0, &["a/{n}"]), population(1, 0, &["a/#"])];
        let mut plan = plan(populations, 2, true);
        change(&mut plan);
        due(&plan, 0)
    };
    let (offline_ns, recorded) = (None, None);
    let lifetime = Some(Lifetime { min_ns: 1, max_ns: 2, offline_ns, recorded });
    let at = |choice| Attachment { first: 0, count: 2, choice, shift: 0 };
    assert!(close(all(&|_| ()), 10.0));
    assert!(close(all(&|plan| plan.populations[0].lifetime = lifetime.clone()), 0.0));
    assert!(close(all(&|plan| plan.populations[0].publications[0].pace = Pace::Closed), 0.0));
    let share = |plan: &mut Plan| {
        plan.populations[1] = population(1, 0, &["$share/g/a/#"]);
    };
    assert!(close(all(&share), 0.0));
    for (choice, joined, expected) in [
        (Choice::Turn, false, 5.0),
        (Choice::Turn, true, 10.0),
        (Choice::Random, false, 0.0),
        (Choice::Random, true, 10.0),
    ] {
        let attach = |plan: &mut Plan| {
            plan.populations[0].at = at(choice);
            plan.targets_joined = joined;
        };
        assert!(close(all(&attach), expected), "{choice:?} {joined}");
    }
    let slower = |plan: &mut Plan| {
        if let Pace::Open { spread, .. } = &mut plan.populations[0].publications[0].pace {
            *spread = 0.25;
        }
    };
    assert!(close(all(&slower), 8.0));
}

#[test]
fn a_client_that_sets_the_bridge_bit_does_not_expect_its_own() {
    let both = Population { subscriptions: Vec::new(), ..publisher(10, 0, &["a/{n}"]) };
    let subscriptions = population(1, 0, &["a/#"]).subscriptions;
    for (bridge, expected) in [(true, 9.0), (false, 10.0)] {
        let mut both = Population { subscriptions: subscriptions.clone(), ..both.clone() };
        let crate::PlannedProtocol::Mqtt(mqtt) = &mut both.protocol else {
            unreachable!("they speak MQTT")
        };
        mqtt.bridge = bridge;
        let arrivals = Arrivals::new(&plan(vec![both], 1, true));
        let publishers = |_| Publishers { clients: 10, schedule_ns: 100.0 };
        assert!(close(arrivals.due(0, 3, publishers), expected));
    }
}

#[test]
fn only_active_publishers_count() {
    let populations = vec![publisher(30, 5, &["a/{n}"]), population(30, 5, &["a/{n}"])];
    let arrivals = Arrivals::new(&plan(populations, 1, true));
    let publishers = |p| Publishers { clients: [7, 0][p], schedule_ns: 250.0 };
    assert!(close(arrivals.due(1, 6, publishers), 2.5));
    assert!(close(arrivals.due(1, 7, publishers), 0.0));
    assert!(arrivals.may_come(1) && !arrivals.may_come(0));
}

#[test]
fn rows_of_single_clients_are_counted() {
    let of_rows = |values: &[&str]| {
        let rows = Rows { file: "f".into(), first: 5, repeat: true };
        let mut column = Column::new(&rows);
        values.iter().for_each(|value| column.push(value));
        let columns = HashMap::from([("id".to_owned(), Arc::new(column))]);
        let mut from = publisher(6, 5, &["r/{row.id}"]);
        let mut to = population(6, 5, &["r/{row.id}"]);
        for population in [&mut from, &mut to] {
            population.rows = Some(rows.clone());
            population.bind(&columns).unwrap();
        }
        let plan = plan(vec![from, to], 1, true);
        [0, 1, 5].map(|client| due(&plan, client))
    };
    assert_eq!(of_rows(&["a", "b", "c", "d", "e", "f"]), [1.0; 3]);
    assert_eq!(of_rows(&["a", "b", "c"]), [2.0; 3], "each has two clients");
    assert_eq!(
        of_rows(&["a", "b", "a", "d", "e", "f"]),
        [0.0, 1.0, 1.0],
        "the number for a is not computable"
    );
}
