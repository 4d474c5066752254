//! Addresses of names.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// All addresses of a name, those of IPv4 first: a name such as `localhost` often has both, and
/// brokers that listen on one only mostly listen on IPv4. Otherwise in the order of the resolver.
///
/// # Errors
/// Those of the resolver, and a name without addresses.
pub fn resolve_all(name: impl ToSocketAddrs) -> io::Result<Vec<SocketAddr>> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in name.to_socket_addrs()? {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses.sort_by_key(|address| !address.is_ipv4());
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "no address"));
    }
    Ok(addresses)
}

/// The first of [`resolve_all`].
///
/// # Errors
/// Those of the resolver, and a name without addresses.
pub fn resolve(name: impl ToSocketAddrs) -> io::Result<SocketAddr> {
    resolve_all(name).map(|addresses| addresses[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_both_kinds_of_address_resolves_to_ipv4() {
        assert_eq!(resolve("localhost:1883").unwrap(), "127.0.0.1:1883".parse().unwrap());
        assert_eq!(resolve(("::1", 1)).unwrap(), "[::1]:1".parse().unwrap());
    }

    #[test]
    fn every_address_is_there_once_and_those_of_ipv4_first() {
        let addresses = |texts: &[&str]| -> Vec<SocketAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let found = addresses(&["[::2]:1", "127.0.0.2:1", "[::1]:1", "127.0.0.1:1", "[::2]:1"]);
        let expected = addresses(&["127.0.0.2:1", "127.0.0.1:1", "[::2]:1", "[::1]:1"]);
        assert_eq!(resolve_all(&found[..]).unwrap(), expected);
        assert!(resolve_all(&[][..]).is_err());
    }
}
