//! Fuzzes WebSocket with any bytes, from the request and the answer of HTTP to frames. Nothing
//! panics, a session answers with well-formed frames only, and no split of the bytes changes what
//! is read. The other side reads exactly what a session sends, in pieces of any size. Run with
//! `cargo +nightly fuzz run websocket`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use websocket::{
    FrameReader, FrameSession, MaskingKeys, ReadEnd,
    upgrade::{self, RequestKey, UpgradeRequest},
};

fuzz_target!(|input: (u8, &[u8])| {
    let (split, bytes) = input;
    let piece = usize::from(split) + 1;
    assert_eq!(read::<false>(bytes, bytes.len().max(1)), read::<false>(bytes, piece));
    assert_eq!(read::<true>(bytes, bytes.len().max(1)), read::<true>(bytes, piece));
    exchange::<false, true>(bytes, piece);
    exchange::<true, false>(bytes, piece);
    let found = upgrade::read_answer(bytes, &RequestKey::new([0; 16]));
    assert!(found.is_err() || found.is_ok_and(|len| len.is_none_or(|len| len <= bytes.len())));
    let mut answer = Vec::new();
    if let Ok(Some(len)) = upgrade::answer(bytes, &mut answer) {
        assert!(len <= bytes.len() && answer.ends_with(b"\r\n\r\n"));
    }
    answer_behind(bytes);
});

/// Payload, counts and end of a session that receives `bytes` in pieces.
fn read<const SERVER: bool>(bytes: &[u8], piece: usize) -> (Vec<u8>, u32, u32, Option<ReadEnd>) {
    let (mut session, mut keys) = (FrameSession::<SERVER>::default(), MaskingKeys::new(1));
    let (mut payload, mut pings, mut pongs) = (Vec::new(), 0, 0);
    for part in bytes.chunks(piece) {
        let mut part = part.to_vec();
        let received = session.receive(&mut part, &mut keys);
        payload.extend_from_slice(&part[..received.payload]);
        pings += received.pings;
        pongs += received.pongs;
        let mut replies = session.replies().to_vec();
        if SERVER {
            assert_well_formed(&mut FrameReader::<false>::default(), &mut replies);
        } else {
            assert_well_formed(&mut FrameReader::<true>::default(), &mut replies);
        }
        session.note_replied(replies.len());
    }
    (payload, pings, pongs, session.end())
}

/// Sends `bytes` through a socket that takes `piece` bytes at once.
fn exchange<const FROM: bool, const TO: bool>(bytes: &[u8], piece: usize) {
    let (mut from, mut to) = (FrameSession::<FROM>::default(), FrameSession::<TO>::default());
    let (mut keys, mut out) = (MaskingKeys::new(1), Vec::new());
    let (mut gone, mut read) = (0, Vec::new());
    while gone < bytes.len() {
        out.clear();
        let frame = from.frame(&bytes[gone..], &mut keys, &mut out);
        out.truncate(piece);
        gone += from.note_written(frame, out.len());
        let received = to.receive(&mut out, &mut keys);
        read.extend_from_slice(&out[..received.payload]);
    }
    assert_eq!((&read[..], to.end(), to.replies().len()), (bytes, None, 0));
}

/// Reads the answer to a request of a client, with `bytes` behind the answer and as a header.
fn answer_behind(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).replace(|letter: char| letter.is_control(), "");
    let (mut up, mut down) = (Vec::new(), Vec::new());
    let key = RequestKey::new([0; 16]);
    UpgradeRequest { host: "h", path: "/", headers: &[("x", text)] }.write(&key, &mut up);
    up.extend_from_slice(bytes);
    // A head is at most 16 KiB long.
    if let Ok(len) = upgrade::answer(&up, &mut down) {
        assert_eq!(len, Some(up.len() - bytes.len()));
        let len = down.len();
        down.extend_from_slice(bytes);
        assert_eq!(upgrade::read_answer(&down, &key), Ok(Some(len)));
    }
}

fn assert_well_formed<const MASKED: bool>(
    reader: &mut FrameReader<MASKED>,
    mut replies: &mut [u8],
) {
    while let Some(piece) = reader.next(replies).expect("replies are frames") {
        assert!(piece.ends && piece.opcode.is_control());
        replies = &mut replies[piece.range.end..];
    }
    assert!(replies.is_empty());
}
