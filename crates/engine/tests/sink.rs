//! The null sink as a process, driven with bytes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use websocket::upgrade::{RequestKey, UpgradeRequest, read_answer};
use websocket::{FrameSession, MaskingKeys};

struct Sink {
    process: Child,
    stdin: Option<ChildStdin>,
    port: u16,
}

impl Sink {
    fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_pubstorm-engine"))
            .arg("--sink")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let port = u16::try_from(ready["port"].as_u64().unwrap()).unwrap();
        let stdin = process.stdin.take();
        Self { process, stdin, port }
    }

    fn connect(&self) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01c").unwrap();
        assert_eq!(read(&mut stream, 4), [0x20, 2, 0, 0]);
        stream
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn read(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

#[test]
fn it_acknowledges_what_it_throws_away() {
    let sink = Sink::start();
    let mut client = sink.connect();
    client.write_all(b"\x30\x05\x00\x01tab").unwrap();
    client.write_all(b"\x32\x07\x00\x01t\x00\x07ab").unwrap();
    assert_eq!(read(&mut client, 4), [0x40, 2, 0, 7]);
    client.write_all(b"\x34\x07\x00\x01t\x00\x08ab").unwrap();
    assert_eq!(read(&mut client, 4), [0x50, 2, 0, 8]);
    client.write_all(b"\x62\x02\x00\x08\xc0\x00").unwrap();
    assert_eq!(read(&mut client, 6), [0x70, 2, 0, 8, 0xd0, 0]);
}

#[test]
fn it_hands_messages_to_all_that_subscribed_in_pieces_too() {
    let sink = Sink::start();
    let (mut one, mut other) = (sink.connect(), sink.connect());
    for subscriber in [&mut one, &mut other] {
        subscriber.write_all(b"\x82\x06\x00\x01\x00\x01x\x01").unwrap();
        assert_eq!(read(subscriber, 5), [0x90, 3, 0, 1, 1]);
    }
    let mut publisher = sink.connect();
    publisher.write_all(b"\x32\x07\x00\x01t").unwrap();
    publisher.write_all(b"\x00\x07ab").unwrap();
    assert_eq!(read(&mut publisher, 4), [0x40, 2, 0, 7]);
    for subscriber in [&mut one, &mut other] {
        assert_eq!(read(subscriber, 7), *b"\x30\x05\x00\x01tab");
    }
}

#[test]
fn it_answers_over_websocket_too_and_forwards_to_both_kinds_of_peers() {
    let sink = Sink::start();
    let mut plain = sink.connect();
    plain.write_all(b"\x82\x06\x00\x01\x00\x01x\x01").unwrap();
    assert_eq!(read(&mut plain, 5), [0x90, 3, 0, 1, 1]);
    let mut framed = TcpStream::connect(("127.0.0.1", sink.port)).unwrap();
    framed.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (key, mut request) = (RequestKey::new([7; 16]), Vec::new());
    UpgradeRequest { host: "h", path: "/", headers: &[] }.write(&key, &mut request);
    framed.write_all(&request).unwrap();
    let mut answer = Vec::new();
    while read_answer(&answer, &key).unwrap().is_none() {
        answer.extend(read(&mut framed, 1));
    }
    let (mut session, mut keys) = (FrameSession::<false>::default(), MaskingKeys::new(1));
    let mut send = |packets: &[u8]| {
        let mut frame = Vec::new();
        let written = session.frame(packets, &mut keys, &mut frame);
        assert_eq!(session.note_written(written, frame.len()), packets.len());
        frame
    };
    // Two packets in one frame, and one packet in two frames.
    framed.write_all(&send(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01c\xc0\x00")).unwrap();
    assert_eq!(read(&mut framed, 8), [0x82, 6, 0x20, 2, 0, 0, 0xd0, 0]);
    framed.write_all(&send(b"\x30\x05\x00")).unwrap();
    framed.write_all(&send(b"\x01tab")).unwrap();
    assert_eq!(read(&mut plain, 7), *b"\x30\x05\x00\x01tab");
}

#[test]
fn a_peer_that_breaks_the_protocol_loses_its_connection_only() {
    let sink = Sink::start();
    let (mut good, mut bad) = (sink.connect(), sink.connect());
    bad.write_all(b"\x00\x00").unwrap();
    assert_eq!(bad.read(&mut [0; 1]).unwrap_or(0), 0);
    good.write_all(b"\xc0\x00").unwrap();
    assert_eq!(read(&mut good, 2), [0xd0, 0]);
}

#[test]
fn it_ends_with_its_stdin() {
    let mut sink = Sink::start();
    let _client = sink.connect();
    drop(sink.stdin.take());
    assert!(sink.process.wait().unwrap().success());
}
