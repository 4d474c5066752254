//! The load that a plan offers, for preflight and for people: messages sent, expected deliveries
//! and requests of flapping clients a second, phase by phase. Also bytes of packets, and topics or
//! filters that lead nowhere. Exact for each message, by the fan-out; a mean over sampled messages
//! where a publication has many topics.

mod flaps;
mod packets;
mod unmatched;

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::SECOND_NS;
use crate::fan_out::FanOut;
use crate::model::flows::{Pace, Publication};
use crate::model::{Action, Change, ChangeAction, Lifetime, Plan, PlannedStage, Population};

use crate::schedule::rate_profile::{self, RatePoint};
use crate::schedule::tempo::Tempo;

pub use flaps::FlapLoad;
pub use packets::Opening;
pub use unmatched::Unmatched;

/// Messages of a publication, or filters of a subscription, that are sampled at most.
const SAMPLES: u64 = 256;

/// The load that a plan offers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfferedLoad {
    /// One for each stage of the plan.
    pub stages: Vec<StageLoad>,
    /// One for each population of the plan.
    pub populations: Vec<PopulationLoad>,
}

/// The load of one stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageLoad {
    /// `true` if a publication of the stage is a closed loop, which has no rate of its own and is
    /// not among the flows.
    pub closed_loop: bool,
    /// The stage from each change to the next; a stage without changes has one phase.
    pub phases: Vec<PhaseLoad>,
}

/// The load from one change to the next. Clients that join or leave over a time count from its
/// start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseLoad {
    /// Name of the stage, or of the change that the phase begins with.
    pub name: String,
    /// Start of the phase after the start of the stage, in nanoseconds.
    pub after_ns: u64,
    /// Duration in nanoseconds; 0 for a stage that connects or disconnects clients.
    pub duration_ns: u64,
    /// Active clients of each population: after the stage, where it connects or disconnects them.
    pub clients: Vec<u32>,
    /// Publications with a schedule and active clients.
    pub flows: Vec<FlowLoad>,
    /// Populations with flapping subscriptions and active clients.
    pub flaps: Vec<FlapLoad>,
    /// Largest rate of the flows, as a multiple of their mean rate; 1 without a profile.
    pub peak: f64,
}

/// The load of one publication.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowLoad {
    /// Index of the population that publishes.
    pub population: usize,
    /// Index of the publication within its population.
    pub publication: usize,
    /// Messages sent a second, in the mean of the phase. Of clients with a session lifetime the
    /// mean number publishes.
    pub sent_per_s: f64,
    /// Expected deliveries a second, by receiving population.
    pub delivered_per_s: Vec<f64>,
}

/// The facts of a population that hold for the whole plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PopulationLoad {
    /// Most clients that are active at once.
    pub clients_max: u32,
    /// Packets of a connection; `None` without MQTT.
    pub opening: Option<Opening>,
    /// One for each publication.
    pub publications: Vec<PublicationLoad>,
    /// One for each subscription: filters that no publication of the plan matches, or `None`.
    pub subscriptions: Vec<Option<Unmatched>>,
}

/// The facts of a publication that hold for the whole plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublicationLoad {
    /// Bytes of a PUBLISH of the last client at most; without MQTT, of topic and
    /// payload.
    pub message_bytes: u64,
    /// Receivers of a message while all clients of the plan are active, in the mean.
    pub receivers: f64,
    /// Topics that no subscriber receives while the most clients are active, or `None`.
    pub unmatched: Option<Unmatched>,
}

/// Active clients of each population: always those with the lowest indices.
struct Active<'a> {
    plan: &'a Plan,
    counts: Vec<u32>,
}

/// Mean receivers of a publication, by population.
struct MeanReceivers<'a> {
    plan: &'a Plan,
    fan_out: FanOut,
    /// By population, publication and active clients.
    known: HashMap<(usize, usize, Vec<u32>), Vec<f64>>,
}

impl OfferedLoad {
    /// The load of a plan that [`Plan::from_json`] has checked and whose rows are bound.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        let mut active = Active { plan, counts: vec![0; plan.populations.len()] };
        let mut receivers = MeanReceivers::new(plan);
        let stages = plan.stages.iter();
        let stages: Vec<_> = stages.map(|s| stage(s, &mut active, &mut receivers)).collect();
        let mut most = vec![0; plan.populations.len()];
        for phase in stages.iter().flat_map(|stage| &stage.phases) {
            most.iter_mut().zip(&phase.clients).for_each(|(most, &c)| *most = c.max(*most));
        }
        let mut unmatched = unmatched::find(plan, &most, &mut receivers.fan_out);
        let all: Vec<u32> = plan.populations.iter().map(|p| p.clients).collect();
        let mut populations = Vec::new();
        for (p, population) in plan.populations.iter().enumerate() {
            let of_topics = std::mem::take(&mut unmatched[p].topics);
            let publication = |(i, unmatched)| {
                let receivers = receivers.of(p, i, &all).iter().sum();
                let message_bytes = packets::message_bytes(population, &population.publications[i]);
                PublicationLoad { message_bytes, receivers, unmatched }
            };
            debug_assert_eq!(of_topics.len(), population.publications.len());
            populations.push(PopulationLoad {
                clients_max: most[p],
                opening: Opening::of(population),
                publications: of_topics.into_iter().enumerate().map(publication).collect(),
                subscriptions: std::mem::take(&mut unmatched[p].filters),
            });
        }
        Self { stages, populations }
    }
}

