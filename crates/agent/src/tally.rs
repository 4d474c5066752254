//! Everything counted since the last snapshot, and the making of snapshots. Plain sums owned by
//! the loop; it knows no client.

use nix::sys::resource::{UsageWho, getrusage};
use plan::{
    EngineLoad, FlowCounters, FlowSnapshot, Histogram, PopulationSnapshot, Snapshot, TargetSnapshot,
};

use crate::clock;
use crate::deliveries::Deliveries;

/// Counts since the last snapshot.
pub struct Tally {
    /// One for each population; gauges are carried from snapshot to snapshot.
    pub populations: Vec<PopulationSnapshot>,
    /// Flow from population `f` to population `t` at `f * populations + t`.
    flows: Vec<FlowSnapshot>,
    /// What clients had to do with each target.
    pub targets: Targets,
    /// How late messages were that only the engine held up.
    pub lateness: Histogram,
    /// How late messages were that the window, the socket or a lost connection held up.
    pub blocked: Histogram,
    /// Time the loop was not waiting, in nanoseconds.
    pub busy_ns: u64,
    /// Deliveries outside the ledger.
    pub unfollowed_total: u64,
    /// Deliveries of each flow that were owed in this stage and had not come, at the last snapshot.
    lacking_before: Vec<i64>,
    cpu_before_ns: u64,
    run_delay_before_ns: u64,
    sequence: u64,
    from_ns: u64,
}

/// Connections by target.
pub struct Targets {
    /// Counts since the last snapshot; `connected` is carried from snapshot to snapshot.
    counts: Vec<TargetSnapshot>,
    /// What the last snapshot said of `connected`.
    told: Vec<u64>,
}

/// What a snapshot says besides the counts.
pub struct Moment {
    /// Index of the agent's shard.
    pub agent: u32,
    /// Index of the stage.
    pub stage: Option<usize>,
    /// Whether the stage has done all it can.
    pub settled: bool,
    /// End of the interval.
    pub now_ns: u64,
    /// Pairs in the ledger.
    pub ledger_pairs: u64,
}

impl Tally {
    /// Empty counts from `now_ns` on.
    pub fn new(populations: usize, targets: usize, now_ns: u64) -> Self {
        let flow = |index| FlowSnapshot {
            from: index / populations,
            to: index % populations,
            ..FlowSnapshot::default()
        };
        Self {
            populations: (0..populations).map(|_| PopulationSnapshot::default()).collect(),
            flows: (0..populations * populations).map(flow).collect(),
            targets: Targets::new(targets),
            lateness: Histogram::default(),
            blocked: Histogram::default(),
            busy_ns: 0,
            unfollowed_total: 0,
            lacking_before: vec![0; populations * populations],
            cpu_before_ns: 0,
            run_delay_before_ns: 0,
            sequence: 0,
            from_ns: now_ns,
        }
    }

    /// The flow from population `from` to population `to`.
    pub fn flow(&mut self, from: usize, to: usize) -> &mut FlowSnapshot {
        &mut self.flows[from * self.populations.len() + to]
    }

