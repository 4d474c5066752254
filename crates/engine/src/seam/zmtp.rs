//! ZMTP: greeting and subscriptions of a SUB socket, frames of the publisher as events, heartbeats
//! (ZMTP 37).

use plan::{Reason, Security, Template};
use zmtp::{Handled, Mechanism, ZmtpSession};

use super::cause::{Broken, Cause, ReasonTexts};
use super::keep_alive::KeepAlive;
use super::protocol::{
    Accepted, Asked, At, Buffers, Event, Notice, Polled, Protocol, Refusals, Request, Side, Step,
    Timeout,
};
use super::received::{Beside, Carried, Inbox, Next, ORDERED, Received};

/// State of a SUB socket.
pub struct ZmtpClient {
    session: ZmtpSession,
    keep_alive: KeepAlive,
}

/// Settings of a population.
pub struct ZmtpSetup {
    /// `true` if its sockets send user name and password.
    is_plain: bool,
}

/// User name and password.
type Credentials = (String, String);

impl ZmtpSetup {
    /// Settings of a population with these options.
    pub fn new(options: &plan::Zmtp) -> Self {
        Self { is_plain: options.security == Security::Plain }
    }
}

impl ZmtpClient {
    /// State of a socket that has never connected.
    pub const NEW: Self = Self { session: ZmtpSession::new(), keep_alive: KeepAlive::NEW };

    /// Time without bytes after which the socket sends a PING, in seconds; 0 without keep-alive.
    const fn interval_s(&self, at: &At<'_, ZmtpSetup>) -> u16 {
        if self.session.has_heartbeats() { at.population.keep_alive_s } else { 0 }
    }

    /// Appends all prefixes, and a PING that the publisher answers once it has read the prefixes. A
    /// publisher before ZMTP 3.1 knows no PING and sends no answer.
    fn subscribe(&mut self, at: &At<'_, ZmtpSetup>, out: &mut Vec<u8>) -> Asked {
        let mut prefixes = 0;
        for subscription in &at.population.subscriptions {
            let prefix = &subscription.filter;
            for variant in 0..prefix.variants() {
                self.session.subscribe(prefix.text(at.n, variant).as_bytes(), out);
                prefixes += 1;
            }
        }
        let awaits_answer = self.session.ping(out);
        let packets = prefixes + u64::from(awaits_answer);
        Asked { packets, granted: prefixes, left_out: 0, awaits_answer }
    }
}

impl Protocol for ZmtpClient {
    type Setup = ZmtpSetup;

    #[inline]
    fn handle<'b>(
        &mut self,
        at: &At<'_, ZmtpSetup>,
        bytes: &'b [u8],
        out: &mut Vec<u8>,
        inbox: &mut impl Inbox,
    ) -> Step<'b> {
        let before = out.len();
        let was_connected = self.session.is_connected();
        let credentials = if was_connected { None } else { credentials(at) };
        let mechanism = mechanism(credentials.as_ref());
        let mut step = Step::new();
        let event = loop {
            let handled = self.session.handle(&bytes[step.len..], &mechanism, out);
            let Handled { len, event } = match handled {
                Ok(handled) => handled,
                Err(error) => break broken(error),
            };
            step.len += len;
            let message = match event {
                zmtp::ZmtpEvent::Message(message) => message,
                zmtp::ZmtpEvent::Incomplete => break Event::Incomplete,
                event => {
                    step.read += 1;
                    break neutral(event, was_connected, at.setup);
                }
            };
            step.read += 1;
            let marks = ORDERED;
            if inbox.take(&Received { payload: message.payload(), marks, beside: &message })
                != Next::More
            {
                break Event::Handled;
            }
        };
        step.replied = u32::from(out.len() > before);
        step.event = event;
        step
    }

    #[inline]
    fn poll(&mut self, at: &At<'_, ZmtpSetup>, request: Request<'_>, to: Buffers<'_>) -> Polled {
        match request {
            Request::Open(_) => {
                self.session.connect(&mechanism(credentials(at).as_ref()), to.out);
                Polled::Sent(Asked::ONE)
            }
            Request::Subscribe => Polled::Sent(self.subscribe(at, to.out)),
            // Engines play subscribers only, and plans have no flapping sockets.
            _ => Polled::Nothing,
        }
    }

    fn deadline(&self, at: &At<'_, ZmtpSetup>, side: Side) -> u64 {
        match side {
            Side::Own => self.keep_alive.deadline(self.interval_s(at), side),
            // A publisher waits for nothing.
            Side::Peer => u64::MAX,
        }
    }

    fn timeout(&mut self, at: &At<'_, ZmtpSetup>, out: &mut Vec<u8>) -> Timeout {
        let interval_s = self.interval_s(at);
        self.keep_alive.timeout(interval_s, at.now_ns, || self.session.heartbeat(out))
    }

    #[inline]
    fn note(&mut self, notice: Notice) -> u64 {
        self.keep_alive.note(notice);
        if let Notice::Lost { .. } = notice {
            self.session.connection_lost();
        }
        0
    }
}

