//! The life of one simulated client: phases of its connections, back-off, timer and counters.

mod authenticate;
mod death;
mod establish;
mod flap;
mod kept_session;
mod leave;
mod link;
mod migrate;
mod phases;
mod publish;
mod receive;
mod respond;
mod returns;
mod sparkplug;
mod unsent;

use plan::{Population, Reason, TextProperty, WaitCause};

use crate::context::Context;
use crate::schedule::coalescing;
use crate::seam::{
    self, At, Broken, Buffers, Cause, Notice, Polled, Protocol, Refusals, Request, Session, Side,
    Timeout,
};
use crate::setup::Setup;
use crate::transport::{Halt, Stream};

use kept_session::KeptSession;
pub use leave::LEAVE_NS;
pub use leave::Then;
pub use publish::Progress;
pub use unsent::UNSENT_MAX;
use unsent::Unsent;

/// Memory of an idle client in user space: socket, or box of its TLS, 16, session 32, publications
/// 16, what is unsent 8, an empty buffer 24, three instants 24, indices 10, kept session 4, phase,
/// wait and flags 10; and its link in the wheel, 16. The kernel's share is its own. The budget is
/// 160 bytes. (In debug builds mio's sockets are larger.)
#[cfg(not(any(debug_assertions, test)))]
const _: () = assert!(size_of::<Client>() + size_of::<crate::schedule::wheel::Link>() <= 160);

/// A simulated client.
pub struct Client {
    stream: Option<Stream>,
    session: Session,
    /// Progress of each publication.
    publications: Box<[Progress]>,
    /// Bytes for which the socket had no room.
    unsent: Option<Box<Unsent>>,
    /// The front of a packet whose rest has not arrived, or packets that the read rate holds back.
    unread: Vec<u8>,
    /// Instant by phase, in nanoseconds: end of the connect timeout, of the back-off, or of the
    /// wait of a leaving client; with a read rate, the next message.
    deadline_ns: u64,
    /// Instant of the next scheduled message, in nanoseconds; `u64::MAX` if there is none or if it
    /// is blocked. While the client connects, the end of the last phase, see [`phases`].
    next_due_ns: u64,
    /// Instant from which only the engine can delay messages, in nanoseconds; 0 until the client
    /// was ready in the session of the peer.
    free_since_ns: u64,
    /// The wait that ended then.
    last_wait: WaitCause,
    index: u32,
    local: u32,
    kept_session: KeptSession,
    population: u16,
    phase: ClientPhase,
    /// Failed attempts in a row.
    failures: u8,
    /// Reading waits for the read rate.
    paused: bool,
    /// The peer has closed its side. Only a further read finds the end.
    ended: bool,
    /// The time slice for reading is used up; the client continues in the next turn of the loop.
    reads_again: bool,
    /// The timer must be set again.
    retime: bool,
    /// The DISCONNECT that was sent makes the broker publish the will.
    leaves_will: bool,
    /// The client returns after a session lifetime.
    returns: bool,
    /// Last period in which acknowledgements were delayed, see [`receive`].
    acks_period: u8,
}

/// Phase in the life of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientPhase {
    /// No stage has connected the client yet, or a stage has disconnected it.
    Idle,
    /// TCP connects, then the TLS handshake runs.
    Connecting,
    /// The first packet of the protocol is sent, or awaited.
    Greeting,
    /// The subscriptions are sent.
    Subscribing,
    /// The peer has answered every subscription.
    Ready,
    /// The client waits for its next attempt.
    Waiting,
    /// The client has failed and does not retry.
    GaveUp,
    /// The session lifetime is over; the client may return.
    Offline,
    /// DISCONNECT waits for room.
    Leaving(Then),
}

impl ClientPhase {
    /// Returns `true` if the peer has accepted the connection.
    const fn is_accepted(self) -> bool {
        matches!(self, Self::Subscribing | Self::Ready | Self::Leaving(_))
    }

    /// Returns `true` while the client waits for room for its DISCONNECT.
    pub const fn is_leaving(self) -> bool {
        matches!(self, Self::Leaving(_))
    }

    /// Returns `true` if the client is not connected and does not try to connect.
    const fn is_gone(self) -> bool {
        matches!(self, Self::Idle | Self::GaveUp | Self::Offline | Self::Leaving(_))
    }
}