fn stage(
    stage: &PlannedStage,
    active: &mut Active<'_>,
    receivers: &mut MeanReceivers<'_>,
) -> StageLoad {
    active.enter(stage);
    let plan = active.plan;
    let (duration_ns, profile) = match &stage.action {
        Action::Publish { duration_ns, rate_profile, .. } => (*duration_ns, &rate_profile[..]),
        Action::Hold { duration_ns, .. } => (*duration_ns, &[][..]),
        Action::Connect { .. } | Action::Disconnect { .. } => (0, &[][..]),
    };
    let changes = stage.action.changes();
    let tempo = Tempo::new(profile);
    let mut factors = vec![0.0; plan.populations.len()];
    let mut closed_loop = false;
    if matches!(stage.action, Action::Publish { .. }) {
        for &p in &stage.populations {
            factors[p] = 1.0;
            let mut paces = plan.populations[p].publications.iter().map(|p| &p.pace);
            closed_loop |= paces.any(|pace| matches!(pace, Pace::Closed));
        }
    }
    let (mut phases, mut name, mut after_ns) = (Vec::new(), &stage.name, 0);
    // The changes of the shares of one population have one name and one instant.
    for together in changes.chunk_by(|one, next| one.name == next.name) {
        let end_ns = together[0].after_ns;
        let span = Span::new(name, (after_ns, end_ns), profile, &tempo);
        phases.push(phase(span, active, &factors, receivers));
        (name, after_ns) = (&together[0].name, end_ns);
        for change in together {
            active.change(change);
            match change.action {
                ChangeAction::Rate { factor } if stage.populations.contains(&change.population) => {
                    factors[change.population] = factor;
                }
                _ => {}
            }
        }
    }
    let span = Span::new(name, (after_ns, duration_ns), profile, &tempo);
    phases.push(phase(span, active, &factors, receivers));
    StageLoad { closed_loop, phases }
}

/// Time from one change to the next.
#[derive(Clone, Copy)]
struct Span<'a> {
    name: &'a str,
    after_ns: u64,
    duration_ns: u64,
    /// Mean factor of the profile.
    mean: f64,
    /// Largest factor of the profile, as a multiple of the mean.
    peak: f64,
}

impl<'a> Span<'a> {
    fn new(name: &'a str, span: (u64, u64), profile: &[RatePoint], tempo: &Tempo) -> Self {
        let (after_ns, duration_ns) = (span.0, span.1 - span.0);
        let passed_ns = tempo.schedule_ns(span.1) - tempo.schedule_ns(span.0);
        let is_plain = profile.is_empty() || duration_ns == 0;
        let mean = if is_plain { 1.0 } else { passed_ns as f64 / duration_ns as f64 };
        let is_even = is_plain || mean == 0.0;
        let peak =
            if is_even { 1.0 } else { (rate_profile::largest(profile, span) / mean).max(1.0) };
        Self { name, after_ns, duration_ns, mean, peak }
    }
}

fn phase(
    span: Span<'_>,
    active: &Active<'_>,
    factors: &[f64],
    receivers: &mut MeanReceivers<'_>,
) -> PhaseLoad {
    let (mut flows, mut flaps) = (Vec::new(), Vec::new());
    for (p, population) in active.plan.populations.iter().enumerate() {
        let present = f64::from(active.counts[p]) * population.share_active();
        flaps.extend(FlapLoad::of(p, population, active.counts[p], present));
        let publishers = present * factors[p] * span.mean;
        for (publication, planned) in population.publications.iter().enumerate() {
            let Pace::Open { period_ns, .. } = planned.pace else { continue };
            if publishers == 0.0 {
                continue;
            }
            let sent_per_s = publishers * SECOND_NS as f64 / period_ns as f64;
            let each = receivers.of(p, publication, &active.counts);
            let delivered_per_s = each.iter().map(|receivers| receivers * sent_per_s).collect();
            flows.push(FlowLoad { population: p, publication, sent_per_s, delivered_per_s });
        }
    }
    let Span { name, after_ns, duration_ns, peak, .. } = span;
    let (name, clients) = (name.to_owned(), active.counts.clone());
    PhaseLoad { name, after_ns, duration_ns, clients, flows, flaps, peak }
}

