//! The plan prepared for one agent: its clients, their publications and their targets, with all
//! names resolved. Nothing changes after the start.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use agent::clock;
use agent::hint::Hint;
use agent::publication::{PublicationSetup, publications};
use agent::recordings::{self, RecordingError};
use agent::rows::{self, RowsError};
use plan::{
    Action, Capabilities, Payload, Plan, PlannedFlow, PlannedWill, Population, Publication, Shard,
    Subscription,
};

use crate::addresses::{self, AddressError, Sources};
use crate::ledger::origin::Origins;
use crate::seam;
use crate::seam::received::{BESIDE, CARRIED, Marks, RETAINED};
use crate::transport::link::LinkSchedule;
use crate::transport::quic::security::{Quic, QuicError};
use crate::transport::tls::{Tls, TlsError};

/// Failure to prepare a plan on this host.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// Addresses of targets that the clients cannot use.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// No such population.
    #[error("--populations: found {found}, allowed are indices below {count}")]
    NoPopulation {
        /// Index found.
        found: usize,
        /// Number of populations.
        count: usize,
    },
    /// A population whose templates have no values.
    #[error("population {population}: rows: {error}")]
    Rows {
        /// Name of the population.
        population: String,
        /// Cause.
        error: RowsError,
    },
    /// A population whose recorded messages cannot be read.
    #[error("population {population}: replay: {error}")]
    Recording {
        /// Name of the population.
        population: String,
        /// Cause.
        error: RecordingError,
    },
    /// A population whose clients cannot use QUIC.
    #[error("population {population}: tls: {error}")]
    Quic {
        /// Name of the population.
        population: String,
        /// Cause.
        error: QuicError,
    },
    /// A population whose clients cannot use TLS.
    #[error("population {population}: tls: {error}")]
    Tls {
        /// Name of the population.
        population: String,
        /// Cause.
        error: TlsError,
    },
}

/// The part of a plan that one agent plays.
pub struct Assignment {
    /// Share of the clients of its populations.
    pub shard: Shard,
    /// Number of the agent among all engines.
    pub agent: Shard,
    /// Indices of its populations; `None`: all.
    pub populations: Option<Vec<usize>>,
}

impl From<Shard> for Assignment {
    fn from(shard: Shard) -> Self {
        Self { shard, agent: shard, populations: None }
    }
}

/// The plan prepared for one agent.
pub struct Setup {
    /// The plan.
    pub plan: Plan,
    /// This agent's share of the clients of its populations.
    pub shard: Shard,
    /// Number of the agent among all engines.
    pub agent: Shard,
    /// Number of agents that played this share before and failed.
    pub incarnation: u32,
    /// Source addresses, used round-robin.
    pub sources: Sources,
    /// Addresses of each target, at least one.
    pub addresses: Vec<Vec<SocketAddr>>,
    /// One for each population of the plan.
    pub populations: Vec<PopulationSetup>,
    /// Facts from which the origin of a message follows.
    pub origins: Origins,
    /// Difference from an instant of the clock to nanoseconds since 1970.
    pub since_1970_ns: u64,
}

/// One population's share.
pub struct PopulationSetup {
    /// `true` if clients of it are played by this agent, and others of its share.
    pub is_played: bool,
    /// Index of its first client in this agent.
    pub first_client: u32,
    /// Clients of it in this agent.
    pub share: u32,
    /// TLS of the clients; `None` if no target uses TLS.
    pub tls: Option<Tls>,
    /// QUIC of the clients; `None` if no target uses QUIC.
    pub quic: Option<Quic>,
    /// Conditions of the links of the clients; `None` without links.
    pub link: Option<Arc<LinkSchedule>>,
    /// Publications of each client.
    pub publications: Vec<PublicationSetup>,
    /// Settings for the protocol of the clients.
    pub protocol: seam::SessionSetup,
    /// Index of the population with the same client identifiers, if there is one.
    pub rival: Option<usize>,
    /// Subscription identifiers, which distinguish copies of a message; empty if all filters have
    /// the same.
    identifiers: Vec<u32>,
    /// Marks of messages that are no plain deliveries, whatever their stamp.
    pub watched: Marks,
}

impl PopulationSetup {
    /// Returns `true` if subscription identifiers distinguish copies of a message.
    pub const fn distinguishes_copies(&self) -> bool {
        !self.identifiers.is_empty()
    }