impl Client {
    /// A client that has not connected, with its index in this agent and its local index in the
    /// population.
    pub fn new(index: u32, population: usize, local: u32, setup: &Setup) -> Self {
        let publications = &setup.populations[population].publications;
        Self {
            stream: None,
            session: Session::new(&setup.plan.populations[population].protocol),
            publications: publications.iter().map(|_| Progress::default()).collect(),
            unsent: None,
            unread: Vec::new(),
            deadline_ns: 0,
            next_due_ns: u64::MAX,
            free_since_ns: 0,
            last_wait: WaitCause::Connection,
            index,
            local,
            kept_session: KeptSession::NONE,
            population: population as u16,
            phase: ClientPhase::Idle,
            failures: 0,
            paused: false,
            ended: false,
            reads_again: false,
            retime: false,
            leaves_will: false,
            returns: false,
            acks_period: 0,
        }
    }

    /// Phase of the client.
    pub const fn phase(&self) -> ClientPhase {
        self.phase
    }

    /// A meaningless number from the memory that a timer or a socket event needs first.
    #[inline]
    pub fn look(&self) -> u32 {
        let sent = self.publications.first().map_or(0, Progress::sent);
        sent as u32
            ^ u32::from(self.failures)
            ^ u32::from(self.stream.is_some())
            ^ self.unread.len() as u32
    }

    /// Index of the population.
    pub fn population(&self) -> usize {
        usize::from(self.population)
    }

    /// Local index in the population.
    pub const fn local(&self) -> u32 {
        self.local
    }

    /// Bytes of replies that wait for the socket.
    pub fn replies(&self) -> usize {
        self.unsent.as_ref().map_or(0, |unsent| unsent.replies())
    }

    /// Returns `true` while reading waits for the read rate.
    pub const fn is_paused(&self) -> bool {
        self.paused
    }

    /// New instant of the timer, if it has changed since the last call; `Some(None)`: no timer.
    #[inline]
    pub fn take_deadline(&mut self, context: &Context) -> Option<Option<u64>> {
        if !std::mem::take(&mut self.retime) {
            return None;
        }
        let deadline_ns = self.deadline(context);
        Some((deadline_ns != u64::MAX).then_some(deadline_ns))
    }

    /// Instant of the timer, in nanoseconds; `u64::MAX` if there is none.
    fn deadline(&self, context: &Context) -> u64 {
        let mut deadline_ns = u64::MAX;
        let population = &context.setup.plan.populations[self.population()];
        let together = |at_ns, span_ns| coalescing::together(at_ns, span_ns, context.setup.shard);
        match self.phase {
            ClientPhase::Idle | ClientPhase::GaveUp | ClientPhase::Offline => {}
            ClientPhase::Connecting | ClientPhase::Greeting | ClientPhase::Subscribing => {
                deadline_ns = together(self.deadline_ns, population.connect_timeout_ns);
            }
            // After a failover there is no wait.
            ClientPhase::Waiting if self.deadline_ns <= context.now_ns => {
                deadline_ns = self.deadline_ns;
            }
            ClientPhase::Waiting => {
                let wait_ns = population.reconnect.map_or(0, |reconnect| reconnect.min_ns);
                deadline_ns = together(self.deadline_ns, wait_ns);
            }
            ClientPhase::Leaving(_) => deadline_ns = self.deadline_ns,
            ClientPhase::Ready => {
                let at = at(self, &context.setup, context.now_ns);
                let span_ns = u64::from(population.keep_alive_s) * plan::SECOND_NS;
                let own_ns = self.session.deadline(&at, Side::Own);
                let own_ns = if own_ns == u64::MAX { own_ns } else { together(own_ns, span_ns) };
                deadline_ns = self.next_due_ns.min(own_ns).min(self.session.receipt_ns());
                if self.paused {
                    deadline_ns = deadline_ns.min(self.resume_ns(context));
                }
            }
        }
        deadline_ns.min(self.stream.as_ref().map_or(u64::MAX, Stream::deadline))
    }

    /// Connects the client, as soon as it has left if it is leaving.
    pub fn begin(&mut self, context: &mut Context) {
        if self.phase.is_leaving() {
            self.phase = ClientPhase::Leaving(Then::Connect);
            return;
        }
        let next = if self.returns { ClientPhase::Offline } else { ClientPhase::Idle };
        self.leave_phase(context, next);
        self.connect(context);
    }

