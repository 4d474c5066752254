//! Fuzzes a NATS session with any bytes, before, in and after the handshake. The session never
//! panics, answers with well-formed operations only, and gives the same events for every split of
//! the bytes. A server's decoder receives the same bytes. Run with
//! `cargo +nightly fuzz run nats_session`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nats::{
    DecodedOperation, FIRST_SID, Headers, NatsError, NatsEvent, NatsSession,
    client::{self, ConnectOptions, NatsPublish, NatsSubscribe},
};

const INFO: &[u8] = b"INFO {\"max_payload\":1048576,\"headers\":true}\r\n";

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (state, split, bytes) = input;
    // The fuzzer chooses between a connected session and a new session.
    let mut before = Vec::new();
    if state & 1 != 0 {
        before.extend_from_slice(INFO);
        if state & 2 != 0 {
            before.extend_from_slice(b"PONG\r\n");
        }
    }
    before.extend_from_slice(bytes);
    let whole = receive(&before, before.len().max(1));
    assert_eq!(whole, receive(&before, usize::from(split) + 1));
    let _ = serve(bytes);
});

/// Events of a session that receives `bytes` in pieces of `piece` bytes.
fn receive(bytes: &[u8], piece: usize) -> (Vec<String>, Result<(), NatsError>) {
    let (mut session, mut out) = (NatsSession::<u8>::new(), Vec::new());
    session.open();
    let (mut events, mut start, mut end) = (Vec::new(), 0, 0);
    loop {
        let handled = match session.handle(&bytes[start..end], &mut out) {
            Ok(handled) => handled,
            Err(error) => break (events, Err(error)),
        };
        start += handled.len;
        assert!(start <= end);
        match handled.event {
            NatsEvent::Incomplete if end == bytes.len() => break (events, Ok(())),
            NatsEvent::Incomplete => end = bytes.len().min(end + piece),
            NatsEvent::Message(message) => {
                events.push(format!("{message:?} {:?}", message.headers.status()));
                events.extend(message.headers.iter().map(|header| format!("{header:?}")));
            }
            event => {
                events.push(format!("{event:?}"));
                match event {
                    NatsEvent::Greeted(_) => session.connect(&ConnectOptions::default(), &mut out),
                    NatsEvent::Connected => ask(&mut session, &mut out),
                    _ => {}
                }
            }
        }
        assert!(serve(&out).is_empty(), "a part of an operation");
        out.clear();
    }
}

/// Subscribes and publishes, so that answers fit.
fn ask(session: &mut NatsSession<u8>, out: &mut Vec<u8>) {
    session.await_answers(b"i", out);
    session.subscribe(&NatsSubscribe { subject: b"a", group: Some(b"g"), sid: FIRST_SID }, out);
    session.confirm(false, out);
    let publish = NatsPublish { subject: b"s", reply: None, headers: Headers::NONE, payload: b"" };
    session.publish_stored(&publish, 0, out);
    session.request("r", b"", out);
}

/// Decodes operations of a client, and returns the rest.
fn serve(mut bytes: &[u8]) -> &[u8] {
    while let Ok(DecodedOperation::Whole { len, .. }) = client::decode(bytes) {
        bytes = &bytes[len..];
    }
    bytes
}
