//! A session against the scripted broker in virtual time: connections cut anywhere, and
//! acknowledgements lost, doubled and late. A failing run prints its seed.

#![allow(missing_docs, reason = "tests")]

use mqtt::{Connect, PacketType, Properties, QoS};
use testkit::{Fate, Pair, PairToken, Rng, Script, for_each_seed};

const MS: u64 = 1_000_000;
const QOS: [QoS; 3] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];

const PERSISTENT: Connect<'static> = Connect {
    client_id: "c",
    username: None,
    password: None,
    will: None,
    keep_alive_s: 0,
    clean_session: false,
    bridge: false,
    properties: Properties::NONE,
};

/// A client that is connected and subscribed with `qos`.
fn subscribed(seed: u64, script: Script, connect: Connect<'static>, qos: QoS) -> Pair {
    let mut pair = Pair::new(seed, Script::reliable(), connect);
    pair.connect();
    pair.settle();
    pair.subscribe(qos);
    pair.settle();
    assert_eq!(pair.observed.subscribed_total, 1);
    pair.broker.set_script(script);
    pair
}

/// Publishes in both directions at random, and cuts the link at random.
fn storm(pair: &mut Pair, steps: usize, cut_per_cent: usize) -> (Vec<PairToken>, Vec<PairToken>) {
    let (mut up, mut down) = (Vec::new(), Vec::new());
    for _ in 0..steps {
        let qos = pair.rng.pick(&QOS);
        if pair.rng.chance(60) && pair.session.is_connected() {
            up.push(pair.publish_up(qos));
        }
        let qos = pair.rng.pick(&QOS);
        if pair.rng.chance(60) {
            down.push(pair.publish_down(qos));
        }
        if pair.rng.chance(cut_per_cent) {
            pair.cut();
        }
        if !pair.is_linked() && pair.rng.chance(70) {
            pair.connect();
        }
        let ns = pair.rng.bits() % (2 * MS);
        pair.step(ns);
    }
    (up, down)
}

/// Completes the exchange: packets lost on a working link are sent again on a new link.
fn finish(pair: &mut Pair) {
    pair.broker.set_script(Script::reliable());
    for _ in 0..2 {
        pair.cut();
        pair.connect();
        pair.settle();
    }
}

fn of(qos: QoS, tokens: &[PairToken]) -> Vec<u64> {
    tokens.iter().filter(|token| token.qos == qos).map(|token| token.number).collect()
}

fn without_repeats(numbers: &[u64]) -> Vec<u64> {
    let mut seen = std::collections::BTreeSet::new();
    numbers.iter().copied().filter(|&number| seen.insert(number)).collect()
}

/// Asserts the guarantees of each QoS (4.3), and the order of first delivery (4.6).
fn assert_delivery(sent: &[PairToken], arrived: &[PairToken]) {
    let (sent_0, arrived_0) = (of(QoS::AtMostOnce, sent), of(QoS::AtMostOnce, arrived));
    assert!(arrived_0.is_sorted_by(|a, b| a < b), "QoS 0: at most once, in order");
    assert!(arrived_0.iter().all(|number| sent_0.contains(number)), "QoS 0: only sent messages");
    let arrived_1 = without_repeats(&of(QoS::AtLeastOnce, arrived));
    assert_eq!(arrived_1, of(QoS::AtLeastOnce, sent), "QoS 1: at least once, in order");
    let arrived_2 = of(QoS::ExactlyOnce, arrived);
    assert_eq!(arrived_2, of(QoS::ExactlyOnce, sent), "QoS 2: exactly once, in order");
}

/// Asserts that every acknowledged own message was reported once, and that no state is left.
fn assert_nothing_left(pair: &Pair, up: &[PairToken]) {
    let mut acknowledged: Vec<_> = pair.observed.acknowledged.iter().map(|t| t.number).collect();
    acknowledged.sort_unstable();
    let with_ack = up.iter().filter(|token| token.qos != QoS::AtMostOnce);
    let expected: Vec<_> = with_ack.map(|token| token.number).collect();
    assert_eq!(acknowledged, expected);
    assert_eq!(pair.session.in_flight(), 0);
    assert_eq!(pair.broker.pending("c"), 0);
}

fn unreliable(seed: u64) -> Script {
    let mut rng = Rng::new(!seed);
    Script::with_fates(move |_| match rng.below(100) {
        0..10 => Fate::Drop,
        10..20 => Fate::Duplicate,
        20..40 => Fate::Delay,
        _ => Fate::Send,
    })
}

