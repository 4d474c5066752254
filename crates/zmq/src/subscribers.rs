//! SUB sockets, one for each client: libzmq itself in place of the engine's simulated subscribers,
//! for a comparison at small counts. A monitor of libzmq watches each socket, since a socket does
//! not report its connection.

use std::collections::VecDeque;

use agent::changes::{ChangeStep, Changes, Crowd};
use agent::clock;
use agent::ledger::Ledger;
use agent::stages::ScheduledChange;
use mio::unix::SourceFd;
use mio::{Interest, Token};
use plan::{Reason, SECOND_NS, Security};
use zmq::{Context, Socket, SocketEvent};

use crate::arrivals::LastMessage;
use crate::event_loop::{PopulationPlayer, Shared};
use crate::setup::{Result, ZmqSetup};
use crate::stage::{BegunStage, Task};

/// Clients that share a context of libzmq, which has room for 1023 sockets; each takes three: its
/// setup and both ends of its monitor.
const CLIENTS_PER_CONTEXT: u32 = 300;
/// Messages that one client takes before other clients.
const BATCH: u32 = 256;
/// Time slice of receiving, in nanoseconds.
const SLICE_NS: u64 = 1_000_000;

/// The subscribers of an agent.
pub struct Subscribers {
    clients: Vec<Subscriber>,
    contexts: Vec<Context>,
    ramp: Option<ConnectRamp>,
    /// Clients that join or leave in the current stage.
    changes: Changes,
    /// Active clients of each population of the plan, over all agents. Only the number of the own
    /// population is right.
    active: Vec<u32>,
    /// Number of monitors so far; each has an address of its own.
    monitors: u64,
    /// Clients whose sockets may have messages.
    waiting: VecDeque<u32>,
    arrivals: LastMessage,
    ledger: Ledger,
}

/// One subscriber.
#[derive(Default)]
struct Subscriber {
    sockets: Option<Sockets>,
    phase: SubscriberPhase,
    /// Start of the attempt to connect, in nanoseconds.
    attempt_ns: u64,
    /// The client is in the list of clients that may have messages.
    waits: bool,
}

struct Sockets {
    sub: Socket,
    monitor: Socket,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SubscriberPhase {
    #[default]
    Idle,
    Connecting,
    /// The attempt has failed; libzmq makes another one.
    Waiting,
    Ready,
    GaveUp,
}

/// Clients that connect one after the other.
struct ConnectRamp {
    start_ns: u64,
    rate_per_s: Option<f64>,
    /// The first client of the ramp.
    first: u32,
    next: u32,
    end: u32,
}

impl ConnectRamp {
    /// Returns the instant of the next client, in nanoseconds.
    fn next_ns(&self) -> Option<u64> {
        let position = f64::from(self.next - self.first);
        let after = |rate: f64| (position * SECOND_NS as f64 / rate) as u64;
        (self.next < self.end).then(|| self.start_ns + self.rate_per_s.map_or(0, after))
    }
}

impl Subscribers {
    /// Creates subscribers without sockets.
    pub fn new(setup: &ZmqSetup) -> Self {
        let share = setup.shard.share(setup.population().clients);
        Self {
            clients: (0..share).map(|_| Subscriber::default()).collect(),
            contexts: Vec::new(),
            ramp: None,
            changes: Changes::default(),
            active: vec![0; setup.plan.populations.len()],
            monitors: 0,
            waiting: VecDeque::new(),
            arrivals: LastMessage::new(setup),
            ledger: Ledger::default(),
        }
    }

    /// Starts the clients whose instant has come.
    fn walk_ramp(&mut self, shared: &mut Shared) -> Result<()> {
        while let Some(ramp) = &mut self.ramp
            && ramp.next_ns().is_some_and(|at_ns| at_ns <= shared.now_ns)
        {
            let local = ramp.next;
            ramp.next += 1;
            self.connect(local, shared)?;
        }
        Ok(())
    }

    /// Lets the clients join or leave whose instant has come.
    fn walk_changes(&mut self, shared: &mut Shared) -> Result<()> {
        loop {
            let own = shared.setup.population;
            let mut crowd = Crowd {
                plan: &shared.setup.plan,
                shard: shared.setup.shard,
                is_played: |population| population == own,
                active: &mut self.active,
                complete_ns: None,
                now_ns: shared.now_ns,
            };
            match self.changes.next(&mut crowd) {
                Some(ChangeStep::Join { local, .. }) => self.connect(local, shared)?,
                Some(ChangeStep::Leave { local, .. }) => self.disconnect(local, shared),
                // The stage keeps changes of rates, and no subscriber has QUIC.
                Some(ChangeStep::Rate { .. } | ChangeStep::Migrate { .. }) => {}
                None => return Ok(()),
            }
        }
    }

