//! Links by name: where they lead, what state each is in, and which connections go through it. It
//! does no input or output but for opening its listeners.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::ops::Range;

use mio::net::TcpListener;

use crate::command::{Counts, State};
use crate::listener;

/// Why a command is not carried out, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What was found.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

impl Refusal {
    /// A refusal in words.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

/// One port that leads to one target.
pub struct Link {
    /// Index of its group.
    group: usize,
    /// Where connections come in.
    pub listener: TcpListener,
    /// What it does with them.
    pub state: State,
    /// How much later everything is handed on, in nanoseconds.
    pub delay_ns: u64,
    /// Indices of its connections.
    pub pairs: Vec<usize>,
    /// Whether it waits to accept until the kernel has what a connection needs.
    pub is_short: bool,
}

/// Links that have a name and a target in common.
pub struct Group {
    /// Where they lead.
    pub target: SocketAddr,
    /// What has been counted, but for the bytes of connections that stand.
    pub counts: Counts,
    links: Range<usize>,
}

/// All links.
#[derive(Default)]
pub struct Links {
    groups: Vec<Group>,
    links: Vec<Link>,
}

impl Links {
    /// Opens links; gives the indices that they have.
    ///
    /// # Errors
    /// A name that is taken, a target that is no address, a port or descriptor that is not there.
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
        self.links.extend(opened.into_iter().map(|listener| Link {
            group,
            listener,
            state: State::Pass,
            delay_ns: 0,
            pairs: Vec::new(),
            is_short: false,
        }));
        let links = self.links.len() - count..self.links.len();
        let counts = Counts { name, ..Counts::default() };
        self.groups.push(Group { target, counts, links: links.clone() });
        Ok(links)
    }

    /// The indices of links by name and numbers.
    ///
    /// # Errors
    /// A name or a number that there is not.
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

    /// A link by its index.
    pub fn link(&mut self, index: usize) -> &mut Link {
        &mut self.links[index]
    }

    /// The place of a link's group among the counts.
    pub fn group_index(&self, link: usize) -> usize {
        self.links[link].group
    }

    /// The group of a link.
    pub fn group_of(&mut self, link: usize) -> &mut Group {
        &mut self.groups[self.links[link].group]
    }

    /// What has been counted by name, without the connections that stand.
    pub fn counts(&self) -> Vec<Counts> {
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
