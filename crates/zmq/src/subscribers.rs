//! SUB sockets, one for each client: what libzmq itself does where the engine simulates, for a
//! comparison at small counts. Each is watched by a monitor of libzmq's, since a socket does not
//! tell whether it is connected. What arrives is looked at as the engine does.

use std::collections::VecDeque;

use agent::clock;
use agent::ledger::Ledger;
use anyhow::Result;
use mio::unix::SourceFd;
use mio::{Interest, Token};
use plan::{Reason, SECOND_NS, Security};
use zmq::{Context, Socket, SocketEvent};

use crate::arrivals::Arrivals;
use crate::event_loop::{Player, Shared};
use crate::own::Own;
use crate::stage::{Stage, Task};

/// Clients that share a context of libzmq, which has room for 1023 sockets; each takes three: its
/// own and both ends of its monitor.
const CLIENTS_PER_CONTEXT: u32 = 300;
/// Messages that a client takes before others have their turn.
const BATCH: u32 = 256;
/// How long messages are taken without a look at anything else, in nanoseconds.
const TURN_NS: u64 = 1_000_000;

/// The subscribers of an agent.
pub struct Subscribers {
    clients: Vec<Client>,
    contexts: Vec<Context>,
    ramp: Option<Ramp>,
    /// Clients whose sockets may have messages.
    waiting: VecDeque<u32>,
    arrivals: Arrivals,
    ledger: Ledger,
}

/// One subscriber.
#[derive(Default)]
struct Client {
    sockets: Option<Sockets>,
    phase: Phase,
    /// When the attempt at connecting began, in nanoseconds.
    attempt_ns: u64,
    /// Whether it is among those that may have messages.
    waits: bool,
}

struct Sockets {
    sub: Socket,
    monitor: Socket,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    Connecting,
    /// Its attempt has failed; libzmq makes another one.
    Waiting,
    Ready,
    GaveUp,
}

/// Clients that are to connect, each with its turn.
struct Ramp {
    start_ns: u64,
    rate_per_s: Option<f64>,
    /// The first that has a turn.
    first: u32,
    next: u32,
    end: u32,
}

impl Ramp {
    /// When the next client has its turn, in nanoseconds.
    fn next_ns(&self) -> Option<u64> {
        let position = f64::from(self.next - self.first);
        let after = |rate: f64| (position * SECOND_NS as f64 / rate) as u64;
        (self.next < self.end).then(|| self.start_ns + self.rate_per_s.map_or(0, after))
    }
}

impl Subscribers {
    /// Subscribers without sockets.
    pub fn new(own: &Own) -> Self {
        let share = own.shard.share(own.population().clients);
        Self {
            clients: (0..share).map(|_| Client::default()).collect(),
            contexts: Vec::new(),
            ramp: None,
            waiting: VecDeque::new(),
            arrivals: Arrivals::new(own),
            ledger: Ledger::default(),
        }
    }

    /// Starts those whose turn has come.
    fn walk_ramp(&mut self, shared: &mut Shared) -> Result<()> {
        while let Some(ramp) = &mut self.ramp
            && ramp.next_ns().is_some_and(|turn_ns| turn_ns <= shared.now_ns)
        {
            let local = ramp.next;
            ramp.next += 1;
            self.connect(local, shared)?;
        }
        Ok(())
    }

    fn connect(&mut self, local: u32, shared: &mut Shared) -> Result<()> {
        let own = &shared.own;
        let client = own.shard.global(local);
        while self.contexts.len() <= (local / CLIENTS_PER_CONTEXT) as usize {
            let context = Context::new();
            context.set_io_threads(own.zmq.io_threads.cast_signed())?;
            self.contexts.push(context);
        }
        let context = &self.contexts[(local / CLIENTS_PER_CONTEXT) as usize];
        let sub = context.socket(zmq::SUB)?;
        configure(&sub, own, client)?;
        let endpoint = format!("inproc://monitor-{local}");
        sub.monitor(&endpoint, SocketEvent::ALL as i32)?;
        let monitor = context.socket(zmq::PAIR)?;
        monitor.set_linger(0)?;
        monitor.connect(&endpoint)?;
        let target = own.target(client);
        sub.connect(&format!("tcp://{}:{}", target.host, target.port))?;
        for (socket, token) in [(&sub, 2 * local), (&monitor, 2 * local + 1)] {
            let descriptor = socket.get_fd()?;
            let token = Token(token as usize);
            shared.registry.register(&mut SourceFd(&descriptor), token, Interest::READABLE)?;
        }
        let counters = &mut shared.tally.populations[own.population].counters;
        counters.connect_attempts_total += 1;
        let known = &mut self.clients[local as usize];
        (known.phase, known.attempt_ns) = (Phase::Connecting, shared.now_ns);
        known.sockets = Some(Sockets { sub, monitor });
        self.hear(local, shared)
    }

