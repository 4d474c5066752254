use proptest::prelude::*;

use super::*;
use crate::frame::{CONTROL_MAX, FIN, OPCODE};

const KEYS: MaskingKeys = MaskingKeys::new(7);

/// A frame of a server, as the standard writes it.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader::new(Opcode::Binary, payload.len() as u32, None);
    [&[first], &header[1..], payload].concat()
}

/// Everything that a session reads and answers when the bytes come in pieces.
#[derive(Debug, Default, PartialEq)]
struct Reading {
    payload: Vec<u8>,
    pings: u32,
    pongs: u32,
    replies: Vec<(u8, Vec<u8>)>,
    end: Option<ReadEnd>,
}

fn read(bytes: &[u8], pieces: impl Iterator<Item = usize>) -> Reading {
    let (mut session, mut keys) = (FrameSession::<false>::default(), KEYS);
    let mut reading = Reading::default();
    let (mut replies, mut rest) = (Vec::new(), bytes);
    for size in pieces {
        let (piece, behind) = rest.split_at(size.min(rest.len()));
        rest = behind;
        let mut piece = piece.to_vec();
        let received = session.receive(&mut piece, &mut keys);
        reading.payload.extend_from_slice(&piece[..received.payload]);
        reading.pings += received.pings;
        reading.pongs += received.pongs;
        replies.extend_from_slice(session.replies());
        session.note_replied(session.replies().len());
    }
    if session.end().is_some() {
        session.close(&mut keys);
        session.close(&mut keys);
        replies.extend_from_slice(session.replies());
    }
    let mut reader = FrameReader::<true>::default();
    let mut rest = &mut replies[..];
    while let Ok(Some(piece)) = reader.next(rest) {
        assert!(piece.ends);
        reading.replies.push((piece.opcode as u8, rest[piece.range.clone()].to_vec()));
        rest = &mut rest[piece.range.end..];
    }
    reading.end = session.end();
    reading
}

fn whole(bytes: &[u8]) -> Reading {
    read(bytes, std::iter::once(bytes.len()))
}

#[test]
fn fragments_control_frames_between_them_and_coalesced_frames_make_one_stream() {
    let bytes = [
        frame(0x02, b"CO"),
        frame(0x89, b"are you there"),
        frame(0x00, b"NN"),
        frame(0x8a, b""),
        frame(0x80, b"ACK"),
        frame(0x82, b""),
        frame(0x82, &[b'x'; 70_000]),
        frame(0x82, &[b'y'; 300]),
    ]
    .concat();
    let found = whole(&bytes);
    let expected = [&b"CONNACK"[..], &[b'x'; 70_000], &[b'y'; 300]].concat();
    assert!(found.payload == expected);
    assert_eq!((found.pings, found.pongs, found.end), (1, 1, None));
    assert_eq!(found.replies, [(10, b"are you there".to_vec())]);
}

#[test]
fn the_close_of_the_peer_is_answered_and_ends_the_reading() {
    let bytes = [frame(0x82, b"last"), frame(0x88, b"\x03\xe9bye"), frame(0x82, b"x")].concat();
    let found = whole(&bytes);
    assert_eq!(found.payload, b"last");
    assert_eq!(found.end, Some(ReadEnd::Closed(Some(1001))));
    assert_eq!(found.replies, [(8, b"\x03\xe9".to_vec())]);
    assert_eq!(whole(&frame(0x88, b"")).end, Some(ReadEnd::Closed(None)));
}

#[test]
fn a_close_code_that_no_frame_may_have_breaks_the_protocol() {
    assert_eq!(whole(&frame(0x88, b"\x03")).end, Some(ReadEnd::Broken(FrameError::ShortClose)));
    for (code, is_allowed) in [
        (0, false),
        (999, false),
        (1000, true),
        (1003, true),
        (1004, false),
        (1005, false),
        (1006, false),
        (1007, true),
        (1014, true),
        (1015, false),
        (1016, true),
        (3000, true),
        (4999, true),
        (5000, false),
        (65_535, false),
    ] {
        let found = whole(&frame(0x88, &u16::to_be_bytes(code)));
        let broken = ReadEnd::Broken(FrameError::CloseCode(code));
        assert_eq!(found.end, Some(if is_allowed { ReadEnd::Closed(Some(code)) } else { broken }));
        let answer = if is_allowed { code } else { 1002 };
        assert_eq!(found.replies, [(8, answer.to_be_bytes().to_vec())]);
    }
}

