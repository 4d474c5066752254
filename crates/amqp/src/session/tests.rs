use super::*;
use crate::content::push_header;
use crate::frame::{AmqpFrameKind, push_body, push_frame};
use crate::limits::{BODY_MAX, FRAME_MIN};

type Tested = AmqpSession<u32>;

const LOGIN: AmqpLogin<'_> = AmqpLogin { mechanism: b"PLAIN", response: b"\0u\0p", name: b"c" };
const REQUIRED: RequiredLimits<'_> =
    RequiredLimits { channels: 2, heartbeat_s: 7, virtual_host: b"/" };
const OFFERED: AmqpLimits = AmqpLimits { channel_max: 9, frame_max: FRAME_MIN, heartbeat_s: 60 };

fn method(channel: u16, method: &AmqpMethod<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    method.push(channel, &mut bytes);
    bytes
}

fn start(mechanisms: &[u8]) -> Vec<u8> {
    let (properties, locales) = (Table::default(), &b"en_US"[..]);
    method(0, &AmqpMethod::ConnectionStart { major: 0, minor: 9, properties, mechanisms, locales })
}

fn tune(limits: AmqpLimits) -> Vec<u8> {
    let AmqpLimits { channel_max, frame_max, heartbeat_s } = limits;
    method(0, &AmqpMethod::ConnectionTune { channel_max, frame_max, heartbeat_s })
}

fn opened() -> Vec<u8> {
    method(0, &AmqpMethod::ConnectionOpenOk { reserved_1: b"" })
}

/// Events of all bytes as texts, given to the session in pieces of this size, and the rest.
fn events(session: &mut Tested, bytes: &[u8], piece: usize) -> Result<Vec<String>, AmqpError> {
    let (mut events, mut begin, mut end, mut out) = (Vec::new(), 0, 0, Vec::new());
    loop {
        let step = session.handle(&bytes[begin..end], &mut out)?;
        begin += step.len;
        match step.event {
            AmqpEvent::Incomplete if end == bytes.len() => return Ok(events),
            AmqpEvent::Incomplete => end = bytes.len().min(end + piece),
            AmqpEvent::Handled => {}
            event => events.push(format!("{event:?}")),
        }
    }
}

/// A connected session, and the bytes that it has written.
fn connected() -> (Tested, Vec<u8>) {
    let (mut session, mut out) = (Tested::new(), Vec::new());
    session.open(&mut out);
    assert!(matches!(
        session.handle(&start(b"PLAIN"), &mut out).unwrap().event,
        AmqpEvent::Started("PLAIN")
    ));
    session.log_in(&LOGIN, &mut out);
    assert_eq!(
        session.handle(&tune(OFFERED), &mut out).unwrap().event.apart(),
        Some(AmqpEvent::Tuned(OFFERED))
    );
    session.tune(OFFERED, &REQUIRED, &mut out).unwrap();
    assert_eq!(session.handle(&opened(), &mut out).unwrap().event, AmqpEvent::Connected);
    (session, out)
}

/// A connected session with confirms on channel 1, and these publications.
fn publishing(tokens: std::ops::Range<u32>) -> Tested {
    let (mut session, _) = connected();
    session.request(1, &AmqpMethod::ChannelOpen { reserved_1: b"" }, &mut Vec::new());
    session.request(1, &AmqpMethod::ConfirmSelect { flags: 0 }, &mut Vec::new());
    let answers = [
        method(1, &AmqpMethod::ChannelOpenOk { reserved_1: b"" }),
        method(1, &AmqpMethod::ConfirmSelectOk {}),
    ];
    assert_eq!(events(&mut session, &answers.concat(), 1).unwrap(), ["Answered", "Prepared"]);
    tokens.for_each(|token| session.await_confirm(1, token));
    session
}

/// A delivery with its body in frames of at most so many bytes.
fn delivery(channel: u16, number: u64, body: &[u8], frame_max: u32) -> Vec<u8> {
    let (tag, exchange, routing_key) = (&b"0"[..], &b"e"[..], &b"a.b"[..]);
    let deliver = AmqpMethod::BasicDeliver { tag, number, flags: 1, exchange, routing_key };
    let mut bytes = method(channel, &deliver);
    let header = ContentHeader { body_bytes: body.len() as u64, ..ContentHeader::default() };
    push_header(channel, &header, &mut bytes);
    push_body(channel, body, frame_max, &mut bytes);
    bytes
}

