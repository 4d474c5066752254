//! The engine's only source of time: nanoseconds of the reference clock, how they are reckoned
//! since 1970, and a timer that wakes the loop at such an instant, finer than epoll's milliseconds.
//! The reference clock is CLOCK_MONOTONIC of the host that the run was started on, the same for
//! every process of that host. An agent of another host follows it: somebody hands estimates in,
//! and each thread steers what it takes for the time towards the newest ([`steering`]).

pub mod estimator;
pub mod skew;
pub mod steering;

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::time::clock_gettime;
use plan::ClockState;

use estimator::Estimate;
use skew::Skew;
use steering::Steering;

/// Whether the time is anything else than CLOCK_MONOTONIC.
static IS_OTHER: AtomicBool = AtomicBool::new(false);
/// How wrong the host's clock is read.
static SKEW: OnceLock<Skew> = OnceLock::new();
/// What is known of the reference clock.
static ESTIMATE: Mutex<Option<Estimate>> = Mutex::new(None);
/// How many estimates there have been.
static ESTIMATES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static OWN: RefCell<Own> = const { RefCell::new(Own { estimates: 0, steering: None }) };
}

/// A thread's own way to the reference clock: its time goes on without a leap from one estimate to
/// the next, whatever other threads do meanwhile.
struct Own {
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

/// What is to be added to an instant of [`now_ns`] for nanoseconds since 1970, as of now.
pub fn since_1970_ns() -> u64 {
    let epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let epoch_ns = epoch.map_or(0, |since| since.as_nanos() as u64);
    epoch_ns.saturating_sub(now_ns())
}

/// From here on the host's clock is read wrongly; only the first call counts.
pub fn misread(offset_ns: i64, rate_ppb: i64) {
    SKEW.get_or_init(|| Skew { since_ns: monotonic_ns(), offset_ns, rate_ppb });
    IS_OTHER.store(true, Ordering::Relaxed);
}

/// From here on the time is that of the reference clock, as far as this estimate knows it.
pub fn follow(estimate: Estimate) {
    *ESTIMATE.lock().unwrap_or_else(PoisonError::into_inner) = Some(estimate);
    ESTIMATES.fetch_add(1, Ordering::Release);
    IS_OTHER.store(true, Ordering::Relaxed);
}

/// How well this thread knows the reference clock; its bound is the largest since the last call.
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

/// What the host's clock says at an instant of CLOCK_MONOTONIC.
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

/// When CLOCK_MONOTONIC shows that this thread's time has reached an instant: not before it, and
/// not more than some nanoseconds later.
fn monotonic_at(instant_ns: u64) -> u64 {
    if !IS_OTHER.load(Ordering::Relaxed) {
        return instant_ns;
    }
    let host_ns = OWN.with_borrow(|own| {
        let instant_ns = i64::try_from(instant_ns).unwrap_or(i64::MAX);
        own.steering.as_ref().map_or(instant_ns, |steering| steering.invert(instant_ns))
    });
    SKEW.get().map_or(host_ns.max(0).unsigned_abs(), |skew| skew.invert(host_ns))
}

/// Becomes readable at a set instant.
pub struct Alarm {
    timer: TimerFd,
    /// By CLOCK_MONOTONIC, in nanoseconds.
    set_for_ns: u64,
}

impl Alarm {
    /// An alarm that is not set.
    pub fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        Ok(Self { timer: TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?, set_for_ns: 0 })
    }

    /// Wakes at `instant_ns`; an instant that has passed wakes at once.
    ///
    /// It is an instant of the thread that sets it, by the estimate that this thread is steered by:
    /// a newer one bends the thread's time only from its next look at the clock on, which is after
    /// the alarm.
    pub fn set(&mut self, instant_ns: u64) -> io::Result<()> {
        let monotonic_ns = monotonic_at(instant_ns);
        if self.set_for_ns == monotonic_ns {
            return Ok(());
        }
        self.set_for_ns = monotonic_ns;
        let instant = TimeSpec::new(
            (monotonic_ns / plan::SECOND_NS).cast_signed(),
            (monotonic_ns % plan::SECOND_NS).cast_signed(),
        );
        let flags = TimerSetTimeFlags::TFD_TIMER_ABSTIME;
        Ok(self.timer.set(Expiration::OneShot(instant), flags)?)
    }

    /// The descriptor to register with the poll. It need not be read: setting it again clears it.
    pub fn descriptor(&self) -> RawFd {
        self.timer.as_fd().as_raw_fd()
    }
}