#[test]
fn an_undisturbed_exchange_loses_and_repeats_nothing() {
    for_each_seed(0..50, |seed| {
        let mut pair = subscribed(seed, Script::reliable(), PERSISTENT, QoS::ExactlyOnce);
        let (up, down) = storm(&mut pair, 200, 0);
        pair.settle();
        assert_eq!(pair.accepted(), up);
        for qos in QOS {
            assert_eq!(of(qos, &pair.observed.delivered), of(qos, &down));
        }
        assert_eq!(pair.observed.redelivered_total + pair.observed.unknown_acks_total, 0);
        assert_nothing_left(&pair, &up);
    });
}

#[test]
fn a_persistent_session_keeps_its_guarantees_across_cuts() {
    let mut redelivered_total = 0;
    for_each_seed(0..300, |seed| {
        let mut pair = subscribed(seed, Script::reliable(), PERSISTENT, QoS::ExactlyOnce);
        let (up, down) = storm(&mut pair, 300, 8);
        finish(&mut pair);
        assert_delivery(&up, &pair.accepted());
        assert_delivery(&down, &pair.observed.delivered);
        assert_nothing_left(&pair, &up);
        redelivered_total += pair.observed.redelivered_total;
    });
    assert!(redelivered_total > 0, "the simulation covers suppressed duplicates");
}

#[test]
fn guarantees_survive_lost_doubled_and_late_acknowledgements() {
    let mut unknown_acks_total = 0;
    for_each_seed(0..300, |seed| {
        let script = unreliable(seed);
        let mut pair = subscribed(seed, script, PERSISTENT, QoS::ExactlyOnce);
        let (up, down) = storm(&mut pair, 300, 5);
        finish(&mut pair);
        assert_delivery(&up, &pair.accepted());
        assert_delivery(&down, &pair.observed.delivered);
        assert_nothing_left(&pair, &up);
        unknown_acks_total += pair.observed.unknown_acks_total;
    });
    assert!(unknown_acks_total > 0, "the simulation covers unknown acknowledgements");
}

#[test]
fn a_subscription_caps_the_qos_of_what_arrives() {
    for_each_seed(0..20, |seed| {
        let mut pair = subscribed(seed, Script::reliable(), PERSISTENT, QoS::AtLeastOnce);
        let down: Vec<_> = QOS.map(|qos| pair.publish_down(qos)).into();
        pair.settle();
        let mut arrived = pair.observed.delivered.clone();
        arrived.sort_unstable_by_key(|token| token.number);
        let expected = down.iter().map(|token| token.qos.min(QoS::AtLeastOnce));
        assert!(arrived.iter().map(|token| token.qos).eq(expected));
    });
}

#[test]
fn clean_sessions_start_anew_and_leave_nothing_in_flight() {
    for_each_seed(0..100, |seed| {
        let clean = Connect { clean_session: true, ..PERSISTENT };
        let mut pair = subscribed(seed, unreliable(seed), clean, QoS::ExactlyOnce);
        let (up, _) = storm(&mut pair, 200, 5);
        finish(&mut pair);
        assert_eq!(pair.session.in_flight(), 0);
        let accepted = of(QoS::ExactlyOnce, &pair.accepted());
        assert_eq!(accepted, without_repeats(&accepted), "never sent again, so never repeated");
        assert!(accepted.iter().all(|number| up.iter().any(|token| token.number == *number)));
    });
}

#[test]
fn a_refused_client_reports_the_code_and_may_reconnect() {
    let script = Script { connack_code: 5, ..Script::reliable() };
    let mut pair = Pair::new(1, script, PERSISTENT);
    pair.connect();
    pair.settle();
    assert_eq!(pair.observed.refused, [5]);
    assert!(!pair.session.is_connected() && !pair.is_linked());
    pair.broker.set_script(Script::reliable());
    pair.connect();
    pair.settle();
    assert!(pair.session.is_connected());
}

#[test]
fn a_qos_2_message_survives_the_loss_of_any_of_its_packets() {
    for lost in [PacketType::PubRec, PacketType::PubComp, PacketType::PubRel] {
        let mut times = 1;
        let script = Script::with_fates(move |packet_type| {
            if packet_type == lost && times > 0 {
                times -= 1;
                return Fate::Drop;
            }
            Fate::Send
        });
        let mut pair = subscribed(1, script, PERSISTENT, QoS::ExactlyOnce);
        let up = pair.publish_up(QoS::ExactlyOnce);
        let down = pair.publish_down(QoS::ExactlyOnce);
        pair.settle();
        assert_eq!(pair.session.in_flight() + pair.broker.pending("c"), 1, "{lost} was lost");
        pair.cut();
        pair.connect();
        pair.settle();
        assert_eq!(pair.accepted(), [up]);
        assert_eq!(pair.observed.delivered, [down]);
        assert_nothing_left(&pair, &[up]);
    }
}