    /// Number of the copies of a message for one of the filters with an identifier, or with none:
    /// for that in this place among them. The number of the first place is `None` if the population
    /// does not distinguish copies: its first copy is the delivery.
    ///
    /// Copies of identifiers have the numbers from 1 on, others those from the largest one down.
    pub fn copy_of(&self, identifier: Option<u32>, place: usize) -> Option<u8> {
        let slot = match identifier.filter(|_| self.distinguishes_copies()) {
            Some(number) => self.identifiers.iter().position(|&own| own == number)? + 1,
            None => 0,
        };
        let slots = self.identifiers.len() + 1;
        let number = match place {
            0 if !self.distinguishes_copies() => return None,
            0 if slot > 0 => slot,
            _ => usize::from(u8::MAX).checked_sub(place * slots + slot)?,
        };
        u8::try_from(number).ok().filter(|_| place == 0 || number >= slots)
    }
}

/// Returns `true` if messages from another target have names that flows give them alone. Bridges
/// and federations bring messages with names of their own.
fn ends_flow(plan: &Plan, population: &Population) -> bool {
    let is_federated = |own: &Subscription| own.filter.source().contains("*/");
    let is_here = |flow: &PlannedFlow| population.at.has(plan.populations[flow.at].at.first);
    plan.bridges.is_empty()
        && !plan.targets_joined
        && plan.flows.iter().any(is_here)
        && !population.subscriptions.iter().any(is_federated)
}

/// The subscription identifiers of a population, if there are several.
fn identifiers(population: &Population) -> Vec<u32> {
    let mut found: Vec<_> = population.subscriptions.iter().filter_map(|s| s.identifier).collect();
    found.sort_unstable();
    found.dedup();
    if found.len() > 1 { found } else { Vec::new() }
}

impl Hint for SetupError {
    fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Address(error) => return error.hint(),
            Self::NoPopulation { .. } => "pubstorm starts this program with the right indices",
            Self::Rows { .. } | Self::Recording { .. } => {
                "pubstorm check looks at the file on the machine that it runs on"
            }
            Self::Quic { error, .. } => error.hint(),
            Self::Tls { error, .. } => error.hint(),
        })
    }
}

/// Reads the files of rows and of recorded messages, and gives the plan's templates the values of
/// an agent's clients.
pub fn bind_rows(plan: &Plan, shard: Shard) -> Result<(), SetupError> {
    rows::bind(plan, shard).map_err(|(p, error)| {
        let population = plan.populations[p].name.clone();
        SetupError::Rows { population, error }
    })?;
    recordings::bind(plan, shard).map_err(|(p, error)| {
        let population = plan.populations[p].name.clone();
        SetupError::Recording { population, error }
    })
}

impl Setup {
    /// Prepares a plan for an agent.
    ///
    /// # Errors
    /// [`SetupError`] names the target or the population, and what is wrong with it.
    pub fn new(
        plan: Plan,
        part: impl Into<Assignment>,
        incarnation: u32,
    ) -> Result<Self, SetupError> {
        let Assignment { shard, agent, populations: own } = part.into();
        let count = plan.populations.len();
        if let Some(&found) = own.iter().flatten().find(|&&found| found >= count) {
            return Err(SetupError::NoPopulation { found, count });
        }
        let sources = Sources::new(&plan.sources);
        let addresses = addresses::of_targets(&plan, &sources)?;
        bind_rows(&plan, shard)?;
        let rivals = plan.rivals();
        let origins = Origins::new(&plan);
        let mut populations = Vec::new();
        let (mut first_client, mut first_publication) = (0, 0);
        for (p, population) in plan.populations.iter().enumerate() {
            let is_played = population.is_played_by_engines()
                && own.as_ref().is_none_or(|own| own.contains(&p));
            let share = if is_played { shard.share(population.clients) } else { 0 };
            let publications = publications(population, plan.seed, first_publication);
            first_publication += publications.len();
            let tls = if is_played { Tls::new(&plan, p, shard) } else { Ok(None) }
                .map_err(|error| SetupError::Tls { population: population.name.clone(), error })?;
            let quic = if is_played { Quic::new(&plan, p, shard) } else { Ok(None) }
                .map_err(|error| SetupError::Quic { population: population.name.clone(), error })?;
            let identifiers = identifiers(population);
            let is_beside =
                origins.are_beside() || population.responds.is_some() || !identifiers.is_empty();
            let ready = PopulationSetup {
                is_played,
                first_client,
                share,
                tls,
                quic,
                link: LinkSchedule::new(if is_played { &population.link } else { &[] }),
                publications,
                protocol: seam::SessionSetup::new(population, plan.max_packet_bytes),
                rival: rivals[p],
                identifiers,
                watched: RETAINED
                    | if is_beside { BESIDE } else { 0 }
                    | if ends_flow(&plan, population) { CARRIED } else { 0 },
            };
            populations.push(ready);
            first_client += share;
        }
        Ok(Self {
            sources,
            plan,
            shard,
            agent,
            incarnation,
            addresses,
            populations,
            origins,
            since_1970_ns: clock::since_1970_ns(),
        })
    }

