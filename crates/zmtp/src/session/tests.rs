//! One session, command by command, against a table of bytes. Whole exchanges are in
//! `tests/exchange.rs`, exchanges with libzmq in `tests/libzmq.rs`.

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::{FRAMES_MAX, MESSAGE_MAX};
use crate::{ZmtpError, frame::FrameKind, publisher::encode_message};

const NULL: Mechanism<'_> = Mechanism::Null;
const PLAIN: Mechanism<'_> = Mechanism::Plain { username: b"ann", password: b"pw" };

const READY: &[u8] = b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB";
const OUR_READY: &[u8] = b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB";
const PING: &[u8] = b"\x04\x07\x04PING\x00\x00";
const PONG: &[u8] = b"\x04\x05\x04PONG";

fn greeting(version: [u8; 2], mechanism: &Mechanism<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    Greeting::new(mechanism.name(), false).encode(&mut out);
    out[10..12].copy_from_slice(&version);
    out
}

/// Returns a session after the exchange of greetings, and the answer of the session.
fn greeted(version: [u8; 2], mechanism: &Mechanism<'_>) -> (ZmtpSession, Vec<u8>) {
    let (mut session, mut out) = (ZmtpSession::new(), Vec::new());
    session.connect(mechanism, &mut out);
    assert_eq!(out, greeting([3, 1], mechanism));
    out.clear();
    let bytes = greeting(version, mechanism);
    let handled = session.handle(&bytes, mechanism, &mut out);
    assert_eq!(handled, Ok(Handled { len: 64, event: ZmtpEvent::Greeted }));
    (session, out)
}

fn connected_to(version: [u8; 2]) -> ZmtpSession {
    let (mut session, _) = greeted(version, &NULL);
    assert_eq!(handle(&mut session, READY), (READY.len(), ZmtpEvent::Connected, vec![]));
    assert!(session.is_connected());
    session
}

fn connected() -> ZmtpSession {
    connected_to([3, 1])
}

/// Handles `bytes` and returns the length, the event and the answer.
fn handle<'a>(session: &mut ZmtpSession, bytes: &'a [u8]) -> (usize, ZmtpEvent<'a>, Vec<u8>) {
    let mut out = Vec::new();
    let Handled { len, event } = session.handle(bytes, &NULL, &mut out).unwrap();
    (len, event, out)
}

fn error(session: &mut ZmtpSession, bytes: &[u8]) -> ZmtpError {
    session.handle(bytes, &NULL, &mut Vec::new()).unwrap_err()
}

/// The one message that `bytes` encode.
fn message(bytes: &[u8]) -> ZmtpMessage<'_> {
    let (len, event, _) = handle(&mut connected(), bytes);
    let ZmtpEvent::Message(message) = event else { panic!("{event:?}") };
    assert_eq!((len, message.encoded_len()), (bytes.len(), bytes.len()));
    message
}

#[test]
fn null_is_a_ready_from_each_side() {
    let (mut session, out) = greeted([3, 1], &NULL);
    assert_eq!(out, OUR_READY);
    assert!(!session.is_connected());
    assert_eq!(handle(&mut session, READY).1, ZmtpEvent::Connected);
}

#[test]
fn plain_goes_through_hello_welcome_initiate_and_ready() {
    let (mut session, out) = greeted([3, 1], &PLAIN);
    assert_eq!(out, b"\x04\x0d\x05HELLO\x03ann\x02pw");
    let (_, event, out) = handle(&mut session, b"\x04\x08\x07WELCOME");
    assert_eq!(event, ZmtpEvent::Replied);
    assert_eq!(out, b"\x04\x1c\x08INITIATE\x0bSocket-Type\x00\x00\x00\x03SUB");
    assert_eq!(handle(&mut session, READY).1, ZmtpEvent::Connected);
}

