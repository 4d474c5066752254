//! Header of the PROXY protocol, versions 1 and 2: the first bytes of a connection, with which a
//! load balancer states the addresses of its client's connection. Clauses are those of
//! <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>.

use std::net::{IpAddr, SocketAddr};

use plan::ProxyVersion;

/// First bytes of version 2 [2.2].
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Version 2 and the command PROXY [2.2].
const VERSION_AND_COMMAND: u8 = 0x21;
/// TCP over IPv4 and over IPv6 [2.2].
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;

/// The header for a connection from `source` to `target`. Addresses of two families become IPv6
/// addresses, because a header has one family.
pub fn header(version: ProxyVersion, source: SocketAddr, target: SocketAddr) -> Vec<u8> {
    let (from, to) = of_one_family(source.ip(), target.ip());
    match version {
        ProxyVersion::V1 => {
            let family = if from.is_ipv4() { "TCP4" } else { "TCP6" };
            let ports = (source.port(), target.port());
            format!("PROXY {family} {from} {to} {} {}\r\n", ports.0, ports.1).into_bytes()
        }
        ProxyVersion::V2 => {
            let mut addresses = octets(from);
            addresses.extend(octets(to));
            addresses.extend(source.port().to_be_bytes());
            addresses.extend(target.port().to_be_bytes());
            let mut header = SIGNATURE.to_vec();
            header.extend([VERSION_AND_COMMAND, if from.is_ipv4() { TCP4 } else { TCP6 }]);
            header.extend((addresses.len() as u16).to_be_bytes());
            header.extend(addresses);
            header
        }
    }
}

fn of_one_family(source: IpAddr, target: IpAddr) -> (IpAddr, IpAddr) {
    match (source, target) {
        (IpAddr::V4(v4), IpAddr::V6(_)) => (v4.to_ipv6_mapped().into(), target),
        (IpAddr::V6(_), IpAddr::V4(v4)) => (source, v4.to_ipv6_mapped().into()),
        same => same,
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header from an address to another one, both with their ports.
    fn of(version: ProxyVersion, source: &str, target: &str) -> Vec<u8> {
        header(version, source.parse().unwrap(), target.parse().unwrap())
    }

    #[test]
    fn version_1_is_a_line_of_text() {
        for (source, target, line) in [
            ("10.0.0.1:50000", "192.0.2.9:1883", "PROXY TCP4 10.0.0.1 192.0.2.9 50000 1883\r\n"),
            ("[2001:db8::1]:1", "[::1]:2", "PROXY TCP6 2001:db8::1 ::1 1 2\r\n"),
            ("10.0.0.1:1", "[::1]:2", "PROXY TCP6 ::ffff:10.0.0.1 ::1 1 2\r\n"),
            ("[2001:db8::1]:1", "127.0.0.1:2", "PROXY TCP6 2001:db8::1 ::ffff:127.0.0.1 1 2\r\n"),
        ] {
            assert_eq!(String::from_utf8(of(ProxyVersion::V1, source, target)).unwrap(), line);
        }
    }

    #[test]
    fn version_2_has_the_addresses_and_ports_in_network_order() {
        let found = of(ProxyVersion::V2, "10.0.0.1:258", "192.0.2.9:1883");
        let mut expected = b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a".to_vec();
        expected.extend([0x21, 0x11, 0, 12, 10, 0, 0, 1, 192, 0, 2, 9, 1, 2, 0x07, 0x5b]);
        assert_eq!(found, expected);
        let six = of(ProxyVersion::V2, "10.0.0.1:258", "[::1]:1883");
        assert_eq!((six[13], six[15], six.len()), (0x21, 36, 16 + 36));
        assert_eq!(&six[26..32], &[0xff, 0xff, 10, 0, 0, 1]);
    }
}
