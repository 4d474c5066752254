//! Expected deliveries: the messages that each population must receive. They follow from what was
//! published, by the fan-out of the plan. A population whose members change in a stage is excluded
//! from loss in that stage: its expected deliveries are those that it has received.

mod answers;
mod balance;
mod offline;
mod receivers;
pub mod retained;
pub mod returned;
pub mod stalls;
mod wills;

use agent::tally::Tally;
use plan::{Action, Expected, FanOut, Plan, Stamp, Ways};

use crate::setup::Setup;

use answers::Answers;
use balance::Balance;
pub use balance::Batch;
pub use offline::Absence;
use offline::Offline;
use receivers::Receivers;
pub use wills::Death;
use wills::Wills;

/// Expected deliveries of all populations.
pub struct Expectations {
    /// Active clients of each population over all agents: those with the lowest indices.
    pub active: Vec<u32>,
    /// `true` for a population whose expected deliveries follow from what was published; `false`
    /// for one that is excluded from loss.
    counts_loss: Vec<bool>,
    /// `true` for a population whose clients expect each message once: none is a member of shared
    /// groups, no message expires for them, and none was offline while the broker kept messages.
    is_simple: Vec<bool>,
    receivers: Receivers,
    answers: Answers,
    wills: Wills,
    offline: Offline,
    balance: Balance,
}

impl Expectations {
    /// Expectations before the first stage.
    pub fn new(setup: &Setup) -> Self {
        let plan = &setup.plan;
        let populations = plan.populations.len();
        let (fan_out, offline) = (FanOut::new(plan), Offline::new(setup));
        // A replacement of a lost agent does not know who was offline before.
        let may_have_waited = |p| setup.incarnation > 0 && offline.keeps_messages_for(p);
        let is_simple =
            |p| !fan_out.has_groups(p) && !offline.may_expire_for(p) && !may_have_waited(p);
        Self {
            is_simple: (0..populations).map(is_simple).collect(),
            active: vec![0; populations],
            counts_loss: vec![true; populations],
            answers: Answers::new(plan, &fan_out),
            receivers: Receivers::new(fan_out),
            wills: Wills::default(),
            offline,
            balance: Balance::default(),
        }
    }

    /// Takes the stage `index`, which comes next and begins at `start_ns`.
    pub fn announce_stage(&mut self, plan: &Plan, (index, start_ns): (usize, u64)) {
        if let Some(stage) = plan.stages.get(index) {
            self.offline.announce(stage, start_ns, &self.active);
            if !matches!(stage.action, Action::Publish { .. }) {
                return;
            }
            for (population, is_simple) in self.is_simple.iter_mut().enumerate() {
                let has_offline = self.active[population] < self.receivers.clients(population);
                *is_simple &= !has_offline || !self.offline.keeps_messages_for(population);
            }
        }
    }

    /// Begins stage `index`, in which the populations `leaving` disconnect. A session that the
    /// broker keeps receives messages while its client is offline. A population with session
    /// lifetimes, with flapping subscriptions, or with client identifiers of another one, is
    /// excluded from loss.
    pub fn begin_stage(
        &mut self,
        setup: &Setup,
        index: usize,
        leaving: &[usize],
        tally: &mut Tally,
    ) {
        let plan = &setup.plan;
        self.wills.begin_stage(leaving);
        self.offline.begin_stage(&plan.stages[index]);
        self.receivers.begin_stage(plan, &self.active);
        self.answers.begin_stage(&self.receivers);
        self.counts_loss.fill(true);
        tally.begin_stage();
        for (index, population) in plan.populations.iter().enumerate() {
            let is_brief = population.lifetime.is_some() || population.flapping.is_some();
            if is_brief || setup.populations[index].rival.is_some() {
                self.exclude_from_loss(index, tally);
            }
        }
    }

    /// Sets expected = received for a population, up to the end of the stage.
    pub fn exclude_from_loss(&mut self, population: usize, tally: &mut Tally) {
        if std::mem::replace(&mut self.counts_loss[population], false) {
            tally.exclude_from_loss(population);
            self.offline.exclude_from_loss(population);
            self.answers.exclude_from_loss(population, tally);
        }
    }

    /// Returns `true` if missing deliveries to a population are lost.
    #[inline]
    pub fn counts_loss(&self, population: usize) -> bool {
        self.counts_loss[population]
    }

    /// Clients of a population, over all agents, to which the broker delivers in this stage.
    pub fn receivers_of(&self, population: usize) -> u32 {
        self.receivers.clients(population)
    }

