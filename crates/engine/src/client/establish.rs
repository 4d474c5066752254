//! The way to the first bytes of the protocol: TCP, TLS, WebSocket or QUIC, CONNECT.

use std::net::SocketAddr;

use plan::{Random, Reason, Secures};

use super::{Client, ClientPhase, at, receive};
use crate::context::Context;
use crate::seam::{At, FirstBytes, Polled, Request};
use crate::setup::PopulationSetup;
use crate::transport::tcp::TcpRoute;
use crate::transport::tls::Who;
use crate::transport::{Channel, Halt, Stream, WebSocket, proxy_header};

/// Receive buffer of a client that reads slowly, in bytes: small, so that the peer feels it, and a
/// byte for each message a second, which is room for 10 ms of messages of 100 bytes.
const SLOW_RECEIVE_BUFFER: std::ops::RangeInclusive<usize> = 4096..=256 * 1024;

impl Client {
    /// Begins an attempt to connect.
    pub(super) fn connect(&mut self, context: &mut Context) {
        let population = &context.setup.plan.populations[self.population()];
        let tally = &mut context.tally.populations[usize::from(self.population)];
        tally.counters.connect_attempts_total += 1;
        context.underway += u32::from(!self.returns);
        self.phase = ClientPhase::Connecting;
        self.retime = true;
        self.ended = false;
        self.acks_period = receive::acks_period(context.now_ns).wrapping_sub(1);
        self.deadline_ns = context.now_ns + population.connect_timeout_ns;
        let count = context.setup.addresses[self.target(context)].len();
        context.rounds.begin(self.index, count, context.now_ns);
        context.tally.addresses.attempted(self.address(context));
        match self.open(context) {
            Ok(channel) => {
                let stream = Stream::Direct(channel);
                let is_early = stream.has_early_data();
                self.stream = Some(stream);
                if is_early {
                    self.establish(context);
                }
            }
            Err(reason) => self.lost(context, reason),
        }
    }

    /// Opens a connection over TCP, or over QUIC if the target has it.
    fn open(&self, context: &Context) -> Result<Channel, Reason> {
        let (setup, target) = (&context.setup, self.target(context));
        let At { n, .. } = at(self, setup, context.now_ns);
        let (to, route) = (&setup.plan.targets[target], self.route(context));
        if !to.quic || route.target.port() != to.port {
            return context.host.open(&route, self.index, self.link(context));
        }
        let quic = setup.populations[self.population()].quic.as_ref();
        let chance = Random::new(setup.plan.seed, context.now_ns);
        let who = Who { local: self.local, n, target };
        let identity = quic.and_then(|quic| quic.begin(who, chance));
        context.host.open_quic(&route, self.index, identity.ok_or(Reason::TlsFailed)?)
    }

    /// Continues after TCP has connected or failed: with TLS and WebSocket if the target uses them,
    /// then with the protocol.
    pub(super) fn establish(&mut self, context: &mut Context) {
        match self.state_source(context) {
            Ok(()) => {}
            Err(Halt::Later) => return,
            Err(Halt::Lost(reason)) => return self.lost(context, reason),
        }
        let population = &context.setup.plan.populations[self.population()];
        let at_once = population.capabilities().secures != Secures::OnRequest;
        self.secure(context, at_once);
    }

    /// Begins TLS on the open connection, if the target has it, and sends the first bytes of the
    /// protocol after the handshake.
    pub(super) fn secure_open(&mut self, context: &mut Context) {
        self.phase = ClientPhase::Connecting;
        self.secure(context, true);
    }

    /// Writes the header of the PROXY protocol on a connection that has just opened, if the
    /// population has it. The next step leaves the connection under TLS or WebSocket, or the phase.
    fn state_source(&mut self, context: &Context) -> Result<(), Halt> {
        let At { population, n, .. } = at(self, &context.setup, context.now_ns);
        let Some(proxy) = population.proxy_protocol else { return Ok(()) };
        let target = self.route(context).target;
        let Some(Stream::Direct(channel)) = &mut self.stream else { return Ok(()) };
        if !channel.is_plain() {
            return Ok(());
        }
        // A link passes the handshake of TCP on first.
        channel.handshake()?;
        let source = SocketAddr::new(proxy.source(n), channel.own_port());
        let header = proxy_header::header(proxy.version, source, target);
        let written = channel.write(&header, true)?;
        // The buffer of a new socket has room for a hundred bytes.
        if written < header.len() { Err(Halt::Lost(Reason::SocketError)) } else { Ok(()) }
    }

