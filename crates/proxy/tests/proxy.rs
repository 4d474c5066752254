//! The proxy as a process, between sockets of the test.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod support;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, listen, socket,
};
use serde_json::json;
use support::{Proxy, read, waits};
use testkit::Rng;

const DELAY: Duration = Duration::from_millis(60);
const MANY_BYTES: usize = 8 << 20;

#[test]
fn bytes_pass_both_ways_and_so_does_an_end_on_either_side() {
    let (mut proxy, target) = (Proxy::start(), support::listen());
    let (mut near, mut far) = proxy.connect(&target);
    near.write_all(b"there").unwrap();
    assert_eq!(read(&mut far, 5), b"there");
    near.shutdown(Shutdown::Write).unwrap();
    assert_eq!(far.read(&mut [0; 1]).unwrap(), 0);
    far.write_all(b"back").unwrap();
    assert_eq!(read(&mut near, 4), b"back");
    drop(far);
    assert_eq!(near.read(&mut [0; 1]).unwrap(), 0);
    let counts = proxy.counts_once(|counts| counts["open"] == 0);
    let expected = json!({
        "name": "up", "open": 0, "accepted_total": 1, "refused_total": 0,
        "out_bytes_total": 5, "in_bytes_total": 4
    });
    assert_eq!(counts, expected);
}

#[test]
fn a_closed_link_resets_both_sides_and_refuses_until_it_passes_again() {
    let (mut proxy, target) = (Proxy::start(), support::listen());
    let ports = proxy.open(&target, 2);
    let (mut near, mut far) = support::connect(ports[0], &target);
    let (mut other_near, mut other_far) = support::connect(ports[1], &target);
    for _ in 0..2 {
        proxy.set(&[0], "close", Duration::ZERO);
        for end in [&mut near, &mut far] {
            assert_eq!(end.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        }
        let refused = TcpStream::connect(("127.0.0.1", ports[0])).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        proxy.set(&[0], "pass", Duration::ZERO);
        (near, far) = support::connect(ports[0], &target);
        near.write_all(b"again").unwrap();
        assert_eq!(read(&mut far, 5), b"again");
    }
    other_near.write_all(b"untouched").unwrap();
    assert_eq!(read(&mut other_far, 9), b"untouched");
}

#[test]
fn a_closed_link_keeps_its_port() {
    let (mut proxy, target) = (Proxy::start(), support::listen());
    let port = proxy.open(&target, 1)[0];
    proxy.set(&[0], "close", Duration::ZERO);
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    assert_ne!(taken.local_addr().unwrap().port(), port);
    let other = socket(AddressFamily::Inet, SockType::Stream, SockFlag::empty(), None).unwrap();
    let bound = bind(other.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, port));
    assert_eq!(bound, Err(Errno::EADDRINUSE));
}

