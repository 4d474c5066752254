//! Shared groups, compared with brokers that treat clients with several matching subscriptions
//! differently.

use super::tests::{counts, nats, plan, population};
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const CLIENTS: u32 = 7;
const FILTERS: [&str; 13] = [
    "a/#",
    "a/+",
    "a/{n%3}",
    "b/{n}",
    "$share/g/a/#",
    "$share/g/a/+",
    "$share/h/a/{n%3}",
    "$share/g{n%2}/a/#",
    "$share/g1/a/#",
    "$share/g{n/3}/a/#",
    "$share/g{n}/a/{n%3}",
    "$share/k/b/{n}",
    "$share/k/b/#",
];

/// Returns `true` if a concrete filter of these matches a topic, level by level.
fn matches(filter: &str, topic: &str) -> bool {
    let topic: Vec<&str> = topic.split('/').collect();
    let filter: Vec<&str> = filter.split('/').collect();
    let rest = filter.last() == Some(&"#");
    let fixed = filter.len() - usize::from(rest);
    let alike = filter[..fixed].iter().zip(&topic).all(|(f, t)| *f == "+" || f == t);
    alike && (topic.len() == fixed || rest && topic.len() >= fixed)
}

/// Copies of one message for each client, from a broker that sends one copy for each subscription,
/// or one for each client. `turn` chooses the members of groups.
fn copies(population: &Population, topic: &str, for_each: bool, turn: usize) -> Vec<u64> {
    let mut copies = vec![0; population.clients as usize];
    let mut groups: BTreeMap<(String, String), Vec<usize>> = BTreeMap::new();
    for (client, copies) in copies.iter_mut().enumerate() {
        for subscription in &population.subscriptions {
            let filter = subscription.filter.text(population.first + client as u64, 0);
            match filter.strip_prefix("$share/").map(|rest| rest.split_once('/').unwrap()) {
                Some((name, filter)) if matches(filter, topic) => {
                    groups.entry((name.into(), filter.into())).or_default().push(client);
                }
                None if matches(&filter, topic) => *copies = 1,
                _ => {}
            }
        }
    }
    for (g, mut members) in groups.into_values().enumerate() {
        members.dedup();
        let chosen = members[(turn + g * 5) % members.len()];
        copies[chosen] = if for_each { copies[chosen] + 1 } else { 1 };
    }
    copies
}

#[test]
fn a_client_without_echo_that_is_the_only_member_of_a_group_expects_none_of_its_messages() {
    for (members, others, own, expected) in
        [(1, 0, 1, [0, 0]), (2, 0, 1, [1, 0]), (1, 1, 1, [1, 0]), (1, 0, 0, [1, 0])]
    {
        let member = |clients| {
            let group = population(clients, 0, &["$share/g/a.*"]);
            Population { protocol: nats(), ..group }
        };
        let publisher = Population { protocol: nats(), ..population(1, 0, &[]) };
        let plan = plan(vec![member(members), member(others), publisher], 1, true);
        let mut counts = Vec::new();
        let origin = plan.publisher(if own == 1 { 0 } else { 2 }, 0);
        FanOut::new(&plan).deliveries("a.0", origin, &mut counts);
        assert_eq!(counts[..2], expected, "{members} and {others} members, {own}");
    }
}

#[test]
fn a_client_has_a_copy_for_each_different_filter_outside_of_groups() {
    let filters = ["a/#", "a/+", "a/{n%3}", "a/+", "$share/g/a/#"];
    let mut own = population(3, 0, &filters);
    own.subscriptions[1].identifier = Some(7);
    own.subscriptions[3].identifier = Some(7);
    let fan_out = FanOut::new(&plan(vec![own], 1, true));
    let all = |client, topic| fan_out.filters_of(0, client, topic, |_| true);
    assert_eq!((all(1, "a/1"), all(2, "a/1"), all(1, "b")), (3, 2, 0));
    assert_eq!(fan_out.filters_of(0, 1, "a/1", |identifier| identifier == Some(7)), 1);
    assert_eq!(fan_out.filters_of(0, 1, "a/1", |identifier| identifier.is_none()), 2);
}

