//! The engine's only source of time: nanoseconds of CLOCK_MONOTONIC, the same for every process
//! of a host, how they are reckoned since 1970, and a timer that wakes the loop at such an instant,
//! finer than epoll's milliseconds.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::time::clock_gettime;

/// Nanoseconds of the host's monotonic clock.
pub fn now_ns() -> u64 {
    clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).map_or(0, |time| {
        time.tv_sec().unsigned_abs() * plan::SECOND_NS + time.tv_nsec().unsigned_abs()
    })
}

/// What is to be added to an instant of [`now_ns`] for nanoseconds since 1970, as of now.
pub fn since_1970_ns() -> u64 {
    let epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let epoch_ns = epoch.map_or(0, |since| since.as_nanos() as u64);
    epoch_ns.saturating_sub(now_ns())
}

/// Becomes readable at a set instant.
pub struct Alarm {
    timer: TimerFd,
    set_for_ns: u64,
}

impl Alarm {
    /// An alarm that is not set.
    pub fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        Ok(Self { timer: TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?, set_for_ns: 0 })
    }

    /// Wakes at `instant_ns`; an instant that has passed wakes at once.
    pub fn set(&mut self, instant_ns: u64) -> io::Result<()> {
        if self.set_for_ns == instant_ns {
            return Ok(());
        }
        self.set_for_ns = instant_ns;
        let instant = TimeSpec::new(
            (instant_ns / plan::SECOND_NS).cast_signed(),
            (instant_ns % plan::SECOND_NS).cast_signed(),
        );
        let flags = TimerSetTimeFlags::TFD_TIMER_ABSTIME;
        Ok(self.timer.set(Expiration::OneShot(instant), flags)?)
    }

    /// The descriptor to register with the poll. It need not be read: setting it again clears it.
    pub fn descriptor(&self) -> RawFd {
        self.timer.as_fd().as_raw_fd()
    }
}
