//! Fuzzes `decode` with any bytes in every version of MQTT; the first byte chooses the version.
//! `decode` never panics and reads only these bytes. An accepted packet encodes to bytes that
//! decode to the same packet. No split of a stream changes its packets or its error. Run with
//! `cargo +nightly fuzz run decode`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mqtt::{DecodeError, DecodedPacket, Version, decode};

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (choice, split, bytes) = input;
    let version = Version::ALL[usize::from(choice) % Version::ALL.len()];
    match decode(version, bytes) {
        Ok(DecodedPacket::Packet { packet, len }) => {
            assert!(len <= bytes.len());
            let mut again = Vec::new();
            packet.encode(version, &mut again).expect("a decoded packet can be encoded");
            let len = again.len();
            assert_eq!(decode(version, &again), Ok(DecodedPacket::Packet { packet, len }));
        }
        Ok(DecodedPacket::Incomplete { needed }) => assert!(needed > bytes.len()),
        Err(_) => {}
    }
    let whole = read(version, bytes, bytes.len());
    assert_eq!(whole, read(version, bytes, usize::from(split) + 1));
});

/// Packets of a stream that arrives in pieces of `piece` bytes, then the error or the length of the
/// rest.
fn read(version: Version, bytes: &[u8], piece: usize) -> (Vec<String>, Result<usize, DecodeError>) {
    let (mut packets, mut start, mut end) = (Vec::new(), 0, 0);
    loop {
        match decode(version, &bytes[start..end]) {
            Ok(DecodedPacket::Packet { packet, len }) => {
                packets.push(format!("{packet:?}"));
                start += len;
            }
            Ok(DecodedPacket::Incomplete { .. }) if end == bytes.len() => {
                return (packets, Ok(end - start));
            }
            Ok(DecodedPacket::Incomplete { .. }) => end = bytes.len().min(end + piece),
            Err(error) => return (packets, Err(error)),
        }
    }
}
