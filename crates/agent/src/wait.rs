//! The wait of an event loop: for descriptors, a waker and an instant of the clock, finer than the
//! milliseconds of epoll.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::clock::{monotonic_at, now_ns};

const ALARM: Token = Token(usize::MAX - 1);
const WAKER: Token = Token(usize::MAX - 2);

/// Descriptors and an alarm. Tokens below `usize::MAX - 2` are free for descriptors.
pub struct Wait {
    poll: Poll,
    alarm: TimerFd,
    /// Instant of the alarm by CLOCK_MONOTONIC, in nanoseconds.
    alarm_ns: u64,
}

impl Wait {
    /// Makes a wait without descriptors, and the waker that ends it. Dropping the waker loses a
    /// pending wake-up.
    ///
    /// # Errors
    /// The kernel's, when no descriptors are left for the poll and the timer.
    pub fn new() -> io::Result<(Self, Waker)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let alarm = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        let mut source = SourceFd(&alarm.as_fd().as_raw_fd());
        poll.registry().register(&mut source, ALARM, Interest::READABLE)?;
        Ok((Self { poll, alarm, alarm_ns: 0 }, waker))
    }

    /// Registry for descriptors.
    pub fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    /// Waits until a descriptor or the waker is ready, or `until_ns` has come; returns the news of
    /// descriptors.
    ///
    /// # Errors
    /// The kernel's, after which no wait can succeed.
    pub fn until<'a>(
        &mut self,
        until_ns: u64,
        events: &'a mut Events,
    ) -> io::Result<impl Iterator<Item = &'a Event> + use<'a>> {
        let timeout = if until_ns <= now_ns() {
            Some(Duration::ZERO)
        } else {
            self.set_alarm(until_ns)?;
            None
        };
        match self.poll.poll(events, timeout) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        Ok(events.iter().filter(|event| event.token() < WAKER))
    }

    /// Sets the alarm to an instant of this thread, by the estimate that steers the thread. A newer
    /// estimate bends the thread's time only from its next look at the clock on, after the alarm.
    /// The alarm need not be read: setting it again clears it.
    fn set_alarm(&mut self, instant_ns: u64) -> io::Result<()> {
        let monotonic_ns = monotonic_at(instant_ns);
        if self.alarm_ns == monotonic_ns {
            return Ok(());
        }
        self.alarm_ns = monotonic_ns;
        let instant = TimeSpec::new(
            (monotonic_ns / plan::SECOND_NS).cast_signed(),
            (monotonic_ns % plan::SECOND_NS).cast_signed(),
        );
        let flags = TimerSetTimeFlags::TFD_TIMER_ABSTIME;
        Ok(self.alarm.set(Expiration::OneShot(instant), flags)?)
    }
}
