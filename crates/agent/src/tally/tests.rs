use plan::{FlowCounters, FlowSnapshot};
use proptest::prelude::*;

use super::Flows;

/// A flow for every pair of populations, in one square: the reference.
struct Square {
    populations: usize,
    flows: Vec<FlowSnapshot>,
    lacking: Vec<[i64; 3]>,
}

#[derive(Clone, Debug)]
enum Call {
    /// Counts in the flow between two populations: expected, received, of wills, queued, latency.
    Count(usize, usize, [i64; 5], i64),
    /// Lends a flow, which does not change.
    Lend(usize, usize),
    Exclude(usize),
    Snapshot,
    /// A snapshot, then the next stage.
    Stage,
}

const POPULATIONS: usize = 5;

impl Square {
    fn new(populations: usize) -> Self {
        let flow = |index| FlowSnapshot {
            from: index / populations,
            to: index % populations,
            ..FlowSnapshot::default()
        };
        let square = populations * populations;
        Self { populations, flows: (0..square).map(flow).collect(), lacking: vec![[0; 3]; square] }
    }

    fn exclude_from_loss(&mut self, to: usize) {
        for (flow, before) in self.flows.iter_mut().zip(&self.lacking) {
            if flow.to == to {
                let [all, wills, queued] = lacking(&flow.counters);
                flow.counters.expected_total -= before[0] + all;
                flow.counters.wills_expected_total -= before[1] + wills;
                flow.counters.queued_total -= before[2] + queued;
                flow.counters.queued_lost_total -= before[2] + queued;
            }
        }
    }

    fn take(&mut self) -> Vec<FlowSnapshot> {
        let mut taken = Vec::new();
        for (flow, before) in self.flows.iter_mut().zip(&mut self.lacking) {
            let [all, wills, queued] = lacking(&flow.counters);
            *before = [before[0] + all, before[1] + wills, before[2] + queued];
            if flow.counters != FlowCounters::default() {
                let FlowSnapshot { from, to, .. } = *flow;
                let empty = FlowSnapshot { from, to, ..FlowSnapshot::default() };
                taken.push(std::mem::replace(flow, empty));
            }
        }
        taken
    }
}

const fn lacking(counters: &FlowCounters) -> [i64; 3] {
    [
        counters.expected_total - counters.received_total,
        counters.wills_expected_total - counters.wills_received_total,
        counters.queued_total,
    ]
}

fn count(flow: &mut FlowSnapshot, counts: [i64; 5], latency_ns: i64) {
    let [expected, received, wills, more, queued] = counts;
    flow.counters.expected_total += expected;
    flow.counters.received_total += received;
    flow.counters.wills_expected_total += wills;
    flow.counters.wills_received_total += more;
    flow.counters.queued_total += queued;
    flow.counters.queued_lost_total += queued;
    flow.latency_intended.record(latency_ns);
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let index = || 0..POPULATIONS;
    let one = prop_oneof![
        5 => (index(), index(), prop::array::uniform5(-2i64..9), 0i64..1 << 30)
            .prop_map(|(from, to, counts, latency_ns)| Call::Count(from, to, counts, latency_ns)),
        1 => (index(), index()).prop_map(|(from, to)| Call::Lend(from, to)),
        3 => index().prop_map(Call::Exclude),
        2 => Just(Call::Snapshot),
        1 => Just(Call::Stage),
    ];
    prop::collection::vec(one, 0..60)
}

proptest! {
    #[test]
    fn sparse_flows_give_the_snapshots_of_a_square(calls in calls()) {
        let (mut flows, mut square) = (Flows::new(POPULATIONS), Square::new(POPULATIONS));
        for call in calls {
            match call {
                Call::Count(from, to, counts, latency_ns) => {
                    count(flows.flow(from, to), counts, latency_ns);
                    count(&mut square.flows[from * square.populations + to], counts, latency_ns);
                }
                Call::Lend(from, to) => drop(flows.flow(from, to).clone()),
                Call::Exclude(to) => {
                    flows.exclude_from_loss(to);
                    square.exclude_from_loss(to);
                }
                Call::Snapshot => prop_assert_eq!(flows.take(), square.take()),
                Call::Stage => {
                    prop_assert_eq!(flows.take(), square.take());
                    flows.begin_stage();
                    square.lacking.fill([0; 3]);
                }
            }
        }
        prop_assert_eq!(flows.take(), square.take());
    }
}

#[test]
fn only_flows_that_count_exist() {
    let mut flows = Flows::new(10_000);
    flows.flow(3, 9_999).counters.received_total += 1;
    flows.flow(3, 9_999).counters.received_total += 1;
    (0..10_000).for_each(|to| flows.exclude_from_loss(to));
    assert_eq!(flows.list.len(), 1);
    assert_eq!(flows.take()[0].counters.received_total, 2);
    assert!(flows.take().is_empty());
}
