//! Filters with values of rows and choices, compared with the rendered filters of every client.

use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::tests::{counts, plan, population};
use super::*;
use crate::model::Choice;
use crate::text::rows::{Column, Rows};

const FILTERS: [&str; 9] = [
    "a/{row.x}",
    "a/{row.y}/#",
    "+/p{row.x}q",
    "{row.x}/{n%3}",
    "{row.x}/{row.y}",
    "a/{b|c}",
    "a/{n}",
    "{row.y}/+",
    "$share/g/a/{row.x}",
];
const WORDS: [&str; 5] = ["a", "b", "c", "1", "12"];

fn rows(values: &[usize], first: u64, stride: usize) -> Arc<Column> {
    let mut column = Column::new(&Rows { file: "f".into(), first, repeat: true });
    values.iter().for_each(|value| column.push(WORDS[value * stride % WORDS.len()]));
    Arc::new(column)
}

fn matches(filter: &str, topic: &str) -> bool {
    let (mut names, mut rest) = (topic.split('/'), false);
    for level in filter.split('/') {
        rest |= level == "#";
        if !rest && !names.next().is_some_and(|name| level == "+" || level == name) {
            return false;
        }
    }
    rest || names.next().is_none()
}

/// Deliveries to the clients at one target, computed client by client.
fn asked(plan: &Plan, topic: &str, target: usize) -> u64 {
    let population = &plan.populations[0];
    let (mut own, mut shared, mut apart) = (0, false, true);
    for client in 0..population.clients {
        let n = population.first + u64::from(client);
        let filters: Vec<String> = population
            .subscriptions
            .iter()
            .flat_map(|s| (0..s.filter.variants()).map(|variant| s.filter.text(n, variant)))
            .collect();
        let has_own = filters.iter().any(|filter| matches(filter, topic));
        let in_group = |f: &String| f.strip_prefix("$share/g/").is_some_and(|f| matches(f, topic));
        let is_member = filters.iter().any(in_group);
        apart &= !(has_own && is_member);
        if population.at.target(plan.seed, 0, client) == target {
            own += u64::from(has_own);
            shared |= is_member;
        }
    }
    own + u64::from(shared && apart)
}

proptest! {
    #[test]
    fn filters_with_rows_have_as_many_receivers_as_clients_that_match(
        values in prop::collection::vec(0usize..5, 1..12),
        clients in 0u32..30,
        (rows_first, later) in (0u64..5, 0u64..40),
        chosen in prop::collection::vec(0..FILTERS.len(), 1..4),
        (targets, is_random) in (1u16..4, any::<bool>()),
        levels in prop::collection::vec(0..WORDS.len(), 1..4),
    ) {
        let filters: Vec<&str> = chosen.iter().map(|&f| FILTERS[f]).collect();
        let mut clients = population(clients, rows_first + later, &filters);
        clients.at.count = usize::from(targets);
        clients.at.choice = if is_random { Choice::Random } else { Choice::Turn };
        clients.rows = Some(Rows { file: "f".into(), first: rows_first, repeat: true });
        let columns = [("x", rows(&values, rows_first, 1)), ("y", rows(&values, rows_first, 3))];
        let named = columns.map(|(name, column)| (name.to_owned(), column));
        clients.bind(&HashMap::from(named)).unwrap();
        let plan = plan(vec![clients], targets, false);
        let fan_out = FanOut::new(&plan);
        let topic = levels.iter().map(|&level| WORDS[level]).collect::<Vec<_>>().join("/");
        for target in 0..usize::from(targets) {
            prop_assert_eq!(counts(&fan_out, &topic, target)[0], asked(&plan, &topic, target));
        }
    }
}

#[test]
fn a_row_is_found_without_walking_all_rows() {
    let rows = Rows { file: "f".into(), first: 0, repeat: false };
    let mut column = Column::new(&rows);
    (0..100_000u32).for_each(|row| column.push(&format!("s{}", row ^ 0x5a5a)));
    let mut clients = population(100_000, 0, &["d/{row.x}/#"]);
    clients.rows = Some(rows);
    clients.bind(&HashMap::from([("x".to_owned(), Arc::new(column))])).unwrap();
    let fan_out = FanOut::new(&plan(vec![clients], 1, true));
    for serial in 0..1000 {
        assert_eq!(counts(&fan_out, &format!("d/s{serial}/up"), 0), [1]);
    }
    assert_eq!(counts(&fan_out, "d/s1000000/up", 0), [0]);
}
