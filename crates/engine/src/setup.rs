//! The plan made ready for one agent: which clients are its own, what they publish and to whom it
//! goes, with all names resolved. Fixed before the loop starts; it knows no connection.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};

use agent::publication::{PublicationSetup, is_stamped_text, publications};
use agent::rows::{self, RowsError};
use plan::{Plan, Population, Shard, Stamp};

use crate::clock;
use crate::tls::{Tls, TlsError};

/// What a plan asks for and this host does not have.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A target whose name has no address.
    #[error("target {target}: {error}")]
    Unresolved {
        /// Its name and port.
        target: String,
        /// The resolver's word.
        error: io::Error,
    },
    /// A population whose templates have no values.
    #[error("population {population}: rows: {error}")]
    Rows {
        /// Its name.
        population: String,
        /// Why.
        error: RowsError,
    },
    /// A population whose clients cannot be put under TLS.
    #[error("population {population}: tls: {error}")]
    Tls {
        /// Its name.
        population: String,
        /// Why.
        error: TlsError,
    },
}

/// What an agent needs to know, none of which changes.
pub struct Setup {
    /// The plan as it came.
    pub plan: Plan,
    /// This agent's share.
    pub shard: Shard,
    /// Which of the agents that play this share in turn it is, from 0: the next one starts when one
    /// is lost.
    pub incarnation: u32,
    /// Source addresses of its clients, in turn; empty: the host's choice.
    pub sources: Vec<IpAddr>,
    /// Address of each target.
    pub targets: Vec<SocketAddr>,
    /// One for each population of the plan.
    pub populations: Vec<PopulationSetup>,
    /// Population of each publication, over all populations.
    pub publisher_of: Vec<usize>,
    /// For each target the population that publishes there with ZeroMQ, if there is one.
    pub publisher_at: Vec<Option<usize>>,
    /// Whether some payloads of text carry a stamp.
    pub stamps_text: bool,
    /// What is to be added to an instant of the clock for nanoseconds since 1970.
    pub since_1970_ns: u64,
}

/// One population's share.
pub struct PopulationSetup {
    /// Index of its first client in this agent.
    pub first_client: u32,
    /// Clients of it in this agent.
    pub share: u32,
    /// How they connect to targets under TLS; `None` where there is no such target.
    pub tls: Option<Tls>,
    /// What each of them publishes.
    pub publications: Vec<PublicationSetup>,
}

impl SetupError {
    /// What to do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Unresolved { .. } => "check the target's name and this host's resolver",
            Self::Rows { .. } => "pubstorm check looks at the file on the machine that it runs on",
            Self::Tls { error, .. } => error.hint(),
        }
    }
}

impl Setup {
    /// Makes a plan ready for an agent.
    ///
    /// # Errors
    /// [`SetupError`] names the target or the population, and what is wrong with it.
    pub fn new(plan: Plan, shard: Shard, incarnation: u32) -> Result<Self, SetupError> {
        let mut targets = Vec::new();
        for target in &plan.targets {
            let unresolved = |error| {
                let target = format!("{}:{}", target.host, target.port);
                SetupError::Unresolved { target, error }
            };
            targets.push(resolve((&*target.host, target.port)).map_err(unresolved)?);
        }
        rows::bind(&plan).map_err(|(p, error)| {
            let population = plan.populations[p].name.clone();
            SetupError::Rows { population, error }
        })?;
        let mut populations = Vec::new();
        let mut publisher_of = Vec::new();
        let mut first_client = 0;
        for (p, population) in plan.populations.iter().enumerate() {
            let share = share(shard, population, population.clients);
            let publications = publications(population, plan.seed, publisher_of.len());
            publisher_of.extend(publications.iter().map(|_| p));
            let tls = Tls::new(&plan, p, shard)
                .map_err(|error| SetupError::Tls { population: population.name.clone(), error })?;
            populations.push(PopulationSetup { first_client, share, tls, publications });
            first_client += share;
        }
        let stamps_text = plan
            .populations
            .iter()
            .flat_map(|p| &p.publications)
            .any(|p| is_stamped_text(&p.payload));
        let mut publisher_at = vec![None; targets.len()];
        for (p, population) in plan.populations.iter().enumerate().filter(|(_, p)| p.is_told()) {
            publisher_at[population.at.first..][..population.at.count].fill(Some(p));
        }
        Ok(Self {
            sources: own_sources(&plan.sources),
            plan,
            shard,
            incarnation,
            targets,
            populations,
            publisher_of,
            publisher_at,
            stamps_text,
            since_1970_ns: clock::since_1970_ns(),
        })
    }