proptest! {
    /// With every kind of broker, all deliveries are expected and no copy is a duplicate.
    #[test]
    fn no_kind_of_broker_has_lost_or_duplicate_messages(
        filters in prop::sample::subsequence(&FILTERS[..], 1..5),
        first in 0u64..5,
        topic in prop::sample::select(vec!["a/1", "a/2", "a/x", "b/3", "b/5/x", "c"]),
        for_each: bool,
        turn in 0usize..100,
    ) {
        let population = population(CLIENTS, first, &filters);
        let fan_out = FanOut::new(&plan(vec![population.clone()], 1, true));
        let mut by_arithmetic = 0;
        for (client, copies) in (0u32..).zip(copies(&population, topic, for_each, turn)) {
            let ways = fan_out.ways(0, client, topic, 0);
            let is_expected = ways.expected != Expected::Nothing;
            let most = u64::from(is_expected) + u64::from(ways.more);
            prop_assert!(copies <= most, "{copies} copies for client {client}, {ways:?}");
            by_arithmetic += u64::from(is_expected && copies > 0);
        }
        prop_assert_eq!(counts(&fan_out, topic, 0), [by_arithmetic]);
    }
}

#[test]
fn a_group_is_expected_by_arithmetic_if_its_members_have_no_other_filter() {
    let deliveries = |filters: &[&str]| {
        let population = population(10, 0, filters);
        counts(&FanOut::new(&plan(vec![population], 1, true)), "a/4", 0)[0]
    };
    assert_eq!(deliveries(&["$share/g/a/#"]), 1);
    assert_eq!(deliveries(&["$share/g/a/{n}", "$share/g/b/#"]), 1);
    assert_eq!(deliveries(&["a/{n}", "$share/g/a/#"]), 1, "client 4 may get a copy for both");
    assert_eq!(deliveries(&["b/{n}", "$share/g/a/#"]), 1);
    assert_eq!(deliveries(&["$share/g/a/#", "$share/h/a/+"]), 0);
}

#[test]
fn a_name_with_a_variable_makes_a_group_for_each_value() {
    let deliveries = |clients: u32, first: u64, filters: &[&str], topic: &str| {
        let population = population(clients, first, filters);
        counts(&FanOut::new(&plan(vec![population], 1, true)), topic, 0)[0]
    };
    for (clients, first, filter, topic, expected) in [
        (10, 0, "$share/g{n%2}/a/#", "a/4", 2),
        (1, 0, "$share/g{n%2}/a/#", "a/4", 1),
        (10, 0, "$share/g{n%3}/a/{n%3}", "a/2", 1),
        (10, 0, "$share/g{n%3}/a/{n%3}", "a/3", 0),
        (10, 3, "$share/g{n/4}/a", "a", 4),
        (10, 0, "$share/g{n}/a", "a", 10),
        (64, 0, "$share/g{n}/a", "a", 64),
        (65, 0, "$share/g{n}/a", "a", 0),
        (1_000_000, 0, "$share/g{n%64}/a", "a", 64),
        (1_000_000, 0, "$share/g{n%65}/a", "a", 0),
        (1_000_000, 0, "$share/g{n%65}/a/{n%65}", "a/64", 1),
        (1_000_000, 0, "$share/g{n%65}/a/{n%65}", "a/65", 0),
        (1_000_000, 0, "$share/g{n}/a/{n%65}", "a/1", 0),
    ] {
        assert_eq!(deliveries(clients, first, &[filter], topic), expected, "{filter} on {topic}");
    }
    let twice = ["$share/g{n%2}/a", "$share/g1/a"];
    assert_eq!(deliveries(4, 0, &twice, "a"), 0, "clients 0 and 2 are in two groups");
}

