//! The frames of [37/ZMTP, Framing], byte by byte.

use proptest::{collection::vec, prelude::*};

use super::*;

fn encoded(kind: FrameKind, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode(kind, body, &mut out);
    out
}

/// Asserts that the bytes decode to this frame and that the frame encodes to these bytes.
fn assert_frame(bytes: &[u8], kind: FrameKind, body: &[u8]) {
    let frame = Frame { kind, body };
    assert_eq!(decode(bytes), Ok(DecodedFrame::Frame { frame, len: bytes.len() }));
    assert_eq!(encoded(kind, body), bytes);
    assert_eq!(encoded_len(body.len()), bytes.len());
}

#[test]
fn short_frames_have_their_size_in_one_byte() {
    assert_frame(&[0x00, 0], FrameKind::Last, b"");
    assert_frame(&[0x00, 5, b'h', b'e', b'l', b'l', b'o'], FrameKind::Last, b"hello");
    assert_frame(&[0x01, 1, b'A'], FrameKind::More, b"A");
    assert_frame(&[0x04, 5, 4, b'P', b'I', b'N', b'G'], FrameKind::Command, b"\x04PING");
    assert_frame(&[&[0x00, 255][..], &[7; 255]].concat(), FrameKind::Last, &[7; 255]);
}

#[test]
fn long_frames_have_their_size_in_eight_bytes_in_network_order() {
    for (flags, kind) in
        [(0x02, FrameKind::Last), (0x03, FrameKind::More), (0x06, FrameKind::Command)]
    {
        let bytes = [&[flags, 0, 0, 0, 0, 0, 0, 1, 0][..], &[7; 256]].concat();
        assert_frame(&bytes, kind, &[7; 256]);
    }
}

#[test]
fn a_long_frame_with_a_body_that_a_short_one_could_hold_is_accepted() {
    let bytes = [0x02, 0, 0, 0, 0, 0, 0, 0, 1, b'x'];
    let frame = Frame { kind: FrameKind::Last, body: b"x" };
    assert_eq!(decode(&bytes), Ok(DecodedFrame::Frame { frame, len: 10 }));
}

#[test]
fn reserved_flags_are_rejected_at_the_first_byte() {
    for flags in 0..=255 {
        let expected = match flags {
            0 | 1 | 4 => Ok(DecodedFrame::Incomplete { needed: 2 }),
            2 | 3 | 6 => Ok(DecodedFrame::Incomplete { needed: 9 }),
            5 | 7 => Err(ZmtpError::MoreOnCommand),
            _ => Err(ZmtpError::ReservedFlags(flags)),
        };
        assert_eq!(decode(&[flags]), expected, "{flags:#010b}");
    }
}

#[test]
fn a_frame_that_is_too_long_is_rejected_at_its_size() {
    let header = |size: u64| [&[0x02][..], &size.to_be_bytes()].concat();
    let most = BODY_MAX as u64;
    assert_eq!(decode(&header(most)), Ok(DecodedFrame::Incomplete { needed: 9 + BODY_MAX }));
    for size in [most + 1, 1 << 63, u64::MAX] {
        assert_eq!(decode(&header(size)), Err(ZmtpError::FrameTooLong(size)));
    }
}

#[test]
fn decode_ignores_the_bytes_after_the_first_frame() {
    let bytes = [0x00, 1, b'x', 0xff, 0xff];
    let frame = Frame { kind: FrameKind::Last, body: b"x" };
    assert_eq!(decode(&bytes), Ok(DecodedFrame::Frame { frame, len: 3 }));
    assert_eq!(decode(&[]), Ok(DecodedFrame::Incomplete { needed: 2 }));
}

fn kinds() -> impl Strategy<Value = FrameKind> {
    prop_oneof![Just(FrameKind::Last), Just(FrameKind::More), Just(FrameKind::Command)]
}

proptest! {
    #[test]
    fn an_encoded_frame_decodes_to_itself(kind in kinds(), body in vec(any::<u8>(), 0..600)) {
        let bytes = encoded(kind, &body);
        let frame = Frame { kind, body: &body };
        prop_assert_eq!(decode(&bytes), Ok(DecodedFrame::Frame { frame, len: bytes.len() }));
    }

    #[test]
    fn a_part_of_a_frame_needs_more_bytes_and_at_most_the_frame(
        kind in kinds(),
        body in vec(any::<u8>(), 0..600),
        part in 0.0..1.0,
    ) {
        let bytes = encoded(kind, &body);
        let end = (bytes.len() as f64 * part) as usize;
        let Ok(DecodedFrame::Incomplete { needed }) = decode(&bytes[..end]) else {
            panic!("a part of a frame must be incomplete")
        };
        prop_assert!(needed > end && needed <= bytes.len());
    }

    #[test]
    fn any_bytes_decode_to_a_frame_within_them_or_an_error(bytes in vec(any::<u8>(), 0..64)) {
        match decode(&bytes) {
            Ok(DecodedFrame::Frame { frame, len }) => {
                prop_assert!(frame.body.len() < len && len <= bytes.len());
            }
            Ok(DecodedFrame::Incomplete { needed }) => prop_assert!(needed > bytes.len()),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
