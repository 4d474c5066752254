//! Both sides of the crate against real libzmq over loopback. Reads have a time limit only so that
//! a failure ends the test.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "real sockets")]

use std::{
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    thread::{self, JoinHandle},
    time::Duration,
};

use zmq::{Context, Socket, SocketType};
use zmtp::{
    Mechanism, ZmtpError, ZmtpEvent, ZmtpSession,
    publisher::{self, PublisherSession, encode_message},
};

const NULL: Mechanism<'_> = Mechanism::Null;
const PLAIN: Mechanism<'_> = Mechanism::Plain { username: b"reader", password: b"secret" };
const WRONG: Mechanism<'_> = Mechanism::Plain { username: b"reader", password: b"guess" };
const PATIENCE: Duration = Duration::from_secs(20);

/// Sizes around the limits of a frame's size and of read buffers, in bytes.
const SIZES: [usize; 9] = [0, 1, 32, 255, 256, 65_535, 65_536, 200_000, 5_000_000];

/// A TCP connection, with the bytes received and not yet handled.
struct Link {
    stream: TcpStream,
    inbox: Vec<u8>,
}

impl Link {
    fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, inbox: Vec::new() }
    }

    fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Reads more bytes; false if the peer has closed or reset the connection.
    fn read(&mut self) -> bool {
        let mut buffer = [0; 65_536];
        let len = match self.stream.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            read => read.unwrap(),
        };
        self.inbox.extend_from_slice(&buffer[..len]);
        len > 0
    }
}

/// An event of the subscriber, owned.
#[derive(Debug, PartialEq)]
enum Seen {
    Greeted,
    Connected,
    Message(Vec<Vec<u8>>),
    Pong,
    Replied,
    Refused(String),
    Closed,
}

/// One simulated SUB socket.
struct Subscriber {
    link: Link,
    session: ZmtpSession,
    mechanism: Mechanism<'static>,
    /// Commands between the frames of a message.
    inner_commands: usize,
}

impl Subscriber {
    fn connect(publisher: &Socket, mechanism: Mechanism<'static>) -> Self {
        let endpoint = publisher.get_last_endpoint().unwrap().unwrap();
        let address = endpoint.strip_prefix("tcp://").unwrap();
        let mut link = Link::new(TcpStream::connect(address).unwrap());
        let (mut session, mut out) = (ZmtpSession::new(), Vec::new());
        session.connect(&mechanism, &mut out);
        link.write(&out);
        Self { link, session, mechanism, inner_commands: 0 }
    }

    fn step(&mut self) -> Result<Seen, ZmtpError> {
        loop {
            let mut out = Vec::new();
            let handled = self.session.handle(&self.link.inbox, &self.mechanism, &mut out)?;
            let seen = match handled.event {
                ZmtpEvent::Incomplete => None,
                ZmtpEvent::Greeted => Some(Seen::Greeted),
                ZmtpEvent::Connected => Some(Seen::Connected),
                ZmtpEvent::Message(message) => {
                    Some(Seen::Message(message.frames().map(<[u8]>::to_vec).collect()))
                }
                ZmtpEvent::Pong => Some(Seen::Pong),
                ZmtpEvent::Replied => Some(Seen::Replied),
                ZmtpEvent::Refused(reason) => Some(Seen::Refused(reason.to_owned())),
            };
            self.inner_commands += usize::from(handled.len == 0 && seen.is_some());
            self.link.inbox.drain(..handled.len);
            self.link.write(&out);
            match seen {
                Some(seen) => return Ok(seen),
                None if self.link.read() => {}
                None => return Ok(Seen::Closed),
            }
        }
    }

    fn next(&mut self) -> Seen {
        self.step().unwrap()
    }

    fn message(&mut self) -> Vec<Vec<u8>> {
        loop {
            match self.next() {
                Seen::Message(frames) => return frames,
                Seen::Replied => {}
                other => panic!("expected a message, found {other:?}"),
            }
        }
    }

    fn send(&mut self, write: impl FnOnce(&mut ZmtpSession, &mut Vec<u8>)) {
        let mut out = Vec::new();
        write(&mut self.session, &mut out);
        self.link.write(&out);
    }

    fn ping(&mut self) {
        self.send(|session, out| assert!(session.ping(out), "libzmq speaks 3.1"));
    }