#[test]
fn a_refusal_has_a_reason_and_ends_the_connection() {
    let (mut session, _) = greeted([3, 1], &PLAIN);
    let (_, event, _) = handle(&mut session, b"\x04\x0e\x05ERROR\x07no such");
    assert_eq!(event, ZmtpEvent::Refused("no such"));
    assert_eq!(error(&mut session, PONG), ZmtpError::NotOpen);
    let (mut session, _) = greeted([3, 1], &PLAIN);
    let (_, event, _) = handle(&mut session, b"\x04\x08\x05ERROR\x01\xff");
    assert_eq!(event, ZmtpEvent::Refused("the reason is not UTF-8"));
}

#[test]
fn credentials_that_are_too_long_for_hello_are_an_error() {
    let long = Mechanism::Plain { username: &[b'x'; 256], password: b"" };
    let mut session = ZmtpSession::new();
    session.connect(&long, &mut Vec::new());
    let theirs = greeting([3, 1], &PLAIN);
    let found = session.handle(&theirs, &long, &mut Vec::new());
    assert_eq!(found, Err(ZmtpError::FieldTooLong { found: 256, allowed: 255 }));
}

#[test]
fn a_peer_with_another_mechanism_is_an_error() {
    let mut session = ZmtpSession::new();
    session.connect(&NULL, &mut Vec::new());
    let found = error(&mut session, &greeting([3, 1], &PLAIN));
    assert_eq!(
        found.to_string(),
        "the peer announces the mechanism PLAIN, this side announces NULL"
    );
}

#[test]
fn sockets_that_do_not_publish_are_refused() {
    for (socket_type, publishes) in [("PUB", true), ("XPUB", true), ("PULL", false), ("", false)] {
        let (mut session, _) = greeted([3, 1], &NULL);
        let ready = [b"\x05READY\x0bSocket-Type\0\0\0", &[socket_type.len() as u8][..]].concat();
        let mut bytes = Vec::new();
        frame::encode(FrameKind::Command, &[&ready, socket_type.as_bytes()].concat(), &mut bytes);
        match session.handle(&bytes, &NULL, &mut Vec::new()) {
            Ok(handled) => assert!(publishes && handled.event == ZmtpEvent::Connected),
            Err(error) => {
                assert!(!publishes, "{socket_type}");
                assert_eq!(error, ZmtpError::OtherSocketType("PUB or XPUB"));
            }
        }
    }
    let (mut session, _) = greeted([3, 1], &NULL);
    let silent = handle(&mut session, b"\x04\x06\x05READY");
    assert_eq!(silent.1, ZmtpEvent::Connected, "the RFC makes the type optional");
}

#[test]
fn a_frame_out_of_place_is_an_error() {
    assert_eq!(error(&mut ZmtpSession::new(), READY), ZmtpError::NotOpen);
    let (mut session, _) = greeted([3, 1], &NULL);
    assert_eq!(error(&mut session, b"\0\x01x"), ZmtpError::EarlyMessage);
    assert_eq!(error(&mut session, PING), ZmtpError::OutOfPlace("PING"));
    assert_eq!(error(&mut session, b"\x04\x08\x07WELCOME"), ZmtpError::OutOfPlace("WELCOME"));
    let mut session = connected();
    assert_eq!(error(&mut session, READY), ZmtpError::OutOfPlace("READY"));
    assert_eq!(error(&mut session, b"\x04\x0a\x09SUBSCRIBE"), ZmtpError::OutOfPlace("SUBSCRIBE"));
}

#[test]
fn commands_of_other_sockets_are_ignored() {
    let (len, event, out) = handle(&mut connected(), b"\x04\x06\x04JOINg");
    assert_eq!((len, event, out), (8, ZmtpEvent::Replied, vec![]));
}

