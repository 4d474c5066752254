//! Fuzzes a ZMTP session with any bytes, before, in and after the handshake. The session never
//! panics, answers with well-formed frames only, and gives the same events for every split of the
//! bytes. The publisher receives the same bytes. Run with `cargo +nightly fuzz run zmtp_session`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use zmtp::{
    Mechanism, ZmtpError, ZmtpEvent, ZmtpSession,
    frame::{self, DecodedFrame},
    greeting::Greeting,
    publisher::{self, PublisherSession},
};

const PLAIN: Mechanism<'_> = Mechanism::Plain { username: b"u", password: b"p" };
const READY: &[u8] = b"\x04\x06\x05READY";

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (state, split, bytes) = input;
    let mechanism = if state & 1 == 0 { Mechanism::Null } else { PLAIN };
    // The fuzzer chooses between a connected session and a new session.
    let mut before = Vec::new();
    if state & 2 != 0 {
        Greeting::new(mechanism.name(), false).encode(&mut before);
        if state & 4 != 0 {
            let welcome: &[u8] = if state & 1 == 0 { b"" } else { b"\x04\x08\x07WELCOME" };
            before.extend_from_slice(&[welcome, READY].concat());
        }
    }
    before.extend_from_slice(bytes);
    let whole = subscribe(&before, before.len(), &mechanism);
    assert_eq!(whole, subscribe(&before, usize::from(split) + 1, &mechanism));
    publish(&before, &mechanism);
});

/// Events of a session that receives `bytes` in pieces of `piece` bytes.
fn subscribe(
    bytes: &[u8],
    piece: usize,
    mechanism: &Mechanism<'_>,
) -> (Vec<String>, Result<(), ZmtpError>) {
    let (mut session, mut out) = (ZmtpSession::new(), Vec::new());
    session.connect(mechanism, &mut out);
    out.clear();
    let (mut events, mut start, mut end) = (Vec::new(), 0, 0);
    loop {
        let handled = match session.handle(&bytes[start..end], mechanism, &mut out) {
            Ok(handled) => handled,
            Err(error) => break (events, Err(error)),
        };
        start += handled.len;
        assert!(start <= end);
        match handled.event {
            ZmtpEvent::Incomplete if end == bytes.len() => break (events, Ok(())),
            ZmtpEvent::Incomplete => end = bytes.len().min(end + piece),
            ZmtpEvent::Message(message) => {
                let frames: Vec<_> = message.frames().collect();
                assert_eq!(frames.first(), Some(&message.topic()));
                assert_eq!(frames.last(), Some(&message.payload()));
                events.push(format!("{frames:?}"));
            }
            ZmtpEvent::Connected => {
                session.subscribe(b"prefix", &mut out);
                session.ping(&mut out);
                events.push("Connected".to_owned());
            }
            event => events.push(format!("{event:?}")),
        }
        assert_well_formed(&out);
        out.clear();
    }
}

fn publish(mut bytes: &[u8], mechanism: &Mechanism<'_>) {
    let (mut publisher, mut out) = (PublisherSession::new(), Vec::new());
    publisher.accept(mechanism, &mut out);
    out.clear();
    while let Ok(handled) = publisher.handle(bytes, mechanism, &mut out) {
        if handled.event == publisher::PublisherEvent::Incomplete {
            break;
        }
        bytes = &bytes[handled.len..];
    }
    assert_well_formed(&out);
}

fn assert_well_formed(mut replies: &[u8]) {
    while !replies.is_empty() {
        match frame::decode(replies) {
            Ok(DecodedFrame::Frame { len, .. }) => replies = &replies[len..],
            other => panic!("{other:?}"),
        }
    }
}
