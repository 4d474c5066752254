//! Addresses of the targets, resolved once, and the address of each attempt to connect. An attempt
//! uses one address, and no two attempts of a client run at once.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use agent::address::resolve_all;
use plan::{AddressOrder, AddressUse, Plan, Random, Reason, Target};

use crate::setup::{Setup, SetupError};

/// Most addresses of a target that clients use.
pub const ADDRESSES_MAX: usize = 255;
/// Separates these draws from the draws of schedules, targets and orders.
const ADDRESS_DRAWS: u64 = 0xadd2;

/// Source addresses by family.
#[derive(Default)]
pub struct Sources {
    v4: Vec<IpAddr>,
    v6: Vec<IpAddr>,
}

impl Sources {
    /// Source addresses of a plan that this host has; all if the host has none of them, so that the
    /// clients report why they cannot connect.
    pub fn new(planned: &[IpAddr]) -> Self {
        let (v4, v6) = own_sources(planned).into_iter().partition(IpAddr::is_ipv4);
        Self { v4, v6 }
    }

    /// Source address for a connection to a target, `turn` by `turn`; `None`: the kernel's choice.
    pub fn to(&self, target: SocketAddr, turn: usize) -> Option<IpAddr> {
        let fitting = if target.is_ipv4() { &self.v4 } else { &self.v6 };
        (!fitting.is_empty()).then(|| fitting[turn % fitting.len()])
    }

    fn can_reach(&self, target: SocketAddr) -> bool {
        self.is_empty() || self.to(target, 0).is_some()
    }

    fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }
}

/// Addresses of each target that clients use: of a family of the sources, and one only unless the
/// plan uses several.
///
/// # Errors
/// A target without an address, or without one that a source reaches, and a source that reaches
/// none.
pub fn of_targets(plan: &Plan, sources: &Sources) -> Result<Vec<Vec<SocketAddr>>, SetupError> {
    let mut all = plan.targets.iter().map(resolved).collect::<Result<Vec<_>, _>>()?;
    for from in sources.v4.first().into_iter().chain(sources.v6.first()).copied() {
        let mut others = all.iter().flatten().copied();
        if let Some(target) = all.first().and_then(|addresses| addresses.first().copied())
            && others.all(|to| to.is_ipv4() != from.is_ipv4())
        {
            return Err(SetupError::Family { from, target });
        }
    }
    let most = if plan.addresses.is_some() { ADDRESSES_MAX } else { 1 };
    for addresses in &mut all {
        let first = addresses[0];
        addresses.retain(|&address| sources.can_reach(address));
        if addresses.is_empty() {
            let from = *sources.v4.first().or(sources.v6.first()).unwrap_or(&first.ip());
            return Err(SetupError::Family { from, target: first });
        }
        addresses.truncate(most);
    }
    Ok(all)
}

fn resolved(target: &Target) -> Result<Vec<SocketAddr>, SetupError> {
    if !target.addresses.is_empty() {
        let given: Vec<_> =
            target.addresses.iter().map(|&ip| SocketAddr::new(ip, target.port)).collect();
        return Ok(resolve_all(&given[..]).unwrap_or(given));
    }
    let unresolved = |error: io::Error| {
        let host = if target.host.contains(':') {
            format!("[{}]", target.host)
        } else {
            target.host.clone()
        };
        let target = format!("{host}:{}", target.port);
        SetupError::Unresolved { target, error }
    };
    if let Some(zone) = target.zone()
        && zone.parse::<u32>().is_err()
        && nix::net::if_::if_nametoindex(zone).is_err()
    {
        let target = target.host.clone();
        return Err(SetupError::Zone { target, zone: zone.to_owned() });
    }
    resolve_all((&*target.host, target.port)).map_err(unresolved)
}

fn own_sources(sources: &[IpAddr]) -> Vec<IpAddr> {
    let is_own = |source: &IpAddr| UdpSocket::bind((*source, 0)).is_ok();
    let own: Vec<IpAddr> = sources.iter().copied().filter(is_own).collect();
    if own.is_empty() { sources.to_vec() } else { own }
}

/// The address of each client's attempt to connect. Empty if every target has one address.
pub struct Rounds {
    rule: AddressUse,
    seed: u64,
    /// One for each client of this agent.
    clients: Vec<Attempts>,
}

/// A client's attempts since the last one that was not a failover.
#[derive(Clone, Copy)]
struct Attempts {
    /// Place of the address among those of the target.
    place: u8,
    /// Addresses that have failed in this round.
    failed: u8,
}