    /// Connects a client, unless it is connected or has given up.
    fn connect(&mut self, local: u32, shared: &mut Shared) -> Result<()> {
        if self.clients[local as usize].phase != SubscriberPhase::Idle {
            return Ok(());
        }
        let setup = &shared.setup;
        let client = setup.shard.global(local);
        while self.contexts.len() <= (local / CLIENTS_PER_CONTEXT) as usize {
            let context = Context::new();
            context.set_io_threads(setup.zmq.io_threads.cast_signed())?;
            self.contexts.push(context);
        }
        let context = &self.contexts[(local / CLIENTS_PER_CONTEXT) as usize];
        let sub = context.socket(zmq::SUB)?;
        configure(&sub, setup, client)?;
        // libzmq frees the address of a monitor some time after its socket is closed.
        let endpoint = format!("inproc://monitor-{}", self.monitors);
        self.monitors += 1;
        sub.monitor(&endpoint, SocketEvent::ALL as i32)?;
        let monitor = context.socket(zmq::PAIR)?;
        monitor.set_linger(0)?;
        monitor.connect(&endpoint)?;
        let target = setup.target(client);
        sub.connect(&format!("tcp://{}:{}", target.host, target.port))?;
        for (socket, token) in [(&sub, 2 * local), (&monitor, 2 * local + 1)] {
            let descriptor = socket.get_fd()?;
            let token = Token(token as usize);
            shared.registry.register(&mut SourceFd(&descriptor), token, Interest::READABLE)?;
        }
        let counters = &mut shared.tally.populations[setup.population].counters;
        counters.connect_attempts_total += 1;
        let known = &mut self.clients[local as usize];
        (known.phase, known.attempt_ns) = (SubscriberPhase::Connecting, shared.now_ns);
        known.sockets = Some(Sockets { sub, monitor });
        self.take_events(local, shared)
    }

    /// Takes the events of a client's monitor.
    fn take_events(&mut self, local: u32, shared: &mut Shared) -> Result<()> {
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
                client.handle(event, value, shared.setup.shard.global(local), shared);
            }
        }
        Ok(())
    }

    /// Takes waiting messages for a time slice at most.
    fn receive(&mut self, shared: &mut Shared) -> Result<()> {
        let slice_end_ns = shared.now_ns + SLICE_NS;
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
            if shared.now_ns >= slice_end_ns {
                break;
            }
        }
        shared.ledger_pairs = self.ledger.pairs();
        Ok(())
    }

    fn disconnect_all(&mut self, shared: &mut Shared) {
        self.ramp = None;
        self.active[shared.setup.population] = 0;
        (0..self.clients.len() as u32).for_each(|local| self.disconnect(local, shared));
    }

    fn disconnect(&mut self, local: u32, shared: &mut Shared) {
        let client = &mut self.clients[local as usize];
        if let Some(sockets) = client.sockets.take() {
            for socket in [&sockets.sub, &sockets.monitor] {
                if let Ok(descriptor) = socket.get_fd() {
                    // Dropping the socket closes the descriptor in any case.
                    let _ = shared.registry.deregister(&mut SourceFd(&descriptor));
                }
            }
        }
        if client.phase == SubscriberPhase::Ready {
            let target = shared.setup.target_index(shared.setup.shard.global(local));
            shared.tally.targets.gone(target);
        }
        client.phase = SubscriberPhase::Idle;
    }

    fn count(&self, phase: SubscriberPhase) -> u64 {
        self.clients.iter().filter(|client| client.phase == phase).count() as u64
    }
}