#[test]
fn a_client_logs_in_and_sets_the_limits() {
    let (session, out) = connected();
    let packet = |bytes: &[u8]| crate::packet::decode_packet(bytes).unwrap().unwrap().len;
    let mut names = Vec::new();
    let mut rest = &out[..];
    while let Ok(Some(packet)) = crate::packet::decode_packet(rest) {
        names.push(packet.method.map_or("header", |method| method.name()));
        rest = &rest[packet.len..];
    }
    let expected = ["header", "connection.start-ok", "connection.tune-ok", "connection.open"];
    assert_eq!((names, rest.len()), (expected.to_vec(), 0));
    assert!(session.is_connected() && session.frame_max() == FRAME_MIN);
    assert_eq!(packet(&out), 8);
}

#[test]
fn a_delivery_is_whole_however_its_bytes_arrive() {
    let body = vec![b'x'; 9000];
    for (body, frame_max) in [(&body[..0], 99), (&body[..50], 99), (&body[..], 4096), (&body, 1000)]
    {
        let bytes = [delivery(1, 7, body, frame_max), delivery(2, 8, b"y", 99)].concat();
        let whole = events(&mut connected().0, &bytes, bytes.len()).unwrap();
        assert_eq!(whole.len(), 2);
        assert!(whole[0].contains("number: 7") && whole[1].contains("channel: 2"));
        for piece in [1, 7, 100, 4096] {
            assert_eq!(events(&mut connected().0, &bytes, piece).unwrap(), whole, "{piece}");
        }
    }
}

#[test]
fn messages_of_channels_may_alternate_in_frames() {
    let split = |channel, number, body: &[u8]| {
        let whole = delivery(channel, number, body, 10);
        let mut frames = Vec::new();
        let mut rest = &whole[..];
        while let Ok(Some((_, len))) = crate::frame::decode(rest, 4096) {
            frames.push(rest[..len].to_vec());
            rest = &rest[len..];
        }
        frames
    };
    let (one, two) = (split(1, 1, b"abcd"), split(2, 2, b"efgh"));
    let mixed: Vec<u8> =
        one.into_iter().zip(two).flat_map(|(one, two)| [one, two].concat()).collect();
    let found = events(&mut connected().0, &mixed, mixed.len()).unwrap();
    assert!(found[0].contains("payload: [97, 98, 99, 100]"), "{found:?}");
    assert!(found[1].contains("payload: [101, 102, 103, 104]"), "{found:?}");
}

#[test]
fn confirms_mean_one_publication_or_all_up_to_it() {
    let ack = |number, flags| method(1, &AmqpMethod::BasicAck { number, flags });
    let nack = |number, flags| method(1, &AmqpMethod::BasicNack { number, flags });
    for (bytes, expected) in [
        (ack(1, 0), &["Acknowledged(10)"][..]),
        (ack(3, 0), &["Acknowledged(12)"]),
        (ack(3, MULTIPLE), &["Acknowledged(10)", "Acknowledged(11)", "Acknowledged(12)"]),
        (ack(0, MULTIPLE), &["Acknowledged(10)", "Acknowledged(11)", "Acknowledged(12)"]),
        (nack(2, MULTIPLE), &["Rejected(10)", "Rejected(11)"]),
        (
            [ack(2, 0), ack(3, MULTIPLE)].concat(),
            &["Acknowledged(11)", "Acknowledged(10)", "Acknowledged(12)"],
        ),
        ([ack(1, 0), ack(1, 0)].concat(), &["Acknowledged(10)", "UnknownConfirm"]),
        (ack(4, 0), &["UnknownConfirm"]),
        (ack(4, MULTIPLE), &["UnknownConfirm"]),
        (ack(0, 0), &["UnknownConfirm"]),
    ] {
        for piece in [1, 1000] {
            let mut session = publishing(10..13);
            assert_eq!(events(&mut session, &bytes, piece).unwrap(), expected);
            let confirmed = expected.iter().filter(|event| !event.starts_with('U')).count();
            assert_eq!(session.in_flight(), 3 - confirmed);
        }
    }
}

