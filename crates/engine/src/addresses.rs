//! Addresses of the targets, resolved once, and the source addresses of clients.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use agent::address::resolve_all;
use agent::hint::Hint;
use plan::{Plan, Target};

/// Most addresses of a target that clients use.
pub const ADDRESSES_MAX: usize = 255;

/// Addresses that the clients cannot use.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// A target whose name has no address.
    #[error("target {target}: {error}")]
    Unresolved {
        /// Name and port.
        target: String,
        /// Error of the resolver.
        error: io::Error,
    },
    /// An address with a zone that is no interface of this host.
    #[error("target {target}: found the zone {zone}, which is no interface of this host")]
    Zone {
        /// Host of the target.
        target: String,
        /// Name of the interface.
        zone: String,
    },
    /// A source address of another family than a target.
    #[error("source address {from}: found another family than that of the target {target}")]
    Family {
        /// Source address.
        from: IpAddr,
        /// Address of the target.
        target: SocketAddr,
    },
}

impl Hint for AddressError {
    fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Unresolved { .. } => "check the target's name and this host's resolver",
            Self::Zone { .. } => {
                "`ip link` lists the interfaces; name one at the end of the address"
            }
            Self::Family { .. } => "use sources of the family of all targets, or leave them out",
        })
    }
}

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
pub fn of_targets(plan: &Plan, sources: &Sources) -> Result<Vec<Vec<SocketAddr>>, AddressError> {
    let mut all = plan.targets.iter().map(resolved).collect::<Result<Vec<_>, _>>()?;
    for from in sources.v4.first().into_iter().chain(sources.v6.first()).copied() {
        let mut others = all.iter().flatten().copied();
        if let Some(target) = all.first().and_then(|addresses| addresses.first().copied())
            && others.all(|to| to.is_ipv4() != from.is_ipv4())
        {
            return Err(AddressError::Family { from, target });
        }
    }
    let most = if plan.addresses.is_some() { ADDRESSES_MAX } else { 1 };
    for addresses in &mut all {
        let first = addresses[0];
        addresses.retain(|&address| sources.can_reach(address));
        if addresses.is_empty() {
            let from = *sources.v4.first().or(sources.v6.first()).unwrap_or(&first.ip());
            return Err(AddressError::Family { from, target: first });
        }
        addresses.truncate(most);
    }
    Ok(all)
}

fn resolved(target: &Target) -> Result<Vec<SocketAddr>, AddressError> {
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
        AddressError::Unresolved { target, error }
    };
    if let Some(zone) = target.zone()
        && zone.parse::<u32>().is_err()
        && nix::net::if_::if_nametoindex(zone).is_err()
    {
        let target = target.host.clone();
        return Err(AddressError::Zone { target, zone: zone.to_owned() });
    }
    resolve_all((&*target.host, target.port)).map_err(unresolved)
}

fn own_sources(sources: &[IpAddr]) -> Vec<IpAddr> {
    let is_own = |source: &IpAddr| UdpSocket::bind((*source, 0)).is_ok();
    let own: Vec<IpAddr> = sources.iter().copied().filter(is_own).collect();
    if own.is_empty() { sources.to_vec() } else { own }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use plan::{AddressOrder, AddressUse};
    use testkit::plans;

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn used(plan: &Plan, sources: &[&str]) -> Result<Vec<Vec<SocketAddr>>, AddressError> {
        of_targets(plan, &Sources::new(&ips(sources)))
    }

    /// A plan with one named target that has three addresses.
    pub fn named(order: AddressOrder, failover: bool) -> Plan {
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
        assert!(matches!(error, AddressError::Zone { zone, .. } if zone == "none9"));
        let host = "fe80::1%lo".to_owned();
        let plan =
            Plan { targets: vec![Target { host, ..plans::target(1883) }], ..plans::empty(1) };
        let SocketAddr::V6(found) = used(&plan, &[]).unwrap()[0][0] else { panic!("IPv6") };
        assert_eq!(found.scope_id(), nix::net::if_::if_nametoindex("lo").unwrap());
    }
}