    /// Deliveries of a flow that are read together at `now_ns`; `judged` says that its receiver is
    /// owed what is published, and not what it receives.
    #[inline]
    pub fn deliveries(
        &mut self,
        (from, to): (usize, usize),
        judged: bool,
        now_ns: u64,
    ) -> Deliveries<'_> {
        let flow = &mut self.flows[from * self.populations.len() + to];
        Deliveries::new(flow, &mut self.unfollowed_total, judged, now_ns)
    }

    /// Counts deliveries of a stage anew; to be called behind a snapshot.
    pub fn begin_stage(&mut self) {
        self.lacking_before.fill(0);
    }

    /// Owes a population what it has received in this stage, and nothing else.
    pub fn owe_received(&mut self, to: usize) {
        for (flow, before) in self.flows.iter_mut().zip(&self.lacking_before) {
            if flow.to == to {
                flow.counters.expected_total -= before + lacking(&flow.counters);
            }
        }
    }

    /// Moves the counts out into a snapshot and starts the next interval.
    pub fn snapshot(&mut self, moment: &Moment) -> Snapshot {
        for (flow, before) in self.flows.iter().zip(&mut self.lacking_before) {
            *before += lacking(&flow.counters);
        }
        let told = |flow: &&mut FlowSnapshot| flow.counters != FlowCounters::default();
        let flows = self.flows.iter_mut().filter(told).map(take_flow).collect();
        let cpu_ns = cpu_ns();
        let snapshot = Snapshot {
            agent: moment.agent,
            sequence: self.sequence,
            stage: moment.stage,
            from_ns: self.from_ns,
            to_ns: moment.now_ns,
            settled: moment.settled,
            populations: self.populations.iter_mut().map(take_population).collect(),
            flows,
            targets: self.targets.take(),
            stalls: Vec::new(),
            engine: EngineLoad {
                busy_ns: std::mem::take(&mut self.busy_ns),
                cpu_ns: cpu_ns - self.cpu_before_ns,
                run_delay_ns: self.take_run_delay(),
                rss_bytes: rss_bytes(),
                lateness: self.lateness.take(),
                blocked: self.blocked.take(),
                ledger_pairs: moment.ledger_pairs,
                unfollowed_total: std::mem::take(&mut self.unfollowed_total),
            },
            clock: clock::take_state(),
        };
        self.cpu_before_ns = cpu_ns;
        self.sequence += 1;
        self.from_ns = moment.now_ns;
        snapshot
    }

    /// Run delay since the last snapshot.
    fn take_run_delay(&mut self) -> Option<u64> {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        let total_ns = parse_run_delay(&text)?;
        let before_ns = std::mem::replace(&mut self.run_delay_before_ns, total_ns);
        Some(total_ns.saturating_sub(before_ns))
    }

    /// Snapshots made.
    pub fn snapshots(&self) -> u64 {
        self.sequence
    }
}

impl Targets {
    fn new(targets: usize) -> Self {
        let empty = |target| TargetSnapshot { target, ..TargetSnapshot::default() };
        Self { counts: (0..targets).map(empty).collect(), told: vec![0; targets] }
    }

    /// It has accepted a client.
    pub fn accepted(&mut self, target: usize) {
        self.counts[target].connected += 1;
        self.counts[target].connected_total += 1;
    }

    /// An attempt at it has ended before that.
    pub fn failed(&mut self, target: usize) {
        self.counts[target].connect_failed_total += 1;
    }

    /// A client that it had accepted has gone.
    pub fn gone(&mut self, target: usize) {
        self.counts[target].connected -= 1;
    }

    /// Moves the counts out where there is anything to tell.
    fn take(&mut self) -> Vec<TargetSnapshot> {
        let mut taken = Vec::new();
        for (counts, told) in self.counts.iter_mut().zip(&mut self.told) {
            let empty = TargetSnapshot { target: counts.target, ..TargetSnapshot::default() };
            if *counts == empty && *told == 0 {
                continue;
            }
            *told = counts.connected;
            let carried = TargetSnapshot { connected: counts.connected, ..empty };
            taken.push(std::mem::replace(counts, carried));
        }
        taken
    }
}

/// Deliveries that are owed and have not come.
const fn lacking(counters: &FlowCounters) -> i64 {
    counters.expected_total - counters.received_total
}

fn take_population(tally: &mut PopulationSnapshot) -> PopulationSnapshot {
    PopulationSnapshot {
        gauges: tally.gauges,
        counters: std::mem::take(&mut tally.counters),
        outcomes: std::mem::take(&mut tally.outcomes),
        connect_time: tally.connect_time.take(),
        ack_intended: tally.ack_intended.take(),
        ack_actual: tally.ack_actual.take(),
    }
}

fn take_flow(tally: &mut FlowSnapshot) -> FlowSnapshot {
    FlowSnapshot {
        counters: std::mem::take(&mut tally.counters),
        latency_intended: tally.latency_intended.take(),
        latency_actual: tally.latency_actual.take(),
        ..*tally
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