#[cold]
fn broken<'b>(error: zmtp::ZmtpError) -> Event<'b> {
    Event::Broken(Broken { reason: Reason::ProtocolError, text: error.to_string() })
}

/// Events other than messages.
#[cold]
fn neutral<'b>(event: zmtp::ZmtpEvent<'b>, was_connected: bool, setup: &ZmtpSetup) -> Event<'b> {
    match event {
        zmtp::ZmtpEvent::Connected => Event::Connected(Accepted::default()),
        // The publisher has taken in all prefixes.
        zmtp::ZmtpEvent::Pong => {
            Event::Subscribed { granted: 0, refused: Refusals::NONE, is_last: true }
        }
        zmtp::ZmtpEvent::Refused(text) => {
            let reason = match setup.is_plain {
                _ if was_connected => Reason::ClosedByBroker,
                true => Reason::BadCredentials,
                false => Reason::ConnectClosed,
            };
            let texts = ReasonTexts { reason_string: Some(text), server_reference: None };
            Event::Refused(Cause { reason, texts })
        }
        zmtp::ZmtpEvent::Message(_)
        | zmtp::ZmtpEvent::Incomplete
        | zmtp::ZmtpEvent::Greeted
        | zmtp::ZmtpEvent::Replied => Event::Handled,
    }
}

impl Beside for zmtp::ZmtpMessage<'_> {
    /// The first frame. A message of one frame has the empty topic.
    fn topic(&self) -> Option<&str> {
        let mut frames = self.frames();
        let topic = frames.next().filter(|_| frames.next().is_some()).unwrap_or_default();
        str::from_utf8(topic).ok()
    }

    fn carried(&self) -> Carried<'_> {
        Carried::default()
    }
}

/// User name and password for PLAIN; `None` without PLAIN.
fn credentials(at: &At<'_, ZmtpSetup>) -> Option<Credentials> {
    let text = |template: &Option<Template>| template.as_ref().map(|t| t.text(at.n, 0));
    let population = at.population;
    if !at.setup.is_plain {
        return None;
    }
    text(&population.username).zip(text(&population.password))
}

#[inline]
fn mechanism(credentials: Option<&Credentials>) -> Mechanism<'_> {
    credentials.map_or(Mechanism::Null, |(username, password)| Mechanism::Plain {
        username: username.as_bytes(),
        password: password.as_bytes(),
    })
}

#[cfg(test)]
mod tests {
    use plan::{Population, SECOND_NS};

    use super::*;
    use crate::seam::protocol::FirstBytes;
    use crate::seam::{Scratch, Session, SessionSetup};
    use testkit::plans;

    const S: u64 = SECOND_NS;
    const PING: &[u8] = b"\x04\x07\x04PING\0\0";
    const PONG: &[u8] = b"\x04\x05\x04PONG";
    const DEAD: Timeout = Timeout::Dead(Reason::KeepAliveTimeout);

    struct Trash;

    impl Inbox for Trash {
        fn take(&mut self, _: &Received<'_>) -> Next {
            Next::More
        }
    }

    /// A client of a population.
    struct Client {
        population: Population,
        setup: SessionSetup,
        session: Session,
    }

    impl Client {
        fn new(population: Population) -> Self {
            let setup = SessionSetup::new(&population, u32::MAX);
            let session = Session::new(&population.protocol);
            Self { population, setup, session }
        }

