//! The sums of the snapshots of a simulated run, and the messages on its wire.

use std::collections::BTreeMap;

use mqtt::{QoS, topic};
use plan::{
    AnswerCounters, Counters, End, FlowCounters, Gauges, Histogram, Outcomes, Plan, Population,
    Reason, Shard, Snapshot, Template,
};

use super::case::Case;
use super::course::Run;
use super::spoken::Spoken;
use super::wire::AgentClient;
use super::{amqp, nats};

/// The sums of the snapshots of a run.
#[derive(PartialEq)]
pub struct Totals {
    /// By population.
    pub counters: Vec<Counters>,
    /// By population.
    pub outcomes: Vec<Outcomes>,
    /// By population, over the last snapshots of all agents.
    pub gauges: Vec<Gauges>,
    /// By publishing and receiving population.
    pub flows: BTreeMap<(usize, usize), FlowCounters>,
    /// By population.
    pub answers: Vec<AnswerCounters>,
    /// Of all flows.
    pub latency: Histogram,
    /// Of all flows.
    pub queued_latency: Histogram,
    /// By population.
    pub resumed: Vec<Histogram>,
    /// Of all populations.
    pub round_trip: Histogram,
    /// The population that answers, if there is one.
    responding: Option<usize>,
}

impl Totals {
    /// The sums over a run.
    pub fn of(run: &Run) -> Self {
        Self::over(run.plan(), run.snapshots.iter())
    }

    /// The sums over snapshots in any order.
    pub fn over<'a>(plan: &Plan, snapshots: impl Iterator<Item = &'a Snapshot>) -> Self {
        let populations = plan.populations.len();
        let mut totals = Self {
            counters: vec![Counters::default(); populations],
            outcomes: vec![Outcomes::default(); populations],
            gauges: vec![Gauges::default(); populations],
            flows: BTreeMap::new(),
            answers: vec![AnswerCounters::default(); populations],
            latency: Histogram::default(),
            queued_latency: Histogram::default(),
            resumed: vec![Histogram::default(); populations],
            round_trip: Histogram::default(),
            responding: plan.populations.iter().position(|p| p.responds.is_some()),
        };
        let mut last: BTreeMap<u32, &Snapshot> = BTreeMap::new();
        for snapshot in snapshots {
            let newest = last.entry(snapshot.agent).or_insert(snapshot);
            *newest = if newest.sequence < snapshot.sequence { snapshot } else { newest };
            for (p, population) in snapshot.populations.iter().enumerate() {
                totals.counters[p].add(&population.counters);
                totals.answers[p].add(&population.answers);
                totals.round_trip.add(&population.round_trip);
                totals.resumed[p].add(&population.connect_time_resumed);
                for (reason, count) in &population.outcomes {
                    *totals.outcomes[p].entry(*reason).or_default() += count;
                }
            }
            for flow in &snapshot.flows {
                totals.flows.entry((flow.from, flow.to)).or_default().add(&flow.counters);
                totals.latency.add(&flow.latency_intended);
                totals.queued_latency.add(&flow.queued_latency);
            }
        }
        for snapshot in last.values() {
            for (p, population) in snapshot.populations.iter().enumerate() {
                totals.gauges[p].add(&population.gauges);
            }
        }
        totals
    }

    /// A flow without answers.
    pub fn flow(&self, from: usize, to: usize) -> FlowCounters {
        let mut flow = self.flows.get(&(from, to)).copied().unwrap_or_default();
        if from == self.responding.unwrap_or(to) {
            flow.expected_total -= self.answers[to].answers_expected_total;
            flow.received_total -= self.answers[to].answered_total;
        }
        flow
    }
}

/// Messages of each population that were written in full, each once.
pub fn written(run: &Run) -> Vec<u64> {
    let publishers = publishers(run.plan());
    let mut written = vec![0; run.plan().populations.len()];
    for ((key, _), (_, qos)) in &run.network().wire.sent {
        let (population, publication) = publishers[(key >> 48) as usize];
        let planned = run.plan().populations[population].publications[publication].qos;
        assert_eq!(*qos, QoS::try_from(planned).expect("0, 1 or 2"));
        written[population] += 1;
    }
    for (client, answers) in &run.network().wire.answers_sent {
        written[population_of(run, *client)] += answers;
    }
    written
}

/// Number of flows of a population's publications.
pub fn flows_from(run: &Run, from: usize) -> i64 {
    run.plan().flows.iter().filter(|flow| flow.population == from).count() as i64
}

/// Population and index of each publication.
pub fn publishers(plan: &Plan) -> Vec<(usize, usize)> {
    let of = |(p, population): (usize, &Population)| {
        (0..population.publications.len()).map(move |index| (p, index))
    };
    plan.populations.iter().enumerate().flat_map(of).collect()
}

