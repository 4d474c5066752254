//! Delays of latencies in virtual time: one cause of delay at a time, of known size.

use plan::{Delays, FlowSnapshot, Histogram, Population, PopulationSnapshot};

use crate::course::{Run, played};
use crate::weather::{Fault, MS, S, Weather};
use testkit::plans::{self, publication, subscription};

/// One latency of a run.
#[derive(Debug, Default)]
struct Latency {
    /// Sum of the lateness, in nanoseconds.
    lateness_ns: u64,
    /// Parts in the order of an delays, in nanoseconds.
    parts_ns: [u64; 4],
}

impl Latency {
    fn add(&mut self, [intended, actual]: [&Histogram; 2], delays: &Delays) {
        self.lateness_ns += sum_ns(intended) - sum_ns(actual);
        for (_, agent, window, socket, connection) in Vec::from(delays.clone()) {
            let parts_ns: [u64; 4] = [agent, window, socket, connection];
            self.parts_ns.iter_mut().zip(parts_ns).for_each(|(sum, part)| *sum += part);
        }
    }

    /// Fails if not nearly all lateness is this part, at least `least_ns`.
    fn check(&self, part: usize, least_ns: u64) {
        let sum_ns: u64 = self.parts_ns.iter().sum();
        assert_eq!(sum_ns, self.lateness_ns, "{self:?}");
        assert!(self.parts_ns[part] >= least_ns, "{self:?}");
        assert!(self.parts_ns[part] >= self.lateness_ns / 100 * 98, "{self:?}");
    }
}

fn sum_ns(histogram: &Histogram) -> u64 {
    serde_json::to_value(histogram).expect("it is plain data")["sum_ns"].as_u64().unwrap_or(0)
}

/// One publisher and one subscriber of its topic.
fn pair(qos: u8, period_ns: u64, window: u16) -> Vec<Population> {
    let mut publisher = plans::population("publisher", 1);
    publisher.publications = vec![plan::Publication { window, ..publication("t", qos, period_ns) }];
    let mut subscriber = plans::population("subscriber", 1);
    subscriber.subscriptions = vec![subscription("t", 0)];
    vec![publisher, subscriber]
}

/// Latencies of the acknowledgements and of the deliveries of a run.
fn latencies(run: &Run) -> [Latency; 2] {
    let [mut acknowledgements, mut deliveries] = [Latency::default(), Latency::default()];
    for snapshot in &run.snapshots {
        let PopulationSnapshot { ack_intended, ack_actual, ack_delays, .. } =
            &snapshot.populations[0];
        acknowledgements.add([ack_intended, ack_actual], ack_delays);
        for FlowSnapshot { latency_intended, latency_actual, latency_delays, .. } in &snapshot.flows
        {
            deliveries.add([latency_intended, latency_actual], latency_delays);
        }
    }
    [acknowledgements, deliveries]
}

const AGENT: usize = 0;
const WINDOW: usize = 1;
const SOCKET: usize = 2;
const CONNECTION: usize = 3;

#[test]
fn a_client_with_a_window_of_one_waits_for_a_broker_that_holds_acknowledgements() {
    let faults = vec![(S, Fault::Stall { per_cent: 100, ns: 500 * MS })];
    let weather = Weather { faults, ..Weather::fair() };
    let run = played(pair(1, 10 * MS, 1), 2 * S, weather);
    // Half a second without acknowledgements: 50 messages wait 250 ms in the mean.
    for latency in latencies(&run) {
        latency.check(WINDOW, 50 * 240 * MS);
    }
}

#[test]
fn messages_that_were_due_while_the_agent_stood_still_are_late_by_the_agent() {
    let faults = vec![(S, Fault::Standstill { ns: 90 * MS })];
    let weather = Weather { faults, ..Weather::fair() };
    let run = played(pair(1, 10 * MS, 100), 2 * S, weather);
    // 9 messages of every 10 ms of the standstill.
    for latency in latencies(&run) {
        latency.check(AGENT, (10..90).step_by(10).map(|ms| ms * MS).sum());
    }
}

#[test]
fn messages_behind_bytes_without_room_wait_for_the_socket() {
    let weather = Weather { room: (200, 200), gulp_max: 100, gulp_ns: 2 * MS, ..Weather::fair() };
    let run = played(pair(0, MS, 100), S, weather);
    let [_, deliveries] = latencies(&run);
    deliveries.check(SOCKET, S);
}

#[test]
fn messages_that_were_due_without_a_connection_wait_for_the_connection() {
    let faults = vec![(S, Fault::Restart { down_ns: 300 * MS, forgets: false })];
    let weather = Weather { faults, ..Weather::fair() };
    let run = played(pair(1, 10 * MS, 100), 2 * S, weather);
    let [acknowledgements, _] = latencies(&run);
    // 30 messages that wait for half of the outage in the mean, and for the back-off.
    acknowledgements.check(CONNECTION, 30 * 150 * MS);
}
