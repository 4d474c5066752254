use proptest::prelude::*;

use super::*;
use crate::{
    NatsError, ServerError,
    jetstream::{Acknowledgement, Consumer, MESSAGE_ID, Receipt},
    server::{Info, NatsMessage},
};

const GREETING: &[u8] = b"INFO {\"max_payload\":1024,\"headers\":true,\"nonce\":\"abc\"}\r\n";

/// A connected session, with nothing to write.
fn connected() -> NatsSession<u32> {
    let (mut session, mut out) = (NatsSession::new(), Vec::new());
    session.open();
    session.handle(GREETING, &mut out).unwrap();
    session.connect(&ConnectOptions::default(), &mut out);
    assert_eq!(one(&mut session, b"PONG\r\n"), NatsEvent::Connected);
    session
}

/// The event of one whole operation.
fn one<'a>(session: &mut NatsSession<u32>, bytes: &'a [u8]) -> NatsEvent<'a, u32> {
    let handled = session.handle(bytes, &mut Vec::new()).unwrap();
    assert_eq!(handled.len, bytes.len());
    handled.event
}

fn message<'a>(subject: &'a [u8], payload: &'a [u8]) -> NatsPublish<'a> {
    NatsPublish { subject, reply: None, headers: Headers::NONE, payload }
}

