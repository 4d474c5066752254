//! The event loop: one thread that owns all links and connections. It waits for sockets, commands
//! and the next instant at which delayed bytes are due, and moves bytes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, TryRecvError};

use agent::clock::now_ns;
use agent::error::AgentError;
use agent::pipes;
use agent::wait::Wait;
use mio::event::Event;
use mio::net::TcpStream;
use mio::{Events, Interest, Token, Waker};

use crate::command::{LinkAnswer, LinkCommand, LinkCounts, LinkState};
use crate::links::{Links, Refusal};
use crate::listener;
use crate::pair::{ByteWay, SocketPair};

/// A token is the index of a link or a pair times this, and which of its sockets it is.
const SOCKETS: usize = 3;
const LISTENER: usize = 0;
const NEAR: usize = 1;
const FAR: usize = 2;
const READ_BYTES: usize = 64 * 1024;
/// Time until the next attempt to accept after a lack of descriptors.
const ACCEPT_AGAIN_NS: u64 = 100_000_000;

/// The proxy.
pub struct Proxy {
    wait: Wait,
    links: Links,
    /// At the number of their token.
    pairs: Vec<Option<SocketPair>>,
    /// Indices of pairs that are free.
    free: Vec<usize>,
    /// Work by its instant.
    timers: BinaryHeap<Reverse<(u64, Job)>>,
    /// Work for the next time slice.
    again: Vec<Job>,
    buffer: Vec<u8>,
    /// The kernel has lacked resources for a connection.
    is_short: bool,
}

/// Work for later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Job {
    Pump(usize, ByteWay),
    Accept(usize),
}

impl Proxy {
    /// Creates a proxy without links, and the waker for lines.
    ///
    /// # Errors
    /// The kernel's, when no descriptors are left.
    pub fn new() -> io::Result<(Self, Waker)> {
        let (wait, waker) = Wait::new()?;
        let proxy = Self {
            wait,
            links: Links::default(),
            pairs: Vec::new(),
            free: Vec::new(),
            timers: BinaryHeap::new(),
            again: Vec::new(),
            buffer: vec![0; READ_BYTES],
            is_short: false,
        };
        Ok((proxy, waker))
    }

    /// Serves until the sender of lines is gone.
    ///
    /// # Errors
    /// The kernel's and those of stdout, after which the proxy cannot continue.
    pub fn serve(mut self, lines: &Receiver<String>) -> Result<(), AgentError> {
        let mut events = Events::with_capacity(1024);
        loop {
            let until_ns = match self.timers.peek() {
                _ if !self.again.is_empty() => 0,
                Some(Reverse((at_ns, _))) => *at_ns,
                None => u64::MAX,
            };
            let ready = self.wait.until(until_ns, &mut events)?;
            let again = std::mem::take(&mut self.again);
            ready.for_each(|event| self.handle(event));
            again.into_iter().for_each(|job| self.take_up(job));
            if !self.obey(lines)? {
                return Ok(());
            }
            self.fire();
        }
    }

    /// Carries out the waiting commands; `false`: stdin has ended.
    fn obey(&mut self, lines: &Receiver<String>) -> Result<bool, AgentError> {
        loop {
            let line = match lines.try_recv() {
                Ok(line) => line,
                Err(TryRecvError::Empty) => return Ok(true),
                Err(TryRecvError::Disconnected) => return Ok(false),
            };
            let answer = self.answer(&line).unwrap_or_else(|refusal| LinkAnswer::Failure {
                message: refusal.message,
                hint: refusal.hint,
            });
            pipes::write_line(&answer)?;
        }
    }

    fn answer(&mut self, line: &str) -> Result<LinkAnswer, Refusal> {
        let command = serde_json::from_str(line).map_err(|error| {
            Refusal::new(format!("cannot read a command: {error}"), "see pubstorm-proxy --help")
        })?;
        match command {
            LinkCommand::Open { name, to, count, listen } => self.open(name, &to, count, listen),
            LinkCommand::Set { name, links, state, delay_ns } => {
                if delay_ns > 0 && state != LinkState::Pass {
                    return Err(Refusal::new(
                        "found a delay of links that do not pass",
                        "leave it out",
                    ));
                }
                for link in self.links.find(&name, &links)? {
                    self.set(link, state, delay_ns).map_err(|error| {
                        Refusal::new(format!("cannot set a link of '{name}': {error}"), "try again")
                    })?;
                }
                Ok(LinkAnswer::Set { name })
            }
            LinkCommand::Count => Ok(LinkAnswer::Counts { links: self.counts() }),
        }
    }

