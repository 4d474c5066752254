use super::*;

const TO: usize = 3;
const OTHER: usize = 5;
const GAP: Delivery = Delivery::First { passed_over: 4 };
const CLIENT: Noted =
    Noted { delivery: GAP, expected: Expected::Client, copy_is_new: None, in_group: None };
const FACTS: Facts = Facts {
    to: TO,
    counts_loss: true,
    group_counts_loss: true,
    absence: None,
    expiry_left_s: Some(9),
};

fn received() -> Effects {
    Effects { received: true, ..Effects::default() }
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
    let now = Some(Absence::Now { is_expired: true, expiry_s: 10 });
    let duplicate = Noted { delivery: Delivery::Duplicate, ..CLIENT };
    let unexpected = Noted { expected: Expected::Nothing, ..CLIENT };
    let as_received = Effects { expected: true, ..received() };
    for (what, noted, facts, effects) in [
        ("a gap", CLIENT, FACTS, Effects { missing: 4, ..received() }),
        ("excluded from loss", CLIENT, Facts { counts_loss: false, ..FACTS }, as_received),
        ("overlapping ways", unexpected, FACTS, as_received),
        ("a duplicate", duplicate, FACTS, Effects { duplicate: true, ..Effects::default() }),
        (
            "a copy by subscription identifier",
            Noted { copy_is_new: Some(true), ..duplicate },
            FACTS,
            Effects { copy: true, ..Effects::default() },
        ),
        (
            "offline in the stage of the message",
            CLIENT,
            Facts { absence: now, ..FACTS },
            Effects {
                arrived_in_time: true,
                after_expiry: true,
                expiry_reduced: true,
                ..as_received
            },
        ),
        (
            "offline in another stage",
            CLIENT,
            Facts { absence: Some(Absence::Earlier), ..FACTS },
            received(),
        ),
    ] {
        assert_eq!(classify(&noted, &facts), effects, "{what}");
    }
}

#[test]
fn a_delivery_to_a_member_has_the_class_of_its_group() {
    let duplicate = Effects { duplicate: true, ..Effects::default() };
    let again = Some(Delivery::Duplicate);
    let filled = Some(Delivery::Reordered { filled: true });
    let stale = Delivery::Stale;
    for (what, population, delivery, in_group, effects) in [
        ("the group had it", TO, GAP, again, duplicate),
        ("late in both", TO, stale, Some(stale), Effects { stale: true, ..Effects::default() }),
        (
            "late, and new to the group",
            TO,
            stale,
            filled,
            Effects { reordered: true, ..received() },
        ),
        (
            "another population expects it for the group",
            OTHER,
            GAP,
            Some(GAP),
            Effects { expected: true, less: Some(OTHER), ..received() },
        ),
    ] {
        let expected = Expected::Group { group: 0, population: population as u16 };
        let noted = Noted { delivery, expected, copy_is_new: None, in_group };
        assert_eq!(classify(&noted, &FACTS), effects, "{what}");
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
