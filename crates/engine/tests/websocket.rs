//! The real engine over WebSocket, plain and under TLS, against the scripted broker and against
//! targets that have no WebSocket of MQTT.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use crate::support::{Agent, Authority, Folder, Scripted, population, publication};
use openssl::ssl::{SslContext, SslMethod, SslMode};
use plan::{Family, Reason};
use serde_json::{Value, json};
use testkit::Script;
use websocket::frame::{FrameHeader, Opcode};
use websocket::upgrade;

/// The answer to a request.
type Answer = fn(&[u8]) -> Vec<u8>;

/// A plan of publishers and subscribers over WebSocket.
fn plan(port: u16, populations: &[Value], ms: u64) -> Value {
    let all: Vec<usize> = (0..populations.len()).collect();
    let connect =
        json!({"kind": "connect", "rate_per_s": null, "parallelism": 50, "timeout_ns": 1});
    let publish = json!({"kind": "publish", "duration_ns": ms * 1_000_000, "changes": []});
    let stages = [
        json!({"name": "connect", "action": connect, "populations": all}),
        json!({"name": "publish", "action": publish, "populations": all}),
    ];
    let mut plan = crate::support::plan(port, populations, &stages);
    plan["targets"][0]["websocket"] = json!("/mqtt");
    plan
}

fn publishers_and_subscribers(bytes: u64) -> [Value; 2] {
    let mut publication = publication("t/{n}", 1, 10);
    publication["payload"] = json!({"kind": "fixed", "bytes": bytes});
    [
        population("pub", 10, json!({"publications": [publication]})),
        population("sub", 10, json!({"subscriptions": [{"filter": "t/{n}", "qos": 1}]})),
    ]
}

/// Plays a plan to the end of its publish stage; returns the totals.
fn played(plan: &Value) -> crate::support::Totals {
    let mut agent = Agent::start(plan, "0/1");
    agent.stage(0);
    agent.stage_until(1, |snapshot, totals| {
        let flow = totals.flow(0, 1);
        let all_acked = snapshot.populations[0].gauges.in_flight == 0;
        snapshot.settled && all_acked && flow.received_total == flow.expected_total
    });
    agent.stop()
}

/// A target that answers the first bytes of each client with what `answer` makes of them, and
/// closes; at most `count` clients come.
fn target(count: usize, answer: Answer) -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = move || {
        for _ in 0..count {
            let (mut stream, _) = listener.accept().unwrap();
            let request = request_of(&mut stream);
            stream.write_all(&answer(&request)).unwrap();
            // Waits until the client has gone, which closes the connection in order.
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        }
    };
    (port, std::thread::spawn(serve))
}

fn request_of(stream: &mut TcpStream) -> Vec<u8> {
    let (mut request, mut buffer) = (Vec::new(), [0; 1024]);
    while !request.ends_with(b"\r\n\r\n") {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "the client sends a whole request");
        request.extend_from_slice(&buffer[..count]);
    }
    request
}

/// Outcomes of one connection attempt of each of two clients.
fn outcomes(answer: Answer) -> Vec<(Reason, u64)> {
    let (port, server) = target(2, answer);
    let device = population("device", 2, json!({"reconnect": null}));
    let mut agent = Agent::start(&plan(port, &[device], 1), "0/1");
    agent.stage(0);
    agent.read_until(|_, totals| {
        let (counters, outcomes) = &totals.populations[0];
        counters.connect_attempts_total == 2 && outcomes.values().sum::<u64>() == 2
    });
    let totals = agent.stop();
    server.join().unwrap();
    totals.populations[0].1.clone().into_iter().collect()
}

fn upgraded(request: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    upgrade::answer(request, &mut answer).unwrap();
    answer
}

fn upgraded_and(request: &[u8], frame: &[u8]) -> Vec<u8> {
    [&upgraded(request), frame].concat()
}

fn replaced(request: &[u8], from: &str, to: &str) -> Vec<u8> {
    String::from_utf8(upgraded(request)).unwrap().replace(from, to).into_bytes()
}

fn close(code: u16) -> Vec<u8> {
    [&FrameHeader::new(Opcode::Close, 2, None)[..], &code.to_be_bytes()].concat()
}

#[test]
fn messages_arrive_through_fragments_and_pings() {
    for bytes in [40, 70_000] {
        let broker = Scripted::start(Script::reliable);
        let totals = played(&plan(broker.port, &publishers_and_subscribers(bytes), 300));
        let flow = totals.flow(0, 1);
        assert_eq!((flow.expected_total, flow.received_total), (300, 300));
        assert_eq!((flow.duplicate_total, flow.missing_total), (0, 0));
        let (publishers, outcomes) = &totals.populations[0];
        assert_eq!((publishers.sent_total, publishers.acked_total), (300, 300));
        assert!(outcomes.is_empty(), "{outcomes:?}");
        assert!(totals.populations[1].0.websocket_pings_total > 0);
        assert_eq!(totals.populations[1].0.connected_total, 10);
    }
}

