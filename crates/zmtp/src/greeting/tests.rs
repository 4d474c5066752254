//! The greeting of [37/ZMTP, Worked Example], and greetings of other peers.

use proptest::{collection::vec, prelude::*};

use super::*;

/// Signature, version, mechanism, as-server, filler.
fn bytes(version: [u8; 2], mechanism: &[u8; 20], as_server: u8) -> Vec<u8> {
    let signature = [0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f];
    [&signature[..], &version, mechanism, &[as_server], &[0; 31]].concat()
}

const NULL: &[u8; 20] = b"NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
const PLAIN: &[u8; 20] = b"PLAIN\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
const CURVE: &[u8; 20] = b"CURVE\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
const GSSAPI: &[u8; 20] = b"GSSAPI\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

#[test]
fn the_greetings_of_this_side_have_the_bytes_of_the_rfc() {
    for (mechanism, padded) in [(Name::Null, NULL), (Name::Plain, PLAIN), (Name::Curve, CURVE)] {
        for as_server in [false, true] {
            let greeting = Greeting::new(mechanism, as_server);
            let mut out = Vec::new();
            greeting.encode(&mut out);
            assert_eq!(out, bytes([3, 1], padded, u8::from(as_server)));
            assert_eq!(Greeting::decode(&out), Ok(Some(greeting)));
        }
    }
}

#[test]
fn later_versions_count_as_3_1_and_3_0_does_not() {
    for (version, is_3_1) in [([3, 0], false), ([3, 1], true), ([3, 2], true), ([4, 0], true)] {
        let greeting = Greeting::decode(&bytes(version, NULL, 0)).unwrap().unwrap();
        assert_eq!([greeting.major, greeting.minor], version);
        assert_eq!(greeting.is_3_1(), is_3_1, "{version:?}");
    }
}

#[test]
fn a_mechanism_fills_its_whole_field() {
    for (field, name) in [
        (GSSAPI, Name::Gssapi),
        (b"NULLS\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", Name::Other),
        (b"NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0x", Name::Other),
        (b"null\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", Name::Other),
        (&[0; 20], Name::Other),
    ] {
        let greeting = Greeting::decode(&bytes([3, 1], field, 0)).unwrap().unwrap();
        assert_eq!(greeting.mechanism, name);
    }
    assert_eq!(Name::Other.to_string(), "of another name");
}

#[test]
fn the_padding_of_the_signature_is_ignored() {
    // The padding of libzmq, and any other padding.
    for padding in [[0, 0, 0, 0, 0, 0, 0, 1], [0xff; 8]] {
        let mut greeting = bytes([3, 1], NULL, 0);
        greeting[1..9].copy_from_slice(&padding);
        assert!(Greeting::decode(&greeting).unwrap().is_some());
    }
}

#[test]
fn an_old_peer_is_rejected_as_soon_as_its_revision_arrives() {
    // The revision is 1 or 2 in ZMTP 2.0 [37/ZMTP, Detecting ZMTP 2.0 Peers], and 0 in ZMTP 1.0 of
    // libzmq 2.x.
    for revision in 0..3 {
        let greeting = bytes([revision, 0], NULL, 0);
        assert_eq!(Greeting::decode(&greeting[..10]), Ok(None));
        assert_eq!(Greeting::decode(&greeting[..11]), Err(ZmtpError::OldVersion(revision)));
    }
}

#[test]
fn a_peer_of_another_protocol_is_rejected_at_its_first_or_tenth_byte() {
    for other in [&b"H"[..], b"\x20\x02\0\0", b"SSH-2.0", b"\xff\0\0\0\0\0\0\0\x01\0"] {
        assert_eq!(Greeting::decode(other), Err(ZmtpError::NotZmtp), "{other:02x?}");
    }
}

proptest! {
    #[test]
    fn a_part_of_a_greeting_decodes_to_none(len in 0..LEN) {
        prop_assert_eq!(Greeting::decode(&bytes([3, 1], PLAIN, 1)[..len]), Ok(None));
    }

    #[test]
    fn any_bytes_decode_to_a_greeting_none_or_an_error(bytes in vec(any::<u8>(), 0..80)) {
        if let Ok(Some(greeting)) = Greeting::decode(&bytes) {
            prop_assert!(bytes.len() >= LEN && greeting.major >= 3);
        }
    }
}