    fn open(
        &mut self,
        name: String,
        to: &str,
        count: usize,
        listen: IpAddr,
    ) -> Result<LinkAnswer, Refusal> {
        let indices = self.links.open(name.clone(), to, listen, count)?;
        let mut ports = Vec::with_capacity(count);
        for index in indices {
            let listener = &mut self.links.link(index).listener;
            let token = Token(index * SOCKETS + LISTENER);
            let registered = self.wait.registry().register(listener, token, Interest::READABLE);
            let address = registered.and_then(|()| listener.local_addr()).map_err(|error| {
                let hint = "sysctl fs.epoll.max_user_watches";
                Refusal::new(format!("cannot watch link {index}: {error}"), hint)
            })?;
            ports.push(address.port());
        }
        Ok(LinkAnswer::Opened { name, ports })
    }

    /// Puts a link into a state.
    fn set(&mut self, index: usize, state: LinkState, delay_ns: u64) -> io::Result<()> {
        let link = self.links.link(index);
        let before = std::mem::replace(&mut link.state, state);
        link.delay_ns = delay_ns;
        if state == LinkState::Close {
            if before != LinkState::Close {
                listener::refuse(&link.listener)?;
            }
            for pair in std::mem::take(&mut link.pairs) {
                self.reset(pair);
            }
            return Ok(());
        }
        if before == LinkState::Close {
            listener::resume(&link.listener)?;
        }
        if before == LinkState::Stall && state == LinkState::Pass {
            // News of sockets during the stall does not come again.
            for pair in link.pairs.clone() {
                self.pump_both(pair);
            }
            self.accept(index, true);
        }
        Ok(())
    }

    fn counts(&self) -> Vec<LinkCounts> {
        let mut counts = self.links.counts();
        for pair in self.pairs.iter().flatten() {
            let counts = &mut counts[self.links.group_index(pair.link)];
            counts.open += 1;
            add_bytes(counts, pair);
        }
        counts
    }