        /// A socket of ZeroMQ with a keep-alive, connected to a publisher of ZMTP 3.`minor`.
        fn connected(keep_alive_s: u16, minor: u8) -> Self {
            let mut client = Self::new(sockets(keep_alive_s));
            let mut out = Vec::new();
            let (Self { population, setup, session }, scratch) =
                (&mut client, &mut Scratch::default());
            let at = At { setup, population, n: 0, now_ns: 0 };
            session.poll(
                &at,
                Request::Open(FirstBytes::default()),
                Buffers { out: &mut out, scratch },
            );
            out[11] = minor;
            let ready = b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03PUB";
            client.handle(&[&out[..], ready].concat());
            client
        }

        fn handle(&mut self, bytes: &[u8]) {
            let Self { population, setup, session } = self;
            let (at, mut handled) = (At { setup, population, n: 0, now_ns: 0 }, 0);
            while handled < bytes.len() {
                let step = session.handle(&at, &bytes[handled..], &mut Vec::new(), &mut Trash);
                if step.len == 0 {
                    break;
                }
                handled += step.len;
            }
        }

        fn timeout(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Timeout {
            let Self { population, setup, session } = self;
            session.timeout(&At { setup, population, n: 0, now_ns }, out)
        }

        fn deadline(&self) -> u64 {
            let Self { population, setup, session } = self;
            session.deadline(&At { setup, population, n: 0, now_ns: 0 }, Side::Own)
        }
    }

    /// A population of one socket of ZeroMQ.
    fn sockets(keep_alive_s: u16) -> Population {
        let mut population = plans::population("sockets", 1);
        population.protocol = plan::PlannedProtocol::Zmtp(plan::Zmtp {
            player: plan::Player::Engine,
            high_water_mark: 0,
            io_threads: 1,
            security: Security::Null,
        });
        population.keep_alive_s = keep_alive_s;
        population
    }

    #[test]
    fn a_silent_client_pings_and_a_silent_peer_is_dead() {
        let (mut client, mut out) = (Client::connected(10, 1), Vec::new());
        client.session.note(Notice::Sent(5 * S));
        assert_eq!(client.deadline(), 15 * S);
        assert_eq!(client.timeout(15 * S - 1, &mut out), Timeout::Early);
        client.session.note(Notice::Sent(6 * S));
        assert_eq!(client.timeout(15 * S, &mut out), Timeout::Early);
        assert_eq!(client.timeout(16 * S, &mut out), Timeout::Sent(1));
        client.session.note(Notice::Sent(20 * S));
        assert_eq!(client.deadline(), 26 * S, "sending postpones nothing now");
        assert_eq!(client.timeout(26 * S - 1, &mut out), Timeout::Early);
        assert_eq!(client.timeout(26 * S, &mut out), DEAD);
        assert_eq!(out, PING);
        client.session.note(Notice::Lost { keeps_session: false });
        assert_eq!(client.deadline(), u64::MAX);
    }

    #[test]
    fn any_bytes_of_the_peer_are_a_sign_of_life() {
        // An answer, a message, one of two frames, and the front of a frame of 1000 bytes.
        let front = [b"\x02\0\0\0\0\0\0\x03\xe8".as_slice(), &[b'.'; 100]].concat();
        for sign in [PONG, b"\0\x01x", b"\x01\x01a\0\x01b", &front] {
            let (mut client, out) = (Client::connected(10, 1), &mut Vec::new());
            assert_eq!(client.timeout(10 * S, out), Timeout::Sent(1));
            client.session.note(Notice::Alive);
            client.handle(sign);
            assert_eq!(client.timeout(20 * S, out), Timeout::Sent(1), "{sign:02x?}");
            assert_eq!(client.timeout(30 * S, out), DEAD);
        }
    }

    #[test]
    fn there_is_no_keep_alive_without_an_interval_or_a_peer_that_answers() {
        assert_eq!(Client::connected(0, 1).deadline(), u64::MAX);
        assert_eq!(Client::connected(10, 0).deadline(), u64::MAX);
        assert_eq!(Client::new(sockets(10)).deadline(), u64::MAX);
        let clients = Population { keep_alive_s: 10, ..plans::population("clients", 1) };
        assert_eq!(Client::new(clients).deadline(), u64::MAX);
    }
}