    /// Takes what the monitor of a client has to tell.
    fn hear(&mut self, local: u32, shared: &mut Shared) -> Result<()> {
        let client = &mut self.clients[local as usize];
        while let Some(sockets) = &client.sockets {
            let frames = match sockets.monitor.recv_multipart(zmq::DONTWAIT) {
                Ok(frames) => frames,
                Err(zmq::Error::EAGAIN) => break,
                Err(error) => return Err(error.into()),
            };
            if let Some(&[low, high, v0, v1, v2, v3]) = frames.first().map(Vec::as_slice) {
                let event = SocketEvent::from_raw(u16::from_ne_bytes([low, high]));
                let value = u32::from_ne_bytes([v0, v1, v2, v3]);
                client.heard(event, value, shared.own.shard.global(local), shared);
            }
        }
        Ok(())
    }

    /// Takes messages of those that have some, for a turn at most.
    fn receive(&mut self, shared: &mut Shared) -> Result<()> {
        let turn_end_ns = shared.now_ns + TURN_NS;
        while let Some(local) = self.waiting.pop_front() {
            let client = &mut self.clients[local as usize];
            client.waits = false;
            let Some(sockets) = &client.sockets else { continue };
            let mut taken = 0;
            while taken < BATCH && self.arrivals.take(&sockets.sub)? {
                shared.now_ns = clock::now_ns();
                self.arrivals.note(local, &mut self.ledger, shared);
                taken += 1;
            }
            if taken == BATCH {
                client.waits = true;
                self.waiting.push_back(local);
            }
            if shared.now_ns >= turn_end_ns {
                break;
            }
        }
        shared.ledger_pairs = self.ledger.pairs();
        Ok(())
    }

    fn disconnect(&mut self, shared: &mut Shared) {
        self.ramp = None;
        for (local, client) in self.clients.iter_mut().enumerate() {
            if let Some(sockets) = client.sockets.take() {
                for socket in [&sockets.sub, &sockets.monitor] {
                    if let Ok(descriptor) = socket.get_fd() {
                        // Its descriptor goes with the socket in any case.
                        let _ = shared.registry.deregister(&mut SourceFd(&descriptor));
                    }
                }
            }
            if client.phase == Phase::Ready {
                let client = shared.own.shard.global(local as u32);
                let target = shared.own.target_index(client);
                shared.tally.targets.gone(target);
            }
            client.phase = Phase::Idle;
        }
    }

    fn count(&self, phase: Phase) -> u64 {
        self.clients.iter().filter(|client| client.phase == phase).count() as u64
    }
}

/// Options and subscriptions of the socket of a client (its index over all agents).
fn configure(sub: &Socket, own: &Own, client: u32) -> Result<()> {
    let population = own.population();
    let milliseconds = |ns: u64| i32::try_from(ns / 1_000_000).unwrap_or(i32::MAX).max(1);
    sub.set_rcvhwm(i32::try_from(own.zmq.high_water_mark).unwrap_or(i32::MAX))?;
    sub.set_linger(0)?;
    sub.set_handshake_ivl(milliseconds(population.connect_timeout_ns))?;
    match &population.reconnect {
        Some(reconnect) => {
            sub.set_reconnect_ivl(milliseconds(reconnect.min_ns))?;
            sub.set_reconnect_ivl_max(milliseconds(reconnect.max_ns))?;
        }
        None => sub.set_reconnect_ivl(-1)?,
    }
    if population.keep_alive_s > 0 {
        sub.set_heartbeat_ivl(i32::from(population.keep_alive_s) * 1000)?;
    }
    if own.zmq.security == Security::Plain {
        let (username, password) = own.credentials(client);
        sub.set_plain_username(Some(&username))?;
        sub.set_plain_password(Some(&password))?;
    }
    let n = population.first + u64::from(client);
    for filter in population.subscriptions.iter().map(|subscription| &subscription.filter) {
        for variant in 0..filter.variants() {
            sub.set_subscribe(filter.text(n, variant).as_bytes())?;
        }
    }
    Ok(())
}

