//! Wills: deliveries that are expected when a connection ends without DISCONNECT, and their latency
//! from the end of the connection [MQTT-3.1.2-8].

use agent::tally::Tally;
use rustc_hash::FxHashMap;

use super::Expectations;
use crate::setup::Setup;

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
    /// Populations that leave in the current stage.
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

impl Expectations {
    /// Adds the deliveries of a will, if the client has one, after its connection ended at
    /// `now_ns`. The client is given by population and index in the population over all agents.
    pub fn expect_will(
        &mut self,
        setup: &Setup,
        tally: &mut Tally,
        (population, client): (usize, u32),
        (death, now_ns): (Death, u64),
    ) {
        let plan = &setup.plan.populations[population];
        let Some(will) = plan.will() else { return };
        let topic = will.topic.text(plan.first + u64::from(client), 0);
        let target = plan.at.target(setup.plan.seed, population, client);
        let deliveries = self.receivers.deliveries(&topic, target, (population, plan), client);
        for (receiver, &deliveries) in deliveries.iter().enumerate() {
            let is_expected = self.counts_loss[receiver] && self.wills.are_expected_by(receiver);
            if is_expected && deliveries > 0 {
                let counters = &mut tally.flow(population, receiver).counters;
                counters.expected_total += deliveries.cast_signed();
            }
        }
        // A topic that several clients share does not identify the client.
        if death == Death::Chosen && will.topic.has_number() {
            self.wills.ended_ns.insert(topic, now_ns);
        } else {
            self.wills.ended_ns.remove(&topic);
        }
    }
}