#[test]
fn publications_without_a_confirm_are_sent_again_or_dropped() {
    let mut session = publishing(10..13);
    events(&mut session, &method(1, &AmqpMethod::BasicAck { number: 2, flags: 0 }), 99).unwrap();
    assert_eq!(session.connection_lost(true), 0);
    assert_eq!((session.in_flight(), session.is_connected()), (2, false));
    assert_eq!([session.take_again(), session.take_again()], [Some(10), Some(12)]);
    assert_eq!(publishing(10..13).connection_lost(false), 3);
}

#[test]
fn a_blocked_connection_and_a_stopped_channel_accept_no_messages() {
    let (mut session, _) = connected();
    let flow = |channel, active| method(channel, &AmqpMethod::ChannelFlow { active });
    let mut step = |bytes: Vec<u8>| {
        let event = format!("{:?}", session.handle(&bytes, &mut Vec::new()).unwrap().event);
        (event, [1, 2].map(|channel| session.is_blocked(channel)))
    };
    let blocked = method(0, &AmqpMethod::ConnectionBlocked { reason: "low on memory" });
    assert_eq!(step(blocked), ("Blocked(true)".into(), [true, true]));
    assert_eq!(step(flow(1, 0)), ("Handled".into(), [true, true]));
    let unblocked = method(0, &AmqpMethod::ConnectionUnblocked {});
    assert_eq!(step(unblocked), ("Blocked(true)".into(), [true, false]));
    assert_eq!(step(flow(1, 1)), ("Blocked(false)".into(), [false, false]));
}

/// A frame with its parts as they are.
fn raw(kind: u8, channel: u16, size: u32, payload: &[u8], end: u8) -> Vec<u8> {
    let front = [&[kind][..], &channel.to_be_bytes(), &size.to_be_bytes()].concat();
    [&front[..], payload, &[end]].concat()
}

fn header(channel: u16, body_bytes: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_header(channel, &ContentHeader { body_bytes, ..ContentHeader::default() }, &mut bytes);
    bytes
}

fn frame(kind: AmqpFrameKind, channel: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_frame(kind, channel, &mut bytes, |out| out.extend_from_slice(payload));
    bytes
}

/// Checks that these bytes end a connection with an error, however they arrive.
fn assert_breaches(table: &[(Vec<u8>, AmqpError)]) {
    for (bytes, error) in table {
        for piece in [1, 3, bytes.len()] {
            let found = events(&mut connected().0, bytes, piece);
            assert_eq!(found, Err(*error), "{bytes:?} in pieces of {piece}");
        }
    }
}