impl Client {
    /// Its monitor has told an event; `client` is its index over all agents.
    fn heard(&mut self, event: SocketEvent, value: u32, client: u32, shared: &mut Shared) {
        let connecting = self.phase == Phase::Connecting;
        match event {
            SocketEvent::HANDSHAKE_SUCCEEDED => self.accepted(client, shared),
            SocketEvent::HANDSHAKE_FAILED_AUTH => self.lost(Reason::BadCredentials, client, shared),
            SocketEvent::HANDSHAKE_FAILED_PROTOCOL => {
                self.lost(Reason::ProtocolError, client, shared);
            }
            SocketEvent::HANDSHAKE_FAILED_NO_DETAIL => {
                self.lost(Reason::ConnectClosed, client, shared);
            }
            // libzmq does not tell why an attempt has failed; mostly nothing listens there.
            SocketEvent::CLOSED if connecting => self.lost(Reason::ConnectRefused, client, shared),
            SocketEvent::DISCONNECTED if connecting => {
                self.lost(Reason::ConnectClosed, client, shared);
            }
            SocketEvent::DISCONNECTED => self.lost(Reason::ClosedByBroker, client, shared),
            SocketEvent::CONNECT_RETRIED => {
                self.phase = Phase::Connecting;
                self.attempt_ns = shared.now_ns + u64::from(value) * 1_000_000;
                let counters = &mut shared.tally.populations[shared.own.population].counters;
                counters.connect_attempts_total += 1;
            }
            _ => {}
        }
    }

    fn accepted(&mut self, client: u32, shared: &mut Shared) {
        let own = &shared.own;
        let target = own.target_index(client);
        let tally = &mut shared.tally.populations[own.population];
        let filters = own.population().subscriptions.iter();
        let filters: u64 = filters.map(|one| u64::from(one.filter.variants())).sum();
        tally.counters.connected_total += 1;
        tally.counters.subscribed_total += filters;
        let waited_ns = shared.now_ns.saturating_sub(self.attempt_ns);
        tally.connect_time.record(waited_ns.cast_signed());
        shared.tally.targets.accepted(target);
        self.phase = Phase::Ready;
    }

    /// Its connection, or its attempt at one, has come to nothing.
    fn lost(&mut self, reason: Reason, client: u32, shared: &mut Shared) {
        let own = &shared.own;
        let target = own.target_index(client);
        let tally = &mut shared.tally.populations[own.population];
        match self.phase {
            Phase::Connecting => {
                tally.counters.connect_failed_total += 1;
                shared.tally.targets.failed(target);
            }
            Phase::Ready => {
                tally.counters.disconnected_total += 1;
                shared.tally.targets.gone(target);
            }
            Phase::Idle | Phase::Waiting | Phase::GaveUp => return,
        }
        shared.tally.populations[own.population].outcome(reason);
        let again = own.population().reconnect.is_some();
        self.phase = if again { Phase::Waiting } else { Phase::GaveUp };
    }
}

impl Player for Subscribers {
    fn start(&mut self, _: &mut Shared) -> Result<()> {
        Ok(())
    }

    fn enter(&mut self, stage: &Stage, shared: &mut Shared) -> Result<()> {
        match stage.task {
            Task::Connect { rate_per_s, clients } => {
                let end = shared.own.shard.share(clients);
                let is_idle = |client: &Client| client.phase == Phase::Idle;
                let first = self.clients.iter().position(is_idle).map_or(end, |idle| idle as u32);
                let (start_ns, next) = (stage.start_ns, first);
                self.ramp = Some(Ramp { start_ns, rate_per_s, first, next, end });
            }
            Task::Disconnect => self.disconnect(shared),
            Task::Publish | Task::Stay => {}
        }
        Ok(())
    }

    fn change_rate(&mut self, _: u64, _: f64) {}

    fn readable(&mut self, token: usize, shared: &mut Shared) -> Result<()> {
        let local = (token / 2) as u32;
        if token % 2 == 1 {
            return self.hear(local, shared);
        }
        if let Some(client) = self.clients.get_mut(local as usize).filter(|client| !client.waits) {
            client.waits = true;
            self.waiting.push_back(local);
        }
        Ok(())
    }

    fn work(&mut self, shared: &mut Shared) -> Result<u64> {
        self.walk_ramp(shared)?;
        self.receive(shared)?;
        if !self.waiting.is_empty() {
            return Ok(shared.now_ns);
        }
        Ok(self.ramp.as_ref().and_then(Ramp::next_ns).unwrap_or(u64::MAX))
    }

    fn close(&mut self, _: u64, _: &mut Shared) -> Result<()> {
        Ok(())
    }

    fn is_settled(&self, _: &Shared) -> bool {
        let wanted = self.ramp.as_ref().map_or(0, |ramp| u64::from(ramp.end));
        let begun = self.ramp.as_ref().is_none_or(|ramp| ramp.next == ramp.end);
        begun && self.count(Phase::Ready) + self.count(Phase::GaveUp) >= wanted
    }

    fn note(&self, shared: &mut Shared) {
        let ready = self.count(Phase::Ready);
        let gauges = &mut shared.tally.populations[shared.own.population].gauges;
        (gauges.connected, gauges.ready) = (ready, ready);
    }

    fn stop(&mut self, shared: &mut Shared) {
        self.disconnect(shared);
    }
}
