//! The lease of an agent: an agent that receives nothing from its controller for this time stops by
//! itself, since the controller can no longer stop the agent.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

use crate::error::{AgentError, LeaseOver};

/// Leases that the plan, the first line, may take: the controller starts other agents meanwhile.
const PLAN_LEASES: u32 = 10;

/// Longest time without a line from the controller; clones share the time of the last line.
#[derive(Clone, Debug)]
pub struct Lease(Arc<Term>);

#[derive(Debug)]
struct Term {
    /// `None`: the lease has no end.
    length: Option<Duration>,
    begun: Instant,
    /// Time of the last line, in nanoseconds after `begun`.
    last_ns: AtomicU64,
    over: AtomicBool,
    released: AtomicBool,
}

impl Lease {
    /// Begins a lease; `None`: the lease has no end.
    #[must_use]
    pub fn new(length: Option<Duration>) -> Self {
        Self::begun_at(length, Instant::now())
    }

    pub(crate) fn begun_at(length: Option<Duration>, begun: Instant) -> Self {
        Self(Arc::new(Term {
            length,
            begun,
            last_ns: AtomicU64::new(0),
            over: AtomicBool::new(false),
            released: AtomicBool::new(false),
        }))
    }

    /// Begins the lease anew, after a line.
    pub fn renew(&self) {
        self.renew_at(Instant::now());
    }

    fn renew_at(&self, now: Instant) {
        let last_ns = (now - self.0.begun).as_nanos() as u64;
        self.0.last_ns.store(last_ns, Ordering::Relaxed);
    }

    /// Ends the lease without effect, once the controller has stopped the agent.
    pub fn release(&self) {
        self.0.released.store(true, Ordering::Release);
    }

    /// Waits for the first line, which may take longer than others.
    ///
    /// # Errors
    /// [`LeaseOver`], and those of `read`.
    pub fn first<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> Result<T, AgentError> + Send + 'static,
    ) -> Result<T, AgentError> {
        let Some(length) = self.0.length else { return read() };
        let (sender, first) = std::sync::mpsc::channel();
        let read = move || {
            // Fails only after the end of the lease.
            let _ = sender.send(read());
        };
        Builder::new().name("plan".into()).spawn(read)?;
        let patience = length * PLAN_LEASES;
        first.recv_timeout(patience).unwrap_or_else(|_| Err(LeaseOver(patience).into()))
    }

    /// Begins the lease anew, and starts the thread that calls `end` once the lease is over.
    ///
    /// # Errors
    /// The kernel's, when it has no thread left.
    pub fn watch(&self, end: impl FnOnce() + Send + 'static) -> Result<(), AgentError> {
        self.renew();
        let Some(length) = self.0.length else { return Ok(()) };
        let lease = self.clone();
        let watch = move || {
            while let Some(left) = lease.left(length, Instant::now()) {
                sleep(left);
            }
            if !lease.0.released.load(Ordering::Acquire) {
                lease.0.over.store(true, Ordering::Release);
                end();
            }
        };
        Builder::new().name("lease".into()).spawn(watch)?;
        Ok(())
    }

    /// Fails if the lease is over.
    ///
    /// # Errors
    /// [`LeaseOver`].
    pub fn check(&self) -> Result<(), LeaseOver> {
        match self.0.length {
            Some(length) if self.0.over.load(Ordering::Acquire) => Err(LeaseOver(length)),
            _ => Ok(()),
        }
    }

    /// Returns the rest of a lease of this length; `None`: the lease is over.
    pub(crate) fn left(&self, length: Duration, now: Instant) -> Option<Duration> {
        let last = Duration::from_nanos(self.0.last_ns.load(Ordering::Relaxed));
        (last + length).checked_sub(now - self.0.begun).filter(|left| !left.is_zero())
    }
}

impl FromStr for Lease {
    type Err = String;

    /// Reads a length in seconds, and begins the lease.
    fn from_str(text: &str) -> Result<Self, String> {
        let seconds = text.parse().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
        let seconds =
            seconds.ok_or_else(|| format!("found '{text}', allowed are 0.1 to 86400 seconds"))?;
        Ok(Self::new(Some(Duration::from_secs_f64(seconds))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_read() {
        let length = |text: &str| text.parse::<Lease>().map(|lease| lease.0.length);
        assert_eq!(length("4"), Ok(Some(Duration::from_secs(4))));
        assert_eq!(length("0.5"), Ok(Some(Duration::from_millis(500))));
        for wrong in ["", "0", "-1", "nan", "inf", "4s", "1e9"] {
            assert!(length(wrong).is_err_and(|error| error.contains(wrong)), "{wrong}");
        }
    }

    #[test]
    fn a_first_line_is_returned() {
        let lease: Lease = "60".parse().unwrap();
        assert_eq!(lease.first(|| Ok(7)).unwrap(), 7);
        assert!(lease.first(|| Err::<(), _>(AgentError::NoPlan)).is_err());
        assert_eq!(Lease::new(None).first(|| Ok(8)).unwrap(), 8);
    }

    #[test]
    fn each_line_begins_the_lease_anew() {
        let (lease, length) = (Lease::new(None), Duration::from_millis(2_000));
        let at = |after_ms| lease.0.begun + Duration::from_millis(after_ms);
        for line_ms in (0..100_000).step_by(1_900) {
            lease.renew_at(at(line_ms));
            assert_eq!(lease.left(length, at(line_ms)), Some(length));
            let rest = lease.left(length, at(line_ms + 1_999));
            assert_eq!(rest, Some(Duration::from_millis(1)));
            assert_eq!(lease.left(length, at(line_ms + 2_000)), None);
        }
    }

    #[test]
    fn a_lease_without_a_line_ends_and_states_its_length() {
        let lease: Lease = "0.1".parse().unwrap();
        assert!(lease.check().is_ok());
        let (sender, ended) = std::sync::mpsc::channel();
        lease.watch(move || sender.send(()).unwrap()).unwrap();
        ended.recv().unwrap();
        let over = lease.check().unwrap_err().to_string();
        assert_eq!(over, "received nothing for 0.1 s: the lease is over");
    }
}