    /// Handles the timer.
    pub fn timer(&mut self, context: &mut Context) {
        self.retime = true;
        if self.stream.as_ref().is_some_and(|stream| stream.deadline() <= context.now_ns) {
            self.pass_on(context);
        }
        match self.phase {
            ClientPhase::Idle | ClientPhase::GaveUp | ClientPhase::Offline => {}
            ClientPhase::Waiting if self.deadline_ns <= context.now_ns => self.connect(context),
            ClientPhase::Connecting | ClientPhase::Greeting
                if self.deadline_ns <= context.now_ns =>
            {
                self.lost(context, Reason::ConnectTimeout);
            }
            ClientPhase::Subscribing if self.deadline_ns <= context.now_ns => {
                self.lost(context, Reason::SubscribeTimeout);
            }
            ClientPhase::Waiting
            | ClientPhase::Connecting
            | ClientPhase::Greeting
            | ClientPhase::Subscribing => {}
            ClientPhase::Ready => self.timer_when_ready(context),
            ClientPhase::Leaving(_) => self.leave_on(context),
        }
    }

    /// Handles room for bytes, or the result of connecting.
    pub fn writable(&mut self, context: &mut Context) {
        // Bytes of a handshake wait in the link too.
        if let (Some(stream), true) = (&mut self.stream, context.has_links) {
            stream.pass_on();
        }
        if self.phase == ClientPhase::Connecting {
            return self.establish(context);
        }
        self.end_early_handshake(context);
        if self.stream.as_mut().is_some_and(Stream::takes_reading) {
            self.readable(context, false);
        }
        if let Some(stream) = &mut self.stream {
            stream.write_own();
        }
        if let Some(unsent) = self.unsent.take() {
            self.write_rest(context, unsent);
        } else if context.has_links {
            self.leave_on(context);
        }
    }

    fn timer_when_ready(&mut self, context: &mut Context) {
        if self.paused && self.resume_ns(context) <= context.now_ns {
            self.paused = false;
            self.readable(context, false);
        }
        if self.next_due_ns <= context.now_ns {
            self.publish_due(context);
        }
        if self.paused {
            // The client itself does not read.
            self.session.note(Notice::Alive);
        }
        context.out.clear();
        let at = at(self, &context.setup, context.now_ns);
        match self.session.timeout(&at, &mut context.out) {
            Timeout::Early => {}
            Timeout::Sent(packets) => {
                let counters = &mut context.tally.populations[self.population()].counters;
                counters.packets_sent_total += packets;
                self.flush(context);
            }
            Timeout::Dead(reason) => self.lost(context, reason),
        }
    }

    /// The peer has accepted the client: subscribes, unless the peer has kept the subscriptions.
    fn subscribe(&mut self, context: &mut Context, resumed: bool) {
        self.accepted(context, resumed);
        // Only a session in which the client was ready has this run's filters for certain.
        let is_known = resumed && self.free_since_ns > 0 && !self.may_have_unsubscribed(context);
        if is_known {
            return self.ready(context);
        }
        match self.ask_filters(context) {
            Ok(false) => self.ready(context),
            Ok(true) => {}
            Err(reason) => self.lost(context, reason),
        }
    }

    /// Appends the subscriptions. Returns `true` if an answer will come.
    fn ask_filters(&mut self, context: &mut Context) -> Result<bool, Reason> {
        let asked = match self.poll(context, Request::Subscribe) {
            Polled::Sent(asked) => asked,
            Polled::Refused(reason) => return Err(reason),
            Polled::Wait(_) | Polled::Nothing => return Ok(false),
        };
        context.retained.note_subscribe(self.population(), self.local, context.now_ns);
        let counters = &mut context.tally.populations[self.population()].counters;
        counters.packets_sent_total += asked.packets;
        counters.subscribed_total += asked.granted;
        counters.subscribe_failed_total += asked.left_out;
        if asked.left_out > 0 {
            let outcomes = &mut context.tally.populations[self.population()].outcomes;
            *outcomes.entry(Reason::FiltersTooLarge).or_default() += asked.left_out;
        }
        Ok(asked.awaits_answer)
    }