    fn shake_hands(&mut self) {
        assert_eq!(self.next(), Seen::Greeted);
        if self.mechanism != NULL {
            assert_eq!(self.next(), Seen::Replied, "WELCOME");
        }
        assert_eq!(self.next(), Seen::Connected);
    }

    /// Completes the handshake and the subscriptions. On return the publisher's I/O thread has
    /// passed the subscriptions to its socket.
    fn subscribe(&mut self, prefixes: &[&[u8]]) {
        self.shake_hands();
        self.send(|session, out| prefixes.iter().for_each(|prefix| session.subscribe(prefix, out)));
        self.ping();
        assert_eq!([self.next(), self.next()], [Seen::Replied, Seen::Pong]);
    }
}

fn bound(context: &Context, socket_type: SocketType, set: impl FnOnce(&Socket)) -> Socket {
    let socket = context.socket(socket_type).unwrap();
    socket.set_linger(0).unwrap();
    socket.set_sndhwm(0).unwrap();
    set(&socket);
    socket.bind("tcp://127.0.0.1:*").unwrap();
    socket
}

/// Sends a message after the socket has processed the subscriptions that its I/O thread has read.
fn send(publisher: &Socket, frames: &[Vec<u8>]) {
    publisher.get_events().unwrap();
    publisher.send_multipart(frames, 0).unwrap();
}

fn bytes(size: usize) -> Vec<u8> {
    (0..size).map(|i| (i % 251) as u8).collect()
}

/// Answers `requests` requests for authentication (RFC 27/ZAP); accepts one user.
fn authenticate(context: &Context, requests: usize) -> JoinHandle<()> {
    let socket = context.socket(SocketType::REP).unwrap();
    socket.set_rcvtimeo(PATIENCE.as_millis() as i32).unwrap();
    socket.bind("inproc://zeromq.zap.01").unwrap();
    thread::spawn(move || {
        for _ in 0..requests {
            let request = socket.recv_multipart(0).unwrap();
            let known = request[6..] == [b"reader".to_vec(), b"secret".to_vec()];
            let (code, text) = if known { ("200", "OK") } else { ("400", "not known") };
            let reply = [&request[0], &request[1], code.as_bytes(), text.as_bytes(), b"", b""];
            socket.send_multipart(reply, 0).unwrap();
        }
    })
}

#[test]
fn messages_of_pub_and_xpub_arrive_with_all_their_frames() {
    for socket_type in [zmq::PUB, zmq::XPUB] {
        let context = Context::new();
        let publisher = bound(&context, socket_type, |_| ());
        let mut subscriber = Subscriber::connect(&publisher, NULL);
        subscriber.subscribe(&[b""]);
        for frames in [&["alone"][..], &["topic", "payload"], &["a", "", "c", "d"], &["", ""]] {
            let frames: Vec<_> = frames.iter().map(|frame| frame.as_bytes().to_vec()).collect();
            send(&publisher, &frames);
            assert_eq!(subscriber.message(), frames);
        }
    }
}

#[test]
fn messages_of_any_size_arrive() {
    let context = Context::new();
    let publisher = bound(&context, zmq::PUB, |_| ());
    let mut subscriber = Subscriber::connect(&publisher, NULL);
    subscriber.subscribe(&[b""]);
    for size in SIZES {
        for frames in [vec![bytes(size)], vec![b"topic".to_vec(), bytes(size)]] {
            send(&publisher, &frames);
            assert!(subscriber.message() == frames, "{size} bytes");
        }
    }
}

#[test]
fn the_publisher_honours_the_prefixes() {
    let context = Context::new();
    let publisher = bound(&context, zmq::PUB, |_| ());
    let long = [&b"long/"[..], &[b'x'; 300]].concat();
    let mut subscriber = Subscriber::connect(&publisher, NULL);
    subscriber.subscribe(&[b"a/", b"b", &long]);
    for topic in [&b"a"[..], b"a/1", b"c", b"", b"b2", b"long/", &long] {
        send(&publisher, &[topic.to_vec(), b"payload".to_vec()]);
    }
    for topic in [&b"a/1"[..], b"b2", &long] {
        assert_eq!(subscriber.message()[0], topic);
    }
}

