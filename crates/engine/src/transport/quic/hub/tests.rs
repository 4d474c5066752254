//! The hub in virtual time: exact bytes over a bad link, reasons of ends, and connections that do
//! not delay each other.

use plan::{Plan, PlannedTls, Random, Reason, Shard};
use quinn_proto::{ConnectionError, ConnectionHandle};
use testkit::{for_each_seed, plans};

use self::certificates::{Authority, Folder, Issued};
use super::link::{Behaviour, Faults, SERVER, World, tls};
use crate::transport::Halt;
use crate::transport::quic::security::Quic;
use crate::transport::tcp::TcpRoute;
use crate::transport::tls::{HandshakeEnd, Who};

#[allow(dead_code, reason = "the tests of the program use more of it")]
#[path = "../../../../tests/support/certificates.rs"]
mod certificates;

const GOOD: Faults = Faults { lost: 0, delay_ms: 1 };
const BAD: Faults = Faults { lost: 10, delay_ms: 40 };
const BYTES: usize = 60_000;

/// A folder with an authority, and a certificate of it.
struct Keys {
    folder: Folder,
    authority: Authority,
}

impl Keys {
    fn new() -> Self {
        let (folder, authority) = (Folder::new(), Authority::new("test"));
        folder.write("ca.crt", authority.0.certificate_pem());
        Self { folder, authority }
    }

    fn issue(&self) -> Issued {
        self.authority.issue("127.0.0.1", (0, 1))
    }

    /// Settings of clients that trust the authority.
    fn settings(&self) -> PlannedTls {
        PlannedTls { ca: Some(self.folder.path("ca.crt")), verify: true, ..plans::unverified() }
    }
}

fn quic(settings: PlannedTls) -> Quic {
    let mut target = plans::target(SERVER.port());
    (target.tls, target.quic) = (true, true);
    let mut population = plans::population("device", 8);
    population.tls = Some(settings);
    let plan = Plan { targets: vec![target], populations: vec![population], ..plans::empty(1) };
    Quic::new(&plan, 0, Shard::WHOLE).unwrap().unwrap()
}

fn open(world: &mut World, quic: &Quic, client: u32) -> ConnectionHandle {
    let route = TcpRoute { target: SERVER, source: None, receive_buffer: None };
    let who = Who { local: client, n: u64::from(client), target: 0 };
    world
        .hub
        .open(&route, client, quic.begin(who, Random::new(1, u64::from(client))).unwrap())
        .unwrap()
}

fn world(seed: u64, faults: Faults, behaviour: Behaviour, keys: &Keys) -> World {
    let issued = keys.issue();
    let server = tls(&issued.certificate_pem(), &issued.key_pem(), "mqtt");
    World::new(seed, faults, behaviour, (server, 0))
}

/// Reads all bytes that have come. Returns the halt after them.
fn read(world: &mut World, handle: ConnectionHandle, bytes: &mut Vec<u8>) -> Halt {
    let mut buffer = [0; 1000];
    loop {
        match world.hub.read(handle, &mut buffer, false) {
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(halt) => return halt,
        }
    }
}

#[test]
fn each_byte_arrives_once_and_in_order_over_a_link_that_loses_and_reorders() {
    let keys = Keys::new();
    let quic = quic(keys.settings());
    for_each_seed(0..20, |seed| {
        let mut world = world(seed, BAD, Behaviour::Echo, &keys);
        let handles: Vec<_> = (0..3).map(|client| open(&mut world, &quic, client)).collect();
        let bytes: Vec<u8> = (0..BYTES).map(|at| (at * 7 + at / 251) as u8).collect();
        let (mut sent, mut received) = ([0; 3], vec![Vec::new(); 3]);
        let is_done = world.until(|world| {
            for (client, &handle) in handles.iter().enumerate() {
                if let Ok(count) = world.hub.write(handle, &bytes[sent[client]..], false) {
                    sent[client] += count;
                }
                read(world, handle, &mut received[client]);
            }
            received.iter().all(|own| own.len() >= BYTES)
        });
        assert!(is_done, "{sent:?}");
        assert!(received.iter().all(|own| *own == bytes));
        // The last bytes, then the close: the server sees an end without an error.
        for &handle in &handles {
            world.hub.finish(handle);
            world.hub.release(handle);
        }
        assert!(world.hub.lingers());
        assert!(world.until(|world| !world.hub.lingers()));
    });
}