    fn handle(&mut self, event: &Event) {
        let Token(token) = event.token();
        let index = token / SOCKETS;
        let (comes, goes) = match token % SOCKETS {
            LISTENER => return self.accept(index, false),
            NEAR => (ByteWay::Out, ByteWay::In),
            _ => (ByteWay::In, ByteWay::Out),
        };
        let Some(Some(pair)) = self.pairs.get_mut(index) else { return };
        if event.is_read_closed() {
            pair.closing(comes);
        }
        if !pair.is_connected {
            return self.connect(index);
        }
        let holds = pair.flow(goes).holds();
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            self.pump(index, comes);
        }
        if event.is_writable() && holds {
            self.pump(index, goes);
        }
    }

    /// Accepts every connection that waits, if the link passes.
    fn accept(&mut self, index: usize, waited: bool) {
        loop {
            let link = self.links.link(index);
            if link.state != LinkState::Pass {
                return;
            }
            match link.listener.accept() {
                Ok((near, _)) => self.add(index, near, waited),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return,
                    // One that gave up meanwhile; others may wait behind it.
                    ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {}
                    _ => return self.accept_later(index, &error),
                },
            }
        }
    }

    /// Tries again to accept later, after a lack of descriptors; logs the lack once.
    fn accept_later(&mut self, index: usize, error: &io::Error) {
        if !std::mem::replace(&mut self.is_short, true) {
            pipes::log(&format!("cannot accept a connection, now and maybe later: {error}"));
        }
        if !std::mem::replace(&mut self.links.link(index).is_short, true) {
            let retry_ns = now_ns() + ACCEPT_AGAIN_NS;
            self.timers.push(Reverse((retry_ns, Job::Accept(index))));
        }
    }

    /// Adds a connection; the first news of its socket begins the far side.
    fn add(&mut self, link: usize, near: TcpStream, waited: bool) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.pairs.push(None);
            self.pairs.len() - 1
        });
        let pair = self.pairs[index].insert(SocketPair::new(link, near, waited));
        let registered = register(&self.wait, pair.near(), index * SOCKETS + NEAR);
        self.links.link(link).pairs.push(index);
        self.links.group_of(link).counts.accepted_total += 1;
        if let Err(error) = registered {
            self.refuse(index, &error);
        }
    }

    /// Begins the far side, or checks its connection.
    fn connect(&mut self, index: usize) {
        let Some(Some(pair)) = self.pairs.get_mut(index) else { return };
        if self.links.link(pair.link).state != LinkState::Pass {
            return;
        }
        let target = self.links.group_of(pair.link).target;
        let opened = pair.open_far(target).and_then(|far| match far {
            Some(far) => register(&self.wait, far, index * SOCKETS + FAR),
            None => Ok(()),
        });
        match opened.and_then(|()| pair.connect()) {
            Ok(false) => {}
            Ok(true) => self.pump_both(index),
            Err(error) => self.refuse(index, &error),
        }
    }

    fn pump_both(&mut self, index: usize) {
        for way in [ByteWay::Out, ByteWay::In] {
            self.pump(index, way);
        }
    }

    /// Moves bytes in one direction, and sets a timer for delayed bytes.
    fn pump(&mut self, index: usize, way: ByteWay) {
        let Some(Some(pair)) = self.pairs.get_mut(index) else { return };
        let link = self.links.link(pair.link);
        if link.state != LinkState::Pass {
            return;
        }
        if !pair.is_connected {
            return self.connect(index);
        }
        match pair.pump(way, link.delay_ns, now_ns, &mut self.buffer) {
            Err(_) => return self.reset(index),
            Ok(true) => self.again.push(Job::Pump(index, way)),
            Ok(false) => {}
        }
        if pair.is_over() {
            return self.remove(index, drop);
        }
        let next_ns = pair.flow(way).next_ns();
        let timer_ns = &mut pair.timers_ns[way as usize];
        // Bytes that became due just now have no other news: they need a timer too.
        if let Some(next_ns) = next_ns
            && next_ns != *timer_ns
        {
            *timer_ns = next_ns;
            self.timers.push(Reverse((next_ns, Job::Pump(index, way))));
        }
    }

    /// Does what is due by the clock.
    fn fire(&mut self) {
        while let Some(&Reverse((at_ns, job))) = self.timers.peek()
            && at_ns <= now_ns()
        {
            self.timers.pop();
            self.take_up(job);
        }
    }

    fn take_up(&mut self, job: Job) {
        match job {
            Job::Pump(pair, way) => self.pump(pair, way),
            Job::Accept(link) => {
                self.links.link(link).is_short = false;
                self.accept(link, false);
            }
        }
    }

    /// Ends a connection that the target did not take.
    fn refuse(&mut self, index: usize, error: &io::Error) {
        if let Some(Some(pair)) = self.pairs.get(index)
            && error.kind() != ErrorKind::ConnectionAborted
        {
            self.links.group_of(pair.link).counts.refused_total += 1;
        }
        self.reset(index);
    }

    fn reset(&mut self, index: usize) {
        self.remove(index, SocketPair::reset);
    }

    /// Removes a connection; dropping its sockets removes them from the poll.
    fn remove(&mut self, index: usize, end: impl FnOnce(SocketPair)) {
        let Some(pair) = self.pairs.get_mut(index).and_then(Option::take) else { return };
        add_bytes(&mut self.links.group_of(pair.link).counts, &pair);
        self.links.link(pair.link).pairs.retain(|&other| other != index);
        self.free.push(index);
        end(pair);
    }
}

fn register(wait: &Wait, stream: &mut TcpStream, token: usize) -> io::Result<()> {
    wait.registry().register(stream, Token(token), Interest::READABLE | Interest::WRITABLE)
}

fn add_bytes(counts: &mut LinkCounts, pair: &SocketPair) {
    counts.out_bytes_total += pair.flow(ByteWay::Out).bytes_total;
    counts.in_bytes_total += pair.flow(ByteWay::In).bytes_total;
}