    /// Lets links change over the stage `index`, which begins at `at_ns`, if it publishes or holds.
    pub fn begin_links(&self, (index, at_ns): (usize, u64)) {
        let action = &self.plan.stages[index].action;
        let lasts = matches!(action, Action::Publish { .. } | Action::Hold { .. });
        let links = self.populations.iter().filter_map(|own| own.link.as_ref());
        links.for_each(|link| link.begin(lasts.then_some(at_ns)));
    }

    /// Number of a client of this agent, by its index in the share of its population.
    pub fn number(&self, population: usize, local: u32) -> u64 {
        self.plan.populations[population].first + u64::from(self.shard.global(local))
    }

    /// Number of the first `clients` of a population that this agent plays.
    pub fn share(&self, population: usize, clients: u32) -> u32 {
        if self.populations[population].is_played { self.shard.share(clients) } else { 0 }
    }

    /// Index of the target of a client, which has this index over all agents.
    pub fn target(&self, population: usize, client: u32) -> usize {
        self.plan.populations[population].at.target(self.plan.seed, population, client)
    }

    /// A group of the plan at a target, as a receiver of the ledger behind all clients.
    pub fn group_at(&self, group: usize, target: usize) -> u32 {
        let place = if self.plan.targets_joined { 0 } else { target };
        u32::MAX - (group * self.addresses.len() + place) as u32
    }

    /// The name in the rule of population `from` of a message whose topic population `to` has read;
    /// `None` if no broker gives a message both names.
    pub fn name_for<'a>(&self, from: usize, to: usize, topic: &'a str) -> Option<Cow<'a, str>> {
        let [from, to] = [from, to].map(|p| self.plan.populations[p].capabilities().names);
        to.name_in(from, topic)
    }

    /// The population whose unstamped publication has this topic, if population `to` can receive
    /// it at this target.
    pub fn unstamped_publisher(&self, to: usize, target: usize, topic: &str) -> Option<usize> {
        let Capabilities { joins_targets, .. } = *self.plan.populations[to].capabilities();
        self.plan.populations.iter().enumerate().position(|(p, from)| {
            let publishes = |name: Cow<'_, str>| self.unstamped(p, &name).next().is_some();
            (joins_targets || from.at.has(target))
                && self.name_for(p, to, topic).is_some_and(publishes)
        })
    }

    /// The population whose flow to population `to` has the wills on this topic: the first one
    /// with a client whose will has the topic. Clients of several populations may have the same
    /// topic.
    pub fn owner_of_will(&self, to: usize, topic: &str) -> Option<usize> {
        self.plan.populations.iter().enumerate().position(|(p, from)| {
            self.name_for(p, to, topic).is_some_and(|name| from.has_will_on(&name))
        })
    }

    /// Returns `true` if a message without a stamp is a will and no message of a population that
    /// publishes on the topic too, in its own rule: its payload is that of a will, and of no
    /// publication.
    pub fn is_will(&self, owner: usize, publisher: usize, topic: &str, payload: &[u8]) -> bool {
        let text = str::from_utf8(payload).ok();
        let will = self.plan.populations[owner].will();
        let is_text = |will: &PlannedWill| text.is_some_and(|text| will.payload.renders(text));
        will.is_some_and(is_text)
            && !self.unstamped(publisher, topic).any(|publication| match &publication.payload {
                Payload::Text { template, .. } => text.is_none_or(|text| template.renders(text)),
                Payload::Fixed { bytes } => *bytes as usize == payload.len(),
                Payload::Histogram { bins } => {
                    bins.iter().any(|bin| bin.bytes as usize == payload.len())
                }
                Payload::Records { records, .. } => records.iter().any(|own| own == payload),
                Payload::Gaussian { .. } | Payload::Sparkplug { .. } | Payload::Recorded(_) => true,
            })
    }

    /// The publications of a population without a stamp on this topic.
    fn unstamped(&self, population: usize, topic: &str) -> impl Iterator<Item = &Publication> {
        let publications = self.plan.populations[population].publications.iter();
        publications
            .zip(&self.populations[population].publications)
            .filter(move |(own, ready)| !ready.stamped && own.topic.renders(topic))
            .map(|(publication, _)| publication)
    }

    /// Longest time of timer coalescing, in nanoseconds: short enough that no message is skipped as
    /// too late because of it.
    pub fn coalescing_ns(&self) -> u64 {
        let publications = self.populations.iter().flat_map(|p| &p.publications);
        let skipping = publications.filter(|p| p.skips_late).filter_map(|p| p.pacer.as_ref());
        let periods_ns = skipping.map(|pacer| (pacer.shortest_ns() / 4.0) as u64);
        periods_ns.fold(self.plan.coalescing_ns, u64::min)
    }

    /// Clients of this agent.
    pub fn clients(&self) -> usize {
        self.populations.iter().map(|p| p.share as usize).sum()
    }
}
