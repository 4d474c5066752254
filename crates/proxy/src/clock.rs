//! The proxy's clock and its alarm, which wakes the loop more finely than epoll's milliseconds.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::{Duration, Instant};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

/// Time since the start, in nanoseconds.
#[derive(Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that starts now.
    pub fn new() -> Self {
        Self(Instant::now())
    }

    /// Nanoseconds since the start; never 0, which is long ago.
    pub fn now_ns(self) -> u64 {
        1 + u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX - 1)
    }
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

    /// Wakes at an instant after `now_ns`; setting it takes back what was set before.
    pub fn set(&mut self, at_ns: u64, now_ns: u64) -> io::Result<()> {
        if self.set_for_ns == at_ns {
            return Ok(());
        }
        self.set_for_ns = at_ns;
        // A time of nothing would disarm it.
        let after_ns = at_ns.saturating_sub(now_ns).max(1);
        let after = TimeSpec::from_duration(Duration::from_nanos(after_ns));
        Ok(self.timer.set(Expiration::OneShot(after), TimerSetTimeFlags::empty())?)
    }

    /// The descriptor to register with the poll. It need not be read.
    pub fn descriptor(&self) -> RawFd {
        self.timer.as_fd().as_raw_fd()
    }
}