#[test]
fn a_subscription_is_a_command_or_a_message_for_an_old_peer() {
    for (version, expected) in [
        ([3, 1], &b"\x04\x0c\x09SUBSCRIBEab"[..]),
        ([4, 0], b"\x04\x0c\x09SUBSCRIBEab"),
        ([3, 0], b"\x00\x03\x01ab"),
    ] {
        let mut out = Vec::new();
        connected_to(version).subscribe(b"ab", &mut out);
        assert_eq!(out, expected, "{version:?}");
    }
    let mut out = Vec::new();
    connected_to([3, 0]).subscribe(&[b'x'; 255], &mut out);
    assert_eq!(out[..10], *b"\x02\0\0\0\0\0\0\x01\x00\x01", "256 bytes need a long frame");
}

#[test]
fn messages_have_a_topic_and_a_payload() {
    let alone = message(b"\0\x05hello");
    assert_eq!((alone.topic(), alone.payload()), (&b"hello"[..], &b"hello"[..]));
    let two = message(b"\x01\x05topic\0\x04load");
    assert_eq!((two.topic(), two.payload()), (&b"topic"[..], &b"load"[..]));
    let three = message(b"\x01\x01a\x01\0\0\x01c");
    assert_eq!(three.frames().collect::<Vec<_>>(), [&b"a"[..], b"", b"c"]);
    let empty = message(b"\0\0");
    assert_eq!((empty.topic(), empty.payload()), (&b""[..], &b""[..]));
    let long = [&b"\x02\0\0\0\0\0\0\x01\x2c"[..], &[7; 300]].concat();
    assert_eq!((message(&long).topic(), message(&long).payload()), (&[7; 300][..], &[7; 300][..]));
    let size_in_eight_bytes = message(b"\x02\0\0\0\0\0\0\0\x01x");
    assert_eq!(size_in_eight_bytes.payload(), b"x");
}

#[test]
fn a_message_is_incomplete_until_its_last_frame_has_arrived() {
    let bytes = b"\x01\x05topic\x01\x02ab\0\x04load";
    let mut session = connected();
    for end in 0..bytes.len() {
        assert_eq!(
            handle(&mut session, &bytes[..end]),
            (0, ZmtpEvent::Incomplete, vec![]),
            "{end}"
        );
    }
    assert_eq!(handle(&mut session, bytes).0, bytes.len());
}

#[test]
fn a_ping_is_answered_with_its_context() {
    let (len, event, out) = handle(&mut connected(), b"\x04\x09\x04PING\x00\x05me");
    assert_eq!((len, event), (11, ZmtpEvent::Replied));
    assert_eq!(out, b"\x04\x07\x04PONGme");
}

#[test]
fn commands_between_frames_are_handled_first_and_once() {
    let mut session = connected();
    let bytes = [b"\x01\x01a", PONG, PING, b"\0\x01b", b"\0\x01c"].concat();
    // The same applies to an incomplete message.
    let part = &bytes[..bytes.len() - 5];
    assert_eq!(handle(&mut session, &part[..5]), (0, ZmtpEvent::Incomplete, vec![]));
    assert_eq!(handle(&mut session, part), (0, ZmtpEvent::Pong, vec![]));
    assert_eq!(handle(&mut session, part), (0, ZmtpEvent::Replied, PONG.to_vec()));
    assert_eq!(handle(&mut session, part), (0, ZmtpEvent::Incomplete, vec![]));
    let (len, event, out) = handle(&mut session, &bytes);
    let ZmtpEvent::Message(message) = event else { panic!("{event:?}") };
    assert_eq!((len, out), (bytes.len() - 3, vec![]));
    assert_eq!(message.frames().collect::<Vec<_>>(), [b"a", b"b"]);
    assert_eq!((message.topic(), message.payload()), (&b"a"[..], &b"b"[..]));
    let next = [b"\x01\x01a", PONG, b"\0\x01b"].concat();
    assert_eq!(
        handle(&mut session, &next).1,
        ZmtpEvent::Pong,
        "the count restarts with the next message"
    );
}

