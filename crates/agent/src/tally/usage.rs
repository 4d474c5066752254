//! Use of the machine by this process in an interval: processor, waits for a processor, memory.

use nix::sys::resource::{UsageWho, getrusage};

/// Use of the machine in an interval.
#[derive(Default)]
pub struct ProcessUsage {
    /// CPU time of the process, in nanoseconds.
    pub cpu_ns: u64,
    /// Time in which the loop's thread was ready and had no processor, in nanoseconds. `None` if
    /// the kernel does not count this time.
    pub run_delay_ns: Option<u64>,
    /// Resident memory at the end of the interval, in bytes.
    pub rss_bytes: u64,
}

/// Meter of the use, from the start of the process on.
#[derive(Default)]
pub struct UsageMeter {
    cpu_before_ns: u64,
    run_delay_before_ns: u64,
}

impl UsageMeter {
    /// The use since the last call.
    pub fn take(&mut self) -> ProcessUsage {
        let cpu_ns = cpu_ns();
        let cpu_before_ns = std::mem::replace(&mut self.cpu_before_ns, cpu_ns);
        let run_delay_ns = self.take_run_delay();
        ProcessUsage { cpu_ns: cpu_ns - cpu_before_ns, run_delay_ns, rss_bytes: rss_bytes() }
    }

    fn take_run_delay(&mut self) -> Option<u64> {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        let total_ns = parse_run_delay(&text)?;
        let before_ns = std::mem::replace(&mut self.run_delay_before_ns, total_ns);
        Some(total_ns.saturating_sub(before_ns))
    }
}

fn cpu_ns() -> u64 {
    getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| {
        let (user, system) = (usage.user_time(), usage.system_time());
        let micros = |time: nix::sys::time::TimeVal| {
            time.tv_sec().unsigned_abs() * 1_000_000 + time.tv_usec().unsigned_abs()
        };
        (micros(user) + micros(system)) * 1000
    })
}

/// The time that a thread could run and had no processor: the second of three numbers, which are
/// all 0 where the kernel does not count.
fn parse_run_delay(schedstat: &str) -> Option<u64> {
    let numbers: Vec<u64> = schedstat.split_whitespace().map_while(|n| n.parse().ok()).collect();
    match numbers[..] {
        [on_cpu_ns, delay_ns, _] if on_cpu_ns > 0 => Some(delay_ns),
        _ => None,
    }
}

/// Resident memory of this process: field 2 of `/proc/self/statm`, in pages.
fn rss_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|p| p.parse().ok()).unwrap_or(0);
    let page_bytes = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE);
    pages * page_bytes.ok().flatten().map_or(4096, i64::unsigned_abs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_delay_is_the_second_number_and_unknown_where_nothing_is_counted() {
        assert_eq!(parse_run_delay("7000000 250000 12\n"), Some(250_000));
        assert_eq!(parse_run_delay("0 0 0\n"), None);
        assert_eq!(parse_run_delay(""), None);
    }
}
