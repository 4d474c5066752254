//! Links by name, with target, state and connections of each. Opens their listeners; other input
//! and output is in `proxy`.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::ops::Range;

use mio::net::TcpListener;

use crate::command::{LinkCounts, LinkState};
use crate::listener;

/// A refused command: problem and advice.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The problem found.
    pub message: String,
    /// Advice.
    pub hint: String,
}

impl Refusal {
    /// Creates a refusal.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

/// One port that leads to one target.
pub struct ProxyLink {
    /// Index of its group.
    group: usize,
    /// Listener for connections.
    pub listener: TcpListener,
    /// State of the link.
    pub state: LinkState,
    /// Delay of all bytes, in nanoseconds.
    pub delay_ns: u64,
    /// Indices of the connections.
    pub pairs: Vec<usize>,
    /// The link waits to accept until the kernel has resources for a connection.
    pub is_short: bool,
}

/// Links with a common name and target.
pub struct LinkGroup {
    /// Target.
    pub target: SocketAddr,
    /// Totals, without the bytes of open connections.
    pub counts: LinkCounts,
    links: Range<usize>,
}

/// All links.
#[derive(Default)]
pub struct Links {
    groups: Vec<LinkGroup>,
    links: Vec<ProxyLink>,
}

impl Links {
    /// Opens links; returns their indices.
    ///
    /// # Errors
    /// A name in use, a target that is no address, a lack of ports or descriptors.
    pub fn open(
        &mut self,
        name: String,
        to: &str,
        listen: IpAddr,
        count: usize,
    ) -> Result<Range<usize>, Refusal> {
        if self.groups.iter().any(|group| group.counts.name == name) {
            let message = format!("found links of the name '{name}' already");
            return Err(Refusal::new(message, "take another name"));
        }
        let target = resolve(to)?;
        let opened: io::Result<Vec<_>> = (0..count).map(|_| listener::open(listen)).collect();
        let opened = opened.map_err(|error| {
            let message = format!("cannot open {count} links on {listen}: {error}");
            let descriptors = count.saturating_mul(3);
            Refusal::new(message, format!("they need {descriptors} descriptors: ulimit -n"))
        })?;
        let group = self.groups.len();
        self.links.extend(opened.into_iter().map(|listener| ProxyLink {
            group,
            listener,
            state: LinkState::Pass,
            delay_ns: 0,
            pairs: Vec::new(),
            is_short: false,
        }));
        let links = self.links.len() - count..self.links.len();
        let counts = LinkCounts { name, ..LinkCounts::default() };
        self.groups.push(LinkGroup { target, counts, links: links.clone() });
        Ok(links)
    }

    /// Returns the indices of links by name and numbers.
    ///
    /// # Errors
    /// An unknown name or number.
    pub fn find(&self, name: &str, numbers: &[usize]) -> Result<Vec<usize>, Refusal> {
        let Some(group) = self.groups.iter().find(|group| group.counts.name == name) else {
            let message = format!("found no links of the name '{name}'");
            return Err(Refusal::new(message, "open them first"));
        };
        let (start, len) = (group.links.start, group.links.len());
        let index = |&number: &usize| {
            (number < len).then(|| start + number).ok_or_else(|| {
                let message = format!("found no link {number} of the name '{name}'");
                Refusal::new(message, format!("allowed are numbers below {len}"))
            })
        };
        numbers.iter().map(index).collect()
    }

    /// Returns a link by its index.
    pub fn link(&mut self, index: usize) -> &mut ProxyLink {
        &mut self.links[index]
    }

    /// Returns the index of a link's group among the counts.
    pub fn group_index(&self, link: usize) -> usize {
        self.links[link].group
    }

    /// Returns the group of a link.
    pub fn group_of(&mut self, link: usize) -> &mut LinkGroup {
        &mut self.groups[self.links[link].group]
    }

    /// Returns the totals by name, without open connections.
    pub fn counts(&self) -> Vec<LinkCounts> {
        self.groups.iter().map(|group| group.counts.clone()).collect()
    }
}

/// The first address of a target, of IPv4 where it has one: brokers that listen on one of the
/// two seldom choose IPv6.
fn resolve(to: &str) -> Result<SocketAddr, Refusal> {
    let refusal = |error: &dyn std::fmt::Display| {
        let message = format!("cannot find the address of '{to}': {error}");
        Refusal::new(message, "a target is HOST:PORT")
    };
    let addresses: Vec<_> = to.to_socket_addrs().map_err(|error| refusal(&error))?.collect();
    let first = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first());
    first.copied().ok_or_else(|| refusal(&"it has none"))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::Links;

    fn open(links: &mut Links, name: &str, count: usize) -> Result<std::ops::Range<usize>, String> {
        let listen = Ipv4Addr::LOCALHOST.into();
        links.open(name.into(), "127.0.0.1:9", listen, count).map_err(|refusal| refusal.message)
    }

    #[test]
    fn links_are_found_by_name_and_number() {
        let mut links = Links::default();
        assert_eq!(open(&mut links, "up", 2), Ok(0..2));
        assert_eq!(open(&mut links, "down", 3), Ok(2..5));
        assert_eq!(links.find("down", &[2, 0]), Ok(vec![4, 2]));
        assert_eq!(links.find("up", &[]), Ok(vec![]));
        assert_eq!(links.find("up", &[2]).unwrap_err().hint, "allowed are numbers below 2");
        assert!(links.find("down", &[usize::MAX]).is_err());
        assert_eq!(links.find("side", &[0]).unwrap_err().hint, "open them first");
        assert_ne!(links.link(0).listener.local_addr().unwrap().port(), 0);
    }

    #[test]
    fn a_name_is_taken_once_and_a_target_is_an_address() {
        let mut links = Links::default();
        assert_eq!(open(&mut links, "up", 1), Ok(0..1));
        assert!(open(&mut links, "up", 1).unwrap_err().contains("'up' already"));
        let refused = links.open("x".into(), "nowhere", Ipv4Addr::LOCALHOST.into(), 1);
        assert!(refused.unwrap_err().message.contains("'nowhere'"));
        assert_eq!(links.counts().len(), 1);
    }
}
