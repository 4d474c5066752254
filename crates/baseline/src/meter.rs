//! Cost of a span of the run: CPU time of this process, user and system, and wall time. Also makes
//! the final line of counts.

use std::time::Instant;

use anyhow::Result;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};

/// A span that has begun.
pub struct Meter {
    wall: Instant,
    cpu_ns: i64,
}

/// Cost of a span.
#[derive(Clone, Copy)]
pub struct Cost {
    /// User and system time of this process, in nanoseconds.
    pub cpu_ns: i64,
    /// In nanoseconds.
    pub wall_ns: u128,
}

/// Counts of a client.
pub struct ClientCounts {
    /// Connections that stood.
    pub connections: usize,
    /// Messages sent, or in `receive` received.
    pub messages: u64,
    /// Their bytes, with headers and topics.
    pub bytes: u64,
}

impl Meter {
    /// Begins a span.
    pub fn start() -> Result<Self> {
        Ok(Self { wall: Instant::now(), cpu_ns: cpu_ns()? })
    }

    /// Returns the cost so far.
    pub fn cost(&self) -> Result<Cost> {
        let cpu_ns = cpu_ns()? - self.cpu_ns;
        Ok(Cost { cpu_ns, wall_ns: self.wall.elapsed().as_nanos() })
    }
}

impl ClientCounts {
    /// The line that a client ends with; `cost` is that of the span that the mode is about.
    pub fn to_line(&self, mode: &str, cost: Cost) -> String {
        let Self { connections, messages, bytes } = self;
        let Cost { cpu_ns, wall_ns } = cost;
        format!(
            "{{\"kind\":\"counts\",\"mode\":\"{mode}\",\"connections\":{connections},\
             \"messages\":{messages},\"bytes\":{bytes},\"cpu_ns\":{cpu_ns},\"wall_ns\":{wall_ns},\
             \"anonymous_bytes\":{}}}",
            anonymous_bytes()
        )
    }
}

/// CPU time of this process so far, in nanoseconds.
pub fn cpu_ns() -> Result<i64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let nanoseconds = |time: TimeVal| time.num_microseconds() * 1000;
    Ok(nanoseconds(usage.user_time()) + nanoseconds(usage.system_time()))
}

/// Resident memory of this process that is no file's; 0 where the kernel does not say.
fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = kilobytes.and_then(|text| text.trim().strip_suffix("kB"));
    kilobytes.and_then(|text| text.trim().parse().ok()).map_or(0, |kilobytes: u64| kilobytes * 1024)
}