#[test]
fn a_stalled_link_notifies_no_peer_and_loses_nothing() {
    let (mut proxy, target) = (Proxy::start(), support::listen());
    let port = proxy.open(&target, 1)[0];
    let (mut near, mut far) = support::connect(port, &target);
    proxy.set(&[0], "stall", Duration::ZERO);
    near.write_all(b"held").unwrap();
    far.write_all(b"back").unwrap();
    let mut late = TcpStream::connect(("127.0.0.1", port)).unwrap();
    late.write_all(b"late").unwrap();
    assert!(waits(&mut far) && waits(&mut near));
    target.set_nonblocking(true).unwrap();
    assert_eq!(target.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    target.set_nonblocking(false).unwrap();
    proxy.set(&[0], "pass", Duration::ZERO);
    assert_eq!(read(&mut far, 4), b"held");
    assert_eq!(read(&mut near, 4), b"back");
    let (mut late_far, _) = target.accept().unwrap();
    assert_eq!(read(&mut late_far, 4), b"late");
}

#[test]
fn connections_closed_during_a_stall_never_reach_the_target() {
    let (mut proxy, target) = (Proxy::start(), support::listen());
    let port = proxy.open(&target, 1)[0];
    proxy.set(&[0], "stall", Duration::ZERO);
    for _ in 0..3 {
        TcpStream::connect(("127.0.0.1", port)).unwrap().write_all(b"void").unwrap();
    }
    while closed_by_peers(port) < 3 {
        thread::yield_now();
    }
    let mut near = TcpStream::connect(("127.0.0.1", port)).unwrap();
    near.write_all(b"good").unwrap();
    proxy.set(&[0], "pass", Duration::ZERO);
    let (mut far, _) = target.accept().unwrap();
    assert_eq!(read(&mut far, 4), b"good");
    let counts = proxy.counts_once(|counts| counts["open"] == 1);
    assert_eq!((&counts["accepted_total"], &counts["refused_total"]), (&json!(4), &json!(0)));
}

/// Counts the connections of a port whose end of the peer has arrived (`CLOSE_WAIT`): a busy kernel
/// delivers it later than `close` returns.
fn closed_by_peers(port: u16) -> usize {
    let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
    let (port, closed) = (format!(":{port:04X}"), "08");
    let columns = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    columns.filter(|row| row[1].ends_with(&port) && row[3] == closed).count()
}

#[test]
fn a_delay_holds_bytes_and_ends_of_each_direction() {
    let (mut proxy, target) = (Proxy::start(), support::listen());
    let (mut near, mut far) = proxy.connect(&target);
    proxy.set(&[0], "pass", DELAY);
    let began = Instant::now();
    near.write_all(b"there").unwrap();
    assert_eq!(read(&mut far, 5), b"there");
    assert!(began.elapsed() >= DELAY);
    far.write_all(b"back").unwrap();
    assert_eq!(read(&mut near, 4), b"back");
    assert!(began.elapsed() >= 2 * DELAY);
    let ended = Instant::now();
    drop(near);
    assert_eq!(far.read(&mut [0; 1]).unwrap(), 0);
    assert!(ended.elapsed() >= DELAY);
}

#[test]
fn every_byte_arrives_in_order_at_a_late_reader() {
    for delay in [Duration::ZERO, Duration::from_millis(2)] {
        let (mut proxy, target) = (Proxy::start(), support::listen());
        let (mut near, mut far) = proxy.connect(&target);
        proxy.set(&[0], "pass", delay);
        let writer = thread::spawn(move || near.write_all(&support::pattern(MANY_BYTES)).unwrap());
        // A writer that is held up shows that the proxy does not take what it cannot hand on.
        let counts = proxy.counts_once(|counts| counts["out_bytes_total"].as_u64() > Some(0));
        assert!(counts["out_bytes_total"].as_u64() < Some(MANY_BYTES as u64));
        assert!(read(&mut far, MANY_BYTES) == support::pattern(MANY_BYTES));
        writer.join().unwrap();
    }
}

#[test]
fn every_byte_arrives_in_order_through_all_states() {
    const LINKS: usize = 8;
    const BYTES: usize = 1 << 20;
    let (mut proxy, target) = (Proxy::start(), support::listen());
    let ports = proxy.open(&target, LINKS);
    let ends: Vec<_> = ports.iter().map(|&port| support::connect(port, &target)).collect();
    let (mut writers, mut readers) = (Vec::new(), Vec::new());
    for (near, far) in ends {
        for (mut from, mut to) in
            [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)]
        {
            writers.push(thread::spawn(move || {
                for (turn, chunk) in support::pattern(BYTES).chunks(1009).enumerate() {
                    from.write_all(&chunk[..chunk.len().min(1 + turn)]).unwrap();
                    from.write_all(&chunk[chunk.len().min(1 + turn)..]).unwrap();
                }
                from.shutdown(Shutdown::Write).unwrap();
            }));
            readers.push(thread::spawn(move || {
                let mut received = Vec::new();
                to.read_to_end(&mut received).unwrap();
                received == support::pattern(BYTES)
            }));
        }
    }
    let mut rng = Rng::new(20_261_121);
    for _ in 0..500 {
        let links: Vec<_> = (0..LINKS).filter(|_| rng.chance(50)).collect();
        let delay = Duration::from_micros(rng.below(3000) as u64);
        match rng.below(3) {
            0 => proxy.set(&links, "stall", Duration::ZERO),
            1 => proxy.set(&links, "pass", Duration::ZERO),
            _ => proxy.set(&links, "pass", delay),
        }
        thread::yield_now();
    }
    proxy.set(&(0..LINKS).collect::<Vec<_>>(), "pass", Duration::ZERO);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    assert!(readers.into_iter().all(|reader| reader.join().unwrap()));
    let counts = proxy.counts_once(|counts| counts["open"] == 0);
    assert_eq!(counts["out_bytes_total"], LINKS * BYTES);
}