#[test]
fn connections_migrate_under_way_without_a_byte_lost_or_doubled() {
    let keys = Keys::new();
    let quic = quic(keys.settings());
    for_each_seed(0..20, |seed| {
        let mut world = world(seed, BAD, Behaviour::Echo, &keys);
        let handle = open(&mut world, &quic, 0);
        assert!(!world.hub.migrate(handle), "the handshake is not confirmed");
        let bytes: Vec<u8> = (0..BYTES).map(|at| (at * 7 + at / 251) as u8).collect();
        let (mut sent, mut received) = (0, Vec::new());
        let (mut made, mut followed) = (0, 0);
        let is_done = world.until(|world| {
            if let Ok(count) = world.hub.write(handle, &bytes[sent..], false) {
                sent += count;
            }
            read(world, handle, &mut received);
            followed += usize::from(world.hub.takes_followed(handle));
            if made < 3 && made == followed && received.len() >= made * BYTES / 4 {
                made += usize::from(world.hub.migrate(handle));
            }
            received.len() >= BYTES
        });
        assert!(is_done, "{sent} sent, {} received", received.len());
        assert!(received == bytes);
        assert!(made == 3 && followed + usize::from(world.hub.is_migrating(handle)) == 3);
        let link = world.link.borrow();
        assert!(link.sent[..4].iter().all(|&sent| sent > 0) && link.sent[4..] == [0; 4]);
    });
}

#[test]
fn a_port_that_leads_nowhere_is_not_followed() {
    let keys = Keys::new();
    let quic = quic(keys.settings());
    let mut world = world(1, GOOD, Behaviour::Echo, &keys);
    let handle = open(&mut world, &quic, 0);
    assert!(world.until(|world| world.hub.migrate(handle)));
    world.until(|world| world.hub.takes_followed(handle));
    assert!(!world.hub.is_migrating(handle));
    world.link.borrow_mut().cut = Some(2);
    assert!(world.hub.migrate(handle));
    assert!(!world.until(|world| world.hub.takes_followed(handle)));
    assert!(world.hub.is_migrating(handle));
}

#[test]
fn a_peer_that_has_forgotten_a_connection_does_not_follow_it() {
    let keys = Keys::new();
    let quic = quic(keys.settings());
    let mut world = world(1, GOOD, Behaviour::Echo, &keys);
    let handle = open(&mut world, &quic, 0);
    assert!(world.until(|world| world.hub.migrate(handle)));
    assert!(world.until(|world| world.hub.takes_followed(handle)));
    world.server.forget();
    assert!(world.hub.migrate(handle));
    let is_reset = |world: &mut World| {
        matches!(read(world, handle, &mut Vec::new()), Halt::Lost(Reason::ResetByBroker))
    };
    assert!(world.until(is_reset));
    assert!(world.hub.is_migrating(handle));
}

