//! One accepted connection, command by command. Whole exchanges with a subscriber are in
//! `tests/exchange.rs`, exchanges with libzmq in `tests/libzmq.rs`.

use super::*;

const NULL: Mechanism<'_> = Mechanism::Null;
const PLAIN: Mechanism<'_> = Mechanism::Plain { username: b"ann", password: b"pw" };

/// Handles all complete frames of `bytes` and returns the events and the answers.
fn handle<'a>(
    publisher: &mut PublisherSession,
    mechanism: &Mechanism<'_>,
    bytes: &'a [u8],
) -> (Vec<PublisherEvent<'a>>, Vec<u8>) {
    let (mut events, mut out, mut rest) = (Vec::new(), Vec::new(), bytes);
    while !rest.is_empty() {
        let handled = publisher.handle(rest, mechanism, &mut out).unwrap();
        rest = &rest[handled.len..];
        events.push(handled.event);
    }
    (events, out)
}

fn greeting(mechanism: &Mechanism<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    Greeting::new(mechanism.name(), false).encode(&mut out);
    out
}

fn accepted(mechanism: &Mechanism<'_>) -> PublisherSession {
    let mut publisher = PublisherSession::new();
    publisher.accept(mechanism, &mut Vec::new());
    publisher
}

fn connected() -> PublisherSession {
    let mut publisher = accepted(&NULL);
    let ready = b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB";
    handle(&mut publisher, &NULL, &[&greeting(&NULL), &ready[..]].concat());
    assert!(publisher.is_connected());
    publisher
}

#[test]
fn the_greeting_of_a_plain_server_sets_as_server() {
    for (mechanism, as_server) in [(NULL, 0), (PLAIN, 1)] {
        let mut out = Vec::new();
        PublisherSession::new().accept(&mechanism, &mut out);
        assert_eq!((out.len(), out[32]), (64, as_server));
    }
}

#[test]
fn plain_goes_through_hello_welcome_initiate_and_ready() {
    let mut publisher = accepted(&PLAIN);
    handle(&mut publisher, &PLAIN, &greeting(&PLAIN));
    let (events, out) = handle(&mut publisher, &PLAIN, b"\x04\x0d\x05HELLO\x03ann\x02pw");
    assert_eq!(
        (&events[..], &out[..]),
        (&[PublisherEvent::Replied][..], &b"\x04\x08\x07WELCOME"[..])
    );
    let initiate = b"\x04\x1d\x08INITIATE\x0bSocket-Type\x00\x00\x00\x04XSUB";
    let (events, out) = handle(&mut publisher, &PLAIN, initiate);
    assert_eq!(events, [PublisherEvent::Connected]);
    assert_eq!(out, b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB");
}

#[test]
fn an_unknown_user_gets_error_and_nothing_more() {
    let mut publisher = accepted(&PLAIN);
    handle(&mut publisher, &PLAIN, &greeting(&PLAIN));
    let (events, out) = handle(&mut publisher, &PLAIN, b"\x04\x0d\x05HELLO\x03ann\x02no");
    assert_eq!(
        (&events[..], &out[..]),
        (&[PublisherEvent::Refused][..], &b"\x04\x0a\x05ERROR\x03400"[..])
    );
    let more = publisher.handle(b"\x04\x05\x04PONG", &PLAIN, &mut Vec::new());
    assert_eq!(more, Err(ZmtpError::NotOpen));
}

#[test]
fn subscriptions_add_up_and_each_needs_its_own_cancel() {
    let mut publisher = connected();
    let twice = b"\x04\x0b\x09SUBSCRIBEA\x04\x0b\x09SUBSCRIBEA\x04\x08\x06CANCELA";
    let (events, _) = handle(&mut publisher, &NULL, twice);
    assert_eq!(events[1..], [PublisherEvent::Subscribed(b"A"), PublisherEvent::Cancelled(b"A")]);
    assert!(publisher.wants(b"A") && publisher.wants(b"AB") && !publisher.wants(b"B"));
    handle(&mut publisher, &NULL, b"\x04\x08\x06CANCELA");
    assert!(!publisher.wants(b"A"));
}

#[test]
fn a_subscriber_of_3_0_subscribes_by_messages() {
    let mut publisher = connected();
    let (events, _) = handle(&mut publisher, &NULL, b"\0\x02\x01A\0\x01\x01\0\x02\0A\0\x01\x07");
    let expected = [
        PublisherEvent::Subscribed(b"A"),
        PublisherEvent::Subscribed(b""),
        PublisherEvent::Cancelled(b"A"),
        PublisherEvent::Replied,
    ];
    assert_eq!(events, expected);
    assert!(publisher.wants(b"anything"));
}

#[test]
fn a_ping_is_answered_with_its_context() {
    let ping = b"\x04\x09\x04PING\x00\x00me";
    let (events, out) = handle(&mut connected(), &NULL, ping);
    assert_eq!(
        (&events[..], &out[..]),
        (&[PublisherEvent::Replied][..], &b"\x04\x07\x04PONGme"[..])
    );
}

#[test]
fn a_frame_out_of_place_is_an_error() {
    let mut publisher = accepted(&NULL);
    handle(&mut publisher, &NULL, &greeting(&NULL));
    let mut error = |bytes: &[u8]| publisher.handle(bytes, &NULL, &mut Vec::new()).unwrap_err();
    assert_eq!(error(b"\0\x01x"), ZmtpError::EarlyMessage);
    assert_eq!(error(b"\x04\x0b\x09SUBSCRIBEA"), ZmtpError::OutOfPlace("SUBSCRIBE"));
    let pull = b"\x04\x1a\x05READY\x0bSocket-Type\x00\x00\x00\x04PULL";
    assert_eq!(error(pull), ZmtpError::OtherSocketType("SUB or XSUB"));
}
