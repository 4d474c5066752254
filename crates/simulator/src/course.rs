//! A whole simulated run, led as the controller leads it: stage after stage with a barrier, a drain
//! behind each publish stage, and a stop.

use std::collections::BTreeMap;

use plan::{Action, Command, Plan, Population, SECOND_NS, Shard, Snapshot};
use testkit::{Broker, Script};

use super::agents::Agents;
use super::case::{Case, case};
use super::network::Network;
use super::peer::Peer;
use super::weather::{MS, S, Weather};

/// Instant at which simulated runs begin, in nanoseconds.
pub const START_NS: u64 = 1_000 * S;
/// Time between the command for a stage and the begin of the stage.
const LEAD_NS: u64 = 20 * MS;
/// Longest time that a stage may take beyond its need if the broker answers.
const PATIENCE_NS: u64 = 20 * S;

/// Times the patience of a drain that it lasts at most: clients with a lifetime and a will never
/// cease to receive.
const DRAINS_MAX: u64 = 200;

/// A run, and its results.
pub struct Run {
    /// The case that was played.
    pub case: Case,
    /// All snapshots.
    pub snapshots: Vec<Snapshot>,
    /// Stages that the controller had to close or to leave behind.
    pub overrun: Vec<usize>,
    /// `true` if a drain ended while deliveries were missing and clients had bytes to read.
    pub left_unread: bool,
    agents: Agents,
    /// Stage and settled state in the last snapshot of each agent.
    last: Vec<Option<(Option<usize>, bool)>>,
}

impl Run {
    /// Plays a case from its first stage to the end of all agents.
    pub fn play(case: Case, seed: u64, agents: u32, peer: Peer) -> Self {
        Self::prepared(case, seed, agents, peer, |_| {})
    }

    /// The same with agents that were prepared.
    pub fn prepared(
        case: Case,
        seed: u64,
        agents: u32,
        mut peer: Peer,
        prepare: impl FnOnce(&mut Agents),
    ) -> Self {
        let weather = case.weather.clone();
        peer.is_joined = case.is_joined();
        let network = Network::new(seed, agents as usize, START_NS, weather, peer);
        let mut agents = Agents::new(&case.plan, agents, network);
        prepare(&mut agents);
        let last = vec![None; agents.count()];
        let (snapshots, overrun) = (Vec::new(), Vec::new());
        let mut run = Self { case, snapshots, overrun, left_unread: false, agents, last };
        for index in 0..run.case.plan.stages.len() {
            run.stage(index);
        }
        run.stop();
        run
    }

    /// The plan.
    pub const fn plan(&self) -> &Plan {
        &self.case.plan
    }

    /// Index of a client of an agent in its population over all agents.
    pub fn global(&self, (agent, mut index): (usize, u32)) -> u32 {
        let shard = Shard::new(agent as u32, self.case.agents).expect("it is an agent's");
        for population in &self.plan().populations {
            let share = shard.share(population.clients);
            if index < share {
                return shard.global(index);
            }
            index -= share;
        }
        unreachable!("every client has a population")
    }