#[test]
fn xpub_reports_the_subscriptions() {
    let context = Context::new();
    let publisher = bound(&context, zmq::XPUB, |_| ());
    let mut subscriber = Subscriber::connect(&publisher, NULL);
    subscriber.subscribe(&[b"a", b""]);
    for expected in [&b"\x01a"[..], b"\x01"] {
        assert_eq!(publisher.recv_bytes(0).unwrap(), expected);
    }
    drop(subscriber);
    let mut gone = [publisher.recv_bytes(0).unwrap(), publisher.recv_bytes(0).unwrap()];
    gone.sort();
    assert_eq!(
        gone,
        [b"\x00".to_vec(), b"\x00a".to_vec()],
        "a lost connection cancels all subscriptions"
    );
}

#[test]
fn plain_accepts_the_known_user_and_refuses_others_with_a_reason() {
    let context = Context::new();
    let zap = authenticate(&context, 2);
    let publisher = bound(&context, zmq::PUB, |socket| socket.set_plain_server(true).unwrap());
    let mut known = Subscriber::connect(&publisher, PLAIN);
    known.subscribe(&[b""]);
    send(&publisher, &[b"secret news".to_vec()]);
    assert_eq!(known.message(), [b"secret news"]);
    let mut unknown = Subscriber::connect(&publisher, WRONG);
    assert_eq!(unknown.next(), Seen::Greeted);
    assert_eq!(unknown.next(), Seen::Refused("400".to_owned()));
    assert!(!unknown.session.is_connected());
    zap.join().unwrap();
}

#[test]
fn a_publisher_with_another_mechanism_never_connects() {
    let context = Context::new();
    let publisher = bound(&context, zmq::PUB, |socket| socket.set_plain_server(true).unwrap());
    let mut subscriber = Subscriber::connect(&publisher, NULL);
    // libzmq closes once it has the subscriber's greeting, mostly before it has sent all of its
    // own.
    match subscriber.step() {
        Err(error) => assert!(matches!(error, ZmtpError::OtherMechanism { .. }), "{error}"),
        Ok(seen) => assert_eq!(seen, Seen::Closed),
    }
}

#[test]
fn a_socket_that_cannot_publish_is_an_error() {
    let context = Context::new();
    let socket = bound(&context, zmq::PUSH, |_| ());
    let mut subscriber = Subscriber::connect(&socket, NULL);
    assert_eq!(subscriber.next(), Seen::Greeted);
    // libzmq may send ERROR, close, or send READY first; the session never connects.
    match subscriber.step() {
        Err(error) => assert_eq!(error, ZmtpError::OtherSocketType("PUB or XPUB")),
        Ok(seen) => assert!(matches!(seen, Seen::Refused(_) | Seen::Closed), "{seen:?}"),
    }
}

#[test]
fn heartbeats_of_the_publisher_are_answered_so_that_the_connection_stays() {
    let context = Context::new();
    let publisher = bound(&context, zmq::PUB, |socket| {
        socket.set_heartbeat_ivl(5).unwrap();
        socket.set_heartbeat_timeout(10_000).unwrap();
    });
    let mut subscriber = Subscriber::connect(&publisher, NULL);
    subscriber.shake_hands();
    subscriber.send(|session, out| session.subscribe(b"", out));
    for _ in 0..10 {
        assert_eq!(subscriber.next(), Seen::Replied);
    }
    send(&publisher, &[b"still here".to_vec()]);
    assert_eq!(subscriber.message(), [b"still here"]);
}

#[test]
fn a_message_survives_commands_between_its_frames() {
    const MESSAGES: usize = 600;
    const FRAMES: usize = 900;
    let context = Context::new();
    let publisher = bound(&context, zmq::PUB, |_| ());
    let mut subscriber = Subscriber::connect(&publisher, NULL);
    subscriber.subscribe(&[b""]);
    // More than the sockets can buffer: libzmq stops in the middle of a message.
    let frames: Vec<_> = (0..FRAMES).map(|i| format!("frame {i:08}").into_bytes()).collect();
    for _ in 0..MESSAGES {
        send(&publisher, &frames);
    }
    let (mut messages, mut pongs) = (0, 0);
    subscriber.ping();
    while messages < MESSAGES || pongs < 1 {
        match subscriber.next() {
            Seen::Message(found) => {
                assert!(found == frames, "message {messages}");
                messages += 1;
            }
            Seen::Replied => {}
            Seen::Pong => pongs += 1,
            other => panic!("{other:?}"),
        }
        if pongs > 0 && messages < MESSAGES {
            pongs = 0;
            subscriber.ping();
        }
    }
    assert!(subscriber.inner_commands > 0, "libzmq writes commands between frames");
}