    /// The peer has answered the subscriptions.
    fn subscribed(
        &mut self,
        context: &mut Context,
        granted: u64,
        refused: Refusals<'_>,
        is_last: bool,
    ) {
        let tally = &mut context.tally.populations[self.population()];
        tally.counters.subscribed_total += granted;
        for cause in refused.iter() {
            tally.counters.subscribe_failed_total += 1;
            cause.count(tally);
        }
        match self.phase {
            ClientPhase::Subscribing if is_last => {
                self.end_subscribing(context);
                self.ready(context);
            }
            ClientPhase::Ready if is_last => self.subscribed_again(context),
            _ => {}
        }
    }

    fn ready(&mut self, context: &mut Context) {
        self.leave_phase(context, ClientPhase::Ready);
        self.failures = 0;
        self.next_due_ns = u64::MAX;
        self.free_from(WaitCause::Connection, context.now_ns);
        self.deadline_ns = context.now_ns;
        context.stalls.begin(self.index, context.now_ns);
        context.lifetimes.arrive(self.population(), self.local, context.now_ns);
        context.flaps.arrive(self.population(), self.local, context.now_ns);
        self.send_births(context, false);
        self.retransmit(context);
    }

    /// The peer has broken the protocol.
    #[cold]
    fn broke(&mut self, context: &mut Context, broken: &Broken) {
        let tally = &mut context.tally.populations[usize::from(self.population)];
        tally.explanations.count(broken.reason, TextProperty::Detail, &broken.text);
        self.lost(context, broken.reason);
    }

    /// Notes the end of a wait: from `now_ns` on, only the engine can delay messages.
    const fn free_from(&mut self, wait: WaitCause, now_ns: u64) {
        self.free_since_ns = now_ns;
        self.last_wait = wait;
    }

