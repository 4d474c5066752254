//! One simulated client: its connection's life from the first attempt to the last, its timer, and
//! what it writes. What it publishes, what it reads and how it speaks its protocol stand beside
//! this file.

mod frames;
mod leave;
mod packets;
mod publish;
mod receive;
mod session;
mod unsent;
mod wills;

use mqtt::KeepAlive;
use plan::{Random, Reason};

use crate::pause;
use crate::setup::Setup;
use crate::shared::Shared;
use crate::socket::Route;
use crate::stream::{Halt, Stream};
use crate::tls::Who;

#[cfg(test)]
pub use leave::LEAVE_NS;
pub use leave::Then;
pub use publish::{Message, Progress};
use session::Session;
use unsent::Unsent;
use wills::Death;
pub use wills::Wills;

/// Memory of an idle client in user space: socket, or box of its TLS, 16, session 24, publications
/// 16, what is unsent 8, an empty buffer 24, three instants 24, indices 10, phase and flags 6; and
/// its link in the wheel, 16. The kernel's share is its own. The budget is 256 bytes.
/// (In debug builds mio's sockets are larger.)
#[cfg(not(any(debug_assertions, test)))]
const _: () = assert!(size_of::<Client>() + size_of::<crate::wheel::Link>() <= 160);

/// Receive buffer of a client that reads slowly, in bytes: small, so that the peer feels it, and a
/// byte for each message a second, which is room for 10 ms of messages of 100 bytes.
const SLOW_RECEIVE_BUFFER: std::ops::RangeInclusive<usize> = 4096..=256 * 1024;

/// A simulated client.
pub struct Client {
    stream: Option<Stream>,
    session: Session,
    /// How far each of its publications has got.
    publications: Box<[Progress]>,
    /// Bytes that the socket did not take.
    unsent: Option<Box<Unsent>>,
    /// The front of a packet whose rest has not arrived, or packets not yet to be read.
    unread: Vec<u8>,
    /// End of the connect timeout, of the back-off or of the patience of a leaving client, or when
    /// it may read its next message, by phase.
    deadline_ns: u64,
    /// When its next message is due; `u64::MAX` when none is or when it is held up.
    next_due_ns: u64,
    /// Since when nothing but the engine holds its messages up.
    free_since_ns: u64,
    index: u32,
    local: u32,
    population: u16,
    phase: Phase,
    /// Failed attempts in a row.
    failures: u8,
    /// Its reading pauses.
    paused: bool,
    /// The peer has closed its side: only reading on finds it.
    ended: bool,
    /// It has read its share of this turn of the loop, and reads on in the next.
    reads_again: bool,
    /// Its timer is to be set anew.
    retime: bool,
    /// The period in which its acknowledgements were delayed last, see [`receive`].
    acks_period: u8,
}

/// Where in its life a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not asked to connect yet, or disconnected as asked.
    Idle,
    /// TCP is under way, then the handshake of TLS.
    Connecting,
    /// CONNECT, or the greeting of ZMTP, is sent.
    Greeting,
    /// SUBSCRIBE is sent; with ZMTP every one, and a PING behind them.
    Subscribing,
    /// Connected, and every filter is answered.
    Ready,
    /// Waits for its next attempt.
    Waiting,
    /// Failed, and does not try again.
    GaveUp,
    /// Its life is over; it may come back.
    Away,
    /// Its DISCONNECT waits for room.
    Leaving(Then),
}

impl Phase {
    /// Whether the broker has accepted its connection.
    const fn is_accepted(self) -> bool {
        matches!(self, Self::Subscribing | Self::Ready | Self::Leaving(_))
    }

    /// Returns `true` while the client waits for room for its DISCONNECT.
    pub const fn is_leaving(self) -> bool {
        matches!(self, Self::Leaving(_))
    }

    /// Whether it is not there, and does not try to be.
    const fn is_gone(self) -> bool {
        matches!(self, Self::Idle | Self::GaveUp | Self::Away | Self::Leaving(_))
    }
}