#[test]
fn each_breach_of_a_connection_ends_it_by_name() {
    use AmqpError as E;
    assert_breaches(&[
        (raw(4, 0, 0, b"", 206), E::FrameType(4)),
        (raw(0, 0, 0, b"", 206), E::FrameType(0)),
        (raw(255, 0, 0, b"", 206), E::FrameType(255)),
        (raw(1, 0, 4089, b"", 206), E::FrameTooLong(4097, 4096)),
        (raw(3, 1, u32::MAX, b"", 206), E::FrameTooLong(u64::from(u32::MAX) + 8, 4096)),
        (raw(8, 0, 0, b"", 0), E::FrameEnd(0)),
        (raw(1, 0, 4, b"\0\x0a\0\x3d", 205), E::FrameEnd(205)),
        (raw(8, 1, 0, b"", 206), E::Malformed("heartbeat")),
        (raw(8, 0, 1, b"x", 206), E::Malformed("heartbeat")),
        (frame(AmqpFrameKind::Method, 0, b""), E::Malformed("method")),
        (frame(AmqpFrameKind::Method, 0, b"\0\x0a\0"), E::Malformed("method")),
        (frame(AmqpFrameKind::Method, 0, b"\0\x0a\0\x63"), E::Unknown(10, 99)),
        (frame(AmqpFrameKind::Method, 1, b"\0\x5a\0\x0a"), E::Unknown(90, 10)),
        (frame(AmqpFrameKind::Method, 0, b"\0\x0a\0\x3dx"), E::Malformed("connection.unblocked")),
        (
            frame(AmqpFrameKind::Method, 0, b"\0\x0a\0\x3c\x05ab"),
            E::Malformed("connection.blocked"),
        ),
        (
            frame(AmqpFrameKind::Method, 0, b"\0\x0a\0\x3c\x01\xff"),
            E::Malformed("connection.blocked"),
        ),
        (frame(AmqpFrameKind::Method, 1, b"\0\x3c\0\x50\0"), E::Malformed("basic.ack")),
        (frame(AmqpFrameKind::Method, 1, b"\0\x3c\0\x3c\xff"), E::Malformed("basic.deliver")),
        (start(b"PLAIN"), E::OutOfPlace("connection.start")),
        (tune(OFFERED), E::OutOfPlace("connection.tune")),
        (opened(), E::OutOfPlace("connection.open-ok")),
        (method(0, &AmqpMethod::ConnectionCloseOk {}), E::OutOfPlace("connection.close-ok")),
        (method(0, &AmqpMethod::ChannelFlow { active: 0 }), E::OutOfPlace("channel.flow")),
        (method(1, &AmqpMethod::ConnectionUnblocked {}), E::OutOfPlace("connection.unblocked")),
        (method(3, &AmqpMethod::ChannelFlow { active: 0 }), E::ChannelUnknown(3)),
        (method(u16::MAX, &AmqpMethod::ChannelCloseOk {}), E::ChannelUnknown(u16::MAX)),
        (delivery(3, 1, b"", 99), E::ChannelUnknown(3)),
        (delivery(0, 1, b"", 99), E::OutOfPlace("basic.deliver")),
        (method(1, &AmqpMethod::QueueBindOk {}), E::OutOfPlace("queue.bind-ok")),
        (
            method(1, &AmqpMethod::ChannelOpenOk { reserved_1: b"" }),
            E::OutOfPlace("channel.open-ok"),
        ),
        (method(1, &AmqpMethod::BasicAck { number: 1, flags: 0 }), E::OutOfPlace("basic.ack")),
        (method(1, &AmqpMethod::BasicNack { number: 1, flags: 0 }), E::OutOfPlace("basic.nack")),
    ]);
}

#[test]
fn each_breach_of_a_message_ends_its_connection_by_name() {
    use AmqpError as E;
    let deliver = || delivery(1, 1, b"", 99)[..29].to_vec();
    assert_eq!(deliver().last(), Some(&206), "the method of a delivery");
    let many = |depth: u8| {
        (0..depth).fold(Vec::new(), |inner: Vec<u8>, _| {
            let len = (inner.len() as u32).to_be_bytes();
            [&b"\x01aF"[..], &len, &inner].concat()
        })
    };
    let with_headers = |fields: &[u8]| {
        let properties = [&[0, 60, 0, 0][..], &[0; 8], &[0x20, 0]].concat();
        let len = (fields.len() as u32).to_be_bytes();
        frame(AmqpFrameKind::Header, 1, &[&properties[..], &len, fields].concat())
    };
    assert_breaches(&[
        (header(1, 5), E::OutOfPlace("content without a method")),
        (frame(AmqpFrameKind::Body, 1, b"x"), E::OutOfPlace("content without a method")),
        (frame(AmqpFrameKind::Body, 0, b"x"), E::OutOfPlace("content without a method")),
        ([deliver(), deliver()].concat(), E::OutOfPlace("method within a message")),
        (
            [deliver(), frame(AmqpFrameKind::Body, 1, b"x")].concat(),
            E::OutOfPlace("body without a header"),
        ),
        ([deliver(), header(1, 5), header(1, 5)].concat(), E::OutOfPlace("second header")),
        ([deliver(), header(1, BODY_MAX + 1)].concat(), E::BodyTooLong(BODY_MAX + 1)),
        ([deliver(), header(1, u64::MAX)].concat(), E::BodyTooLong(u64::MAX)),
        (
            [deliver(), header(1, 2), frame(AmqpFrameKind::Body, 1, b"abc")].concat(),
            E::BodyOverrun(2),
        ),
        (
            [deliver(), frame(AmqpFrameKind::Header, 1, b"\0\x3c")].concat(),
            E::Malformed("header of a message"),
        ),
        (
            [deliver(), frame(AmqpFrameKind::Header, 1, &[&[0, 50, 0, 0][..], &[0; 10]].concat())]
                .concat(),
            E::Malformed("header of a message"),
        ),
        (
            [
                deliver(),
                frame(AmqpFrameKind::Header, 1, &[&[0, 60, 0, 0][..], &[0; 8], &[0, 1]].concat()),
            ]
            .concat(),
            E::Malformed("header of a message"),
        ),
        ([deliver(), with_headers(b"\x01a?")].concat(), E::Malformed("table")),
        ([deliver(), with_headers(b"\x09a")].concat(), E::Malformed("table")),
        ([deliver(), with_headers(&many(DEPTH + 2))].concat(), E::TooDeep),
    ]);
    let fits = [deliver(), with_headers(&many(DEPTH))].concat();
    assert_eq!(events(&mut connected().0, &fits, 9).unwrap().len(), 1);
}