#[test]
fn websocket_under_tls_carries_messages_of_any_size() {
    let (folder, authority) = (Folder::new(), Authority::new("test"));
    let ca = folder.write("ca.crt", authority.0.certificate_pem());
    let issued = authority.issue("127.0.0.1", (0, 1));
    let mut builder = SslContext::builder(SslMethod::tls_server()).unwrap();
    builder.set_mode(SslMode::ENABLE_PARTIAL_WRITE | SslMode::ACCEPT_MOVING_WRITE_BUFFER);
    builder.set_certificate(&issued.certificate).unwrap();
    builder.set_private_key(&issued.key).unwrap();
    let broker = Scripted::start_under(Some(builder.build()), Script::reliable);
    let tls = json!({
        "ca": ca, "verify": true, "server_name": null, "certificate": null, "key": null,
        "psk": null, "min_version": "1.2", "max_version": "1.3", "ciphers": null,
    });
    for bytes in [40, 150_000] {
        let mut populations = publishers_and_subscribers(bytes);
        populations.iter_mut().for_each(|population| population["tls"] = tls.clone());
        let mut plan = plan(broker.port, &populations, 200);
        plan["targets"][0]["tls"] = json!(true);
        let flow = played(&plan).flow(0, 1);
        assert_eq!((flow.received_total, flow.missing_total), (200, 0));
    }
}

#[test]
fn a_target_without_a_websocket_of_mqtt_is_named_by_its_answer() {
    let cases: [(Answer, Reason); 10] = [
        (|_| Vec::new(), Reason::UpgradeClosed),
        (|_| b"\x20\x02\0\x05".to_vec(), Reason::UpgradeInvalid),
        (|_| b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), Reason::UpgradeIgnored),
        (|_| b"HTTP/1.1 404 Not Found\r\n\r\n".to_vec(), Reason::of(Family::Http, 404)),
        (|_| b"HTTP/1.1 302 Found\r\nLocation: x\r\n\r\n".to_vec(), Reason::of(Family::Http, 302)),
        (|_| b"HTTP/1.1 503 Full\r\n\r\n".to_vec(), Reason::of(Family::Http, 503)),
        (|_| b"HTTP/1.1 504 Late\r\n\r\n".to_vec(), Reason::of(Family::Http, 504)),
        (|_| b"HTTP/1.1 418 Teapot\r\n\r\n".to_vec(), Reason::of(Family::Http, 418)),
        (|r| replaced(r, "Accept: ", "Accept: x"), Reason::WrongAcceptKey),
        (|r| replaced(r, "Protocol: mqtt", "Protocol: amqp"), Reason::NoSubprotocol),
    ];
    for (answer, reason) in cases {
        assert_eq!(outcomes(answer), [(reason, 2)]);
    }
}

#[test]
fn a_close_of_the_broker_is_counted_by_its_code() {
    let cases: [(Answer, Reason); 5] = [
        (|r| upgraded_and(r, &close(1000)), Reason::of(Family::WebsocketClose, 1000)),
        (|r| upgraded_and(r, &close(1001)), Reason::of(Family::WebsocketClose, 1001)),
        (|r| upgraded_and(r, &close(1008)), Reason::of(Family::WebsocketClose, 1008)),
        (|r| upgraded_and(r, &close(4000)), Reason::of(Family::WebsocketClose, 4000)),
        (|r| upgraded_and(r, b"\x81\x01x"), Reason::WebsocketInvalid),
    ];
    for (answer, reason) in cases {
        assert_eq!(outcomes(answer), [(reason, 2)]);
    }
}

#[test]
fn headers_of_a_population_are_in_the_request() {
    let answer = |request: &[u8]| {
        let text = String::from_utf8_lossy(request).into_owned();
        let authorized = ["Bearer 7", "Bearer 8"]
            .iter()
            .any(|word| text.contains(&format!("\r\nAuthorization: {word}\r\n")));
        assert!(authorized && text.contains("\r\nSec-WebSocket-Protocol: mqtt\r\n"), "{text}");
        b"HTTP/1.1 401 No\r\n\r\n".to_vec()
    };
    let (port, server) = target(2, answer);
    let headers = json!([{"name": "Authorization", "value": "Bearer {n}"}]);
    let fields = json!({"reconnect": null, "first": 7, "headers": headers});
    let device = population("device", 2, fields);
    let mut agent = Agent::start(&plan(port, &[device], 1), "0/1");
    agent.stage(0);
    agent.read_until(|_, totals| totals.populations[0].1.values().sum::<u64>() == 2);
    let totals = agent.stop();
    assert_eq!(totals.populations[0].1, [(Reason::of(Family::Http, 401), 2)].into());
    server.join().unwrap();
}
