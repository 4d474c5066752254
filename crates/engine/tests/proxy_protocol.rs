//! The header of the PROXY protocol before the bytes of MQTT, TLS and WebSocket. The peer parses it
//! by itself, byte by byte, after the specification.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use openssl::ssl::{SslAcceptor, SslMethod};
use serde_json::{Value, json};

use crate::support::{Agent, Authority, plan, population};

const CLIENTS: u32 = 4;
const CONNACK: [u8; 4] = [0x20, 2, 0, 0];

/// A connection as its peer found it.
struct Found {
    /// Addresses in the header.
    source: SocketAddr,
    target: SocketAddr,
    /// Addresses of the connection itself.
    peer: SocketAddr,
    own: SocketAddr,
    /// The first bytes after the header, without TLS.
    first: Vec<u8>,
}

fn address(bytes: &[u8]) -> IpAddr {
    match bytes.len() {
        4 => Ipv4Addr::from(<[u8; 4]>::try_from(bytes).unwrap()).into(),
        _ => Ipv6Addr::from(<[u8; 16]>::try_from(bytes).unwrap()).into(),
    }
}

fn read(stream: &mut impl Read, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

/// Reads a header of version 1: words between spaces, up to CR and LF.
fn read_v1(stream: &mut TcpStream) -> (SocketAddr, SocketAddr) {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.extend(read(stream, 1));
        assert!(line.len() <= 107, "{line:?}");
    }
    let line = String::from_utf8(line).unwrap();
    let words: Vec<&str> = line.trim_end().split(' ').collect();
    let [proxy, family, from, to, from_port, to_port] = words[..] else { panic!("{line}") };
    let from = SocketAddr::new(from.parse().unwrap(), from_port.parse().unwrap());
    let to = SocketAddr::new(to.parse().unwrap(), to_port.parse().unwrap());
    assert_eq!((proxy, family), ("PROXY", if from.is_ipv4() { "TCP4" } else { "TCP6" }));
    assert_eq!(from.is_ipv4(), to.is_ipv4());
    (from, to)
}

/// Reads a header of version 2: signature, command, family, length, addresses, ports.
fn read_v2(stream: &mut TcpStream) -> (SocketAddr, SocketAddr) {
    let head = read(stream, 16);
    assert_eq!(head[..12], [13, 10, 13, 10, 0, 13, 10, 81, 85, 73, 84, 10]);
    assert_eq!(head[12], 0x21);
    let size = match head[13] {
        0x11 => 4,
        0x21 => 16,
        other => panic!("{other:x}"),
    };
    let length = usize::from(u16::from_be_bytes([head[14], head[15]]));
    assert_eq!(length, 2 * size + 4);
    let rest = read(stream, length);
    let port = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
    let from = SocketAddr::new(address(&rest[..size]), port(2 * size));
    let to = SocketAddr::new(address(&rest[size..2 * size]), port(2 * size + 2));
    (from, to)
}

/// Accepts the clients, reads their headers, and accepts their CONNECT, under TLS if there is an
/// acceptor.
fn serve(
    listener: TcpListener,
    version: &'static str,
    tls: Option<SslAcceptor>,
) -> JoinHandle<Vec<Found>> {
    thread::spawn(move || {
        let mut open: Vec<Box<dyn Write>> = Vec::new();
        let mut found = Vec::new();
        for _ in 0..CLIENTS {
            let (mut stream, peer) = listener.accept().unwrap();
            let own = stream.local_addr().unwrap();
            let read_header = if version == "v1" { read_v1 } else { read_v2 };
            let (source, target) = read_header(&mut stream);
            let first = if let Some(tls) = &tls {
                let mut stream = tls.accept(stream).unwrap();
                let first = read(&mut stream, 4);
                stream.write_all(&CONNACK).unwrap();
                open.push(Box::new(stream));
                first
            } else {
                let first = read(&mut stream, 4);
                stream.write_all(&CONNACK).unwrap();
                open.push(Box::new(stream));
                first
            };
            found.push(Found { source, target, peer, own, first });
        }
        found
    })
}

fn acceptor() -> SslAcceptor {
    let issued = Authority::new("test").issue("127.0.0.1", (0, 1));
    let mut builder = SslAcceptor::mozilla_intermediate(SslMethod::tls_server()).unwrap();
    builder.set_certificate(&issued.certificate).unwrap();
    builder.set_private_key(&issued.key).unwrap();
    builder.build()
}