const DEPTH: u8 = crate::limits::DEPTH_MAX;

#[test]
fn each_breach_of_a_login_ends_it_by_name() {
    use AmqpError as E;
    let greeted = |bytes: &[u8]| {
        let mut session = Tested::new();
        session.open(&mut Vec::new());
        events(&mut session, bytes, 1)
    };
    for (bytes, error) in [
        (&b"AMQP\0\x01\0\0"[..], E::OtherVersion(1, 0, 0)),
        (b"AMQP\0\0\x08\0", E::OtherVersion(0, 8, 0)),
        (b"HTTP/1.1 400 Bad Request\r\n", E::NotAmqp),
        (b"AMQP\0\0\x09\x01", E::NotAmqp),
        (b"AMQX", E::NotAmqp),
        (b"\x20\x02\0\0", E::NotAmqp),
        (&opened(), E::OutOfPlace("connection.open-ok")),
        (&tune(OFFERED), E::OutOfPlace("connection.tune")),
        (&delivery(1, 1, b"", 99), E::ChannelUnknown(1)),
    ] {
        assert_eq!(greeted(bytes), Err(error), "{bytes:?}");
    }
    assert_eq!(greeted(b"AMQP\0\0\x09"), Ok(Vec::new()), "the last byte is missing");
    let logged_in = |bytes: &[u8]| {
        let (mut session, mut out) = (Tested::new(), Vec::new());
        session.open(&mut out);
        assert!(session.handle(&start(b"PLAIN"), &mut out).is_ok());
        session.log_in(&LOGIN, &mut out);
        events(&mut session, bytes, 1)
    };
    let small = AmqpLimits { frame_max: FRAME_MIN - 1, ..OFFERED };
    assert_eq!(logged_in(&tune(small)), Err(E::FrameMax(FRAME_MIN - 1)));
    let secure = method(0, &AmqpMethod::ConnectionSecure { challenge: b"?" });
    assert_eq!(logged_in(&secure), Err(E::OutOfPlace("connection.secure")));
    let text = "ACCESS_REFUSED";
    let close = AmqpMethod::ConnectionClose { code: 403, text, class: 0, method: 0 };
    assert_eq!(logged_in(&method(0, &close)).unwrap(), ["Refused(403, \"ACCESS_REFUSED\")"]);
    let offered = AmqpLimits { channel_max: 1, ..OFFERED };
    let mut session = Tested::new();
    session.open(&mut Vec::new());
    assert!(session.handle(&start(b"PLAIN"), &mut Vec::new()).is_ok());
    session.log_in(&LOGIN, &mut Vec::new());
    assert!(session.handle(&tune(offered), &mut Vec::new()).is_ok());
    let tuned = session.tune(offered, &REQUIRED, &mut Vec::new());
    assert_eq!(tuned, Err(E::TooFewChannels(1, 2)));
}

#[test]
fn the_memory_of_a_large_message_is_given_back() {
    let (mut session, mut out) = (connected().0, Vec::new());
    let body = vec![b'x'; 100_000];
    let bytes = delivery(1, 1, &body, 4096);
    let mut begin = 0;
    while begin < bytes.len() {
        begin += session.handle(&bytes[begin..], &mut out).unwrap().len;
    }
    session.release();
    assert_eq!(format!("{:?}", session.whole), format!("{:?}", Incoming::NONE));
    assert!(session.channels.iter().all(|channel| channel.incoming.is_none()));
}
