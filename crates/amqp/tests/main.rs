//! Properties of the codecs: methods, frames and headers of messages are read as they are written,
//! and no bytes make a session panic.

use amqp::content::{ContentHeader, decode_header, push_header};
use amqp::field::{push_flag, push_inner, push_number, push_text};
use amqp::frame::{decode, push_body};
use amqp::packet::decode_packet;
use amqp::{AmqpEvent, AmqpMethod, AmqpSession, Table};
use proptest::collection::vec;
use proptest::prelude::*;

/// Fields of a table, encoded.
fn table() -> impl Strategy<Value = Vec<u8>> {
    let entry = (vec(any::<u8>(), 0..9), any::<i64>(), 0..4u8);
    vec(entry, 0..5).prop_map(|entries| {
        let mut out = Vec::new();
        for (name, number, kind) in entries {
            match kind {
                0 => push_number(&name, number, &mut out),
                1 => push_flag(&name, number > 0, &mut out),
                2 => push_text(&name, &mut out, |out| out.extend_from_slice(&name)),
                _ => push_inner(&name, &mut out, |out| push_number(b"n", number, out)),
            }
        }
        out
    })
}

proptest! {
    #[test]
    fn methods_are_read_as_they_are_written(
        (a, b) in (vec(any::<u8>(), 0..256), vec(any::<u8>(), 0..256)),
        (number, code, flags) in any::<(u64, u16, u8)>(),
        (fields, text) in (table(), "\\PC{0,60}"),
        channel: u16,
    ) {
        let (arguments, routing_key, exchange) = (Table(&fields), &b[..], &a[..]);
        let (mechanisms, locales, text) = (&a[..], &b[..], &text[..]);
        let frame_max = number as u32;
        let methods = [
            AmqpMethod::ConnectionStart {
                major: flags, minor: flags, properties: arguments, mechanisms, locales,
            },
            AmqpMethod::ConnectionTune { channel_max: code, frame_max, heartbeat_s: code },
            AmqpMethod::ConnectionClose { code, text, class: code, method: code },
            AmqpMethod::QueueDeclare { reserved_1: code, queue: &a, flags, arguments },
            AmqpMethod::QueueBind {
                reserved_1: code, queue: &a, exchange, routing_key, flags, arguments,
            },
            AmqpMethod::BasicReturn { code, text, exchange, routing_key },
            AmqpMethod::BasicDeliver { tag: &a, number, flags, exchange, routing_key },
            AmqpMethod::BasicAck { number, flags },
        ];
        for method in methods {
            let mut bytes = Vec::new();
            method.push(channel, &mut bytes);
            let (frame, len) = decode(&bytes, u32::MAX).unwrap().unwrap();
            prop_assert_eq!((frame.channel, len), (channel, bytes.len()));
            prop_assert_eq!(AmqpMethod::decode(frame.payload).unwrap(), method);
            for cut in 0..bytes.len() {
                prop_assert_eq!(decode(&bytes[..cut], u32::MAX).unwrap(), None);
            }
        }
    }

    #[test]
    fn a_message_of_a_client_is_one_packet_in_frames_of_any_size(
        body in vec(any::<u8>(), 0..300),
        (fields, is_persistent, frame_max) in (table(), any::<bool>(), 9..400u32),
    ) {
        let headers = Some(Table(&fields)).filter(|_| !fields.is_empty());
        let header = ContentHeader { body_bytes: body.len() as u64, is_persistent, headers };
        let mut bytes = Vec::new();
        push_header(1, &header, &mut bytes);
        let (frame, _) = decode(&bytes, u32::MAX).unwrap().unwrap();
        prop_assert_eq!(decode_header(frame.payload).unwrap(), header);
        let mut bytes = Vec::new();
        amqp::push_publish(1, (b"e", b"k"), 0, &header, &mut bytes);
        push_body(1, &body, frame_max, &mut bytes);
        let whole = bytes.len();
        bytes.extend_from_slice(b"\x08\0\0\0\0\0\0\xce");
        prop_assert_eq!(decode_packet(&bytes).unwrap().unwrap().len, whole);
        prop_assert_eq!(decode_packet(&bytes[..whole - 1]).unwrap(), None);
    }

    #[test]
    fn no_bytes_make_a_session_panic(bytes in vec(any::<u8>(), 0..200), first: bool) {
        let (mut session, mut out) = (AmqpSession::<()>::new(), Vec::new());
        session.open(&mut out);
        let bytes = if first { bytes } else { [&b"\x01\0\0"[..], &bytes].concat() };
        let mut begin = 0;
        while let Ok(step) = session.handle(&bytes[begin..], &mut out) {
            begin += step.len;
            if step.event == AmqpEvent::Incomplete {
                break;
            }
        }
        prop_assert!(begin <= bytes.len());
    }
}
