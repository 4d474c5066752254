//! Everything counted since the last snapshot, and the making of snapshots. Plain sums owned by the
//! loop.

mod addresses;
mod usage;

use std::collections::BTreeMap;
use std::ops::Range;

use plan::{
    AnswerCounters, EngineLoad, FlowCounters, FlowSnapshot, Histogram, PopulationSnapshot,
    Snapshot, Stamp, TargetSnapshot,
};
use rustc_hash::FxHashMap;

use crate::clock;
use crate::ledger::Delivery;
pub use addresses::AddressCounts;
use usage::UsageMeter;

/// Sender of a receiver without a flow: the index of no population.
const NOBODY: u16 = u16::MAX;

/// Counts since the last snapshot.
pub struct Tally {
    /// One for each population; gauges are carried from snapshot to snapshot.
    pub populations: Vec<PopulationSnapshot>,
    flows: Flows,
    /// Deliveries of the stage to each client of this agent; empty if they are not counted.
    deliveries_of: Vec<u32>,
    /// Connections by target.
    pub targets: TargetCounts,
    /// Attempts to connect by address of targets that are names.
    pub addresses: AddressCounts,
    /// Lateness of messages that only the engine delayed.
    pub lateness: Histogram,
    /// Lateness of messages that the window, the socket or a lost connection delayed.
    pub blocked: Histogram,
    /// Time the loop was not waiting, in nanoseconds.
    pub busy_ns: u64,
    /// Deliveries outside the ledger.
    pub unfollowed_total: u64,
    /// Instant from which the agent publishes nothing, since the controller is silent.
    pub held_since_ns: Option<u64>,
    /// Time in which the agent published nothing, up to the last change of that.
    held_ns: u64,
    /// Answers to each population that were expected in this stage and had not arrived, at the last
    /// snapshot.
    unanswered_before: Vec<i64>,
    /// `None` in virtual time, in which other runs use the process too.
    usage: Option<UsageMeter>,
    sequence: u64,
    from_ns: u64,
}

/// Connections by target.
pub struct TargetCounts {
    /// Counts since the last snapshot; `connected` is carried from snapshot to snapshot.
    counts: Vec<TargetSnapshot>,
    /// `connected` in the last snapshot.
    reported: Vec<u64>,
}

/// Content of a snapshot besides the counters.
pub struct SnapshotHead {
    /// Index of the agent's shard.
    pub agent: u32,
    /// Index of the stage.
    pub stage: Option<usize>,
    /// `true` if the stage has settled.
    pub settled: bool,
    /// End of the interval.
    pub now_ns: u64,
    /// Pairs in the ledger.
    pub ledger_pairs: u64,
}

impl Tally {
    /// Empty counts from `now_ns` on.
    pub fn new(populations: usize, targets: usize, now_ns: u64) -> Self {
        Self {
            populations: (0..populations).map(|_| PopulationSnapshot::default()).collect(),
            flows: Flows::new(populations),
            deliveries_of: Vec::new(),
            targets: TargetCounts::new(targets),
            addresses: AddressCounts::default(),
            lateness: Histogram::default(),
            blocked: Histogram::default(),
            busy_ns: 0,
            unfollowed_total: 0,
            held_since_ns: None,
            held_ns: 0,
            unanswered_before: vec![0; populations],
            usage: Some(UsageMeter::default()),
            sequence: 0,
            from_ns: now_ns,
        }
    }

    /// Leaves the use of the machine by this process out of snapshots.
    pub const fn ignore_usage(&mut self) {
        self.usage = None;
    }

    /// Counts the deliveries of each client of this agent, `clients` in all.
    pub fn count_deliveries_of(&mut self, clients: usize) {
        self.deliveries_of = vec![0; clients];
    }

    /// The flow from population `from` to population `to`.
    pub fn flow(&mut self, from: usize, to: usize) -> &mut FlowSnapshot {
        self.flows.flow(from, to)
    }