impl Rounds {
    /// Rounds before the first attempt.
    pub fn new(setup: &Setup) -> Self {
        let alone = AddressUse { order: AddressOrder::First, failover: false };
        let rule = setup.plan.addresses.unwrap_or(alone);
        let has_several = setup.addresses.iter().any(|addresses| addresses.len() > 1);
        let mut clients = Vec::new();
        for (p, population) in setup.populations.iter().enumerate().filter(|_| has_several) {
            clients.extend((0..population.share).map(|local| {
                let client = setup.shard.global(local);
                let count = setup.addresses[setup.target(p, client)].len();
                let turn = client as usize / setup.plan.populations[p].at.count;
                // The first attempt uses the next place.
                Attempts { place: ((turn + count - 1) % count) as u8, failed: 0 }
            }));
        }
        Self { rule, seed: setup.plan.seed, clients }
    }

    /// Chooses the address of a client's next attempt, of `count` addresses of its target.
    pub fn begin(&mut self, client: u32, count: usize, now_ns: u64) {
        let Some(round) = self.clients.get_mut(client as usize) else { return };
        let next = (usize::from(round.place) + 1) % count;
        let place = match self.rule.order {
            _ if round.failed > 0 => next,
            AddressOrder::First => 0,
            AddressOrder::InTurn => next,
            AddressOrder::Random => {
                let random = Random::new(self.seed ^ ADDRESS_DRAWS, u64::from(client));
                (random.of(now_ns).unit() * count as f64) as usize
            }
        };
        round.place = place.min(count - 1) as u8;
    }

    /// Place of the address of a client's attempt among those of its target.
    pub fn place(&self, client: u32) -> usize {
        self.clients.get(client as usize).map_or(0, |round| usize::from(round.place))
    }

    /// Notes that a client's attempt has ended with a reason. Returns `true` if the client tries
    /// the next address at once.
    pub fn fails_over(&mut self, client: u32, count: usize, reason: Reason) -> bool {
        let Some(round) = self.clients.get_mut(client as usize) else { return false };
        let failed = usize::from(round.failed) + 1;
        let continues = self.rule.failover && failed < count && is_unanswered(reason);
        round.failed = if continues { failed as u8 } else { 0 };
        continues
    }

    /// Notes that the peer has accepted a client.
    pub fn accepted(&mut self, client: u32) {
        if let Some(round) = self.clients.get_mut(client as usize) {
            round.failed = 0;
        }
    }
}