#[test]
fn a_refusing_target_resets_its_own_peers_only() {
    // A socket that has a port and does not listen yet. A listener that was closed may live on for
    // a moment, in a process that another test is starting.
    let bound =
        socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    bind(bound.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).unwrap();
    let (mut proxy, target) = (Proxy::start(), TcpListener::from(bound));
    let port = proxy.open(&target, 1)[0];
    for _ in 0..2 {
        let mut near = TcpStream::connect(("127.0.0.1", port)).unwrap();
        assert_eq!(near.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    assert_eq!(proxy.counts_once(|counts| counts["refused_total"] == 2)["open"], 0);
    listen(&target, Backlog::new(1).unwrap()).unwrap();
    let (mut near, mut far) = support::connect(port, &target);
    near.write_all(b"up").unwrap();
    assert_eq!(read(&mut far, 2), b"up");
}

#[test]
fn a_reset_is_forwarded() {
    let (mut proxy, target) = (Proxy::start(), support::listen());
    let (mut near, far) = proxy.connect(&target);
    near.write_all(b"unread").unwrap();
    proxy.counts_once(|counts| counts["out_bytes_total"] == 6);
    // Closing a socket with unread bytes in it resets the connection.
    drop(far);
    assert_eq!(near.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    proxy.counts_once(|counts| counts["open"] == 0);
}

#[test]
fn a_thousand_links_are_open_at_once() {
    support::raise_descriptors();
    let (mut proxy, target) = (Proxy::start(), support::listen());
    let ports = proxy.open(&target, 1000);
    let mut ends: Vec<_> = ports.iter().map(|&port| support::connect(port, &target)).collect();
    assert_eq!(proxy.counts_once(|counts| counts["open"] == 1000)["refused_total"], 0);
    for (near, far) in &mut ends {
        near.write_all(b"x").unwrap();
        assert_eq!(read(far, 1), b"x");
    }
    proxy.set(&(0..1000).collect::<Vec<_>>(), "close", Duration::ZERO);
    assert_eq!(proxy.counts()["open"], 0);
}

#[test]
fn too_few_descriptors_end_no_proxy() {
    let (mut proxy, target) = (Proxy::with_descriptors(24), support::listen());
    let failure = proxy.ask(&support::open_command(&target, 100));
    assert_eq!(failure["kind"], "failure");
    assert!(failure["hint"].as_str().unwrap().contains("300 descriptors"));
    let port = proxy.open(&target, 1)[0];
    let ends: Vec<_> = (0..30).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    proxy.counts_once(|counts| counts["accepted_total"].as_u64() > Some(5));
    drop(ends);
    // The target hangs up too, on each that reaches it: only then are the descriptors free.
    target.set_nonblocking(true).unwrap();
    proxy.counts_once(|counts| {
        while target.accept().is_ok() {}
        counts["accepted_total"] == 30 && counts["open"] == 0
    });
    target.set_nonblocking(false).unwrap();
    let (mut near, mut far) = support::connect(port, &target);
    near.write_all(b"well").unwrap();
    assert_eq!(read(&mut far, 4), b"well");
}

#[test]
fn an_invalid_command_is_answered_and_the_next_one_works() {
    let (mut proxy, target) = (Proxy::start(), support::listen());
    for (command, expected) in [
        (json!("nonsense"), "cannot read a command"),
        (json!({"command": "set", "name": "up", "links": [0], "state": "pass"}), "no links"),
    ] {
        let failure = proxy.ask(&command);
        assert!(failure["message"].as_str().unwrap().contains(expected), "{failure}");
    }
    proxy.open(&target, 1);
    for links in [[1], [usize::MAX]] {
        let set = json!({"command": "set", "name": "up", "links": links, "state": "close"});
        assert_eq!(proxy.ask(&set)["hint"], "allowed are numbers below 1");
    }
    let set =
        json!({"command": "set", "name": "up", "links": [0], "state": "stall", "delay_ns": 1});
    assert_eq!(proxy.ask(&set)["kind"], "failure");
    assert_eq!(proxy.ask(&support::open_command(&target, 1))["kind"], "failure");
}

#[test]
fn it_ends_with_its_stdin() {
    let (mut proxy, target) = (Proxy::start(), support::listen());
    let (mut near, _far) = proxy.connect(&target);
    assert!(proxy.end());
    assert_eq!(near.read(&mut [0; 1]).unwrap_or(0), 0);
}