#[test]
fn a_lost_datagram_delays_its_own_stream_and_no_other_on_the_same_hub() {
    let keys = Keys::new();
    let quic = quic(keys.settings());
    let mut world = world(1, GOOD, Behaviour::Echo, &keys);
    let (slow, fast) = (open(&mut world, &quic, 0), open(&mut world, &quic, 1));
    let is_open = |world: &World, handle| world.hub.handshake(handle).is_ok();
    assert!(world.until(|world| is_open(world, slow) && is_open(world, fast)));
    // The first message of one client is lost; its second one arrives, and waits for the first.
    world.link.borrow_mut().cut = Some(0);
    world.hub.write(slow, b"first", false).unwrap();
    world.link.borrow_mut().cut = None;
    world.hub.write(slow, b"second", false).unwrap();
    let since_ns = world.link.borrow().now_ns;
    world.hub.write(fast, b"alone", false).unwrap();
    let mut arrived = [0; 2];
    let mut received = [Vec::new(), Vec::new()];
    assert!(world.until(|world| {
        for (at, handle) in [slow, fast].into_iter().enumerate() {
            read(world, handle, &mut received[at]);
            if arrived[at] == 0 && !received[at].is_empty() {
                arrived[at] = world.link.borrow().now_ns - since_ns;
            }
        }
        arrived.iter().all(|&at_ns| at_ns > 0)
    }));
    // A round trip takes 2 ms. The loss is noticed after more than one of them.
    assert_eq!(arrived[1], 2_000_000);
    assert!(arrived[0] >= 2 * arrived[1], "{arrived:?}");
    assert_eq!(received, [b"firstsecond".to_vec(), b"alone".to_vec()]);
}

/// End of the first connection at a server, with a byte for it once it is open.
fn end(world: &mut World, settings: PlannedTls) -> (Option<Reason>, Option<String>) {
    let quic = quic(settings);
    let handle = open(world, &quic, 0);
    let mut found = None;
    let mut is_written = false;
    world.until(|world| {
        found = match world.hub.handshake(handle) {
            Err(Halt::Lost(reason)) => Some(reason),
            Err(Halt::Later) => None,
            Ok(()) => {
                is_written = is_written || world.hub.write(handle, b"x", false).is_ok();
                match read(world, handle, &mut Vec::new()) {
                    Halt::Lost(reason) => Some(reason),
                    Halt::Later => None,
                }
            }
        };
        found.is_some()
    });
    (found, world.hub.last_words(handle))
}