impl Client {
    /// A client that has not connected, with its `index` in this agent and `local` index in its
    /// population.
    pub fn new(index: u32, population: usize, local: u32, setup: &Setup) -> Self {
        let publications = &setup.populations[population].publications;
        Self {
            stream: None,
            session: Session::new(setup.plan.populations[population].speaks_zmtp()),
            publications: publications.iter().map(|_| Progress::default()).collect(),
            unsent: None,
            unread: Vec::new(),
            deadline_ns: 0,
            next_due_ns: u64::MAX,
            free_since_ns: 0,
            index,
            local,
            population: population as u16,
            phase: Phase::Idle,
            failures: 0,
            paused: false,
            ended: false,
            reads_again: false,
            retime: false,
            acks_period: 0,
        }
    }

    /// Where in its life it is.
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// A number of no meaning, made of the memory that its timer or its socket needs first.
    #[inline]
    pub fn look(&self) -> u32 {
        let sent = self.publications.first().map_or(0, Progress::sent);
        sent as u32
            ^ u32::from(self.failures)
            ^ u32::from(self.stream.is_some())
            ^ self.unread.len() as u32
    }

    /// Index of its population.
    pub fn population(&self) -> usize {
        usize::from(self.population)
    }

    /// Its local index in its population.
    pub const fn local(&self) -> u32 {
        self.local
    }

    /// Whether it leaves what has come unread for a while.
    pub const fn is_paused(&self) -> bool {
        self.paused
    }

    /// When its timer is to fire, if that has changed since the last call.
    pub fn take_deadline(&mut self, shared: &Shared) -> Option<Option<u64>> {
        if !std::mem::take(&mut self.retime) {
            return None;
        }
        let mut deadline_ns = u64::MAX;
        let population = &shared.setup.plan.populations[self.population()];
        let together = |at_ns, span_ns| pause::together(at_ns, span_ns, shared.setup.shard);
        match self.phase {
            Phase::Idle | Phase::GaveUp | Phase::Away => {}
            Phase::Connecting | Phase::Greeting | Phase::Subscribing => {
                deadline_ns = together(self.deadline_ns, population.connect_timeout_ns);
            }
            Phase::Waiting => {
                let wait_ns = population.reconnect.map_or(0, |reconnect| reconnect.min_ns);
                deadline_ns = together(self.deadline_ns, wait_ns);
            }
            Phase::Leaving(_) => deadline_ns = self.deadline_ns,
            Phase::Ready => {
                let keep_alive_ns = self.session.keep_alive_deadline(population.keep_alive_s);
                let span_ns = u64::from(population.keep_alive_s) * plan::SECOND_NS;
                let ping_ns = keep_alive_ns.map_or(u64::MAX, |at_ns| together(at_ns, span_ns));
                deadline_ns = self.next_due_ns.min(ping_ns);
                if self.paused {
                    deadline_ns = deadline_ns.min(self.resume_ns(shared));
                }
            }
        }
        Some((deadline_ns != u64::MAX).then_some(deadline_ns))
    }

    /// Begins its life in a connect stage, or as soon as it has left.
    pub fn begin(&mut self, shared: &mut Shared) {
        if self.phase.is_leaving() {
            self.phase = Phase::Leaving(Then::Connect);
            return;
        }
        self.leave_phase(shared, Phase::Idle);
        self.connect(shared);
    }

    /// Begins a connection.
    fn connect(&mut self, shared: &mut Shared) {
        let population = &shared.setup.plan.populations[self.population()];
        let tally = &mut shared.tally.populations[usize::from(self.population)];
        tally.counters.connect_attempts_total += 1;
        shared.underway += 1;
        self.phase = Phase::Connecting;
        self.retime = true;
        self.ended = false;
        self.acks_period = receive::acks_period(shared.now_ns).wrapping_sub(1);
        self.deadline_ns = shared.now_ns + population.connect_timeout_ns;
        match shared.host.open(&self.route(shared), self.index) {
            Ok(socket) => self.stream = Some(Stream::Plain(socket)),
            Err(reason) => self.lost(shared, reason),
        }
    }