/// The PUB side of the crate, on one connection from a libzmq SUB socket.
struct Accepted {
    link: Link,
    publisher: PublisherSession,
    mechanism: Mechanism<'static>,
}

impl Accepted {
    fn new(
        context: &Context,
        mechanism: Mechanism<'static>,
        set: impl FnOnce(&Socket),
    ) -> (Self, Socket) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = context.socket(zmq::SUB).unwrap();
        socket.set_linger(0).unwrap();
        socket.set_rcvtimeo(PATIENCE.as_millis() as i32).unwrap();
        set(&socket);
        socket.connect(&format!("tcp://{}", listener.local_addr().unwrap())).unwrap();
        let mut link = Link::new(listener.accept().unwrap().0);
        let (mut publisher, mut out) = (PublisherSession::new(), Vec::new());
        publisher.accept(&mechanism, &mut out);
        link.write(&out);
        (Self { link, publisher, mechanism }, socket)
    }

    /// Steps until an event satisfies `wanted`.
    fn until(&mut self, wanted: impl Fn(publisher::PublisherEvent<'_>) -> bool) {
        loop {
            let mut out = Vec::new();
            let handled =
                self.publisher.handle(&self.link.inbox, &self.mechanism, &mut out).unwrap();
            let (len, found) = (handled.len, wanted(handled.event));
            let incomplete = handled.event == publisher::PublisherEvent::Incomplete;
            self.link.inbox.drain(..len);
            self.link.write(&out);
            if found {
                return;
            }
            assert!(!incomplete || self.link.read(), "the subscriber closed the connection");
        }
    }

    fn publish(&mut self, topic: &[u8], payload: &[u8]) {
        let mut out = Vec::new();
        encode_message(topic, payload, &mut out);
        self.link.write(&out);
    }
}

#[test]
fn libzmq_subscribes_to_our_publisher_and_receives() {
    let context = Context::new();
    let (mut accepted, socket) = Accepted::new(&context, NULL, |socket| {
        socket.set_subscribe(b"topic").unwrap();
    });
    accepted.until(|event| event == publisher::PublisherEvent::Subscribed(b"topic"));
    assert!(accepted.publisher.wants(b"topic/1") && !accepted.publisher.wants(b"other"));
    for size in SIZES {
        accepted.publish(b"topic", &bytes(size));
        assert!(socket.recv_multipart(0).unwrap() == [b"topic".to_vec(), bytes(size)], "{size}");
    }
    accepted.publish(b"", b"topic, and payload in one");
    assert_eq!(socket.recv_multipart(0).unwrap(), [b"topic, and payload in one"]);
    socket.set_unsubscribe(b"topic").unwrap();
    accepted.until(|event| event == publisher::PublisherEvent::Cancelled(b"topic"));
    assert!(!accepted.publisher.wants(b"topic/1"));
}

#[test]
fn our_publisher_accepts_the_known_user_of_libzmq_and_refuses_others() {
    let context = Context::new();
    let credentials = |password: &'static str| {
        move |socket: &Socket| {
            socket.set_plain_username(Some("reader")).unwrap();
            socket.set_plain_password(Some(password)).unwrap();
            socket.set_subscribe(b"").unwrap();
        }
    };
    let (mut accepted, socket) = Accepted::new(&context, PLAIN, credentials("secret"));
    accepted.until(|event| event == publisher::PublisherEvent::Subscribed(b""));
    accepted.publish(b"", b"secret news");
    assert_eq!(socket.recv_bytes(0).unwrap(), b"secret news");
    let (mut accepted, _socket) = Accepted::new(&context, PLAIN, credentials("guess"));
    accepted.until(|event| event == publisher::PublisherEvent::Refused);
}

#[test]
fn heartbeats_of_libzmq_subscribers_are_answered_so_that_the_connection_stays() {
    let context = Context::new();
    let (mut accepted, socket) = Accepted::new(&context, NULL, |socket| {
        socket.set_heartbeat_ivl(5).unwrap();
        socket.set_heartbeat_timeout(10_000).unwrap();
        socket.set_heartbeat_ttl(10_000).unwrap();
        socket.set_subscribe(b"").unwrap();
    });
    accepted.until(|event| event == publisher::PublisherEvent::Subscribed(b""));
    for _ in 0..10 {
        accepted.until(|event| event == publisher::PublisherEvent::Replied);
    }
    accepted.publish(b"", b"still here");
    assert_eq!(socket.recv_bytes(0).unwrap(), b"still here");
}
