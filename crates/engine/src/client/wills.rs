//! Wills: deliveries that are expected when a connection ends without DISCONNECT, and their latency
//! from the end of the connection [MQTT-3.1.2-8].

use rustc_hash::FxHashMap;

use super::Client;
use crate::shared::Shared;

/// Reason for an end of a connection without DISCONNECT.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// This agent reset the connection.
    Chosen,
    /// This agent found the connection closed, some time after its end.
    Noticed,
}

/// Wills of this agent's clients whose deliveries have a known latency.
#[derive(Default)]
pub struct Wills {
    /// Instants at which this agent reset connections, in nanoseconds, by the topic of the will.
    ended_ns: FxHashMap<String, u64>,
    /// Populations that leave in the stage that is on.
    leaving: Vec<usize>,
}

impl Wills {
    /// Begins a stage in which these populations leave.
    pub fn begin_stage(&mut self, leaving: &[usize]) {
        self.leaving = leaving.to_vec();
    }

    /// Returns `true` if a population is expected to receive every will. A population that leaves
    /// receives some.
    pub fn are_expected_by(&self, population: usize) -> bool {
        !self.leaving.contains(&population)
    }

    /// The instant at which the connection with a will on this topic was reset, in nanoseconds.
    /// `None` if another agent played the client, or the broker ended the connection.
    pub fn ended_ns(&self, topic: &str) -> Option<u64> {
        self.ended_ns.get(topic).copied()
    }
}

impl Client {
    /// Adds the deliveries of the client's will, if the client has one, to those expected.
    pub(super) fn expect_will(&self, shared: &mut Shared, death: Death) {
        let (population, client) = (self.population(), self.global(shared));
        let target = self.target(shared);
        let Shared { setup, tally, judged, receivers, wills, now_ns, .. } = shared;
        let plan = &setup.plan.populations[population];
        let Some(will) = &plan.will else { return };
        let topic = will.topic.text(plan.first + u64::from(client), 0);
        let bridge = plan.bridge.then_some((population, client));
        let deliveries =
            receivers.deliveries(&topic, target, bridge).iter().zip(judged).enumerate();
        for (receiver, (&deliveries, judged)) in deliveries {
            if *judged && deliveries > 0 && wills.are_expected_by(receiver) {
                let counters = &mut tally.flow(population, receiver).counters;
                counters.expected_total += deliveries.cast_signed();
            }
        }
        // A topic that several clients share does not say whose will it is.
        if death == Death::Chosen && will.topic.has_number() {
            wills.ended_ns.insert(topic, *now_ns);
        } else {
            wills.ended_ns.remove(&topic);
        }
    }
}