    /// Handles the loss of the connection, or a failed attempt, and counts the reason.
    fn lost<'a>(&mut self, context: &mut Context, cause: impl Into<Cause<'a>>) {
        let tally = &mut context.tally.populations[usize::from(self.population)];
        let cause = cause.into();
        cause.count(tally);
        self.explain_end(tally, cause.reason);
        let mut fails_over = false;
        match self.phase {
            ClientPhase::Connecting | ClientPhase::Greeting => {
                tally.counters.connect_failed_total += 1;
                fails_over = self.attempt_failed(context, cause.reason);
            }
            _ => {
                tally.counters.disconnected_total += 1;
                let death = self.death_by(context, cause.reason);
                self.expect_will(context, death);
            }
        }
        if let ClientPhase::Leaving(then) = self.phase {
            return self.gone(context, then);
        }
        self.note_silence(context, cause.reason);
        let reconnect = context.setup.plan.populations[self.population()].reconnect;
        let waits = fails_over || reconnect.is_some();
        self.leave_phase(context, if waits { ClientPhase::Waiting } else { ClientPhase::GaveUp });
        self.close(context);
        if fails_over {
            self.deadline_ns = context.now_ns;
            return;
        }
        self.failures = self.failures.saturating_add(1);
        if let Some(reconnect) = reconnect {
            self.deadline_ns = context.now_ns + self.back_off_ns(context, reconnect);
        }
    }

    /// Enters another phase and updates the gauges.
    fn leave_phase(&mut self, context: &mut Context, next: ClientPhase) {
        if self.phase.is_accepted() && !next.is_accepted() {
            context.tally.targets.gone(self.target(context));
        }
        let gauges = &mut context.tally.populations[usize::from(self.population)].gauges;
        if self.phase.is_underway() {
            context.underway -= u32::from(!self.returns);
        }
        gauges.connected -= u64::from(self.phase.is_accepted() && !next.is_accepted());
        gauges.ready -= u64::from(self.phase == ClientPhase::Ready);
        gauges.ready += u64::from(next == ClientPhase::Ready);
        gauges.offline -= u64::from(self.returns);
        self.returns = next.returns(self.returns);
        gauges.offline += u64::from(self.returns);
        context.leaving -= u32::from(self.phase.is_leaving());
        context.leaving += u32::from(next.is_leaving());
        if next.is_gone() {
            gauges.stalled -= u64::from(context.stalls.forget(self.index));
        }
        let gave_up = &mut context.gave_up[usize::from(self.population)];
        *gave_up -= u32::from(self.phase == ClientPhase::GaveUp);
        *gave_up += u32::from(next == ClientPhase::GaveUp);
        if self.phase == ClientPhase::Ready {
            context.flaps.forget(self.population(), self.local);
        }
        if next == ClientPhase::GaveUp {
            context.lifetimes.forget(self.population(), self.local);
        }
        self.phase = next;
        self.retime = true;
    }

    /// Drops the socket and the buffers of the connection.
    fn close(&mut self, context: &mut Context) {
        self.keep_session(context);
        self.stream = None;
        self.kept_session.leave(context.now_ns);
        self.unread = Vec::new();
        self.paused = false;
        self.leaves_will = false;
        self.next_due_ns = u64::MAX;
        self.end_holds(context);
        context.exchanges.forget(self.index);
        self.drop_unsent(context);
        let population = &context.setup.plan.populations[usize::from(self.population)];
        let keeps_session = population.keeps_session();
        let dropped = self.session.note(Notice::Lost { keeps_session });
        let waiting = context.outboxes.forget_waiting(self.index);
        self.drop_answers(context, waiting);
        self.abandon(context, dropped);
    }

    /// Writes `context.out` and leaves it empty. Keeps the bytes for which the socket has no room.
    fn flush(&mut self, context: &mut Context) {
        if context.out.is_empty() {
            return;
        }
        let mut out = std::mem::take(&mut context.out);
        self.session.note(Notice::Sent(context.now_ns));
        match &mut self.unsent {
            Some(unsent) => {
                let setup = &context.setup.populations[usize::from(self.population)].protocol;
                unsent.extend(setup, &out);
            }
            None => self.write(context, &out),
        }
        out.clear();
        context.out = out;
    }

    fn write(&mut self, context: &mut Context, packets: &[u8]) {
        let (count, lost) = self.send(context, packets);
        if count < packets.len() {
            self.unsent = Some(Box::new(Unsent::new(packets, count)));
        }
        if self.stream.is_none() {
            // The peer has ended the connection behind messages that the client answers.
            self.drop_unsent(context);
        }
        if let Some(reason) = lost {
            self.lost(context, reason);
        }
    }

    /// Writes the bytes that were kept.
    fn write_rest(&mut self, context: &mut Context, mut unsent: Box<Unsent>) {
        let was_full = unsent.is_full();
        let (count, lost) = self.send(context, unsent.rest());
        unsent.advance(count);
        if count > 0 {
            // A PINGREQ may still wait behind the rest, and the peer reads.
            self.session.note(Notice::Alive);
        }
        if was_full && !unsent.is_full() {
            self.read_again(context);
        }
        if !unsent.rest().is_empty() {
            self.unsent = Some(unsent);
        }
        match lost {
            Some(reason) => self.lost(context, reason),
            None if self.phase.is_leaving() => self.leave_on(context),
            None if self.unsent.is_none() => {
                self.free_from(WaitCause::Socket, context.now_ns);
                self.publish_due(context);
            }
            None => {}
        }
    }

    /// Writes until the socket has no room. Returns the number of bytes written, and the reason if
    /// the connection has failed.
    fn send(&mut self, context: &mut Context, bytes: &[u8]) -> (usize, Option<Reason>) {
        let counters = &mut context.tally.populations[usize::from(self.population)].counters;
        let connecting = !self.phase.is_accepted();
        let mut sent = 0;
        while let (Some(stream), true) = (&mut self.stream, sent < bytes.len()) {
            match stream.write(&bytes[sent..], connecting, &mut context.framing) {
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

    /// Appends the packets of a request to `context.out`.
    #[inline(always)]
    fn poll(&mut self, context: &mut Context, request: Request<'_>) -> Polled {
        let Context { setup, out, scratch, now_ns, .. } = context;
        let at = at(self, setup, *now_ns);
        self.session.poll(&at, request, Buffers { out, scratch })
    }

    /// Index in the population over all agents.
    fn global(&self, context: &Context) -> u32 {
        context.setup.shard.global(self.local)
    }

    /// Index of the target.
    fn target(&self, context: &Context) -> usize {
        context.setup.target(self.population(), self.global(context))
    }
}

/// A client as its protocol sees it, at an instant in nanoseconds.
#[inline]
fn at<'a>(client: &Client, setup: &'a Setup, now_ns: u64) -> At<'a, seam::SessionSetup> {
    let population: &Population = &setup.plan.populations[client.population()];
    // As in `global`: without a check, nothing is left of it where no number is asked for.
    let n = population.first.wrapping_add(u64::from(setup.shard.global(client.local)));
    At { setup: &setup.populations[client.population()].protocol, population, n, now_ns }
}