/// Returns `true` if no peer has answered at the address. A refusal by the broker is an answer, and
/// a host without ports has none for another address either.
const fn is_unanswered(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::ConnectRefused
            | Reason::ConnectReset
            | Reason::ConnectClosed
            | Reason::ConnectTimeout
            | Reason::ConnectUnreachable
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::Shard;
    use testkit::plans;

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn used(plan: &Plan, sources: &[&str]) -> Result<Vec<Vec<SocketAddr>>, SetupError> {
        of_targets(plan, &Sources::new(&ips(sources)))
    }

    /// A plan with one named target that has three addresses.
    fn named(order: AddressOrder, failover: bool) -> Plan {
        let target = Target {
            host: "broker.example".into(),
            addresses: ips(&["::1", "127.0.0.1", "127.0.0.2"]),
            ..plans::target(1883)
        };
        let addresses = Some(AddressUse { order, failover });
        let populations = vec![plans::population("p", 5)];
        Plan { targets: vec![target], addresses, populations, ..plans::empty(1) }
    }

    #[test]
    fn a_source_of_another_family_than_a_target_is_refused() {
        for (sources, target, fits) in [
            (vec!["127.0.0.1"], "127.0.0.1", true),
            (vec!["::1"], "::1", true),
            (vec!["::1"], "127.0.0.1", false),
            (vec!["127.0.0.1"], "::1", false),
            (vec!["127.0.0.1", "::1"], "::1", false),
        ] {
            let targets = vec![Target { host: target.into(), ..plans::target(1883) }];
            let plan = Plan { targets, ..plans::empty(1) };
            assert_eq!(used(&plan, &sources).is_ok(), fits, "from {sources:?} to {target}");
        }
    }

    #[test]
    fn clients_use_the_addresses_that_a_source_reaches() {
        let several = named(AddressOrder::InTurn, true);
        let one = Plan { addresses: None, ..several.clone() };
        for (plan, sources, expected) in [
            (&several, vec![], vec!["127.0.0.1:1883", "127.0.0.2:1883", "[::1]:1883"]),
            (&several, vec!["127.0.0.1"], vec!["127.0.0.1:1883", "127.0.0.2:1883"]),
            (&several, vec!["::1"], vec!["[::1]:1883"]),
            (&one, vec![], vec!["127.0.0.1:1883"]),
            (&one, vec!["::1"], vec!["[::1]:1883"]),
        ] {
            let found: Vec<_> =
                used(plan, &sources).unwrap()[0].iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "from {sources:?}");
        }
    }

    #[test]
    fn a_source_is_of_the_family_of_the_address() {
        let sources = Sources::new(&ips(&["127.0.0.5", "::1", "127.0.0.6"]));
        let (v4, v6) = ("127.0.0.1:1".parse().unwrap(), "[::1]:1".parse().unwrap());
        let found: Vec<_> = (0..3).filter_map(|turn| sources.to(v4, turn)).collect();
        assert_eq!(found, ips(&["127.0.0.5", "127.0.0.6", "127.0.0.5"]));
        assert_eq!(sources.to(v6, 7), Some(ips(&["::1"])[0]));
        assert_eq!(Sources::default().to(v4, 0), None);
    }

    #[test]
    fn the_sources_of_another_host_are_left_to_it() {
        let all = ips(&["203.0.113.1", "127.0.0.5", "203.0.113.2", "127.0.0.6"]);
        assert_eq!(own_sources(&all), ips(&["127.0.0.5", "127.0.0.6"]));
        let foreign = ips(&["203.0.113.1", "203.0.113.2"]);
        assert_eq!(own_sources(&foreign), foreign);
        assert_eq!(own_sources(&[]), ips(&[]));
    }

    #[test]
    fn an_interface_that_is_not_there_is_named() {
        let host = "fe80::1%none9".to_owned();
        let plan =
            Plan { targets: vec![Target { host, ..plans::target(1883) }], ..plans::empty(1) };
        let error = used(&plan, &[]).unwrap_err();
        assert!(matches!(error, SetupError::Zone { zone, .. } if zone == "none9"));
        let host = "fe80::1%lo".to_owned();
        let plan =
            Plan { targets: vec![Target { host, ..plans::target(1883) }], ..plans::empty(1) };
        let SocketAddr::V6(found) = used(&plan, &[]).unwrap()[0][0] else { panic!("IPv6") };
        assert_eq!(found.scope_id(), nix::net::if_::if_nametoindex("lo").unwrap());
    }

    /// Places of the attempts of client 1, each of which ends with a reason, or is accepted.
    fn places(rule: (AddressOrder, bool), ends: &[Option<Reason>]) -> Vec<(usize, bool)> {
        let setup = Setup::new(named(rule.0, rule.1), Shard::WHOLE, 0).unwrap();
        let mut rounds = Rounds::new(&setup);
        let attempt = |(now_ns, end): (usize, &Option<Reason>)| {
            rounds.begin(1, 3, now_ns as u64);
            let fails_over = end.is_some_and(|reason| rounds.fails_over(1, 3, reason));
            if end.is_none() {
                rounds.accepted(1);
            }
            (rounds.place(1), fails_over)
        };
        ends.iter().enumerate().map(attempt).collect()
    }

    #[test]
    fn a_client_tries_each_address_once_before_it_waits() {
        let (refused, full) = (Some(Reason::ConnectRefused), Some(Reason::NoPorts));
        let ends = [refused, refused, refused, refused, None, refused];
        let found = places((AddressOrder::First, true), &ends);
        assert_eq!(found, [(0, true), (1, true), (2, false), (0, true), (1, false), (0, true)]);
        let found = places((AddressOrder::InTurn, true), &ends);
        assert_eq!(found, [(1, true), (2, true), (0, false), (1, true), (2, false), (0, true)]);
        let found = places((AddressOrder::InTurn, false), &ends[..3]);
        assert_eq!(found, [(1, false), (2, false), (0, false)]);
        for answer in [full, Some(Reason::BadCredentials), Some(Reason::TlsRefused)] {
            let found = places((AddressOrder::First, true), &[answer, refused]);
            assert_eq!(found, [(0, false), (0, true)], "{answer:?}");
        }
    }

    #[test]
    fn attempts_at_random_use_all_addresses() {
        let found = places((AddressOrder::Random, false), &[Some(Reason::ConnectRefused); 40]);
        let places: std::collections::BTreeSet<_> = found.iter().map(|(place, _)| *place).collect();
        assert_eq!(places, [0, 1, 2].into());
    }

    #[test]
    fn clients_begin_with_different_addresses_in_turn() {
        let setup = Setup::new(named(AddressOrder::InTurn, true), Shard::WHOLE, 0).unwrap();
        let mut rounds = Rounds::new(&setup);
        (0..5).for_each(|client| rounds.begin(client, 3, 0));
        let found: Vec<_> = (0..5).map(|client| rounds.place(client)).collect();
        assert_eq!(found, [0, 1, 2, 0, 1]);
    }
}