    /// Returns `true` if each client that receives in this stage expects the same messages, if the
    /// plan says so of its population. Messages that may expire are not expected of offline ones.
    pub fn expects_alike(&self, population: usize) -> bool {
        !self.receivers.has_offline(population) || !self.offline.may_expire_for(population)
    }

    /// The absence of a client that has received a message, which waited for the client or came
    /// after others that have expired; `None` for other messages.
    #[inline]
    pub fn absence(&self, to: usize, client: u32, stamp: &Stamp) -> Option<Absence> {
        self.offline.absence((to, client), self.active[to], stamp)
    }

    /// Returns `true` if the clients of a population expect each message once, whatever its topic.
    #[inline]
    pub fn is_simple(&self, population: usize) -> bool {
        self.is_simple[population]
    }

    /// The ways in which a client at `target` may receive a message on `topic`.
    pub fn ways(&self, population: usize, client: u32, topic: &str, target: usize) -> Ways {
        self.receivers.ways(population, client, topic, target)
    }

    /// Number of copies of a message on `topic` that the broker may send a client for its filters,
    /// of those whose identifier is meant [MQTT-3.3.5-1].
    pub fn copies(
        &self,
        client: (usize, u32),
        topic: &str,
        is_meant: impl Fn(Option<u32>) -> bool,
    ) -> usize {
        self.receivers.filters_of(client, topic, is_meant)
    }

    /// Counts a delivery that carries no stamp of this run.
    pub fn note_unstamped(&mut self, setup: &Setup, tally: &mut Tally, delivery: &Unstamped<'_>) {
        let Unstamped { to, index, client, target, topic, payload, now_ns } = *delivery;
        let publisher = topic.and_then(|topic| setup.unstamped_publisher(to, target, topic));
        let will = topic.and_then(|topic| {
            let owner = setup.owner_of_will(to, topic)?;
            let is_will = |publisher| {
                let name = setup.name_for(publisher, to, topic);
                name.is_some_and(|name| setup.is_will(owner, publisher, &name, payload))
            };
            publisher.is_none_or(is_will).then_some(owner)
        });
        let (Some(from), Some(topic)) = (will.or(publisher), topic) else {
            let names = setup.plan.populations[to].capabilities().names;
            let is_carried =
                topic.is_some_and(|topic| setup.plan.is_carried_to(names, target, topic));
            let counters = &mut tally.populations[to].counters;
            counters.unstamped_total += u64::from(is_carried);
            counters.foreign_total += u64::from(!is_carried);
            return;
        };
        let is_will = will.is_some();
        let expecting = match self.receivers.ways(to, client, topic, target).expected {
            Expected::Client => Some(to),
            Expected::Group { population, .. } => Some(usize::from(population)),
            Expected::Nothing => None,
        };
        let counts =
            |&p: &usize| self.counts_loss[p] && (!is_will || self.wills.are_expected_by(p));
        let expecting = expecting.filter(counts);
        if let Some(other) = expecting.filter(|&other| other != to) {
            let counters = &mut tally.flow(from, other).counters;
            counters.expected_total -= 1;
            counters.wills_expected_total -= i64::from(is_will);
        }
        let unexpected = i64::from(expecting != Some(to));
        if !is_will {
            let flow = tally.note_run((from, to), index, 1);
            flow.counters.expected_total += unexpected;
            return;
        }
        let flow = tally.flow(from, to);
        flow.counters.received_total += 1;
        flow.counters.expected_total += unexpected;
        flow.counters.wills_received_total += 1;
        flow.counters.wills_expected_total += unexpected;
        let name = setup.name_for(from, to, topic);
        if let Some(due_ns) = name.and_then(|name| self.wills.known_ns(&name)) {
            flow.will_latency.record(now_ns.cast_signed() - due_ns.cast_signed());
        }
    }
}

/// A delivery that carries no stamp of this run.
#[derive(Clone, Copy)]
pub struct Unstamped<'a> {
    /// Index of the receiving population.
    pub to: usize,
    /// Index of the receiver in this agent.
    pub index: u32,
    /// Index of the receiver in its population, over all agents.
    pub client: u32,
    /// Index of the receiver's target.
    pub target: usize,
    /// Topic; `None` if it is no text.
    pub topic: Option<&'a str>,
    /// Payload.
    pub payload: &'a [u8],
    /// Instant of the delivery, in nanoseconds.
    pub now_ns: u64,
}