/// Sets options and subscriptions of the socket of a client, by its index over all agents.
fn configure(sub: &Socket, setup: &ZmqSetup, client: u32) -> Result<()> {
    let population = setup.population();
    let milliseconds = |ns: u64| i32::try_from(ns / 1_000_000).unwrap_or(i32::MAX).max(1);
    sub.set_rcvhwm(i32::try_from(setup.zmq.high_water_mark).unwrap_or(i32::MAX))?;
    // Subscriptions are messages to the publisher: beyond a mark, libzmq would drop them.
    sub.set_sndhwm(0)?;
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
    if setup.zmq.security == Security::Plain {
        let (username, password) = setup.credentials(client);
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

impl Subscriber {
    /// Handles an event of the monitor; `client` is the index over all agents.
    fn handle(&mut self, event: SocketEvent, value: u32, client: u32, shared: &mut Shared) {
        let connecting = self.phase == SubscriberPhase::Connecting;
        match event {
            SocketEvent::HANDSHAKE_SUCCEEDED => self.accepted(client, shared),
            SocketEvent::HANDSHAKE_FAILED_AUTH => self.lost(Reason::BadCredentials, client, shared),
            SocketEvent::HANDSHAKE_FAILED_PROTOCOL => {
                self.lost(Reason::ProtocolError, client, shared);
            }
            SocketEvent::HANDSHAKE_FAILED_NO_DETAIL => {
                self.lost(Reason::ConnectClosed, client, shared);
            }
            // libzmq does not report why an attempt has failed; mostly nothing listens there.
            SocketEvent::CLOSED if connecting => self.lost(Reason::ConnectRefused, client, shared),
            SocketEvent::DISCONNECTED if connecting => {
                self.lost(Reason::ConnectClosed, client, shared);
            }
            SocketEvent::DISCONNECTED => self.lost(Reason::ClosedByBroker, client, shared),
            SocketEvent::CONNECT_RETRIED => {
                self.phase = SubscriberPhase::Connecting;
                self.attempt_ns = shared.now_ns + u64::from(value) * 1_000_000;
                let counters = &mut shared.tally.populations[shared.setup.population].counters;
                counters.connect_attempts_total += 1;
            }
            _ => {}
        }
    }

    fn accepted(&mut self, client: u32, shared: &mut Shared) {
        let setup = &shared.setup;
        let target = setup.target_index(client);
        let tally = &mut shared.tally.populations[setup.population];
        let filters = setup.population().subscriptions.iter();
        let filters: u64 = filters.map(|one| u64::from(one.filter.variants())).sum();
        tally.counters.connected_total += 1;
        tally.counters.subscribed_total += filters;
        let waited_ns = shared.now_ns.saturating_sub(self.attempt_ns);
        tally.connect_time.record(waited_ns.cast_signed());
        shared.tally.targets.accepted(target);
        self.phase = SubscriberPhase::Ready;
    }

    /// Counts the end of a connection or of an attempt.
    fn lost(&mut self, reason: Reason, client: u32, shared: &mut Shared) {
        let setup = &shared.setup;
        let target = setup.target_index(client);
        let tally = &mut shared.tally.populations[setup.population];
        match self.phase {
            SubscriberPhase::Connecting => {
                tally.counters.connect_failed_total += 1;
                shared.tally.targets.failed(target);
            }
            SubscriberPhase::Ready => {
                tally.counters.disconnected_total += 1;
                shared.tally.targets.gone(target);
            }
            SubscriberPhase::Idle | SubscriberPhase::Waiting | SubscriberPhase::GaveUp => return,
        }
        shared.tally.populations[setup.population].outcome(reason);
        let again = setup.population().reconnect.is_some();
        self.phase = if again { SubscriberPhase::Waiting } else { SubscriberPhase::GaveUp };
    }
}

impl PopulationPlayer for Subscribers {
    fn enter(&mut self, stage: &BegunStage, shared: &mut Shared) -> Result<()> {
        self.changes = Changes::default();
        match stage.task {
            Task::Connect { rate_per_s, clients } => {
                let active = &mut self.active[shared.setup.population];
                *active = clients.max(*active);
                let end = shared.setup.shard.share(*active);
                let is_idle = |client: &Subscriber| client.phase == SubscriberPhase::Idle;
                let first = self.clients.iter().position(is_idle).map_or(end, |idle| idle as u32);
                let (start_ns, next) = (stage.start_ns, first);
                self.ramp = Some(ConnectRamp { start_ns, rate_per_s, first, next, end });
            }
            Task::Disconnect => self.disconnect_all(shared),
            Task::Publish | Task::Stay => {}
        }
        Ok(())
    }

    fn move_clients(&mut self, change: ScheduledChange) {
        self.changes.push(change);
    }

    fn next_move_ns(&self) -> u64 {
        self.changes.next_ns().unwrap_or(u64::MAX)
    }

    fn readable(&mut self, token: usize, shared: &mut Shared) -> Result<()> {
        let local = (token / 2) as u32;
        if token % 2 == 1 {
            return self.take_events(local, shared);
        }
        if let Some(client) = self.clients.get_mut(local as usize).filter(|client| !client.waits) {
            client.waits = true;
            self.waiting.push_back(local);
        }
        Ok(())
    }

    fn work(&mut self, shared: &mut Shared) -> Result<u64> {
        self.walk_ramp(shared)?;
        self.walk_changes(shared)?;
        self.receive(shared)?;
        if !self.waiting.is_empty() {
            return Ok(shared.now_ns);
        }
        Ok(self.ramp.as_ref().and_then(ConnectRamp::next_ns).unwrap_or(u64::MAX))
    }

    fn receivers(&self) -> u32 {
        self.ramp.as_ref().map_or(0, |ramp| ramp.end)
    }

    fn is_settled(&self) -> bool {
        let wanted = self.ramp.as_ref().map_or(0, |ramp| u64::from(ramp.end));
        let begun = self.ramp.as_ref().is_none_or(|ramp| ramp.next >= ramp.end);
        begun && self.count(SubscriberPhase::Ready) + self.count(SubscriberPhase::GaveUp) >= wanted
    }

    fn note(&self, shared: &mut Shared) {
        let ready = self.count(SubscriberPhase::Ready);
        let gauges = &mut shared.tally.populations[shared.setup.population].gauges;
        (gauges.connected, gauges.ready) = (ready, ready);
    }

    fn stop(&mut self, shared: &mut Shared) {
        self.disconnect_all(shared);
    }
}