#[test]
fn each_end_has_its_reason() {
    let keys = Keys::new();
    let issue = |name, days| keys.authority.issue(name, days);
    let good = || issue("127.0.0.1", (0, 1));
    let stranger = || Keys::new().issue();
    let trusted = || keys.settings();
    let blind = || PlannedTls { verify: false, ..keys.settings() };
    let echo = Behaviour::Echo;
    type Case = (Issued, &'static str, Behaviour, u64, PlannedTls, Option<Reason>);
    let cases: Vec<Case> = vec![
        (good(), "mqtt", echo, 0, trusted(), None),
        (stranger(), "mqtt", echo, 0, blind(), None),
        (stranger(), "mqtt", echo, 0, trusted(), Some(Reason::CertificateUntrusted)),
        (issue("other.test", (0, 1)), "mqtt", echo, 0, trusted(), Some(Reason::CertificateName)),
        (
            issue("127.0.0.1", (-2, -1)),
            "mqtt",
            echo,
            0,
            trusted(),
            Some(Reason::CertificateExpired),
        ),
        (good(), "h3", echo, 0, trusted(), Some(Reason::AlpnRefused)),
        (good(), "mqtt", Behaviour::Refuse, 0, trusted(), Some(Reason::QuicRefused)),
        (good(), "mqtt", Behaviour::Close(7), 0, trusted(), Some(Reason::QuicClosedWithCode)),
        (good(), "mqtt", Behaviour::Close(0), 0, trusted(), Some(Reason::ConnectClosed)),
    ];
    for (issued, protocol, behaviour, idle_s, settings, expected) in cases {
        let server = tls(&issued.certificate_pem(), &issued.key_pem(), protocol);
        let mut world = World::new(1, GOOD, behaviour, (server, idle_s));
        let (found, words) = end(&mut world, settings);
        assert_eq!(found, expected, "{protocol}");
        assert_eq!(
            words.as_deref().filter(|_| behaviour == Behaviour::Close(7)),
            (behaviour == Behaviour::Close(7)).then_some("code 7: enough")
        );
    }
}

#[test]
fn a_connection_without_packets_ends_with_the_idle_timeout_of_the_server() {
    let keys = Keys::new();
    let issued = keys.issue();
    let server = tls(&issued.certificate_pem(), &issued.key_pem(), "mqtt");
    let mut world = World::new(1, GOOD, Behaviour::Echo, (server, 5));
    let quic = quic(keys.settings());
    let handle = open(&mut world, &quic, 0);
    assert!(world.until(|world| world.hub.handshake(handle).is_ok()));
    world.hub.write(handle, b"x", false).unwrap();
    let mut halt = Halt::Later;
    assert!(world.until(|world| {
        halt = read(world, handle, &mut Vec::new());
        halt != Halt::Later
    }));
    assert_eq!(halt, Halt::Lost(Reason::QuicIdleTimeout));
    assert!(world.link.borrow().now_ns >= 5_000_000_000);
}

#[test]
fn an_abort_closes_with_a_code_and_a_silent_client_sends_nothing() {
    let keys = Keys::new();
    let quic = quic(keys.settings());
    let mut world = world(1, GOOD, Behaviour::Echo, &keys);
    let (aborting, silent) = (open(&mut world, &quic, 0), open(&mut world, &quic, 1));
    let is_open = |world: &World, handle| world.hub.handshake(handle).is_ok();
    assert!(world.until(|world| is_open(world, aborting) && is_open(world, silent)));
    // An echo shows that the server has confirmed the handshake: before that, it sees no code.
    let mut echo = Vec::new();
    world.hub.write(aborting, b"x", false).unwrap();
    assert!(world.until(|world| {
        read(world, aborting, &mut echo);
        !echo.is_empty()
    }));
    world.hub.write(silent, b"x", false).unwrap();
    world.hub.silence(silent, 1);
    world.hub.abort(aborting);
    world.hub.release(aborting);
    let sent = world.link.borrow().sent[1];
    assert!(!world.hub.lingers());
    assert!(world.until(|world| !world.server.ends.is_empty()));
    let ConnectionError::ApplicationClosed(close) = &world.server.ends[0] else {
        panic!("{:?}", world.server.ends)
    };
    assert_eq!(close.error_code.into_inner(), 1);
    // The echo and its retransmissions come, and no acknowledgement goes.
    let until_ns = world.link.borrow().now_ns + 3_000_000_000;
    while world.turn(until_ns) {}
    assert_eq!(world.link.borrow().sent[1], sent);
}

/// Ends the handshake of a new connection of client 0, has an echo of it, which comes behind the
/// ticket, and leaves. Returns the end of the handshake.
fn visit(world: &mut World, quic: &Quic) -> HandshakeEnd {
    let handle = open(world, quic, 0);
    assert!(world.until(|world| world.hub.handshake(handle).is_ok()));
    let end = quic.handshake_end(0, world.hub.early_accepted(handle));
    let mut echo = Vec::new();
    world.hub.write(handle, b"x", false).unwrap();
    assert!(world.until(|world| {
        read(world, handle, &mut echo);
        !echo.is_empty()
    }));
    world.hub.finish(handle);
    world.hub.release(handle);
    assert!(world.until(|world| !world.hub.lingers()));
    end
}

#[test]
fn a_client_that_resumes_offers_its_last_session_once_and_the_server_decides() {
    use HandshakeEnd::{Full, Refused, Resumed};
    let keys = Keys::new();
    let issued = keys.issue();
    let server = || tls(&issued.certificate_pem(), &issued.key_pem(), "mqtt");
    let without = |tickets| {
        let mut server = server();
        server.send_tls13_tickets = tickets;
        server
    };
    for (resume, verify, server, expected) in [
        (0.0, true, server(), [Full, Full, Full]),
        (1.0, true, server(), [Full, Resumed, Resumed]),
        (1.0, false, server(), [Full, Resumed, Resumed]),
        (1.0, true, without(0), [Full, Full, Full]),
    ] {
        let quic = quic(PlannedTls { resume, verify, ..keys.settings() });
        let mut world = World::new(1, GOOD, Behaviour::Echo, (server, 0));
        let found = [(); 3].map(|()| visit(&mut world, &quic));
        assert_eq!(found, expected, "{resume} {verify}");
    }
    // A server that has lost its sessions refuses the one that a client offers.
    let quic = quic(PlannedTls { resume: 1.0, ..keys.settings() });
    let mut world = World::new(1, GOOD, Behaviour::Echo, (server(), 0));
    assert_eq!(visit(&mut world, &quic), Full);
    let mut world = World::new(2, GOOD, Behaviour::Echo, (server(), 0));
    assert_eq!([(); 2].map(|()| visit(&mut world, &quic)), [Refused, Resumed]);
}

/// Sends a message in the first flight of a new connection of client 0, and leaves once the echo of
/// two messages is back. Returns the end of the handshake, what the server did with the first
/// message, and the round trips up to its echo.
fn early_visit(world: &mut World, quic: &Quic) -> (HandshakeEnd, Option<bool>, u64) {
    let since_ns = world.link.borrow().now_ns;
    let handle = open(world, quic, 0);
    let is_early = world.hub.handshake(handle).is_ok();
    assert!(!is_early || !world.hub.is_secure(handle));
    let mut echo = Vec::new();
    let mut is_written = false;
    assert!(world.until(|world| {
        if !is_written && world.hub.handshake(handle).is_ok() {
            assert_eq!(world.hub.write(handle, b"first", true), Ok(5));
            is_written = true;
        }
        read(world, handle, &mut echo);
        !echo.is_empty()
    }));
    let took_ns = world.link.borrow().now_ns - since_ns;
    assert!(world.hub.is_secure(handle));
    assert_eq!(is_early, world.hub.early_accepted(handle).is_some());
    world.hub.write(handle, b"second", false).unwrap();
    world.hub.finish(handle);
    let end = quic.handshake_end(0, world.hub.early_accepted(handle));
    let accepted = world.hub.early_accepted(handle);
    assert!(world.until(|world| {
        read(world, handle, &mut echo);
        echo.len() >= b"firstsecond".len()
    }));
    assert_eq!(echo, b"firstsecond");
    world.hub.release(handle);
    assert!(world.until(|world| !world.hub.lingers()));
    (end, accepted, took_ns / 2_000_000)
}

#[test]
fn first_bytes_in_0_rtt_arrive_once_whatever_the_server_does_with_them() {
    use HandshakeEnd::{Early, Full, Refused, Resumed};
    let keys = Keys::new();
    let issued = keys.issue();
    let server = || {
        let mut server = tls(&issued.certificate_pem(), &issued.key_pem(), "mqtt");
        server.max_early_data_size = u32::MAX;
        server
    };
    let quic = |early_data| quic(PlannedTls { resume: 1.0, early_data, ..keys.settings() });
    let accepting = server();
    let visits = |quic: &Quic, server: &rustls::ServerConfig, count| -> Vec<_> {
        let mut world = World::new(1, GOOD, Behaviour::Echo, (server.clone(), 0));
        (0..count).map(|_| early_visit(&mut world, quic)).collect()
    };
    let client = quic(true);
    let early = (Early, Some(true), 1);
    assert_eq!(visits(&client, &accepting, 3), [(Full, None, 2), early, early]);
    // A server with the same sessions that takes no data in 0-RTT, and one without the sessions.
    let mut rejecting = accepting.clone();
    rejecting.max_early_data_size = 0;
    assert_eq!(visits(&client, &rejecting, 1), [(Resumed, Some(false), 2)]);
    assert_eq!(visits(&client, &accepting, 1), [(Resumed, None, 2)]);
    assert_eq!(visits(&client, &server(), 1), [(Refused, Some(false), 2)]);
    assert_eq!(visits(&quic(false), &accepting, 2), [(Full, None, 2), (Resumed, None, 2)]);
}
