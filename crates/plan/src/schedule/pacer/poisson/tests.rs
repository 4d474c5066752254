//! The places add up, and the arrivals are those of a Poisson process.

use proptest::prelude::*;

use super::*;
use crate::model::flows::{Late, Pace, Phase, Process};
use crate::schedule::shard::Shard;

const SECOND_NS: u64 = 1_000_000_000;

fn pacer(seed: u64, period_ns: u64, spread: f64, burst: u32) -> Pacer {
    let (phase, late, arrivals) = (Phase::Spread, Late::Send, Process::Poisson);
    let pace = Pace::Open { period_ns, spread, jitter: 0.0, phase, late, burst, arrivals };
    Pacer::new(&pace, seed, 0).unwrap()
}

/// Instants of the messages of a client before an instant, place by place.
fn instants(pacer: &Pacer, client: u32, until_ns: u64) -> Vec<u64> {
    let first = pacer.first_from(client, 0);
    let places = std::iter::successors(Some(first), |&place| Some(pacer.after(client, place)));
    places.map(|place| pacer.due_ns(client, place)).take_while(|&ns| ns < until_ns).collect()
}

proptest! {
    #[test]
    fn places_and_counts_agree(
        seed: u64,
        period_ns in 1u64..10_000_000_000,
        spread in 0.0..0.99,
        burst in 1u32..20,
        client: u32,
        periods in 0.0..300.0f64,
        skipped in 0.0..1.0f64,
    ) {
        let pacer = pacer(seed, period_ns, spread, burst);
        let until_ns = (periods * period_ns as f64) as u64;
        let from_ns = (skipped * until_ns as f64) as u64;
        let all = instants(&pacer, client, until_ns);
        prop_assert!(all.is_sorted());
        prop_assert_eq!(pacer.due_before(client, until_ns), all.len() as u64);
        let place = pacer.first_from(client, from_ns);
        let rest = all.iter().filter(|&&ns| ns >= from_ns).count() as u64;
        prop_assert_eq!(pacer.count_before(client, place, until_ns), rest);
        prop_assert!(pacer.due_ns(client, place) >= from_ns);
        let first = all.iter().find(|&&ns| ns >= from_ns);
        prop_assert!(first.is_none_or(|&ns| ns == pacer.due_ns(client, place)));
    }

    #[test]
    fn every_place_counts_what_remains(seed: u64, burst in 1u32..5, periods in 0.0..60.0f64) {
        let pacer = pacer(seed, 1_000_000, 0.0, burst);
        let until_ns = (periods * 1e6) as u64;
        let all = pacer.due_before(3, until_ns);
        let mut place = pacer.first_from(3, 0);
        for passed in 0..all + 10 {
            let remaining = pacer.count_before(3, place, until_ns);
            prop_assert_eq!(remaining, all.saturating_sub(passed));
            place = pacer.after(3, place);
        }
    }

    #[test]
    fn the_shards_add_up_to_the_whole(seed: u64, count in 1u32..7, clients in 1u32..60) {
        let pacer = pacer(seed, SECOND_NS, 0.2, 1);
        let scheduled = |client| pacer.due_before(client, 20 * SECOND_NS);
        let whole: u64 = (0..clients).map(scheduled).sum();
        let shards = (0..count).map(|index| Shard::new(index, count).unwrap());
        let clients_of = |shard: Shard| {
            (0..shard.share(clients)).map(move |local| shard.global(local))
        };
        prop_assert_eq!(shards.flat_map(clients_of).map(scheduled).sum::<u64>(), whole);
    }
}

/// Largest distance between the distribution of `values` and a continuous one, times the root of
/// their number (Kolmogorov and Smirnov). A value above 1.95 has a probability of 0.001.
fn distance(mut values: Vec<f64>, distribution: impl Fn(f64) -> f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len() as f64;
    let apart = |(i, &value): (usize, &f64)| {
        let expected = distribution(value);
        (expected - i as f64 / n).abs().max((expected - (i + 1) as f64 / n).abs())
    };
    values.iter().enumerate().map(apart).fold(0.0, f64::max) * n.sqrt()
}

#[test]
fn gaps_are_exponential_and_independent() {
    for seed in [1, 2, 3] {
        let pacer = pacer(seed, SECOND_NS, 0.0, 1);
        let instants = instants(&pacer, 5, 50_000 * SECOND_NS);
        let gaps: Vec<f64> =
            instants.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e9).collect();
        let found = distance(gaps.clone(), |gap| 1.0 - (-gap).exp());
        assert!(found < 1.95, "seed {seed}: {found}");
        let products = gaps.windows(2).map(|pair| (pair[0] - 1.0) * (pair[1] - 1.0));
        let correlation = products.sum::<f64>() / gaps.len() as f64;
        assert!(correlation.abs() < 4.0 / (gaps.len() as f64).sqrt(), "{correlation}");
    }
}

#[test]
fn counts_scatter_like_poisson_numbers_on_every_scale() {
    let pacer = pacer(7, SECOND_NS, 0.0, 1);
    for window_s in [1u64, 3, 4, 40, 400] {
        let windows = 4000;
        let count = |w: u64| {
            let (client, from) = ((w % 50) as u32, w / 50 * window_s * SECOND_NS);
            let before = pacer.due_before(client, from);
            (pacer.due_before(client, from + window_s * SECOND_NS) - before) as f64
        };
        let counts: Vec<f64> = (0..windows).map(count).collect();
        let mean = counts.iter().sum::<f64>() / windows as f64;
        let variance = counts.iter().map(|n| (n - mean).powi(2)).sum::<f64>() / windows as f64;
        let scatter = (window_s as f64 / windows as f64).sqrt();
        assert!((mean - window_s as f64).abs() < 4.0 * scatter, "{window_s} s: mean {mean}");
        assert!((variance / mean - 1.0).abs() < 0.12, "{window_s} s: {variance} of {mean}");
    }
}

#[test]
fn clients_together_are_one_poisson_process() {
    let pacer = pacer(11, SECOND_NS, 0.0, 1);
    let mut all: Vec<u64> = (0..500).flat_map(|c| instants(&pacer, c, 20 * SECOND_NS)).collect();
    all.sort_unstable();
    let gaps = all.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e9);
    let found = distance(gaps.collect(), |gap| 1.0 - (-500.0 * gap).exp());
    assert!(found < 1.95, "{found}");
}

#[test]
fn bursts_offer_the_same_load() {
    let total = |burst| -> u64 {
        let pacer = pacer(3, SECOND_NS, 0.0, burst);
        (0..1000).map(|client| pacer.due_before(client, 100 * SECOND_NS)).sum()
    };
    for burst in [1u32, 10] {
        let scatter = 4.0 * (f64::from(burst) * 100_000.0).sqrt();
        assert!((total(burst) as f64 - 100_000.0).abs() < scatter, "bursts of {burst}");
    }
}
