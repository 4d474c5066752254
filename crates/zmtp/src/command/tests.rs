//! The commands of [37/ZMTP] and [24/ZMTP-PLAIN], byte by byte.

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::frame::{DecodedFrame, Frame};

fn encoded(command: &ZmtpCommand<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    command.encode(&mut out).unwrap();
    out
}

fn body(bytes: &[u8]) -> &[u8] {
    let Ok(DecodedFrame::Frame { frame: Frame { kind: FrameKind::Command, body }, len }) =
        frame::decode(bytes)
    else {
        panic!("no command frame: {bytes:02x?}")
    };
    assert_eq!(len, bytes.len());
    body
}

/// Asserts that the frame decodes to this command and that the command encodes to this frame.
fn assert_command(bytes: &[u8], command: ZmtpCommand<'_>) {
    assert_eq!(encoded(&command), bytes);
    assert_eq!(ZmtpCommand::decode(body(bytes)), Ok(command));
}

#[test]
fn every_command_has_the_bytes_of_the_rfc() {
    assert_command(b"\x04\x0f\x09SUBSCRIBEprice", ZmtpCommand::Subscribe(b"price"));
    assert_command(b"\x04\x0a\x09SUBSCRIBE", ZmtpCommand::Subscribe(b""));
    assert_command(b"\x04\x08\x06CANCELA", ZmtpCommand::Cancel(b"A"));
    assert_command(b"\x04\x07\x04PING\x00\x64", ZmtpCommand::Ping { ttl_ds: 100, context: b"" });
    assert_command(b"\x04\x09\x04PING\x00\x00me", ZmtpCommand::Ping { ttl_ds: 0, context: b"me" });
    assert_command(b"\x04\x05\x04PONG", ZmtpCommand::Pong { context: b"" });
    assert_command(b"\x04\x07\x04PONGme", ZmtpCommand::Pong { context: b"me" });
    assert_command(b"\x04\x09\x05ERROR\x02no", ZmtpCommand::Error { reason: b"no" });
    assert_command(b"\x04\x08\x07WELCOME", ZmtpCommand::Welcome);
    let hello = ZmtpCommand::Hello { username: b"ann", password: b"pw" };
    assert_command(b"\x04\x0d\x05HELLO\x03ann\x02pw", hello);
    let ready = b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB";
    assert_command(ready, ZmtpCommand::Ready(Metadata::SUB));
    let initiate = b"\x04\x1c\x08INITIATE\x0bSocket-Type\x00\x00\x00\x03PUB";
    assert_command(initiate, ZmtpCommand::Initiate(Metadata::PUB));
}

#[test]
fn a_long_prefix_takes_a_long_frame() {
    let prefix = [b'x'; 300];
    let bytes = [&b"\x06\0\0\0\0\0\0\x01\x36\x09SUBSCRIBE"[..], &prefix].concat();
    assert_command(&bytes, ZmtpCommand::Subscribe(&prefix));
}

#[test]
fn the_metadata_of_the_worked_example_is_read() {
    // [37/ZMTP, Worked Example]: the client's READY.
    let bytes = b"\x04\x29\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\0";
    let Ok(ZmtpCommand::Ready(metadata)) = ZmtpCommand::decode(body(bytes)) else {
        panic!("no READY")
    };
    assert_eq!(metadata.socket_type(), Some(&b"DEALER"[..]));
    assert_eq!(metadata.property("IDENTITY"), Some(&b""[..]), "names ignore case");
    assert_eq!(metadata.property("Resource"), None);
    let names: Vec<_> = metadata.properties().map(|(name, _)| name).collect();
    assert_eq!(names, [&b"Socket-Type"[..], b"Identity"]);
}