    /// Counts a failed attempt at an address. Returns `true` if the client tries the next one at
    /// once.
    pub(super) fn attempt_failed(&self, context: &mut Context, reason: Reason) -> bool {
        let (target, place) = self.address(context);
        context.tally.targets.failed(target);
        context.tally.addresses.failed((target, place), reason);
        let count = context.setup.addresses[target].len();
        context.rounds.fails_over(self.index, count, reason)
    }

    /// Index of the target, and place of the attempt's address among those of the target.
    pub(super) fn address(&self, context: &Context) -> (usize, usize) {
        (self.target(context), context.rounds.place(self.index))
    }

    /// Continues the handshakes, and `begins` them if they have not begun.
    fn secure(&mut self, context: &mut Context, begins: bool) {
        let was_secure = self.is_secure();
        let secured = self.handshake(context, begins);
        self.end_handshakes(context, was_secure);
        self.count_handshake(context, was_secure);
        self.count_frames(context);
        match secured {
            Ok(()) => self.greet(context),
            Err(Halt::Later) => {}
            Err(Halt::Lost(reason)) => self.lost(context, reason),
        }
    }

    fn handshake(&mut self, context: &mut Context, begins: bool) -> Result<(), Halt> {
        let to = &context.setup.plan.targets[self.target(context)];
        if !to.tls && to.websocket.is_none() {
            return match &mut self.stream {
                Some(stream) => stream.handshake(&mut context.framing),
                None => Ok(()),
            };
        }
        self.stream = match self.stream.take() {
            Some(Stream::Direct(channel)) if channel.is_plain() && begins => {
                Some(self.wrap(context, channel)?)
            }
            stream => stream,
        };
        self.stream.as_mut().map_or(Ok(()), |stream| stream.handshake(&mut context.framing))
    }

    /// Counts the handshake of TLS or QUIC when it has ended. `was_secure`: it had ended before.
    fn count_handshake(&mut self, context: &mut Context, was_secure: bool) {
        let (population, local) = (self.population(), self.local);
        let counters = &mut context.tally.populations[population].counters;
        let PopulationSetup { tls, quic, .. } = &context.setup.populations[population];
        let Some(stream) = &mut self.stream else { return };
        if let Some(quic) = quic.as_ref().filter(|_| stream.is_quic()) {
            if stream.is_secure() && !was_secure {
                let accepted = stream.early_accepted();
                quic.handshake_end(local, accepted).count(counters);
                counters.tls_early_rejected_total += u64::from(accepted == Some(false));
            }
        } else if let Some(tls) = tls {
            tls.count(stream, local, counters);
        }
    }

    /// Counts the end of a handshake whose connection already has the first bytes of the client.
    pub(super) fn end_early_handshake(&mut self, context: &mut Context) {
        let is_open = self.phase == ClientPhase::Greeting && self.next_due_ns == u64::MAX;
        if is_open && self.stream.as_ref().is_some_and(|s| s.is_quic() && s.is_secure()) {
            self.end_handshakes(context, false);
            self.count_handshake(context, false);
        }
    }

    /// Records the time from the start of the attempt to CONNACK by the end of the handshake.
    pub(super) fn took(&self, context: &mut Context, took_ns: i64) {
        let (population, local) = (self.population(), self.local);
        let tally = &mut context.tally.populations[population];
        let PopulationSetup { tls, quic, .. } = &context.setup.populations[population];
        let Some(stream) = &self.stream else { return };
        let end = if let Some(quic) = quic.as_ref().filter(|_| stream.is_quic()) {
            quic.handshake_end(local, stream.early_accepted())
        } else if let (Some(tls), Some(ssl)) = (tls, stream.ssl()) {
            tls.handshake_end(ssl, local)
        } else {
            return;
        };
        end.connect_time(tally).record(took_ns);
    }

