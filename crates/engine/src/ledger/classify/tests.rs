use agent::deliveries::is_received;
use plan::FlowCounters;

use super::*;

const TO: usize = 3;
const OTHER: usize = 5;

/// Counters that effects change: of the flow, of the flow to another population, of the receiving
/// population, and of the agent.
#[derive(Debug, Default, PartialEq)]
struct Counts {
    flow: FlowCounters,
    other: FlowCounters,
    reduced: i64,
    unfollowed: i64,
}

/// Counts effects as a client does.
fn applied(effects: &Effects) -> Counts {
    let mut counts = Counts::default();
    let flow = &mut counts.flow;
    flow.received_total += i64::from(effects.received);
    effects.add_to(flow);
    counts.other.expected_total -= i64::from(effects.less.is_some());
    counts.reduced = i64::from(effects.expiry_reduced);
    counts.unfollowed = i64::from(effects.unfollowed);
    counts
}

/// The way in which a delivery was counted before it was classified apart.
fn before(noted: &Noted, facts: &Facts) -> Counts {
    let mut counts = Counts::default();
    let is_duplicate = noted.delivery == Delivery::Duplicate;
    if is_duplicate && noted.copy_is_new == Some(true) {
        counts.flow.copies_total += 1;
        return counts;
    }
    let note = |counts: &mut Counts, delivery, counts_loss| {
        let received = is_received(&mut counts.flow, delivery, counts_loss);
        counts.flow.received_total += i64::from(received);
        counts.flow.expected_total += i64::from(received && !counts_loss);
        counts.unfollowed += i64::from(delivery == Delivery::Unfollowed);
        received
    };
    if let Expected::Group { population, .. } = noted.expected {
        let is_copy = !is_duplicate && noted.group_had_it == Some(true);
        let delivery = if is_copy { Delivery::Duplicate } else { noted.delivery };
        let expecting = usize::from(population);
        let is_own = expecting == facts.to;
        let received = note(&mut counts, delivery, is_own && facts.counts_loss);
        counts.other.expected_total -= i64::from(received && !is_own && facts.group_counts_loss);
        return counts;
    }
    let counts_loss = facts.counts_loss
        && noted.expected == Expected::Client
        && !matches!(facts.absence, Some(Absence::Now { .. }));
    if !note(&mut counts, noted.delivery, counts_loss) {
        return counts;
    }
    match (facts.absence, noted.delivery) {
        (Some(Absence::Now { is_expired, expiry_s }), _) => {
            let is_reduced = facts.expiry_left_s.is_some_and(|left_s| left_s < expiry_s);
            counts.reduced += i64::from(is_reduced);
            counts.flow.expired_total -= 1;
            counts.flow.expired_received_total += i64::from(is_expired);
        }
        (Some(Absence::Earlier), Delivery::First { passed_over }) if counts_loss => {
            counts.flow.missing_total -= i64::from(passed_over);
        }
        _ => {}
    }
    counts
}

/// Calls `check` with every combination.
fn for_all(mut check: impl FnMut(&Noted, &Facts)) {
    let deliveries = [
        Delivery::First { passed_over: 0 },
        Delivery::First { passed_over: 4 },
        Delivery::Reordered { filled: false },
        Delivery::Reordered { filled: true },
        Delivery::Duplicate,
        Delivery::Stale,
        Delivery::Unfollowed,
    ];
    let group = |population: usize| Expected::Group { group: 0, population: population as u16 };
    let expectations = [Expected::Client, Expected::Nothing, group(TO), group(OTHER)];
    let now = |is_expired| Some(Absence::Now { is_expired, expiry_s: 10 });
    let absences = [None, Some(Absence::Earlier), now(false), now(true)];
    let answers = [None, Some(false), Some(true)];
    for delivery in deliveries {
        for expected in expectations {
            for (copy_is_new, group_had_it) in answers.map(|a| answers.map(|b| (a, b))).concat() {
                let noted = Noted { delivery, expected, copy_is_new, group_had_it };
                for flags in 0..4 {
                    for absence in absences {
                        for expiry_left_s in [None, Some(9), Some(10)] {
                            check(
                                &noted,
                                &Facts {
                                    to: TO,
                                    counts_loss: flags & 1 > 0,
                                    group_counts_loss: flags & 2 > 0,
                                    absence,
                                    expiry_left_s,
                                },
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn every_combination_counts_as_before() {
    let mut combinations = 0;
    for_all(|noted, facts| {
        combinations += 1;
        let effects = classify(noted, facts);
        assert_eq!(applied(&effects), before(noted, facts), "{noted:?} {facts:?}");
    });
    assert_eq!(combinations, 7 * 4 * 9 * 4 * 4 * 3);
}

#[test]
fn a_plain_delivery_is_received_and_has_no_other_effect() {
    for_all(|noted, facts| {
        if noted.is_plain(facts) {
            let expected = !facts.counts_loss;
            let plain = Effects { received: true, expected, ..Effects::default() };
            assert_eq!(classify(noted, facts), plain, "{noted:?} {facts:?}");
        }
    });
}

#[test]
fn each_feature_has_its_effects() {
    let first = Delivery::First { passed_over: 4 };
    let client = Noted {
        delivery: first,
        expected: Expected::Client,
        copy_is_new: None,
        group_had_it: None,
    };
    let facts = Facts {
        to: TO,
        counts_loss: true,
        group_counts_loss: true,
        absence: None,
        expiry_left_s: Some(9),
    };
    let group = |population: usize| Expected::Group { group: 0, population: population as u16 };
    let now = Some(Absence::Now { is_expired: true, expiry_s: 10 });
    let duplicate = Noted { delivery: Delivery::Duplicate, ..client };
    let unexpected = Noted { expected: Expected::Nothing, ..client };
    let received = Effects { received: true, ..Effects::default() };
    let as_received = Effects { expected: true, ..received };
    for (what, noted, facts, effects) in [
        ("a gap", client, facts, Effects { missing: 4, ..received }),
        ("excluded from loss", client, Facts { counts_loss: false, ..facts }, as_received),
        ("overlapping ways", unexpected, facts, as_received),
        ("a duplicate", duplicate, facts, Effects { duplicate: true, ..Effects::default() }),
        (
            "a copy by subscription identifier",
            Noted { copy_is_new: Some(true), ..duplicate },
            facts,
            Effects { copy: true, ..Effects::default() },
        ),
        (
            "the group had it",
            Noted { expected: group(TO), group_had_it: Some(true), ..client },
            facts,
            Effects { duplicate: true, ..Effects::default() },
        ),
        (
            "another population expects it for the group",
            Noted { expected: group(OTHER), group_had_it: Some(false), ..client },
            facts,
            Effects { less: Some(OTHER), ..as_received },
        ),
        (
            "offline in the stage of the message",
            client,
            Facts { absence: now, ..facts },
            Effects {
                arrived_in_time: true,
                after_expiry: true,
                expiry_reduced: true,
                ..as_received
            },
        ),
        (
            "offline in another stage",
            client,
            Facts { absence: Some(Absence::Earlier), ..facts },
            received,
        ),
    ] {
        assert_eq!(classify(&noted, &facts), effects, "{what}");
    }
}