#[test]
fn a_command_that_breaks_the_grammar_is_malformed() {
    for (body, named) in [
        (&b""[..], "nameless"),
        (b"\x00", "nameless"),
        (b"\x05PING", "nameless"),
        (b"\x04PING", "PING"),
        (b"\x04PING\0", "PING"),
        (b"\x04PING\0\0seventeen bytes..", "PING"),
        (b"\x04PONGseventeen bytes..", "PONG"),
        (b"\x05ERROR", "ERROR"),
        (b"\x05ERROR\x04no!", "ERROR"),
        (b"^RROR", "ERROR"),
        (b"^RROR\x04400", "ERROR"),
        (b"\x05HELLO", "HELLO"),
        (b"\x05HELLO\x03ann", "HELLO"),
        (b"\x05HELLO\x03ann\x02pw!", "HELLO"),
        (b"\x07WELCOME!", "WELCOME"),
        (b"\x05READY\x00\0\0\0\0", "READY"),
        (b"\x05READY\x0bSocket-Type", "READY"),
        (b"\x05READY\x0bSocket-Type\0\0\0\x04SUB", "READY"),
        (b"\x05READY\x0bSocket-Type\xff\xff\xff\xffSUB", "READY"),
        (b"\x08INITIATE\x01", "INITIATE"),
    ] {
        assert_eq!(ZmtpCommand::decode(body), Err(ZmtpError::Malformed(named)), "{body:02x?}");
    }
}

#[test]
fn the_error_of_libzmq_with_plain_is_understood() {
    assert_eq!(ZmtpCommand::decode(b"^RROR\x03400"), Ok(ZmtpCommand::Error { reason: b"400" }));
    let other = [&b"^RROR"[..], &[b'x'; 90]].concat();
    assert_eq!(ZmtpCommand::decode(&other), Ok(ZmtpCommand::Other), "a name of 94 characters");
}

#[test]
fn unknown_commands_are_recognised_and_never_written() {
    for body in [&b"\x04JOINgroup"[..], b"\x01x", b"\x04ping\0\0"] {
        assert_eq!(ZmtpCommand::decode(body), Ok(ZmtpCommand::Other));
    }
    assert_eq!(encoded(&ZmtpCommand::Other), b"");
}

#[test]
fn a_field_that_is_too_long_leaves_the_output_unchanged() {
    let long = [b'x'; 256];
    let too_long = |allowed, found| Err(ZmtpError::FieldTooLong { found, allowed });
    let mut out = vec![1, 2, 3];
    let hello = ZmtpCommand::Hello { username: b"ann", password: &long };
    assert_eq!(hello.encode(&mut out), too_long(255, 256));
    assert_eq!(ZmtpCommand::Error { reason: &long }.encode(&mut out), too_long(255, 256));
    assert_eq!(ZmtpCommand::Pong { context: &long[..17] }.encode(&mut out), too_long(16, 17));
    assert_eq!(out, [1, 2, 3]);
}

proptest! {
    #[test]
    fn an_encoded_command_decodes_to_the_same_command(
        long in vec(any::<u8>(), 0..600),
        short in vec(any::<u8>(), 0..=CONTEXT_MAX),
        ttl_ds in any::<u16>(),
    ) {
        for command in [
            ZmtpCommand::Subscribe(&long),
            ZmtpCommand::Cancel(&long),
            ZmtpCommand::Ping { ttl_ds, context: &short },
            ZmtpCommand::Pong { context: &short },
            ZmtpCommand::Hello { username: &short, password: &long[..long.len().min(255)] },
            ZmtpCommand::Error { reason: &short },
        ] {
            let bytes = encoded(&command);
            prop_assert_eq!(ZmtpCommand::decode(body(&bytes)), Ok(command));
        }
    }

    #[test]
    fn any_body_decodes_to_a_command_or_an_error(
        name in "[A-Z]{0,9}|READY|ERROR|PING|PONG|HELLO|WELCOME|INITIATE|SUBSCRIBE|CANCEL",
        data in vec(any::<u8>(), 0..60),
    ) {
        let body = [&[name.len() as u8], name.as_bytes(), &data].concat();
        if let Ok(command) = ZmtpCommand::decode(&body) {
            prop_assert!(command == ZmtpCommand::Other || command.name() == name);
        }
        let _ = ZmtpCommand::decode(&data);
    }
}