    /// Counts a message as received by a client of this agent at `now_ns`. Returns the counters of
    /// its flow.
    #[inline]
    pub fn note_received(
        &mut self,
        (from, to): (usize, usize),
        client: u32,
        stamp: &Stamp,
        now_ns: u64,
    ) -> &mut FlowCounters {
        let flow = self.note_run((from, to), client, 1);
        flow.deliveries().record(now_ns, stamp.intended_ns, stamp.sent);
        &mut flow.counters
    }

    /// Counts a message that [`Tally::note_received`] has counted as one that was queued for its
    /// receiver.
    pub fn note_queued(&mut self, (from, to): (usize, usize), stamp: &Stamp, now_ns: u64) {
        let latency_ns = now_ns.wrapping_sub(stamp.intended_ns).cast_signed();
        self.flow(from, to).queued_latency.record(latency_ns);
    }

    /// Counts `count` messages like [`Tally::note_received`], all but their latencies.
    #[inline]
    pub fn note_run(
        &mut self,
        (from, to): (usize, usize),
        client: u32,
        count: u32,
    ) -> &mut FlowSnapshot {
        if let Some(deliveries) = self.deliveries_of.get_mut(client as usize) {
            *deliveries = deliveries.saturating_add(count);
        }
        let flow = self.flows.flow(from, to);
        flow.counters.received_total += i64::from(count);
        flow
    }

    /// Counts deliveries of a stage anew; to be called after a snapshot.
    pub fn begin_stage(&mut self) {
        self.flows.begin_stage();
        self.unanswered_before.fill(0);
        self.deliveries_of.fill(0);
    }

    /// Counts the time from `now_ns` on as time in which the agent publishes nothing, or not.
    pub fn hold(&mut self, now_ns: u64, is_held: bool) {
        self.held_ns += self.held_since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
        self.held_since_ns = is_held.then_some(now_ns);
    }

    /// Counts the clients of a population by the deliveries of this stage, for the next snapshot.
    /// `clients` are their indices in this agent.
    pub fn count_by_deliveries(&mut self, population: usize, clients: Range<u32>) {
        let span = clients.start as usize..clients.end as usize;
        let mut found = BTreeMap::<u64, u64>::new();
        for &deliveries in self.deliveries_of.get(span).unwrap_or_default() {
            *found.entry(u64::from(deliveries)).or_default() += 1;
        }
        self.populations[population].clients_by_deliveries = found.into_iter().collect();
    }

    /// Sets expected = received for this population, for this stage.
    pub fn exclude_from_loss(&mut self, to: usize) {
        self.flows.exclude_from_loss(to);
        self.forgive_unanswered(to);
    }

    /// Adds answers of population `from` to those that population `to` expects.
    pub fn expect_answers(&mut self, (from, to): (usize, usize), count: i64) {
        self.populations[to].answers.answers_expected_total += count;
        self.flow(from, to).counters.expected_total += count;
    }

    /// Sets expected = received for the answers of population `from` to population `to`, for this
    /// stage.
    pub fn exclude_answers_from_loss(&mut self, (from, to): (usize, usize)) {
        let unanswered = self.forgive_unanswered(to);
        self.flow(from, to).counters.expected_total -= unanswered;
    }

    /// Expects the answers that population `to` has received in this stage. Returns the number of
    /// the others.
    fn forgive_unanswered(&mut self, to: usize) -> i64 {
        let answers = &mut self.populations[to].answers;
        let unanswered = self.unanswered_before[to] + unanswered(answers);
        answers.answers_expected_total -= unanswered;
        unanswered
    }

    /// Moves the counts out into a snapshot and starts the next interval.
    pub fn snapshot(&mut self, moment: &SnapshotHead) -> Snapshot {
        for (population, before) in self.populations.iter().zip(&mut self.unanswered_before) {
            *before += unanswered(&population.answers);
        }
        let usage = self.usage.as_mut().map(UsageMeter::take).unwrap_or_default();
        self.hold(moment.now_ns, self.held_since_ns.is_some());
        let snapshot = Snapshot {
            agent: moment.agent,
            sequence: self.sequence,
            stage: moment.stage,
            from_ns: self.from_ns,
            to_ns: moment.now_ns,
            settled: moment.settled,
            populations: self.take_populations(),
            flows: self.flows.take(),
            targets: self.targets.take(),
            addresses: self.addresses.take(),
            stalls: Vec::new(),
            engine: EngineLoad {
                busy_ns: std::mem::take(&mut self.busy_ns),
                cpu_ns: usage.cpu_ns,
                run_delay_ns: usage.run_delay_ns,
                rss_bytes: usage.rss_bytes,
                lateness: std::mem::take(&mut self.lateness),
                blocked: std::mem::take(&mut self.blocked),
                ledger_pairs: moment.ledger_pairs,
                unfollowed_total: std::mem::take(&mut self.unfollowed_total),
                held_ns: std::mem::take(&mut self.held_ns),
            },
            clock: clock::take_state(),
        };
        self.sequence += 1;
        self.from_ns = moment.now_ns;
        snapshot
    }

