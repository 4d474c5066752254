//! Addresses of targets and of clients: the use of a name's addresses, and the source addresses
//! that clients state in the PROXY protocol.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::Target;

/// Use of several addresses of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddressUse {
    /// Address of an attempt to connect.
    #[serde(rename = "use")]
    pub order: AddressOrder,
    /// True if a client tries the next address at once after an attempt that the address did not
    /// answer, until it has tried each address once.
    pub failover: bool,
}

/// Order in which attempts to connect use the addresses of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressOrder {
    /// Every attempt begins with the first address.
    First,
    /// Clients begin with different addresses, and each attempt of a client with the next one.
    InTurn,
    /// Each attempt draws an address.
    Random,
}

/// Header of the PROXY protocol, with which a load balancer states the address of its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedProxyProtocol {
    /// Version of the header.
    pub version: ProxyVersion,
    /// Source address of the client with number 0.
    pub first: IpAddr,
    /// Number of source addresses from the first one on. Clients use them in turn, by number.
    pub count: u32,
}

/// Version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// A binary header.
    V2,
}

impl PlannedProxyProtocol {
    /// Source address of the client with number `n`.
    #[must_use]
    pub fn source(&self, n: u64) -> IpAddr {
        let place = (n % u64::from(self.count.max(1))) as u32;
        match self.first {
            IpAddr::V4(first) => Ipv4Addr::from(u32::from(first).wrapping_add(place)).into(),
            IpAddr::V6(first) => {
                Ipv6Addr::from(u128::from(first).wrapping_add(u128::from(place))).into()
            }
        }
    }
}

impl Target {
    /// The host without the zone of an IPv6 address, which has a meaning on its own host only
    /// [RFC 6874, 1].
    #[must_use]
    pub fn peer_name(&self) -> &str {
        self.host.split('%').next().unwrap_or(&self.host)
    }

    /// Zone of the IPv6 address: the name of an interface.
    #[must_use]
    pub fn zone(&self) -> Option<&str> {
        self.host.split_once('%').map(|(_, zone)| zone)
    }

    /// Returns `true` if the host is a name, which may have several addresses.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.peer_name().parse::<IpAddr>().is_err()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_use_the_source_addresses_in_turn() {
        for (first, count, n, expected) in [
            ("10.0.0.1", 254, 0, "10.0.0.1"),
            ("10.0.0.1", 65_534, 255, "10.0.1.0"),
            ("10.0.0.1", 254, 254, "10.0.0.1"),
            ("2001:db8::1", u32::MAX, 65_536, "2001:db8::1:1"),
            ("192.0.2.7", 1, 9, "192.0.2.7"),
            ("192.0.2.7", 0, 9, "192.0.2.7"),
        ] {
            let first = first.parse().unwrap();
            let header = PlannedProxyProtocol { version: ProxyVersion::V1, first, count };
            assert_eq!(header.source(n).to_string(), expected);
        }
    }
}
