//! Cost of a look at the clock: CLOCK_MONOTONIC, the engine's clock without a reference clock, and
//! the engine's clock with a reference clock. Prints nanoseconds for each look. The result is the
//! minimum of many rounds, because other work of the machine only adds time.

#![allow(clippy::print_stdout, reason = "what it finds")]

use std::hint::black_box;

use agent::clock;
use agent::clock::estimator::Estimate;
use nix::time::{ClockId, clock_gettime};

const ROUNDS: usize = 200;
const LOOKS: u32 = 20_000;

fn main() {
    let (mut plain, mut own) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plain.push(cost_ns(monotonic_ns));
        own.push(cost_ns(clock::now_ns));
    }
    // From here on there is no way back to the host's clock.
    clock::follow(Estimate { slowest: 1e-6, fastest: 2e-6, ..Estimate::default() });
    let other = (0..ROUNDS).map(|_| cost_ns(clock::now_ns)).collect();
    let [plain, own, other] = [plain, own, other].map(least);
    println!("CLOCK_MONOTONIC {plain:.1} ns, the host's {own:.1} ns, another's {other:.1} ns");
}

fn monotonic_ns() -> i64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC);
    time.map_or(0, |time| time.tv_sec() * 1_000_000_000 + time.tv_nsec())
}

fn cost_ns<T>(look: impl Fn() -> T) -> f64 {
    let since = std::time::Instant::now();
    for _ in 0..LOOKS {
        black_box(look());
    }
    since.elapsed().as_nanos() as f64 / f64::from(LOOKS)
}

fn least(values: Vec<f64>) -> f64 {
    values.into_iter().fold(f64::INFINITY, f64::min)
}