    /// Moves the counts of all populations out; gauges stay.
    fn take_populations(&mut self) -> Vec<PopulationSnapshot> {
        let carried = |population: &PopulationSnapshot| PopulationSnapshot {
            gauges: population.gauges,
            ..PopulationSnapshot::default()
        };
        let next = self.populations.iter().map(carried).collect();
        std::mem::replace(&mut self.populations, next)
    }

    /// Snapshots made.
    pub fn snapshots(&self) -> u64 {
        self.sequence
    }
}

impl TargetCounts {
    fn new(targets: usize) -> Self {
        let empty = |target| TargetSnapshot { target, ..TargetSnapshot::default() };
        Self { counts: (0..targets).map(empty).collect(), reported: vec![0; targets] }
    }

    /// Counts a client that a target has accepted.
    pub fn accepted(&mut self, target: usize) {
        self.counts[target].connected += 1;
        self.counts[target].connected_total += 1;
    }

    /// Counts a failed attempt to connect to a target.
    pub fn failed(&mut self, target: usize) {
        self.counts[target].connect_failed_total += 1;
    }

    /// Counts the end of an accepted connection.
    pub fn gone(&mut self, target: usize) {
        self.counts[target].connected -= 1;
    }

    /// Moves the counts out of all targets that have some.
    fn take(&mut self) -> Vec<TargetSnapshot> {
        let mut taken = Vec::new();
        for (counts, reported) in self.counts.iter_mut().zip(&mut self.reported) {
            let empty = TargetSnapshot { target: counts.target, ..TargetSnapshot::default() };
            if *counts == empty && *reported == 0 {
                continue;
            }
            *reported = counts.connected;
            let carried = TargetSnapshot { connected: counts.connected, ..empty };
            taken.push(std::mem::replace(counts, carried));
        }
        taken
    }
}

/// Counts of all flows since the last snapshot. A flow exists from its first count on, so memory
/// and time follow the number of flows that have messages, and not the square of the number of
/// populations.
struct Flows {
    /// In the order of their first counts; none is removed.
    list: Vec<Flow>,
    /// Place of each flow in the list, by sender and receiver.
    places: FxHashMap<u32, u32>,
    /// Last sender to each receiver, and the place of that flow: most receivers have one sender.
    last: Vec<(u16, u32)>,
    /// Places of the flows to each receiver.
    of_receiver: Vec<Vec<u32>>,
    /// Places of the flows that were lent since the last snapshot.
    touched: Vec<u32>,
    /// Number of the stage.
    stage: u32,
}

struct Flow {
    counts: FlowSnapshot,
    /// Counts at the last snapshot from the start of the stage on: deliveries that were expected
    /// and had not arrived, all and those of wills, and deliveries that were queued.
    lacking: [i64; 3],
    /// Number of the stage that `lacking` belongs to.
    lacking_stage: u32,
    is_touched: bool,
}

impl Flows {
    /// No flows. `populations` is at most 65,535, as a plan's check requires.
    fn new(populations: usize) -> Self {
        Self {
            list: Vec::new(),
            places: FxHashMap::default(),
            last: vec![(NOBODY, 0); populations],
            of_receiver: vec![Vec::new(); populations],
            touched: Vec::new(),
            stage: 0,
        }
    }

