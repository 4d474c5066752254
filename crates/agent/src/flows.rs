//! Flows between populations: a flow exists from its first count on, so memory and time follow the
//! number of flows that have messages, and not the square of the number of populations.

use plan::{FlowCounters, FlowSnapshot};
use rustc_hash::FxHashMap;

/// Sender of a receiver without a flow: the index of no population.
const NOBODY: u16 = u16::MAX;

/// Counts of all flows since the last snapshot.
pub(crate) struct Flows {
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
    /// Deliveries that were expected and had not arrived at the last snapshot, counted from the
    /// start of the stage: all, and those of wills.
    lacking: [i64; 2],
    /// Number of the stage that `lacking` belongs to.
    lacking_stage: u32,
    is_touched: bool,
}

impl Flows {
    /// No flows. `populations` is at most 65,535, as a plan's check requires.
    pub(crate) fn new(populations: usize) -> Self {
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
    pub(crate) fn flow(&mut self, from: usize, to: usize) -> &mut FlowSnapshot {
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
                lacking: [0; 2],
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
    pub(crate) const fn begin_stage(&mut self) {
        self.stage += 1;
    }

    /// Sets expected = received for the flows to this population, for this stage.
    pub(crate) fn exclude_from_loss(&mut self, to: usize) {
        for &place in &self.of_receiver[to] {
            let flow = &mut self.list[place as usize];
            let [all, wills] = flow.lacking_in(self.stage);
            if all == 0 && wills == 0 {
                continue;
            }
            flow.counts.counters.expected_total -= all;
            flow.counts.counters.wills_expected_total -= wills;
            if !std::mem::replace(&mut flow.is_touched, true) {
                self.touched.push(place);
            }
        }
    }

    /// Moves the counts out of all flows that have some, in the order of sender and receiver.
    pub(crate) fn take(&mut self) -> Vec<FlowSnapshot> {
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
    /// Deliveries that were expected in a stage and have not arrived: all, and those of wills.
    const fn lacking_in(&self, stage: u32) -> [i64; 2] {
        let [all, wills] = if self.lacking_stage == stage { self.lacking } else { [0; 2] };
        let FlowCounters {
            expected_total,
            received_total,
            wills_expected_total,
            wills_received_total,
            ..
        } = self.counts.counters;
        [all + expected_total - received_total, wills + wills_expected_total - wills_received_total]
    }
}

#[cfg(test)]
mod tests;