/// Connections of a population that may have ended with a will: those that were lost, those that
/// end so by the plan, and those whose broker did not prove itself.
pub fn deaths(run: &Run, totals: &Totals, population: usize) -> i64 {
    let counters = &totals.counters[population];
    let dies = run.plan().populations[population].end != End::Disconnect;
    let died = if dies { counters.connected_total } else { 0 };
    let unproved = totals.outcomes[population].get(&Reason::ServerUnproved).copied().unwrap_or(0);
    (counters.disconnected_total + died + unproved).cast_signed()
}

/// Wills of one population that were read by another.
pub fn wills_by_wire(run: &Run, from: usize, to: usize) -> i64 {
    let network = run.network();
    let own = |((client, of), _): &(&(AgentClient, usize), &u64)| {
        *of == from && population_of(run, *client) == to
    };
    network.wire.wills.iter().filter(own).map(|(_, count)| count.cast_signed()).sum()
}

/// A name under which the messages of a stream arrive at a broker.
pub struct StreamName {
    /// The name, in the words of the broker.
    pub text: String,
    /// Protocol of the broker.
    pub spoken: Spoken,
    /// Index of the flow that has it; `None` for the topic of the publication.
    pub flow: Option<usize>,
}

/// Messages of one stream that were written, under one of its names.
pub struct Messages {
    pub from: usize,
    /// The client, by its index over all agents.
    pub client: u32,
    pub name: StreamName,
    pub count: i64,
}

/// All messages that were written, under all of their names.
pub fn messages(run: &Run) -> Vec<Messages> {
    let publishers = publishers(run.plan());
    let mut messages: BTreeMap<u64, i64> = BTreeMap::new();
    run.network().wire.sent.keys().for_each(|(key, _)| *messages.entry(*key).or_default() += 1);
    let named = messages.into_iter().flat_map(|(key, count)| {
        let (from, names) = names_of(key, run.plan(), &publishers);
        let client = key as u32;
        names.into_iter().map(move |name| Messages { from, client, name, count })
    });
    named.collect()
}

/// The publishing population and the names of a stream: its topic, and those of flows.
pub fn names_of(key: u64, plan: &Plan, publishers: &[(usize, usize)]) -> (usize, Vec<StreamName>) {
    let (from, publication) = publishers[(key >> 48) as usize];
    let population = &plan.populations[from];
    let (variant, client) = ((key >> 32 & 0xffff) as u32, key as u32);
    let n = population.first + u64::from(client);
    let name = |template: &Template, of: &Population, flow| {
        let spoken = Spoken::of(&of.protocol);
        StreamName { text: template.text(n, variant), spoken, flow }
    };
    let own = name(&population.publications[publication].topic, population, None);
    let flows = plan.flows.iter().enumerate();
    let flows =
        flows.filter(|(_, flow)| (flow.population, flow.publication) == (from, publication));
    let of_flows = flows.map(|(f, flow)| name(&flow.to, &plan.populations[flow.at], Some(f)));
    (from, std::iter::once(own).chain(of_flows).collect())
}

/// Returns `true` for clients of NATS.
pub fn speaks_nats(population: &Population) -> bool {
    matches!(population.protocol, plan::PlannedProtocol::Nats(_))
}

/// Returns `true` for clients of AMQP.
pub fn speaks_amqp(population: &Population) -> bool {
    matches!(population.protocol, plan::PlannedProtocol::Amqp(_))
}

/// Number of filters of a client, which has the number `n`, that match a name in a case. The name
/// may be that of the other protocol of one server.
pub fn matches(case: &Case, population: &Population, n: u64, name: &StreamName) -> usize {
    let spoken = Spoken::of(&population.protocol);
    let is_amqp = [spoken, name.spoken].contains(&Spoken::Amqp);
    if spoken != name.spoken && (is_amqp || !case.is_joined()) {
        return 0;
    }
    let filters = population.subscriptions.iter().map(|subscription| &subscription.filter);
    let texts = filters.flat_map(|filter| (0..filter.variants()).map(move |v| filter.text(n, v)));
    texts.filter(|filter| is_match(spoken, filter, &name.text)).count()
}

fn is_match(spoken: Spoken, filter: &str, name: &str) -> bool {
    let group = filter.strip_prefix("$share/").and_then(|rest| rest.split_once('/'));
    let plain = group.map_or(filter, |(_, filter)| filter);
    match spoken {
        Spoken::Mqtt => topic::matches(filter, &name.replace('.', "/")),
        Spoken::Nats => nats::matches(plain, &name.replace('/', ".")),
        Spoken::Amqp => {
            let parts = plain.rsplit_once('/').zip(name.rsplit_once('/'));
            parts.is_some_and(|((own, filter), (exchange, key))| {
                own == exchange && amqp::matches(filter, key)
            })
        }
    }
}

/// Population of a client of an agent.
pub fn population_of(run: &Run, (agent, mut index): (usize, u32)) -> usize {
    let shard = Shard::new(agent as u32, run.case.agents).expect("it is an agent's");
    for (p, population) in run.plan().populations.iter().enumerate() {
        let share = shard.share(population.clients);
        if index < share {
            return p;
        }
        index -= share;
    }
    unreachable!("every client has a population")
}