#[test]
fn the_server_speaks_first_and_its_pong_ends_the_handshake() {
    let (mut session, mut out) = (NatsSession::<u32>::new(), Vec::new());
    session.open();
    let greeted = session.handle(GREETING, &mut out).unwrap();
    let info = Info { max_payload: 1024, headers: true, nonce: Some("abc"), ..Info::default() };
    assert_eq!(greeted.event, NatsEvent::Greeted(info));
    assert!(out.is_empty() && session.is_greeted());
    assert_eq!(session.nonce(), "abc");
    let login =
        client::NatsCredentials { username: Some("u"), password: Some("p"), ..Default::default() };
    session
        .connect(&ConnectOptions { name: "n", echo: false, login, ..Default::default() }, &mut out);
    let text = str::from_utf8(&out).unwrap();
    for part in [r#""name":"n""#, r#""echo":false"#, r#""user":"u""#, r#""pass":"p""#] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("auth_token") && text.ends_with("}\r\nPING\r\n"));
    assert!(!session.is_connected());
    assert_eq!(one(&mut session, b"+OK\r\n"), NatsEvent::Replied);
    assert_eq!(one(&mut session, b"PONG\r\n"), NatsEvent::Connected);
    assert!(session.is_connected());
    assert_eq!(session.payload_max(), 1024);
}

#[test]
fn errors_refuse_the_client_or_one_request_or_end_the_connection() {
    let cases: [(&[u8], _); 3] = [
        (b"-ERR 'Permissions Violation for Publish to \"a\"'\r\n", ServerError::PublishPermission),
        (b"-ERR 'Slow Consumer'\r\n", ServerError::SlowConsumer),
        (b"-ERR 'Of a later version'\r\n", ServerError::Other),
    ];
    for (bytes, expected) in cases {
        let forbids = expected == ServerError::PublishPermission;
        match one(&mut connected(), bytes) {
            NatsEvent::Forbidden(found, _) if forbids => assert_eq!(found, expected),
            NatsEvent::Ended(found, _) if !forbids => assert_eq!(found, expected),
            other => panic!("{other:?}"),
        }
    }
    let mut session = NatsSession::new();
    session.open();
    one(&mut session, GREETING);
    session.connect(&ConnectOptions::default(), &mut Vec::new());
    let refused = one(&mut session, b"-ERR 'Authorization Violation'\r\n");
    let text = "Authorization Violation";
    assert_eq!(refused, NatsEvent::Refused(ServerError::AuthorizationViolation, text));
}

#[test]
fn the_pong_after_the_subscriptions_confirms_them() {
    let (mut session, mut out) = (connected(), Vec::new());
    session.heartbeat(&mut out);
    session.confirm(false, &mut out);
    session.heartbeat(&mut out);
    assert_eq!(out, b"PING\r\n".repeat(3));
    let events: Vec<_> = (0..3).map(|_| one(&mut session, b"PONG\r\n")).collect();
    assert_eq!(events, [NatsEvent::Pong, NatsEvent::Subscribed(0), NatsEvent::Pong]);
    session.confirm(true, &mut out);
    assert_eq!(one(&mut session, b"PONG\r\n"), NatsEvent::Unsubscribed);
    session.confirm(false, &mut out);
    one(&mut session, b"-ERR 'Permissions Violation for Subscription to \"a\"'\r\n");
    assert_eq!(one(&mut session, b"PONG\r\n"), NatsEvent::Subscribed(1));
    let unasked = session.handle(b"PONG\r\n", &mut out);
    assert_eq!(unasked, Err(NatsError::OutOfPlace("PONG")));
}

#[test]
fn the_session_answers_pings_and_passes_messages_on() {
    let (mut session, mut out) = (connected(), Vec::new());
    assert_eq!(session.handle(b"PING\r\n", &mut out).unwrap().event, NatsEvent::Replied);
    assert_eq!(out, b"PONG\r\n");
    let bytes = b"HMSG a.b 7 r.1 26 28\r\nNATS/1.0\r\nKey:  value \r\n\r\nxy\r\n";
    let NatsEvent::Message(found) = one(&mut session, bytes) else { panic!("no message") };
    assert_eq!((found.subject, found.sid, found.payload), (&b"a.b"[..], 7, &b"xy"[..]));
    assert_eq!(found.reply, Some(&b"r.1"[..]));
    assert_eq!(found.headers.value("key"), Some(&b"value"[..]));
    assert_eq!(found.headers.status(), None);
    let mut again = Vec::new();
    found.encode(&mut again);
    assert_eq!(again, bytes);
}

#[test]
fn answers_of_streams_find_their_publications_in_any_order() {
    let (mut session, mut out) = (connected(), Vec::new());
    session.await_answers(b"_INBOX.x", &mut out);
    assert_eq!(out, b"SUB _INBOX.x.* 1\r\n");
    out.clear();
    for token in [10, 11, 12, 13] {
        session.publish_stored(&message(b"s", b"p"), token, &mut out);
    }
    session.request("$JS.API.INFO", b"", &mut out);
    assert!(out.starts_with(b"PUB s _INBOX.x.0 1\r\np\r\nPUB s _INBOX.x.1 1\r\np\r\n"));
    assert!(out.ends_with(b"PUB $JS.API.INFO _INBOX.x.4 0\r\n\r\n"));
    assert_eq!(session.in_flight(), 4);
    let stored = answer(1, "", r#"{"stream":"S","seq":2}"#);
    assert_eq!(one(&mut session, &stored), NatsEvent::Acknowledged(11, false));
    assert_eq!(one(&mut session, &stored), NatsEvent::UnknownAnswer);
    let known = answer(0, "", r#"{"stream":"S","duplicate":true}"#);
    assert_eq!(one(&mut session, &known), NatsEvent::Acknowledged(10, true));
    let none = answer(3, "NATS/1.0 503\r\n\r\n", "");
    let NatsEvent::Rejected(13, refusal) = one(&mut session, &none) else { panic!("not rejected") };
    assert_eq!((refusal.code, session.in_flight()), (503, 1));
    let denied = answer(4, "", r#"{"error":{"code":400,"description":"a \"b\""}}"#);
    let NatsEvent::Denied(refusal) = one(&mut session, &denied) else { panic!("not denied") };
    assert_eq!(refusal.description, "a \"b\"");
}

#[test]
fn subscriptions_are_confirmed_after_the_answers_to_requests() {
    let (mut session, mut out) = (connected(), Vec::new());
    let consumer = Consumer {
        stream: "S",
        durable: "c",
        deliver_subject: "_INBOX.S.c",
        group: None,
        filter: Some("s.a"),
        ack_wait_ns: 1,
        max_ack_pending: 1,
    };
    session.await_answers(b"_INBOX.x", &mut out);
    session.request("$JS.API.STREAM.CREATE.S", b"{}", &mut out);
    session.create(&consumer, &mut out);
    session.confirm(false, &mut out);
    assert!(!out.ends_with(b"PING\r\n"), "the answers come first");
    out.clear();
    let created = answer(0, "", "{}");
    assert_eq!(session.handle(&created, &mut out).unwrap().event, NatsEvent::Granted);
    assert_eq!(out, b"");
    let denied = answer(1, "", r#"{"error":{"code":404,"err_code":10059}}"#);
    match session.handle(&denied, &mut out).unwrap().event {
        NatsEvent::Denied(refusal) => {
            assert_eq!(refusal.number(), 10_059);
            assert_eq!(refusal.text, r#"{"error":{"code":404,"err_code":10059}}"#);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(out, b"PING\r\n");
    assert_eq!(one(&mut session, b"PONG\r\n"), NatsEvent::Subscribed(1));
    // Requests of an earlier connection have no answer.
    session.request("$JS.API.INFO", b"", &mut out);
    session.connection_lost(true);
    assert_eq!(session.take_again(), None);
    session.open();
    one(&mut session, GREETING);
    session.connect(&ConnectOptions::default(), &mut out);
    one(&mut session, b"PONG\r\n");
    session.confirm(false, &mut out);
    assert!(out.ends_with(b"PING\r\n"));
}

#[test]
fn a_new_connection_sends_again_what_no_stream_has_confirmed() {
    let (mut session, mut out) = (connected(), Vec::new());
    session.await_answers(b"i", &mut out);
    for token in [1, 2, 3] {
        session.publish_stored(&message(b"s", b""), token, &mut out);
    }
    one(&mut session, b"MSG i.1 1 2\r\n{}\r\n");
    assert_eq!(session.connection_lost(true), 0);
    assert!(session.holds_back() && !session.is_connected());
    assert_eq!(session.take_again(), Some(1));
    // A second loss before the second of them is sent again keeps their order.
    session.publish_stored(&message(b"s", b""), 1, &mut out);
    assert_eq!(session.connection_lost(true), 0);
    assert_eq!([session.take_again(), session.take_again()], [Some(1), Some(3)]);
    session.publish_stored(&message(b"s", b""), 1, &mut out);
    assert_eq!((session.in_flight(), session.connection_lost(false)), (1, 1));
    assert_eq!(session.in_flight(), 0);
}

#[test]
fn receipts_name_the_message_and_its_deliveries() {
    let plain = b"$JS.ACK.S.c.2.30.4.1700000000000000000.5";
    let expected = Receipt { stream: "S", consumer: "c", delivered: 2, sequence: 30, pending: 5 };
    assert_eq!(Receipt::decode(plain), Some(expected));
    let domain = b"$JS.ACK.hub.acc.S.c.2.30.4.1700000000000000000.5.random";
    assert_eq!(Receipt::decode(domain), Some(expected));
    for other in [&b"_INBOX.x.1"[..], b"$JS.ACK.S.c.2.30", b"$JS.ACK.S.c.x.30.4.1.5"] {
        assert_eq!(Receipt::decode(other), None);
    }
    let mut out = Vec::new();
    Acknowledgement::Done.encode(b"$JS.ACK.S", &mut out);
    assert_eq!(out, b"PUB $JS.ACK.S 4\r\n+ACK\r\n");
}

#[test]
fn what_breaks_the_protocol_is_an_error() {
    let long = vec![b'x'; crate::LINE_MAX];
    let cases: [(&[u8], NatsError); 9] = [
        (b"MSG a 1\r\n", NatsError::Malformed("MSG")),
        (b"MSG a x 1\r\n", NatsError::Malformed("MSG")),
        (b"MSG a 1 99999999999\r\n", NatsError::MessageTooLong(99_999_999_999)),
        (b"MSG a 1 18446744073709551616\r\n", NatsError::Malformed("MSG")),
        (b"MSG a 1 1\r\nxyz", NatsError::Malformed("MSG")),
        (b"HMSG a 1 3 2\r\n", NatsError::Malformed("HMSG")),
        (b"HMSG a 1 4 4\r\nabcd\r\n", NatsError::Malformed("headers")),
        (b"HELLO\r\n", NatsError::Unknown),
        (&long, NatsError::LineTooLong),
    ];
    for (bytes, expected) in cases {
        assert_eq!(connected().handle(bytes, &mut Vec::new()), Err(expected), "{bytes:?}");
    }
    let mut session = NatsSession::<u32>::new();
    session.open();
    let web = session.handle(b"HT", &mut Vec::new());
    assert_eq!(web, Err(NatsError::NotNats));
    assert_eq!(session.handle(b"in", &mut Vec::new()).unwrap().event, NatsEvent::Incomplete);
}

/// Any operation of a server, and bytes that are nearly one.
fn operation() -> impl Strategy<Value = Vec<u8>> {
    let subject = "[a-c]{1,3}(\\.[a-c]){0,2}";
    let with_headers = (subject, 1..4u64, "[a-z]{1,4}", any::<Vec<u8>>());
    prop_oneof![
        Just(b"PING\r\n".to_vec()),
        Just(b"PONG\r\n".to_vec()),
        Just(b"+OK\r\n".to_vec()),
        Just(b"-ERR 'Invalid Subject'\r\n".to_vec()),
        Just(GREETING.to_vec()),
        (subject, 1..4u64, any::<Vec<u8>>()).prop_map(|(subject, sid, payload)| {
            let (subject, headers) = (subject.as_bytes(), Headers::NONE);
            encoded(&NatsMessage { subject, sid, reply: None, headers, payload: &payload })
        }),
        with_headers.prop_map(|(subject, sid, value, payload)| {
            let mut block = Vec::new();
            crate::headers::begin(&mut block);
            crate::headers::push(MESSAGE_ID.as_bytes(), value.as_bytes(), &mut block);
            crate::headers::end(&mut block);
            let headers = Headers::decode(&block).unwrap();
            let (subject, reply) = (subject.as_bytes(), Some(&b"$JS.ACK.a"[..]));
            encoded(&NatsMessage { subject, sid, reply, headers, payload: &payload })
        }),
        any::<Vec<u8>>(),
    ]
}

/// An answer of JetStream as the server sends it.
fn answer(number: u64, block: &str, payload: &str) -> Vec<u8> {
    let subject = format!("_INBOX.x.{number}");
    let headers = Headers::decode(block.as_bytes()).unwrap_or(Headers::NONE);
    let (subject, payload) = (subject.as_bytes(), payload.as_bytes());
    encoded(&NatsMessage { subject, sid: 1, reply: None, headers, payload })
}

fn encoded(message: &NatsMessage<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode(&mut out);
    out
}

/// Events of a session that receives `bytes` in pieces of `piece` bytes, and its answers.
fn events(bytes: &[u8], piece: usize) -> (Vec<String>, Option<NatsError>, Vec<u8>) {
    let (mut session, mut out) = (connected(), Vec::new());
    session.await_answers(b"b", &mut Vec::new());
    session.publish_stored(&message(b"s", b""), 7, &mut Vec::new());
    let (mut events, mut start, mut end) = (Vec::new(), 0, 0);
    loop {
        let handled = match session.handle(&bytes[start..end], &mut out) {
            Ok(handled) => handled,
            Err(error) => return (events, Some(error), out),
        };
        start += handled.len;
        match handled.event {
            NatsEvent::Incomplete if end == bytes.len() => return (events, None, out),
            NatsEvent::Incomplete => end = bytes.len().min(end + piece),
            event => events.push(format!("{event:?}")),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn any_split_of_the_bytes_gives_the_same_events(
        operations in prop::collection::vec(operation(), 0..8),
        piece in 1..40usize,
    ) {
        let bytes = operations.concat();
        prop_assert_eq!(events(&bytes, piece), events(&bytes, bytes.len().max(1)));
    }

    #[test]
    fn a_server_reads_what_a_client_writes(
        subject in "[a-c]{1,3}",
        reply in prop::option::of("[a-c]{1,3}"),
        payload in any::<Vec<u8>>(),
        has_headers in any::<bool>(),
    ) {
        let block = if has_headers { &b"NATS/1.0\r\nA: b\r\n\r\n"[..] } else { b"" };
        let headers = if has_headers { Headers::decode(block).unwrap() } else { Headers::NONE };
        let (subject, reply) = (subject.as_bytes(), reply.as_deref().map(str::as_bytes));
        let publish = NatsPublish { subject, reply, headers, payload: &payload };
        let mut out = Vec::new();
        publish.encode(&mut out);
        for len in 0..out.len() {
            prop_assert_eq!(client::decode(&out[..len]), Ok(crate::DecodedOperation::Incomplete));
        }
        let operation = client::ClientOperation::Publish(publish);
        let whole = crate::DecodedOperation::Whole { operation, len: out.len() };
        prop_assert_eq!(client::decode(&out), Ok(whole));
    }
}
