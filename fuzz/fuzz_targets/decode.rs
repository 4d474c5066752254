//! Any bytes: `decode` never panics, stays within them, and what it accepts encodes to a packet
//! that decodes to the same. Run with `cargo +nightly fuzz run decode`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mqtt::{Decoded, Version, decode};

const V: Version = Version::V311;

fuzz_target!(|bytes: &[u8]| {
    match decode(V, bytes) {
        Ok(Decoded::Packet { packet, len }) => {
            assert!(len <= bytes.len());
            let mut again = Vec::new();
            packet.encode(V, &mut again).expect("a decoded packet can be encoded");
            let len = again.len();
            assert_eq!(decode(V, &again), Ok(Decoded::Packet { packet, len }));
        }
        Ok(Decoded::Incomplete { needed }) => assert!(needed > bytes.len()),
        Err(_) => {}
    }
});
