//! A scripted NATS server: bytes of any number of connections in, bytes out. The server rejects
//! clients that break the protocol, and breaks the protocol where its [`NatsScript`] says so.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};
use testkit::Rng;

use super::operation::{END, NatsOperation, PING, matches};
use crate::output::Output;

/// PINGs of the server without an answer before it gives a client up.
const PINGS_MAX: u8 = 2;

/// Conduct of the server on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conduct {
    /// As a server does.
    Plain,
    /// Accepts, and sends no INFO.
    Mute,
    /// Answers with something that is no NATS.
    NotNats,
    /// Closes behind INFO.
    EndBehindInfo,
    /// Closes behind the first PONG.
    EndBehindPong,
    /// Refuses the login with this error.
    Refuse(&'static str),
    /// Answers no PING.
    NoPong,
    /// Sends this line behind the first PONG.
    Line(&'static str),
    /// Answers each operation with +OK, and sends INFO again and again.
    Verbose,
    /// Sends each byte by itself.
    Bytewise,
    /// Refuses each second subscription.
    Strict,
    /// Requires TLS behind INFO.
    NeedsTls,
}

/// Deviations of the server from a plain server, and its settings.
pub struct NatsScript {
    /// Largest message with its headers, in bytes.
    pub payload_max: usize,
    /// Silence of a client after which the server sends a PING, in nanoseconds.
    pub ping_ns: u64,
    /// `true` if a client that answers no PING is given up.
    pub gives_up: bool,
    /// Bytes that may wait for a client before it counts as a slow consumer.
    pub pending_max: usize,
    /// Password of each user; `None`: everybody is accepted.
    pub password: Option<&'static str>,
    /// Draws the conduct on the next connection.
    pub conduct: Box<dyn FnMut() -> Conduct>,
}

/// The server.
pub struct NatsServer {
    script: NatsScript,
    lines: BTreeMap<usize, ServerLine>,
    rng: Rng,
    now_ns: u64,
    /// Its next actions, in order.
    pub output: VecDeque<(usize, Output)>,
    /// Subjects and payloads of messages, for clients of MQTT.
    pub published: VecDeque<(String, Vec<u8>)>,
    /// Number of deviations by kind.
    pub seen: BTreeMap<&'static str, u64>,
}

/// One connection.
struct ServerLine {
    conduct: Conduct,
    front: Vec<u8>,
    /// Options of CONNECT; `None` before it.
    options: Option<Value>,
    subscriptions: BTreeMap<u64, ServerSubscription>,
    /// Instant of the last bytes of the client or of the last PING.
    last_ns: u64,
    /// PINGs without an answer.
    pings: u8,
    /// Operations of the client.
    operations: u64,
    has_ponged: bool,
}

struct ServerSubscription {
    filter: String,
    queue: Option<String>,
    /// Number of messages after which it ends.
    left: Option<u64>,
}

impl NatsScript {
    /// A plain server.
    pub fn plain() -> Self {
        Self {
            payload_max: 1 << 20,
            ping_ns: u64::MAX,
            gives_up: false,
            pending_max: usize::MAX,
            password: None,
            conduct: Box::new(|| Conduct::Plain),
        }
    }

    /// A server with one conduct on all connections.
    pub fn always(conduct: Conduct) -> Self {
        Self { conduct: Box::new(move || conduct), ..Self::plain() }
    }
}

impl Conduct {
    /// Its name in the counts.
    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Mute => "server without INFO",
            Self::NotNats => "garbage instead of INFO",
            Self::EndBehindInfo => "end behind INFO",
            Self::EndBehindPong => "end behind PONG",
            Self::Refuse(_) => "-ERR in a login",
            Self::NoPong => "PING without PONG",
            Self::Line(_) => "malformed line",
            Self::Verbose => "+OK and INFO without need",
            Self::Bytewise => "operations byte by byte",
            Self::Strict => "subscription refused",
            Self::NeedsTls => "TLS required",
        }
    }
}