impl Active<'_> {
    fn enter(&mut self, stage: &PlannedStage) {
        for (i, &p) in stage.populations.iter().enumerate() {
            match &stage.action {
                Action::Connect { clients, .. } => {
                    let all = self.plan.populations[p].clients;
                    let wanted = clients.as_ref().map_or(all, |clients| clients[i]);
                    self.counts[p] = self.counts[p].max(wanted);
                }
                Action::Disconnect { .. } => self.counts[p] = 0,
                Action::Publish { .. } | Action::Hold { .. } => {}
            }
        }
    }

    fn change(&mut self, change: &Change) {
        let (count, all) =
            (&mut self.counts[change.population], self.plan.populations[change.population].clients);
        match change.action {
            ChangeAction::Add { clients, .. } => *count = count.saturating_add(clients).min(all),
            ChangeAction::Remove { clients, .. } => *count = count.saturating_sub(clients),
            ChangeAction::Migrate { .. } | ChangeAction::Rate { .. } => {}
        }
    }
}

impl<'a> MeanReceivers<'a> {
    fn new(plan: &'a Plan) -> Self {
        Self { plan, fan_out: FanOut::with_all_groups(plan), known: HashMap::new() }
    }

    /// Receivers in each population of a message of a publication, in the mean over its topics.
    fn of(&mut self, population: usize, publication: usize, active: &[u32]) -> &[f64] {
        let (plan, fan_out) = (self.plan, &mut self.fan_out);
        let key = (population, publication, active.to_vec());
        self.known.entry(key).or_insert_with(|| {
            set_active(fan_out, active);
            let published = &plan.populations[population].publications[publication];
            let topic = &published.topic;
            let clients = active[population];
            let (mut sum, mut counts) = (vec![0u64; active.len()], Vec::new());
            let mut messages = 0u32;
            for (client, variant) in sampled_topics(clients, published) {
                let text =
                    topic.text(plan.populations[population].first + u64::from(client), variant);
                let origin = plan.origin((population, client), publication, variant);
                fan_out.deliveries(&text, origin, &mut counts);
                sum.iter_mut().zip(&counts).for_each(|(sum, count)| *sum += count);
                messages += 1;
            }
            let mean = |sum: u64| sum as f64 / f64::from(messages.max(1));
            sum.into_iter().map(mean).collect()
        })
    }
}

fn set_active(fan_out: &mut FanOut, active: &[u32]) {
    active.iter().enumerate().for_each(|(p, &clients)| fan_out.set_receivers(p, clients));
}

/// Up to [`SAMPLES`] clients with a value of the topic of a publication, evenly spread.
fn sampled_topics(clients: u32, published: &Publication) -> Box<dyn Iterator<Item = (u32, u32)>> {
    match published.payload.recorded() {
        Some(recorded) => Box::new(recorded.sampled(clients, SAMPLES).into_iter()),
        None => Box::new(sampled_values(clients, published)),
    }
}

/// The same without recorded messages: each value as often as its weight, if there are weights.
fn sampled_values(
    clients: u32,
    published: &Publication,
) -> impl Iterator<Item = (u32, u32)> + use<> {
    let ends = published.weight_ends();
    let places = ends.last().map_or_else(|| published.topic.variants(), |&end| end);
    sampled(clients, places).map(move |(client, place)| {
        let weighted = || ends.partition_point(|&end| end <= place) as u32;
        (client, if ends.is_empty() { place } else { weighted() })
    })
}

/// Up to [`SAMPLES`] clients, each with a value of its template's range, evenly spread over all
/// pairs; the first and the last pair are among them.
fn sampled(clients: u32, variants: u32) -> impl Iterator<Item = (u32, u32)> {
    let pairs = u64::from(clients) * u64::from(variants);
    let count = pairs.min(SAMPLES);
    let place = move |i: u64| {
        let spread = u128::from(i) * u128::from(pairs.saturating_sub(1)) / u128::from(SAMPLES - 1);
        if pairs <= SAMPLES { i } else { spread as u64 }
    };
    (0..count).map(place).map(move |place| {
        let (client, variant) = (place % u64::from(clients), place / u64::from(clients));
        (client as u32, variant as u32)
    })
}

impl Population {
    /// Share of the time for which an active client is connected, in the mean.
    fn share_active(&self) -> f64 {
        match self.lifetime {
            Some(Lifetime { min_ns, max_ns, offline_ns: Some(offline_ns), .. }) => {
                let stay_ns = (min_ns as f64 + max_ns as f64) / 2.0;
                stay_ns / (stay_ns + offline_ns as f64)
            }
            _ => 1.0,
        }
    }
}

#[cfg(test)]
mod tests;