    /// Its timer has fired.
    pub fn timer(&mut self, shared: &mut Shared) {
        self.retime = true;
        match self.phase {
            Phase::Idle | Phase::GaveUp | Phase::Away => {}
            Phase::Waiting if self.deadline_ns <= shared.now_ns => self.connect(shared),
            Phase::Connecting | Phase::Greeting | Phase::Subscribing
                if self.deadline_ns <= shared.now_ns =>
            {
                self.lost(shared, Reason::ConnectTimeout);
            }
            Phase::Waiting | Phase::Connecting | Phase::Greeting | Phase::Subscribing => {}
            Phase::Ready => self.timer_when_ready(shared),
            Phase::Leaving(_) => self.leave_on(shared),
        }
    }

    /// Its socket takes bytes again, or TCP stands or has failed.
    pub fn writable(&mut self, shared: &mut Shared) {
        if self.phase == Phase::Connecting {
            return self.establish(shared);
        }
        if self.stream.as_mut().is_some_and(Stream::takes_reading) {
            self.readable(shared, false);
        }
        if let Some(unsent) = self.unsent.take() {
            self.write_rest(shared, unsent);
        }
    }

    fn timer_when_ready(&mut self, shared: &mut Shared) {
        if self.paused && self.resume_ns(shared) <= shared.now_ns {
            self.paused = false;
            self.readable(shared, false);
        }
        if self.next_due_ns <= shared.now_ns {
            self.publish_due(shared);
        }
        if self.paused {
            // The silence is the client's own.
            self.session.note_heard();
        }
        let population = &shared.setup.plan.populations[self.population()];
        let (keep_alive_s, version) = (population.keep_alive_s, shared.version(self.population()));
        shared.out.clear();
        let out = &mut shared.out;
        match self.session.handle_keep_alive(shared.now_ns, keep_alive_s, version, out) {
            KeepAlive::NotDue => {}
            KeepAlive::Pinged => {
                shared.tally.populations[self.population()].counters.packets_sent_total += 1;
                self.flush(shared);
            }
            KeepAlive::Dead => self.lost(shared, Reason::KeepAliveTimeout),
        }
    }

    /// TCP stands or has failed: goes on to TLS where the target is under it, then to the
    /// greeting.
    fn establish(&mut self, shared: &mut Shared) {
        match self.secure(shared) {
            Ok(()) if self.session.zmtp().is_some() => self.greet_publisher(shared),
            Ok(()) => self.greet(shared),
            Err(Halt::Later) => {}
            Err(Halt::Lost(reason)) => self.lost(shared, reason),
        }
    }

    fn secure(&mut self, shared: &Shared) -> Result<(), Halt> {
        let population = self.population();
        let target = self.target(shared);
        let tls = shared.setup.populations[population].tls.as_ref();
        let tls = tls.filter(|_| shared.setup.plan.targets[target].tls);
        self.stream = match (self.stream.take(), tls) {
            (Some(Stream::Plain(socket)), Some(tls)) => {
                let n = shared.setup.plan.populations[population].first
                    + u64::from(self.global(shared));
                let ssl = tls.begin(Who { local: self.local, n, target });
                let secured = ssl.and_then(|ssl| Stream::secure(socket, ssl).ok());
                Some(secured.ok_or(Halt::Lost(Reason::TlsFailed))?)
            }
            (stream, _) => stream,
        };
        self.stream.as_mut().map_or(Ok(()), Stream::handshake)
    }

    /// The peer has accepted it: from here on it is connected.
    fn accepted(&mut self, shared: &mut Shared) {
        let population = &shared.setup.plan.populations[self.population()];
        shared.tally.targets.accepted(self.target(shared));
        let tally = &mut shared.tally.populations[usize::from(self.population)];
        tally.counters.connected_total += 1;
        tally.gauges.connected += 1;
        let since_ns = self.deadline_ns - population.connect_timeout_ns;
        tally.connect_time.record(shared.now_ns.cast_signed() - since_ns.cast_signed());
        self.phase = Phase::Subscribing;
    }