#[test]
fn faults_are_found_where_they_are() {
    for (bytes, error) in [
        (vec![0x83], FrameError::Opcode(3)),
        (vec![0xc2], FrameError::Extension),
        (vec![0x81], FrameError::Text),
        (vec![0x80], FrameError::Order),
        ([&frame(0x02, b"a")[..], &[0x82]].concat(), FrameError::Order),
        (vec![0x09], FrameError::Control),
        (vec![0x89, 126], FrameError::Control),
        (vec![0x82, 0x81], FrameError::Mask),
        (vec![0x82, 127, 0, 0, 0, 1, 0, 0, 0, 0], FrameError::TooLong),
    ] {
        let found = whole(&bytes);
        assert_eq!(found.end, Some(ReadEnd::Broken(error)), "{bytes:02x?}");
        assert_eq!(found.replies, [(8, 1002_u16.to_be_bytes().to_vec())]);
        assert_eq!(whole(&bytes[..bytes.len() - 1]).end, None);
    }
}

#[test]
fn memory_of_control_frames_is_given_back_and_bounded() {
    let (mut session, mut keys) = (FrameSession::<false>::default(), KEYS);
    for _ in 0..10_000 {
        session.receive(&mut frame(0x89, &[b'p'; CONTROL_MAX]), &mut keys);
    }
    assert!(session.replies().len() <= REPLIES_MAX + CONTROL_MAX + 6);
    session.note_replied(session.replies().len());
    assert!(session.aside.is_none());
}

#[test]
fn an_answer_waits_for_the_end_of_a_frame_that_has_gone_in_part() {
    let (mut session, mut keys, mut out) = (FrameSession::<false>::default(), KEYS, Vec::new());
    let written = session.frame(b"message", &mut keys, &mut out);
    assert_eq!(session.note_written(written, out.len() - 1), 6);
    session.receive(&mut frame(0x89, b""), &mut keys);
    assert_eq!(session.replies(), b"");
    out.clear();
    let written = session.frame(b"e and more", &mut keys, &mut out);
    assert_eq!(out.len(), 1);
    assert_eq!(session.note_written(written, 1), 1);
    assert_eq!(session.replies().len(), 6);
}

#[test]
fn an_idle_session_is_small() {
    assert!(size_of::<FrameSession<false>>() <= 24);
}

/// Kinds of frames in any order, with payloads around the borders of lengths.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let first = prop_oneof![
        Just(0x02_u8),
        Just(0x82),
        Just(0x00),
        Just(0x80),
        Just(0x89),
        Just(0x8a),
        Just(0x88)
    ];
    let size = prop_oneof![0..130_usize, 65_530..65_540_usize];
    let frame = (first, size, any::<u8>()).prop_map(|(first, size, byte)| {
        let is_control = first & OPCODE >= 8;
        frame(first, &vec![byte; if is_control { size % (CONTROL_MAX + 1) } else { size }])
    });
    prop::collection::vec(frame, 0..8).prop_map(|frames| frames.concat())
}

proptest! {
    #[test]
    fn no_split_changes_what_is_read(
        bytes in prop_oneof![frames(), prop::collection::vec(any::<u8>(), 0..64)],
        sizes in prop::collection::vec(1..200_usize, 1..40),
    ) {
        let rest = std::iter::repeat_n(4000, bytes.len() / 4000 + 1);
        let found = read(&bytes, sizes.into_iter().chain(rest));
        prop_assert_eq!(found, whole(&bytes));
    }

    #[test]
    fn what_one_side_sends_in_any_pieces_the_other_reads(
        payload in prop::collection::vec(any::<u8>(), 1..400),
        repeat in prop_oneof![Just(1_usize), Just(200), Just(1000)],
        sizes in prop::collection::vec(1..300_usize, 1..50),
        seed in any::<u64>(),
    ) {
        let payload = payload.repeat(repeat);
        let (mut client, mut keys) = (FrameSession::<false>::default(), MaskingKeys::new(seed));
        let (mut server, mut there) = (FrameSession::<true>::default(), KEYS);
        let (mut gone, mut read, mut out) = (0, Vec::new(), Vec::new());
        let mut sizes = sizes.into_iter().chain(std::iter::repeat(100_000));
        while gone < payload.len() {
            out.clear();
            let frame = client.frame(&payload[gone..], &mut keys, &mut out);
            prop_assert!(out.len() <= FRAME_MAX + 14);
            let size = sizes.next().unwrap_or(1).min(out.len());
            gone += client.note_written(frame, size);
            let mut piece = out[..size].to_vec();
            let received = server.receive(&mut piece, &mut there);
            read.extend_from_slice(&piece[..received.payload]);
        }
        prop_assert!(read == payload);
        prop_assert_eq!(server.end(), None);
    }
}

#[test]
fn a_first_byte_says_that_a_message_is_whole() {
    assert_eq!(FrameHeader::new(Opcode::Binary, 1, None)[0] & FIN, FIN);
}