    /// Keeps the session of TLS of a connection that ends, if the client resumes sessions.
    pub(super) fn keep_session(&mut self, context: &Context) {
        let tls = context.setup.populations[self.population()].tls.as_ref();
        if let (Some(tls), Some(stream)) = (tls, &mut self.stream) {
            tls.keep(stream, self.local);
        }
    }

    /// Sends the first bytes of the protocol.
    fn greet(&mut self, context: &mut Context) {
        context.out.clear();
        let (login, will) = (self.login(&context.setup), self.open_sparkplug(context));
        let opening = FirstBytes { login: login.as_ref(), will: will.as_ref() };
        match self.poll(context, Request::Open(opening)) {
            Polled::Refused(reason) => return self.lost(context, reason),
            Polled::Sent(asked) => {
                let counters = &mut context.tally.populations[self.population()].counters;
                counters.packets_sent_total += asked.packets;
            }
            Polled::Wait(_) | Polled::Nothing => {}
        }
        self.phase = ClientPhase::Greeting;
        self.flush(context);
    }

    /// Puts a connected socket under TLS and WebSocket, as the target says.
    fn wrap(&self, context: &mut Context, channel: Channel) -> Result<Stream, Halt> {
        let (index, target) = (self.population(), self.target(context));
        let Context { setup, framing, tally, now_ns, .. } = context;
        let At { population, n, .. } = at(self, setup, *now_ns);
        let to = &setup.plan.targets[target];
        let channel = match (channel, setup.populations[index].tls.as_ref().filter(|_| to.tls)) {
            (Channel::Plain(wire), Some(tls)) => {
                let chance = Random::new(setup.plan.seed, *now_ns);
                let counters = &mut tally.populations[index].counters;
                let ssl = tls.begin(Who { local: self.local, n, target }, chance, counters);
                let secured = ssl.and_then(|ssl| Channel::secure(wire, ssl).ok());
                secured.ok_or(Halt::Lost(Reason::TlsFailed))?
            }
            (Channel::Simulated(connection), _) if to.tls => {
                Channel::Simulated(Box::new(connection.secure()))
            }
            (channel, _) => channel,
        };
        // A protocol with a port of its own has TCP there.
        let path = to.websocket.as_ref().filter(|_| population.port_of(to) == to.port);
        Ok(match path {
            Some(path) => {
                let websocket =
                    WebSocket::new(channel, (to, path.as_str()), (population, n), framing);
                Stream::WebSocket(Box::new(websocket))
            }
            None => Stream::Direct(channel),
        })
    }

    fn route(&self, context: &Context) -> TcpRoute {
        let setup = &context.setup;
        let population = &setup.plan.populations[self.population()];
        let turn = self.local as usize / population.at.count;
        let rate = population.read_rate_per_s;
        let (least, most) = SLOW_RECEIVE_BUFFER.into_inner();
        let (index, place) = self.address(context);
        let mut target = setup.addresses[index][place];
        target.set_port(population.port_of(&setup.plan.targets[index]));
        TcpRoute {
            target,
            source: setup.sources.to(target, turn),
            receive_buffer: rate.map(|rate| (rate as usize).clamp(least, most)),
        }
    }

    /// Wait before the next attempt: half the doubled wait plus a random part of the other half, so
    /// that clients lost together do not return together.
    pub(super) fn back_off_ns(&self, context: &Context, reconnect: plan::Reconnect) -> u64 {
        let doublings = u32::from(self.failures - 1).min(32);
        let wait_ns = reconnect.min_ns.saturating_mul(1 << doublings).min(reconnect.max_ns);
        let random = Random::new(context.setup.plan.seed, u64::from(self.index)).of(context.now_ns);
        wait_ns / 2 + (random.unit() * (wait_ns / 2) as f64) as u64
    }
}