    fn ready(&mut self, shared: &mut Shared) {
        self.leave_phase(shared, Phase::Ready);
        self.failures = 0;
        self.free_since_ns = shared.now_ns;
        self.deadline_ns = shared.now_ns;
        shared.stalls.begin(self.index, shared.now_ns);
        shared.lifetimes.arrive(self.population(), self.local, shared.now_ns);
        self.retransmit(shared);
    }

    /// The connection is gone, or could not be made, for a reason that is counted.
    fn lost(&mut self, shared: &mut Shared, reason: Reason) {
        let tally = &mut shared.tally.populations[usize::from(self.population)];
        tally.outcome(reason);
        match self.phase {
            Phase::Connecting | Phase::Greeting => {
                tally.counters.connect_failed_total += 1;
                shared.tally.targets.failed(self.target(shared));
            }
            _ => {
                tally.counters.disconnected_total += 1;
                self.expect_will(shared, Death::Noticed);
            }
        }
        if let Phase::Leaving(then) = self.phase {
            return self.gone(shared, then);
        }
        let reconnect = shared.setup.plan.populations[self.population()].reconnect;
        let next = if reconnect.is_some() { Phase::Waiting } else { Phase::GaveUp };
        self.leave_phase(shared, next);
        self.close(shared);
        self.failures = self.failures.saturating_add(1);
        if let Some(reconnect) = reconnect {
            self.deadline_ns = shared.now_ns + self.back_off_ns(shared, reconnect);
        }
    }

    /// Half the doubled wait for certain, the other half at random, so that clients lost together
    /// do not come back together.
    fn back_off_ns(&self, shared: &Shared, reconnect: plan::Reconnect) -> u64 {
        let doublings = u32::from(self.failures - 1).min(32);
        let wait_ns = reconnect.min_ns.saturating_mul(1 << doublings).min(reconnect.max_ns);
        let random = Random::new(shared.setup.plan.seed, u64::from(self.index)).of(shared.now_ns);
        wait_ns / 2 + (random.unit() * (wait_ns / 2) as f64) as u64
    }

    /// Goes to another phase, keeping the gauges true.
    fn leave_phase(&mut self, shared: &mut Shared, next: Phase) {
        if self.phase.is_accepted() && !next.is_accepted() {
            shared.tally.targets.gone(self.target(shared));
        }
        let gauges = &mut shared.tally.populations[usize::from(self.population)].gauges;
        if matches!(self.phase, Phase::Connecting | Phase::Greeting | Phase::Subscribing) {
            shared.underway -= 1;
        }
        gauges.connected -= u64::from(self.phase.is_accepted() && !next.is_accepted());
        gauges.ready -= u64::from(self.phase == Phase::Ready);
        gauges.ready += u64::from(next == Phase::Ready);
        gauges.away -= u64::from(self.phase == Phase::Away);
        gauges.away += u64::from(next == Phase::Away);
        shared.leaving -= u32::from(self.phase.is_leaving());
        shared.leaving += u32::from(next.is_leaving());
        if next.is_gone() {
            gauges.stalled -= u64::from(shared.stalls.forget(self.index));
        }
        let gave_up = &mut shared.gave_up[usize::from(self.population)];
        *gave_up -= u32::from(self.phase == Phase::GaveUp);
        *gave_up += u32::from(next == Phase::GaveUp);
        if next == Phase::GaveUp {
            shared.lifetimes.forget(self.population(), self.local);
        }
        self.phase = next;
        self.retime = true;
    }