#[test]
fn a_group_of_a_variable_name_is_expected_while_it_has_members() {
    let mut fan_out = FanOut::new(&plan(vec![population(10, 0, &["$share/g{n%4}/a"])], 1, true));
    for (receivers, expected) in [(10, 4), (3, 3), (0, 0)] {
        fan_out.set_receivers(0, receivers);
        assert_eq!(counts(&fan_out, "a", 0), [expected]);
    }
    let of = |client| fan_out.ways(0, client, "a", 0).expected;
    assert_eq!((of(1), of(5)), (of(9), of(1)));
    assert_ne!(of(1), of(2));
}

/// The deliveries of a message on `a` at target 0, and the expectation for a client of the second
/// population.
fn of_two(
    filters: [&str; 2],
    clients: u32,
    joined: bool,
    second_at: usize,
) -> (Vec<u64>, Expected) {
    let mut populations = [population(3, 0, &[filters[0]]), population(clients, 0, &[filters[1]])];
    populations[1].at.first = second_at;
    let fan_out = FanOut::new(&plan(populations.to_vec(), 2, joined));
    (counts(&fan_out, "a", 0), fan_out.ways(1, 0, "a", second_at).expected)
}

#[test]
fn a_group_of_several_populations_expects_each_message_once() {
    let filters = ["$share/g/a"; 2];
    let of_first = Expected::Group { group: 0, population: 0 };
    assert_eq!(of_two(filters, 3, true, 0), (vec![1, 0], of_first));
    assert_eq!(
        of_two(filters, 3, true, 1),
        (vec![1, 0], of_first),
        "joined targets have one group"
    );
    let of_second = Expected::Group { group: 0, population: 1 };
    assert_eq!(of_two(filters, 3, false, 1), (vec![1, 0], of_second), "a group at each target");
    assert_eq!(of_two(filters, 3, false, 0), (vec![1, 0], of_first));
}

#[test]
fn a_group_of_several_populations_is_expected_while_one_has_members() {
    let populations = vec![population(3, 0, &["$share/g/a"]); 2];
    let mut fan_out = FanOut::new(&plan(populations, 1, true));
    fan_out.set_receivers(0, 0);
    assert_eq!(counts(&fan_out, "a", 0), [1, 0], "the first population expects it, active or not");
    fan_out.set_receivers(1, 0);
    assert_eq!(counts(&fan_out, "a", 0), [0, 0]);
}

#[test]
fn a_group_one_of_whose_members_has_another_filter_is_expected_as_received() {
    let populations =
        vec![population(3, 0, &["$share/g/a"]), population(3, 0, &["$share/g/a", "+"])];
    let fan_out = FanOut::new(&plan(populations, 1, true));
    assert_eq!(counts(&fan_out, "a", 0), [0, 3]);
    assert_eq!(fan_out.ways(0, 0, "a", 0).expected, Expected::Nothing);
}

#[test]
fn groups_of_one_name_with_filters_that_differ_are_apart() {
    assert_eq!(of_two(["$share/g/a", "$share/g/+"], 3, true, 0).0, [1, 1]);
    assert_eq!(of_two(["$share/g/a", "$share/g/{n}"], 3, true, 0).0, [0, 0], "text may be equal");
}

#[test]
fn a_group_has_the_members_of_all_populations_that_make_its_name() {
    let expected = |filter: &str, clients: u32| of_two(["$share/g1/a", filter], clients, true, 0).0;
    for (filter, clients, deliveries) in [
        ("$share/g{n%2}/a", 2, [1, 1]),
        ("$share/g{n%2}/a", 1, [1, 1]),
        ("$share/g{n}/a", 3, [1, 2]),
        ("$share/g1{n}/a", 3, [1, 3]),
        ("$share/h{n}/a", 3, [1, 3]),
        ("$share/g{n%99}/a", 99, [0, 0]),
        ("$share/h{n%99}/a", 99, [1, 0]),
    ] {
        assert_eq!(expected(filter, clients), deliveries, "{filter} of {clients}");
    }
}
