//! The only source of time: nanoseconds of the reference clock, and their distance from 1970.
//! The reference clock is CLOCK_MONOTONIC of the host that the run was started on, the same for
//! every process of that host. An agent of another host follows it: [`exchange`] hands in
//! estimates, and each thread steers what it takes for the time towards the newest ([`steering`]).

pub mod estimator;
pub mod exchange;
pub mod skew;
pub mod steering;

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::time::clock_gettime;
use plan::ClockState;

use estimator::Estimate;
use skew::Skew;
use steering::Steering;

/// `true` if the time differs from CLOCK_MONOTONIC.
static IS_OTHER: AtomicBool = AtomicBool::new(false);
/// Skew of the host's clock, for tests.
static SKEW: OnceLock<Skew> = OnceLock::new();
/// Latest estimate of the reference clock.
static ESTIMATE: Mutex<Option<Estimate>> = Mutex::new(None);
/// Number of estimates so far.
static ESTIMATES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static OWN: RefCell<ThreadSteering> =
        const { RefCell::new(ThreadSteering { estimates: 0, steering: None }) };
}

/// A thread's own steering towards the reference clock. The time of the thread does not leap from
/// one estimate to the next, whatever other threads do meanwhile.
struct ThreadSteering {
    /// The number of the estimate that it is steered by.
    estimates: u64,
    steering: Option<Steering>,
}

/// Nanoseconds of the reference clock. For a thread they never run backwards.
#[inline]
pub fn now_ns() -> u64 {
    let monotonic_ns = monotonic_ns();
    if IS_OTHER.load(Ordering::Relaxed) { steered_ns(monotonic_ns) } else { monotonic_ns }
}

/// Nanoseconds of the host's clock: CLOCK_MONOTONIC, unless it is read wrongly on purpose.
pub fn host_ns() -> i64 {
    read(monotonic_ns())
}

/// Difference from an instant of [`now_ns`] to nanoseconds since 1970, as of now.
pub fn since_1970_ns() -> u64 {
    let epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let epoch_ns = epoch.map_or(0, |since| since.as_nanos() as u64);
    epoch_ns.saturating_sub(now_ns())
}

/// Applies a skew to the host's clock from now on. Only the first call counts.
pub fn misread(offset_ns: i64, rate_ppb: i64) {
    SKEW.get_or_init(|| Skew { since_ns: monotonic_ns(), offset_ns, rate_ppb });
    IS_OTHER.store(true, Ordering::Relaxed);
}

/// Follows the reference clock from now on, by this estimate.
pub fn follow(estimate: Estimate) {
    *ESTIMATE.lock().unwrap_or_else(PoisonError::into_inner) = Some(estimate);
    ESTIMATES.fetch_add(1, Ordering::Release);
    IS_OTHER.store(true, Ordering::Relaxed);
}

/// State of this thread's clock, with the largest bound since the last call.
/// `None`: the host's clock is the reference.
pub fn take_state() -> Option<ClockState> {
    let host_ns = host_ns();
    with_steering(host_ns, |steering| steering.take_state(host_ns))
}

fn monotonic_ns() -> u64 {
    clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).map_or(0, |time| {
        time.tv_sec().unsigned_abs() * plan::SECOND_NS + time.tv_nsec().unsigned_abs()
    })
}

/// Time of the host's clock at an instant of CLOCK_MONOTONIC.
fn read(monotonic_ns: u64) -> i64 {
    SKEW.get().map_or(monotonic_ns.cast_signed(), |skew| skew.apply(monotonic_ns))
}

#[inline(never)]
fn steered_ns(monotonic_ns: u64) -> u64 {
    let host_ns = read(monotonic_ns);
    let reference_ns = with_steering(host_ns, |steering| steering.apply(host_ns));
    reference_ns.unwrap_or(host_ns).max(0).unsigned_abs()
}

/// Uses this thread's steering, by the newest estimate; `None` where there is none.
fn with_steering<T>(host_ns: i64, act: impl FnOnce(&mut Steering) -> T) -> Option<T> {
    OWN.with_borrow_mut(|own| {
        let estimates = ESTIMATES.load(Ordering::Acquire);
        if estimates != own.estimates {
            own.estimates = estimates;
            let estimate = *ESTIMATE.lock().unwrap_or_else(PoisonError::into_inner);
            own.steering = estimate.map(|estimate| match own.steering {
                Some(steering) => steering.towards(estimate, host_ns),
                None => Steering::new(estimate, host_ns),
            });
        }
        own.steering.as_mut().map(act)
    })
}

/// Instant of CLOCK_MONOTONIC at which this thread's time reaches an instant: not before it, and
/// not more than some nanoseconds later.
pub(crate) fn monotonic_at(instant_ns: u64) -> u64 {
    if !IS_OTHER.load(Ordering::Relaxed) {
        return instant_ns;
    }
    let host_ns = OWN.with_borrow(|own| {
        let instant_ns = i64::try_from(instant_ns).unwrap_or(i64::MAX);
        own.steering.as_ref().map_or(instant_ns, |steering| steering.invert(instant_ns))
    });
    SKEW.get().map_or(host_ns.max(0).unsigned_abs(), |skew| skew.invert(host_ns))
}