    /// Drops the socket and what belongs to it.
    fn close(&mut self, shared: &mut Shared) {
        self.stream = None;
        self.unread = Vec::new();
        self.paused = false;
        self.next_due_ns = u64::MAX;
        if let Some(unsent) = self.unsent.take()
            && self.session.mqtt().is_some()
        {
            let dropped = unsent.messages(shared.version(self.population()));
            shared.tally.populations[self.population()].counters.unsent_dropped_total += dropped;
        }
        let keep = !shared.setup.plan.populations[self.population()].clean_session;
        let dropped = self.session.connection_lost(keep) as u64;
        if dropped > 0 {
            self.publications.iter_mut().for_each(Progress::forget_in_flight);
            let tally = &mut shared.tally.populations[self.population()];
            tally.counters.abandoned_total += dropped;
            tally.gauges.in_flight -= dropped;
        }
    }

    /// Writes `shared.out` and leaves it empty; what the socket does not take is kept.
    fn flush(&mut self, shared: &mut Shared) {
        if shared.out.is_empty() {
            return;
        }
        let mut out = std::mem::take(&mut shared.out);
        self.session.note_sent(shared.now_ns);
        match &mut self.unsent {
            Some(unsent) => unsent.extend(shared.version(usize::from(self.population)), &out),
            None => self.write(shared, &out),
        }
        out.clear();
        shared.out = out;
    }

    fn write(&mut self, shared: &mut Shared, packets: &[u8]) {
        let (count, lost) = self.send(shared, packets);
        if count < packets.len() && self.stream.is_some() {
            self.unsent = Some(Box::new(Unsent::new(packets, count)));
        }
        if let Some(reason) = lost {
            self.lost(shared, reason);
        }
    }

    /// Writes what was kept.
    fn write_rest(&mut self, shared: &mut Shared, mut unsent: Box<Unsent>) {
        let (count, lost) = self.send(shared, unsent.rest());
        unsent.advance(count);
        if count > 0 {
            // A PINGREQ may still wait behind the rest, and the peer reads.
            self.session.note_heard();
        }
        if !unsent.rest().is_empty() {
            self.unsent = Some(unsent);
        }
        match lost {
            Some(reason) => self.lost(shared, reason),
            None if self.phase.is_leaving() => self.leave_on(shared),
            None if self.unsent.is_none() => {
                self.free_since_ns = shared.now_ns;
                self.publish_due(shared);
            }
            None => {}
        }
    }

    /// Writes as far as the socket takes it; returns how many bytes that were, and why the
    /// connection is to be given up, if it is.
    fn send(&mut self, shared: &mut Shared, bytes: &[u8]) -> (usize, Option<Reason>) {
        let counters = &mut shared.tally.populations[usize::from(self.population)].counters;
        let connecting = !self.phase.is_accepted();
        let mut sent = 0;
        while let (Some(stream), true) = (&mut self.stream, sent < bytes.len()) {
            match stream.write(&bytes[sent..], connecting) {
                Ok(count) => {
                    counters.bytes_sent_total += count as u64;
                    sent += count;
                }
                Err(Halt::Later) => break,
                Err(Halt::Lost(reason)) => return (sent, Some(reason)),
            }
        }
        (sent, None)
    }

    fn route(&self, shared: &Shared) -> Route {
        let setup = &shared.setup;
        let sources = &setup.sources;
        let turn = self.local as usize / setup.plan.populations[self.population()].at.count;
        let rate = setup.plan.populations[self.population()].read_rate_per_s;
        let (least, most) = SLOW_RECEIVE_BUFFER.into_inner();
        Route {
            target: setup.targets[self.target(shared)],
            source: (!sources.is_empty()).then(|| sources[turn % sources.len()]),
            receive_buffer: rate.map(|rate| (rate as usize).clamp(least, most)),
        }
    }

    /// Its index in its population over all agents.
    fn global(&self, shared: &Shared) -> u32 {
        shared.setup.shard.global(self.local)
    }

    /// Index of its target.
    fn target(&self, shared: &Shared) -> usize {
        let (plan, population) = (&shared.setup.plan, self.population());
        plan.populations[population].at.target(plan.seed, population, self.global(shared))
    }
}