impl NatsServer {
    /// A server without connections.
    pub fn new(script: NatsScript, seed: u64) -> Self {
        Self {
            script,
            lines: BTreeMap::new(),
            rng: Rng::new(seed ^ 0x4a75_5e4e),
            now_ns: 0,
            output: VecDeque::new(),
            published: VecDeque::new(),
            seen: BTreeMap::new(),
        }
    }

    /// Sets the time, in nanoseconds.
    pub const fn set_now(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Bytes that may wait for a client.
    pub const fn pending_max(&self) -> usize {
        self.script.pending_max
    }

    /// A connection is made: the server speaks first. `None`: the script chooses the conduct.
    pub fn accept(&mut self, connection: usize, conduct: Option<Conduct>) {
        let conduct = conduct.unwrap_or_else(|| (self.script.conduct)());
        if conduct != Conduct::Plain && conduct != Conduct::Strict {
            self.note(conduct.name());
        }
        let line = ServerLine {
            conduct,
            front: Vec::new(),
            options: None,
            subscriptions: BTreeMap::new(),
            last_ns: self.now_ns,
            pings: 0,
            operations: 0,
            has_ponged: false,
        };
        self.lines.insert(connection, line);
        match conduct {
            Conduct::Mute => {}
            Conduct::NotNats => self.write(connection, b"HTTP/1.1 400 Bad Request\r\n\r\n"),
            _ => self.inform(connection),
        }
        if conduct == Conduct::EndBehindInfo {
            self.close(connection);
        }
    }

    /// Bytes arrive.
    pub fn receive(&mut self, connection: usize, bytes: &[u8]) {
        let now_ns = self.now_ns;
        let Some(line) = self.lines.get_mut(&connection) else { return };
        line.last_ns = now_ns;
        line.front.extend_from_slice(bytes);
        while let Some(line) = self.lines.get_mut(&connection) {
            // A client that breaks the protocol is a failure of the test.
            let read = NatsOperation::read(&line.front).expect("the engine speaks NATS");
            let Some((operation, len)) = read else { return };
            line.front.drain(..len);
            line.operations += 1;
            self.obey(connection, &operation);
        }
    }

    /// The client has closed the connection.
    pub fn gone(&mut self, connection: usize) {
        self.lines.remove(&connection);
    }

    /// Sends PINGs to silent clients, and gives up those that do not answer.
    pub fn expire(&mut self) {
        let (now_ns, ping_ns) = (self.now_ns, self.script.ping_ns);
        let silent = |(_, line): &(&usize, &mut ServerLine)| {
            line.options.is_some() && now_ns - line.last_ns > ping_ns
        };
        let silent: Vec<usize> = self.lines.iter_mut().filter(silent).map(|(c, _)| *c).collect();
        for connection in silent {
            let Some(line) = self.lines.get_mut(&connection) else { continue };
            line.last_ns = now_ns;
            line.pings = line.pings.saturating_add(1);
            if line.pings > PINGS_MAX && self.script.gives_up {
                self.note("stale connection");
                self.fail(connection, "Stale Connection");
            } else {
                self.write(connection, PING);
            }
        }
    }

    /// Too many bytes wait for a client.
    pub fn slow(&mut self, connection: usize) {
        if self.lines.contains_key(&connection) {
            self.note("slow consumer");
            if self.rng.chance(50) {
                return self.fail(connection, "Slow Consumer");
            }
            self.lines.remove(&connection);
            self.output.push_back((connection, Output::Reset));
        }
    }

    fn note(&mut self, kind: &'static str) {
        *self.seen.entry(kind).or_default() += 1;
    }

    fn write(&mut self, connection: usize, bytes: &[u8]) {
        let is_bytewise =
            self.lines.get(&connection).is_some_and(|line| line.conduct == Conduct::Bytewise);
        let size = if is_bytewise { 1 } else { bytes.len() };
        for part in bytes.chunks(size) {
            self.output.push_back((connection, Output::Bytes(part.to_vec())));
        }
    }

    fn inform(&mut self, connection: usize) {
        let needs_tls = self.lines[&connection].conduct == Conduct::NeedsTls;
        let info = json!({
            "server_id": "SIMULATED", "version": "2.10.0", "proto": 1, "host": "127.0.0.1",
            "port": 4222, "headers": true, "max_payload": self.script.payload_max,
            "auth_required": self.script.password.is_some(), "tls_required": needs_tls,
            "client_id": connection, "connect_urls": ["127.0.0.1:4222"],
        });
        self.write(connection, format!("INFO {info} {END}").as_bytes());
    }

    /// Sends an error, and closes the connection.
    fn fail(&mut self, connection: usize, text: &str) {
        self.complain(connection, text);
        self.close(connection);
    }

    fn complain(&mut self, connection: usize, text: &str) {
        self.write(connection, format!("-ERR '{text}'{END}").as_bytes());
    }

    fn close(&mut self, connection: usize) {
        self.lines.remove(&connection);
        self.output.push_back((connection, Output::End));
    }

    fn obey(&mut self, connection: usize, operation: &NatsOperation) {
        let Some(line) = self.lines.get_mut(&connection) else { return };
        let (conduct, is_first) = (line.conduct, line.operations == 1);
        assert_eq!(operation.name == "CONNECT", is_first, "CONNECT comes first, and once");
        let fields = operation.fields();
        match (&operation.name[..], &fields[..]) {
            ("CONNECT", _) => return self.log_in(connection, &operation.rest),
            ("PING", []) => return self.pong(connection),
            ("PONG", []) => line.pings = 0,
            ("SUB", [filter, sid]) => self.subscribe(connection, filter, None, sid),
            ("SUB", [filter, queue, sid]) => {
                self.subscribe(connection, filter, Some(queue), sid);
            }
            ("UNSUB", [sid]) => {
                let sid = sid.parse().expect("a number");
                let ended = line.subscriptions.remove(&sid);
                assert!(ended.is_some() || conduct == Conduct::Strict, "there is no {sid}");
            }
            ("UNSUB", [sid, most]) => {
                let own = line.subscriptions.get_mut(&sid.parse().expect("a number"));
                own.expect("there is one").left = Some(most.parse().expect("a number"));
            }
            ("PUB", [subject, reply @ .., _]) | ("HPUB", [subject, reply @ .., _, _]) => {
                self.publish(Some(connection), subject, reply.first().copied(), operation);
                self.published.push_back(((*subject).into(), operation.payload.clone()));
            }
            _ => unreachable!("a client does not send {operation:?}"),
        }
        if conduct == Conduct::Verbose {
            self.write(connection, b"+OK\r\n");
        }
    }

    fn log_in(&mut self, connection: usize, json: &str) {
        let options: Value = serde_json::from_str(json).expect("CONNECT has an object");
        assert_eq!(options["verbose"], false);
        let (is_allowed, Some(line)) = (
            self.script.password.is_none_or(|password| options["pass"] == *password),
            self.lines.get_mut(&connection),
        ) else {
            return;
        };
        line.options = Some(options);
        match line.conduct {
            Conduct::Refuse(text) => self.fail(connection, text),
            Conduct::NeedsTls
                if line.options.as_ref().is_none_or(|o| o["tls_required"] != true) =>
            {
                self.fail(connection, "Secure Connection - TLS Required");
            }
            _ if !is_allowed => {
                self.note("login refused");
                self.fail(connection, "Authorization Violation");
            }
            Conduct::Verbose => self.write(connection, b"+OK\r\n"),
            _ => {}
        }
    }

    fn pong(&mut self, connection: usize) {
        let Some(line) = self.lines.get_mut(&connection) else { return };
        let is_first = !std::mem::replace(&mut line.has_ponged, true);
        let conduct = line.conduct;
        if conduct == Conduct::NoPong {
            return;
        }
        self.write(connection, b"PONG\r\n");
        match conduct {
            Conduct::EndBehindPong => self.close(connection),
            Conduct::Line(text) if is_first => self.write(connection, text.as_bytes()),
            Conduct::Verbose => self.inform(connection),
            _ => {}
        }
    }

    fn subscribe(&mut self, connection: usize, filter: &str, queue: Option<&str>, sid: &str) {
        let sid: u64 = sid.parse().expect("a number");
        let Some(line) = self.lines.get_mut(&connection) else { return };
        if line.conduct == Conduct::Strict && sid.is_multiple_of(2) {
            self.note(Conduct::Strict.name());
            let text = format!("Permissions Violation for Subscription to \"{filter}\"");
            return self.complain(connection, &text);
        }
        let own =
            ServerSubscription { filter: filter.into(), queue: queue.map(Into::into), left: None };
        assert!(line.subscriptions.insert(sid, own).is_none(), "{sid} is free");
    }

    /// A client of MQTT has published a message.
    pub fn publish_topic(&mut self, topic: &str, payload: &[u8]) {
        if self.lines.is_empty() {
            return;
        }
        let operation = NatsOperation { payload: payload.into(), ..NatsOperation::default() };
        self.publish(None, &topic.replace('/', "."), None, &operation);
    }

    /// Sends a message to each subscription, and to one member of each queue group. The name alone
    /// makes a group: its members may have different filters.
    fn publish(
        &mut self,
        connection: Option<usize>,
        subject: &str,
        reply: Option<&str>,
        operation: &NatsOperation,
    ) {
        let size = operation.headers.len() + operation.payload.len();
        let is_allowed = size <= self.script.payload_max || connection.is_none();
        assert!(is_allowed, "a message of {size} bytes");
        let is_name = !subject.split('.').any(|token| ["", "*", ">"].contains(&token));
        assert!(is_name || connection.is_none(), "{subject}");
        let options = connection.and_then(|own| self.lines[&own].options.as_ref());
        let echoes = options.is_none_or(|own| own["echo"] != false);
        let (mut to, mut groups) = (Vec::new(), BTreeMap::<&str, Vec<(usize, u64)>>::new());
        let others = self.lines.iter().filter(|(other, _)| echoes || Some(**other) != connection);
        for (&other, line) in others {
            for (&sid, own) in
                line.subscriptions.iter().filter(|(_, s)| matches(&s.filter, subject))
            {
                match &own.queue {
                    Some(queue) => groups.entry(queue).or_default().push((other, sid)),
                    None => to.push((other, sid)),
                }
            }
        }
        to.extend(groups.into_values().map(|members| self.rng.pick(&members)));
        for &(other, sid) in &to {
            self.deliver((other, sid), subject, reply, operation);
        }
        let all: BTreeSet<usize> = to.iter().map(|(other, _)| *other).collect();
        if all.len() < to.len() {
            self.note("two deliveries to one client");
        }
    }

    fn deliver(
        &mut self,
        (connection, sid): (usize, u64),
        subject: &str,
        reply: Option<&str>,
        operation: &NatsOperation,
    ) {
        let Some(line) = self.lines.get_mut(&connection) else { return };
        if let Some(left) = line.subscriptions.get_mut(&sid).and_then(|own| own.left.as_mut()) {
            *left -= 1;
            if *left == 0 {
                line.subscriptions.remove(&sid);
            }
        }
        let (headers, payload) = (&operation.headers, &operation.payload);
        let reply = reply.map_or(String::new(), |reply| format!("{reply} "));
        let size = headers.len() + payload.len();
        let line = match headers.len() {
            0 => format!("MSG {subject} {sid} {reply}{size}{END}"),
            of_headers => format!("HMSG {subject} {sid} {reply}{of_headers} {size}{END}"),
        };
        let bytes = [line.as_bytes(), headers, payload, END.as_bytes()].concat();
        self.write(connection, &bytes);
    }
}
