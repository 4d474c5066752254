//! Fuzzes `decode` with any bytes in every version of MQTT; the first byte chooses the version.
//! `decode` never panics and reads only these bytes. An accepted packet encodes to bytes that
//! decode to the same packet. Run with `cargo +nightly fuzz run decode`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mqtt::{Decoded, Version, decode};

fuzz_target!(|input: &[u8]| {
    let Some((choice, bytes)) = input.split_first() else { return };
    let version = Version::ALL[usize::from(*choice) % Version::ALL.len()];
    match decode(version, bytes) {
        Ok(Decoded::Packet { packet, len }) => {
            assert!(len <= bytes.len());
            let mut again = Vec::new();
            packet.encode(version, &mut again).expect("a decoded packet can be encoded");
            let len = again.len();
            assert_eq!(decode(version, &again), Ok(Decoded::Packet { packet, len }));
        }
        Ok(Decoded::Incomplete { needed }) => assert!(needed > bytes.len()),
        Err(_) => {}
    }
});