#[test]
fn endless_messages_are_refused_before_they_are_complete() {
    let frames = b"\x01\0".repeat(FRAMES_MAX);
    assert_eq!(handle(&mut connected(), &frames[2..]).1, ZmtpEvent::Incomplete);
    assert_eq!(error(&mut connected(), &frames), ZmtpError::TooManyFrames);
    let mut commands = [b"\x01\0", &PING.repeat(FRAMES_MAX)[..]].concat();
    commands.truncate(2 + PING.len() * (FRAMES_MAX - 1));
    let mut session = connected();
    for _ in 1..FRAMES_MAX {
        assert_eq!(handle(&mut session, &commands).1, ZmtpEvent::Replied);
    }
    assert_eq!(error(&mut session, &commands), ZmtpError::TooManyFrames);
    let mut long = b"\x01\x01a\x02".to_vec();
    long.extend_from_slice(&(MESSAGE_MAX as u64).to_be_bytes());
    assert_eq!(error(&mut connected(), &long), ZmtpError::MessageTooLong);
    assert_eq!(error(&mut connected(), &[8]), ZmtpError::ReservedFlags(8));
}

#[test]
fn a_ping_is_sent_only_to_a_peer_that_supports_it() {
    let mut out = Vec::new();
    assert!(connected().ping(&mut out));
    assert_eq!(out, PING);
    assert!(!connected_to([3, 0]).ping(&mut out) && !ZmtpSession::new().ping(&mut out));
    assert_eq!(out, PING);
}

#[test]
fn a_second_pong_confirms_that_the_publisher_has_processed_all_bytes() {
    let mut session = connected();
    assert!(session.ping(&mut Vec::new()));
    assert_eq!(handle(&mut session, PONG), (PONG.len(), ZmtpEvent::Replied, PING.to_vec()));
    assert_eq!(handle(&mut session, PONG), (PONG.len(), ZmtpEvent::Pong, vec![]));
}

#[test]
fn the_answer_to_a_heartbeat_is_an_event() {
    let (mut session, mut out) = (connected(), Vec::new());
    session.heartbeat(&mut out);
    assert_eq!(out, PING);
    assert_eq!(handle(&mut session, PONG), (PONG.len(), ZmtpEvent::Pong, vec![]));
}

#[test]
fn a_lost_connection_resets_the_session() {
    let mut session = connected();
    handle(&mut session, &[b"\x01\x01a", PONG].concat());
    session.ping(&mut Vec::new());
    session.connection_lost();
    assert!(!session.is_connected());
    let mut out = Vec::new();
    session.connect(&NULL, &mut out);
    assert_eq!(out, greeting([3, 1], &NULL));
}

proptest! {
    #[test]
    fn messages_decode_to_the_encoded_frames(
        topic in vec(any::<u8>(), 0..300),
        payload in vec(any::<u8>(), 0..600),
    ) {
        let mut bytes = Vec::new();
        encode_message(&topic, &payload, &mut bytes);
        let message = message(&bytes);
        prop_assert_eq!(message.payload(), &payload[..]);
        prop_assert_eq!(message.topic(), if topic.is_empty() { &payload[..] } else { &topic[..] });
    }

    #[test]
    fn any_bytes_in_any_state_give_events_within_them_or_an_error(
        bytes in vec(prop_oneof![0..10_u8, any::<u8>()], 0..200),
        state in 0..3,
    ) {
        let mut session = match state {
            0 => { let mut new = ZmtpSession::new(); new.connect(&NULL, &mut Vec::new()); new }
            1 => greeted([3, 1], &PLAIN).0,
            _ => connected(),
        };
        let (mut rest, mut out) = (&bytes[..], Vec::new());
        while let Ok(Handled { len, event }) = session.handle(rest, &NULL, &mut out) {
            if event == ZmtpEvent::Incomplete {
                prop_assert_eq!(len, 0);
                break;
            }
            rest = &rest[len..];
        }
    }
}