    /// How many of the first `clients` of a population this agent plays.
    pub fn share(&self, population: usize, clients: u32) -> u32 {
        share(self.shard, &self.plan.populations[population], clients)
    }

    /// The population of MQTT whose unstamped publication has this topic, if there is one.
    pub fn unstamped_publisher(&self, topic: &str) -> Option<usize> {
        let mqtt = |p: &usize| !self.plan.populations[*p].speaks_zmtp();
        (0..self.populations.len()).filter(mqtt).find(|&p| self.sends_unstamped(p, topic))
    }

    /// The population whose clients have a will on this topic, if there is one.
    pub fn owner_of_will(&self, topic: &str) -> Option<usize> {
        let wills = self.plan.populations.iter().map(|population| population.will.as_ref());
        wills.into_iter().position(|will| will.is_some_and(|will| will.topic.renders(topic)))
    }

    /// The population of ZeroMQ whose publisher at this target sends unstamped messages with this
    /// topic, if there is one.
    pub fn unstamped_sender(&self, target: usize, topic: &str) -> Option<usize> {
        self.publisher_at[target].filter(|&p| self.sends_unstamped(p, topic))
    }

    fn sends_unstamped(&self, population: usize, topic: &str) -> bool {
        let publications = self.plan.populations[population].publications.iter();
        publications
            .zip(&self.populations[population].publications)
            .any(|(publication, ready)| !ready.stamped && publication.topic.renders(topic))
    }

    /// The stamp of a payload, if this run made it.
    #[inline]
    pub fn stamp_of(&self, payload: &[u8]) -> Option<Stamp> {
        let is_ours = |stamp: &Stamp| stamp.run_tag == self.plan.run_tag;
        let first = Stamp::read(payload).filter(is_ours);
        let in_text = || self.stamps_text.then(|| Stamp::find(payload)).flatten();
        first.or_else(|| in_text().filter(is_ours))
    }

    /// Longest time that timers wait for each other, in nanoseconds: short enough that no message
    /// is left out as too late because of it.
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

/// What other programs play is none of an engine's.
fn share(shard: Shard, population: &Population, clients: u32) -> u32 {
    if population.is_engines() { shard.share(clients) } else { 0 }
}

/// Those of a plan's source addresses that this host has; all, if it has none of them, so that the
/// clients say why they cannot connect.
fn own_sources(sources: &[IpAddr]) -> Vec<IpAddr> {
    let is_own = |source: &IpAddr| UdpSocket::bind((*source, 0)).is_ok();
    let own: Vec<IpAddr> = sources.iter().copied().filter(is_own).collect();
    if own.is_empty() { sources.to_vec() } else { own }
}

/// The first IPv4 address of a name, else its first: a name such as `localhost` often has both, and
/// brokers that listen on one only mostly listen on IPv4.
pub fn resolve(address: impl ToSocketAddrs) -> io::Result<SocketAddr> {
    let addresses: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
    let first = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first());
    first.copied().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_of_another_host_are_left_to_it() {
        let addresses = |texts: &[&str]| -> Vec<IpAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let all = addresses(&["203.0.113.1", "127.0.0.5", "203.0.113.2", "127.0.0.6"]);
        assert_eq!(own_sources(&all), addresses(&["127.0.0.5", "127.0.0.6"]));
        let foreign = addresses(&["203.0.113.1", "203.0.113.2"]);
        assert_eq!(own_sources(&foreign), foreign);
        assert_eq!(own_sources(&[]), addresses(&[]));
    }

    #[test]
    fn a_name_with_both_kinds_of_address_resolves_to_ipv4() {
        assert_eq!(resolve("localhost:1883").unwrap(), "127.0.0.1:1883".parse().unwrap());
        assert_eq!(resolve(("::1", 1)).unwrap(), "[::1]:1".parse().unwrap());
    }
}
