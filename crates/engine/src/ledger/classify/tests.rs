use super::*;

const TO: usize = 3;
const OTHER: usize = 5;

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
    let queued = Some(Absence::Queued);
    let absences = [None, Some(Absence::Earlier), queued, now(false), now(true)];
    let answers = [None, Some(false), Some(true)];
    let in_groups = deliveries.map(Some).into_iter().chain([None]);
    for delivery in deliveries {
        for expected in expectations {
            for (copy_is_new, in_group) in
                answers.into_iter().flat_map(|a| in_groups.clone().map(move |b| (a, b)))
            {
                let noted = Noted { delivery, expected, copy_is_new, in_group };
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
fn every_delivery_is_one_of_received_repeated_copied_or_stale() {
    for_all(|noted, facts| {
        let effects = classify(noted, facts);
        let Effects { received, duplicate, copy, stale, .. } = effects;
        let classes = [received, duplicate, copy, stale].into_iter().filter(|&is_it| is_it).count();
        assert_eq!(classes, 1, "{noted:?} {facts:?}");
        if !received {
            let alone = Effects { duplicate, copy, stale, ..Effects::default() };
            assert_eq!(effects, alone, "{noted:?} {facts:?}");
        }
    });
}

#[test]
fn a_plain_delivery_is_received_and_has_no_other_effect() {
    for_all(|noted, facts| {
        if *noted == Noted::PLAIN && facts.absence.is_none() {
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
        in_group: None,
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
            Noted { expected: group(TO), in_group: Some(Delivery::Duplicate), ..client },
            facts,
            Effects { duplicate: true, ..Effects::default() },
        ),
        (
            "late for the member, and new to the group",
            Noted {
                delivery: Delivery::Stale,
                expected: group(TO),
                in_group: Some(Delivery::Reordered { filled: true }),
                ..client
            },
            facts,
            Effects { reordered: true, ..received },
        ),
        (
            "late for the member, and late for the group",
            Noted {
                delivery: Delivery::Stale,
                expected: group(TO),
                in_group: Some(Delivery::Stale),
                ..client
            },
            facts,
            Effects { stale: true, ..Effects::default() },
        ),
        (
            "another population expects it for the group",
            Noted { expected: group(OTHER), in_group: Some(first), ..client },
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

#[test]
fn a_queued_message_is_expected_since_its_own_stage_and_a_gap_in_front_of_it_is_missing() {
    for_all(|noted, facts| {
        if facts.absence == Some(Absence::Queued) && noted.expected == Expected::Client {
            let plain = classify(noted, &Facts { absence: None, counts_loss: true, ..*facts });
            let was_queued = plain.received;
            assert_eq!(classify(noted, facts), Effects { was_queued, ..plain }, "{noted:?}");
        }
    });
}