/// A link of 5 ms.
fn link() -> Value {
    json!([{
        "after_ns": 0, "delay_ns": 5_000_000, "jitter_ns": 0, "loss": 0.0, "bits_per_s": null,
    }])
}

/// Connects the clients to a listener at an address; returns what it found, and how many clients
/// it accepted.
fn connected(at: &str, fields: &Value, tls: bool, path: Option<&str>) -> (Vec<Found>, u64) {
    connected_over(&json!([]), (at, fields), tls, path)
}

/// Connects the clients over links.
fn connected_over(
    link: &Value,
    (at, fields): (&str, &Value),
    tls: bool,
    path: Option<&str>,
) -> (Vec<Found>, u64) {
    let listener = TcpListener::bind((at, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let version = if fields["version"] == "v1" { "v1" } else { "v2" };
    let server = serve(listener, version, tls.then(acceptor));
    let settings = json!({
        "ca": null, "verify": false, "server_name": null, "certificate": null, "key": null,
        "psk": null, "min_version": "1.2", "max_version": "1.3", "ciphers": null,
    });
    let mut own = json!({"reconnect": null, "first": 3, "tls": settings, "link": link});
    own["proxy_protocol"] = fields.clone();
    let action = json!({"kind": "connect", "rate_per_s": null, "parallelism": 1, "timeout_ns": 1});
    let stage = json!({"name": "connect", "action": action, "populations": [0]});
    let mut plan = plan(port, &[population("p", CLIENTS, own)], &[stage]);
    plan["targets"][0]["host"] = json!(at);
    plan["targets"][0]["tls"] = json!(tls);
    plan["targets"][0]["websocket"] = json!(path);
    let mut agent = Agent::start(&plan, "0/1");
    agent.stage(0);
    let found = server.join().unwrap();
    (found, agent.stop().populations[0].0.connected_total)
}

#[test]
fn the_header_has_the_invented_source_and_the_ports_of_the_connection() {
    for version in ["v1", "v2"] {
        for tls in [false, true] {
            let fields = json!({"version": version, "first": "10.1.0.254", "count": 1000});
            let (found, accepted) = connected("127.0.0.1", &fields, tls, None);
            assert_eq!(accepted, u64::from(CLIENTS), "{version} tls {tls}");
            for (place, found) in found.iter().enumerate() {
                let source = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 1, 0, 254)) + 3)
                    .to_bits()
                    .wrapping_add(place as u32);
                assert_eq!(found.source.ip(), IpAddr::from(Ipv4Addr::from(source)));
                assert_eq!(found.source.port(), found.peer.port());
                assert_eq!(found.target, found.own);
                assert_eq!(found.first[0], 0x10, "CONNECT follows the header");
            }
        }
    }
}

#[test]
fn the_header_passes_a_link_once() {
    let fields = json!({"version": "v2", "first": "10.1.0.254", "count": 1000});
    for tls in [false, true] {
        let (found, accepted) = connected_over(&link(), ("127.0.0.1", &fields), tls, None);
        assert_eq!(accepted, u64::from(CLIENTS), "tls {tls}");
        assert!(found.iter().all(|found| found.first[0] == 0x10 && found.target == found.own));
    }
}

#[test]
fn an_address_of_ipv4_before_a_target_of_ipv6_becomes_one_of_ipv6() {
    for version in ["v1", "v2"] {
        let fields = json!({"version": version, "first": "198.18.0.1", "count": 1});
        let (found, accepted) = connected("::1", &fields, false, None);
        assert_eq!(accepted, u64::from(CLIENTS));
        let mapped: IpAddr = "::ffff:198.18.0.1".parse().unwrap();
        assert!(found.iter().all(|f| f.source.ip() == mapped && f.target == f.own));
    }
}

#[test]
fn the_header_is_before_the_upgrade_to_websocket() {
    let fields = json!({"version": "v2", "first": "2001:db8::1", "count": 1});
    let (found, accepted) = connected("::1", &fields, false, Some("/mqtt"));
    assert_eq!(accepted, 0, "the peer answers with no upgrade");
    assert!(found.iter().all(|found| found.first == b"GET "));
}