    /// The network, to look at.
    pub fn network(&self) -> std::cell::Ref<'_, Network> {
        self.agents.network.borrow()
    }

    /// One line about it.
    pub fn summary(&self) -> String {
        let network = self.network();
        let ms = (self.agents.now_ns() - START_NS) / MS;
        let waits: u64 = (0..self.agents.count()).map(|agent| network.waits_total(agent)).sum();
        let (agents, climate, stages) =
            (self.agents.count(), self.case.climate, self.plan().stages.len());
        let (connections, packets) = (network.connections_total(), network.wire.packets_sent);
        format!(
            "{climate:?}, {agents} agents, {stages} stages, overrun {:?}, {ms} ms, {waits} waits, \
             {connections} connections, {packets} packets sent, {} received, seen {:?}",
            self.overrun, network.wire.packets_received, network.weather.seen
        )
    }

    fn stage(&mut self, index: usize) {
        let at_ns = self.agents.now_ns() + LEAD_NS;
        self.agents.network.borrow_mut().wire.stage_ns = at_ns;
        self.agents.send(&Command::Stage { index, at_ns });
        let mut commands = self.case.commands_in(index, at_ns, LEAD_NS);
        let mut bound_ns = at_ns + span_ns(self.plan(), index) + PATIENCE_NS;
        while !self.is_settled(index) {
            let next_ns = commands.first().map_or(u64::MAX, |(at_ns, _)| *at_ns);
            self.play_until(next_ns.min(bound_ns));
            if self.agents.now_ns() >= next_ns {
                self.agents.send(&commands.remove(0).1);
            }
            if self.agents.now_ns() >= bound_ns {
                if self.overrun.last() == Some(&index) {
                    break;
                }
                self.overrun.push(index);
                self.agents.send(&Command::Close { sent: Vec::new() });
                bound_ns += S;
            }
        }
        if matches!(self.plan().stages[index].action, Action::Publish { .. }) {
            self.drain();
        }
    }

    /// Waits until all that is expected has come, or nothing comes any more.
    fn drain(&mut self) {
        // Without a snapshot no progress can be seen.
        let patience_ns = self.plan().drain_ns.max(2 * self.plan().snapshot_interval_ns);
        let (mut before, mut since_ns) = (self.received(), self.agents.now_ns());
        let bound_ns = since_ns + DRAINS_MAX * patience_ns;
        while !self.has_everything() && self.agents.now_ns() < bound_ns.min(since_ns + patience_ns)
        {
            self.play_until((self.agents.now_ns() + S).min(since_ns + patience_ns));
            let now = self.received();
            if now != before {
                (before, since_ns) = (now, self.agents.now_ns());
            }
        }
        self.left_unread |= !self.has_everything() && self.network().has_unread();
    }

    fn stop(&mut self) {
        self.agents.send(&Command::Stop);
        let bound_ns = self.agents.now_ns() + PATIENCE_NS;
        while !self.agents.have_ended() {
            assert!(self.agents.now_ns() < bound_ns, "an agent ends after Stop");
            self.play_until(bound_ns);
        }
    }

    fn play_until(&mut self, until_ns: u64) {
        for snapshot in self.agents.play(until_ns) {
            self.last[snapshot.agent as usize] = Some((snapshot.stage, snapshot.settled));
            self.snapshots.push(snapshot);
        }
    }

    fn is_settled(&self, index: usize) -> bool {
        self.last.iter().all(|last| *last == Some((Some(index), true)))
    }

    /// Deliveries of all flows; without wills where a program may have dropped messages. Those
    /// never come, and each drain of clients that never cease to receive wills would last to its
    /// bound.
    fn received(&self) -> i64 {
        let counts_wills = self.plan().flows.is_empty();
        let counters = self.snapshots.iter().flat_map(|s| &s.flows).map(|flow| &flow.counters);
        let received = counters.map(|own| match counts_wills {
            true => own.received_total,
            false => own.received_total - own.wills_received_total,
        });
        received.sum()
    }

    /// Returns `true` if no flow has expected deliveries left. More than expected in one flow make
    /// up for nothing in another, and wills for no messages.
    fn has_everything(&self) -> bool {
        let mut left: BTreeMap<_, [i64; 2]> = BTreeMap::new();
        for flow in self.snapshots.iter().flat_map(|snapshot| &snapshot.flows) {
            let counters = &flow.counters;
            let wills = counters.wills_expected_total - counters.wills_received_total;
            let [of_messages, of_wills] = left.entry((flow.from, flow.to)).or_default();
            *of_messages += counters.expected_total - counters.received_total - wills;
            *of_wills += wills;
        }
        left.values().flatten().all(|&left| left <= 0)
    }
}

/// Least duration of a stage.
fn span_ns(plan: &Plan, index: usize) -> u64 {
    let stage = &plan.stages[index];
    let clients: u32 = stage.populations.iter().map(|&p| plan.populations[p].clients).sum();
    let ramp_ns = |rate: Option<f64>| {
        rate.map_or(0, |rate| (f64::from(clients) / rate * SECOND_NS as f64) as u64)
    };
    match &stage.action {
        Action::Connect { rate_per_s, timeout_ns, .. } => ramp_ns(*rate_per_s) + timeout_ns,
        Action::Publish { duration_ns, .. } | Action::Hold { duration_ns, .. } => *duration_ns,
        Action::Disconnect { rate_per_s } => ramp_ns(*rate_per_s),
    }
}

/// Connects all clients, publishes for `duration_ns`, and disconnects.
pub fn played(populations: Vec<Population>, duration_ns: u64, weather: Weather) -> Run {
    let case = case(populations, duration_ns, weather);
    Run::play(case, 1, 1, Peer::new(Broker::new(Script::reliable())))
}