    /// The flow from population `from` to population `to`.
    #[inline]
    fn flow(&mut self, from: usize, to: usize) -> &mut FlowSnapshot {
        let (last, place) = self.last[to];
        let place = if usize::from(last) == from { place } else { self.place(from, to) };
        let flow = &mut self.list[place as usize];
        if !flow.is_touched {
            flow.is_touched = true;
            self.touched.push(place);
        }
        &mut flow.counts
    }

    /// Finds or makes a flow and notes it as the last one to its receiver.
    #[inline(never)]
    fn place(&mut self, from: usize, to: usize) -> u32 {
        let place = *self.places.entry((from as u32) << 16 | to as u32).or_insert_with(|| {
            let place = self.list.len() as u32;
            let counts = FlowSnapshot { from, to, ..FlowSnapshot::default() };
            let stage = self.stage;
            self.list.push(Flow {
                counts,
                lacking: [0; 3],
                lacking_stage: stage,
                is_touched: false,
            });
            self.of_receiver[to].push(place);
            place
        });
        self.last[to] = (from as u16, place);
        place
    }

    /// Begins a stage; to be called after a snapshot.
    const fn begin_stage(&mut self) {
        self.stage += 1;
    }

    /// Sets expected = received for the flows to this population, for this stage.
    fn exclude_from_loss(&mut self, to: usize) {
        for &place in &self.of_receiver[to] {
            let flow = &mut self.list[place as usize];
            let [all, wills, queued] = flow.lacking_in(self.stage);
            if [all, wills, queued] == [0; 3] {
                continue;
            }
            let counters = &mut flow.counts.counters;
            counters.expected_total -= all;
            counters.wills_expected_total -= wills;
            counters.queued_total -= queued;
            counters.queued_lost_total -= queued;
            if !std::mem::replace(&mut flow.is_touched, true) {
                self.touched.push(place);
            }
        }
    }

    /// Moves the counts out of all flows that have some, in the order of sender and receiver.
    fn take(&mut self) -> Vec<FlowSnapshot> {
        let mut taken = Vec::new();
        for place in self.touched.drain(..) {
            let flow = &mut self.list[place as usize];
            flow.is_touched = false;
            flow.lacking = flow.lacking_in(self.stage);
            flow.lacking_stage = self.stage;
            if flow.counts.counters != FlowCounters::default() {
                let FlowSnapshot { from, to, .. } = flow.counts;
                let empty = FlowSnapshot { from, to, ..FlowSnapshot::default() };
                taken.push(std::mem::replace(&mut flow.counts, empty));
            }
        }
        taken.sort_unstable_by_key(|flow| (flow.from, flow.to));
        taken
    }
}

impl Flow {
    /// Deliveries that were expected in a stage and have not arrived, all and those of wills, and
    /// deliveries that were queued in the stage.
    const fn lacking_in(&self, stage: u32) -> [i64; 3] {
        let before = if self.lacking_stage == stage { self.lacking } else { [0; 3] };
        let [all, wills, queued] = before;
        let FlowCounters {
            expected_total,
            received_total,
            wills_expected_total,
            wills_received_total,
            queued_total,
            ..
        } = self.counts.counters;
        [
            all + expected_total - received_total,
            wills + wills_expected_total - wills_received_total,
            queued + queued_total,
        ]
    }
}

/// Counts a delivery by its class. Returns `true` if it counts as received.
#[inline]
pub fn is_received(counters: &mut FlowCounters, delivery: Delivery, counts_loss: bool) -> bool {
    match delivery {
        Delivery::Duplicate => {
            counters.duplicate_total += 1;
            return false;
        }
        Delivery::Stale => {
            counters.stale_total += 1;
            return false;
        }
        Delivery::First { passed_over: 0 } | Delivery::Unfollowed => {}
        Delivery::First { passed_over } => {
            // Gaps do not count for receivers that may have been offline.
            counters.missing_total += i64::from(passed_over) * i64::from(counts_loss);
        }
        Delivery::Reordered { filled } => {
            counters.reordered_total += 1;
            counters.missing_total -= i64::from(filled && counts_loss);
        }
    }
    true
}

/// Answers that are expected and have not arrived.
const fn unanswered(answers: &AnswerCounters) -> i64 {
    answers.answers_expected_total - answers.answered_total
}

#[cfg(test)]
mod tests;
