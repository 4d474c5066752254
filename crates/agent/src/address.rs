//! Addresses of names.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// The first IPv4 address of a name, else its first: a name such as `localhost` often has both, and
/// brokers that listen on one only mostly listen on IPv4.
///
/// # Errors
/// Those of the resolver, and a name without addresses.
pub fn resolve(address: impl ToSocketAddrs) -> io::Result<SocketAddr> {
    let addresses: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
    let first = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first());
    first.copied().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_both_kinds_of_address_resolves_to_ipv4() {
        assert_eq!(resolve("localhost:1883").unwrap(), "127.0.0.1:1883".parse().unwrap());
        assert_eq!(resolve(("::1", 1)).unwrap(), "[::1]:1".parse().unwrap());
    }
}
