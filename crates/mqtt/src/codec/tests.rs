//! What holds for every packet: round trips, any bytes, any split point. The tables are in the
//! packets' own files.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const V: Version = Version::V311;

/// The bytes are exactly this packet, in both directions.
pub(super) fn assert_packet(bytes: &[u8], packet: Packet<'_>) {
    assert_eq!(decode(V, bytes), Ok(Decoded::Packet { packet, len: bytes.len() }));
    assert_eq!(encoded(&packet), bytes);
}

pub(super) fn assert_rejected(bytes: &[u8], error: DecodeError) {
    assert_eq!(decode(V, bytes), Err(error), "{bytes:02x?}");
}

pub(super) fn encoded(packet: &Packet<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    packet.encode(V, &mut out).unwrap();
    out
}

#[test]
fn reserved_packet_types_are_rejected_at_the_first_byte() {
    assert_rejected(&[0x00], DecodeError::ReservedPacketType(0));
    assert_rejected(&[0xf0], DecodeError::ReservedPacketType(15));
}

#[test]
fn header_flags_other_than_the_fixed_ones_are_rejected_at_the_first_byte() {
    for nibble in (1..=14).filter(|&nibble| nibble != PacketType::Publish as u8) {
        let fixed = if matches!(nibble, 6 | 8 | 10) { 0b0010 } else { 0 };
        for flags in 0..16 {
            let bytes = [nibble << 4 | flags];
            let found = decode(V, &bytes);
            if flags == fixed {
                assert_eq!(found, Ok(Decoded::Incomplete { needed: 2 }));
            } else {
                assert!(
                    matches!(found, Err(DecodeError::BadHeaderFlags { flags: f, .. }) if f == flags)
                );
            }
        }
    }
}

#[test]
fn the_remaining_length_has_one_to_four_bytes() {
    // The borders of table 2.4.
    for (bytes, len) in [
        (&[0x7f][..], 127),
        (&[0x80, 0x01], 128),
        (&[0xff, 0x7f], 16_383),
        (&[0x80, 0x80, 0x01], 16_384),
        (&[0xff, 0xff, 0x7f], 2_097_151),
        (&[0x80, 0x80, 0x80, 0x01], 2_097_152),
        (&[0xff, 0xff, 0xff, 0x7f], LEN_MAX),
    ] {
        let mut written = [0; 4];
        let used = wire::write_len(&mut written, len).unwrap();
        assert_eq!(&written[..used], bytes);
        let header = [&[0x30], bytes].concat();
        assert_eq!(decode(V, &header), Ok(Decoded::Incomplete { needed: header.len() + len }));
    }
    assert_rejected(&[0x30, 0x80, 0x80, 0x80, 0x80], DecodeError::BadRemainingLength);
    assert_eq!(
        wire::write_len(&mut [0; 4], LEN_MAX + 1),
        Err(EncodeError::PacketTooLong(LEN_MAX + 1))
    );
}

#[test]
fn nothing_is_asked_of_the_caller_beyond_the_first_packet() {
    let bytes = [0xd0, 0, 0xff, 0xff];
    assert_eq!(decode(V, &bytes), Ok(Decoded::Packet { packet: Packet::PingResp, len: 2 }));
    assert_eq!(decode(V, &[]), Ok(Decoded::Incomplete { needed: 1 }));
}

#[test]
fn an_error_while_encoding_leaves_the_output_as_it_was() {
    let long = "x".repeat(65_536);
    let mut out = vec![1, 2, 3];
    let connect = Connect { client_id: &long, ..Connect::default() };
    assert_eq!(connect.encode(V, &mut out), Err(EncodeError::FieldTooLong(65_536)));
    let publish = Publish { topic: &long, ..Publish::default() };
    assert_eq!(publish.encode(V, &mut out), Err(EncodeError::FieldTooLong(65_536)));
    let filters = [("a", QoS::AtMostOnce), (&long, QoS::AtMostOnce)];
    assert_eq!(encode_subscribe(V, 1, filters, &mut out), Err(EncodeError::FieldTooLong(65_536)));
    assert_eq!(
        encode_unsubscribe(V, 1, [&*long], &mut out),
        Err(EncodeError::FieldTooLong(65_536))
    );
    assert_eq!(Packet::PubAck { packet_id: 0 }.encode(V, &mut out), Err(EncodeError::ZeroPacketId));
    assert_eq!(out, [1, 2, 3]);
}

fn topic_name() -> impl Strategy<Value = String> {
    "[^\0#+]{1,40}"
}

fn topic_filter() -> impl Strategy<Value = String> {
    "([^\0#+/$]{0,5}|\\+)(/([^\0#+/]{0,5}|\\+)){0,4}(/#)?"
        .prop_filter("not empty", |f| !f.is_empty())
}

fn qos() -> impl Strategy<Value = QoS> {
    prop_oneof![Just(QoS::AtMostOnce), Just(QoS::AtLeastOnce), Just(QoS::ExactlyOnce)]
}

fn text() -> impl Strategy<Value = String> {
    "[^\0]{0,40}"
}

/// The bytes of a valid packet of any type.
fn any_packet() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any_connect(),
        any_publish(),
        any_request(),
        (vec(prop_oneof![0..=2_u8, Just(SubAck::FAILURE)], 1..300), 1..=u16::MAX).prop_map(
            |(codes, packet_id)| encoded(&Packet::SubAck(SubAck { packet_id, codes: &codes }))
        ),
        (any::<bool>(), any::<u8>()).prop_map(|(present, code)| {
            let session_present = present && code == 0;
            encoded(&Packet::ConnAck(ConnAck { session_present, code }))
        }),
        (0..8_usize, 1..=u16::MAX).prop_map(|(which, packet_id)| {
            encoded(
                &[
                    Packet::PubAck { packet_id },
                    Packet::PubRec { packet_id },
                    Packet::PubRel { packet_id },
                    Packet::PubComp { packet_id },
                    Packet::UnsubAck { packet_id },
                    Packet::PingReq,
                    Packet::PingResp,
                    Packet::Disconnect,
                ][which],
            )
        }),
    ]
}

fn any_connect() -> impl Strategy<Value = Vec<u8>> {
    let will = (topic_name(), vec(any::<u8>(), 0..300), qos(), any::<bool>());
    let login = (text(), proptest::option::of(vec(any::<u8>(), 0..40)));
    let options = (proptest::option::of(will), proptest::option::of(login));
    (text(), options, any::<u16>(), any::<[bool; 2]>()).prop_map(
        |(client_id, (will, login), keep_alive_s, [clean_session, bridge])| {
            let connect = Connect {
                client_id: &client_id,
                username: login.as_ref().map(|(username, _)| &**username),
                password: login.as_ref().and_then(|(_, password)| password.as_deref()),
                will: will.as_ref().map(|(topic, payload, qos, retain)| Will {
                    topic,
                    payload,
                    qos: *qos,
                    retain: *retain,
                }),
                keep_alive_s,
                clean_session,
                bridge,
            };
            let bytes = encoded(&Packet::Connect(connect));
            assert_packet(&bytes, Packet::Connect(connect));
            bytes
        },
    )
}

fn any_publish() -> impl Strategy<Value = Vec<u8>> {
    let flags = (qos(), any::<bool>(), any::<bool>());
    (flags, topic_name(), 1..=u16::MAX, vec(any::<u8>(), 0..300)).prop_map(
        |((qos, dup, retain), topic, packet_id, payload)| {
            let with_id = qos != QoS::AtMostOnce;
            let publish = Publish {
                dup: dup && with_id,
                qos,
                retain,
                topic: &topic,
                packet_id: if with_id { packet_id } else { 0 },
                payload: &payload,
            };
            let bytes = encoded(&Packet::Publish(publish));
            assert_packet(&bytes, Packet::Publish(publish));
            bytes
        },
    )
}

fn any_request() -> impl Strategy<Value = Vec<u8>> {
    (vec((topic_filter(), qos()), 1..20), 1..=u16::MAX, any::<bool>()).prop_map(
        |(filters, packet_id, subscribe)| {
            let mut bytes = Vec::new();
            let pairs = filters.iter().map(|(filter, qos)| (&**filter, *qos));
            let names = filters.iter().map(|(filter, _)| &**filter);
            if subscribe {
                encode_subscribe(V, packet_id, pairs.clone(), &mut bytes).unwrap();
            } else {
                encode_unsubscribe(V, packet_id, names.clone(), &mut bytes).unwrap();
            }
            match decode(V, &bytes).unwrap() {
                Decoded::Packet { packet: Packet::Subscribe(found), .. } => {
                    assert!(found.filters().eq(pairs));
                }
                Decoded::Packet { packet: Packet::Unsubscribe(found), .. } => {
                    assert!(found.filters().eq(names));
                }
                other => panic!("{other:?}"),
            }
            bytes
        },
    )
}

/// The packets that chunks of a stream hold, then what is wrong, or the bytes that are left.
fn received<'a>(
    chunks: impl Iterator<Item = &'a [u8]>,
) -> (Vec<String>, Result<usize, DecodeError>) {
    let (mut buffer, mut packets) = (Vec::new(), Vec::new());
    for chunk in chunks {
        buffer.extend_from_slice(chunk);
        loop {
            match decode(V, &buffer) {
                Ok(Decoded::Packet { packet, len }) => {
                    packets.push(format!("{packet:?}"));
                    buffer.drain(..len);
                }
                Ok(Decoded::Incomplete { .. }) => break,
                Err(error) => return (packets, Err(error)),
            }
        }
    }
    (packets, Ok(buffer.len()))
}

proptest! {
    #[test]
    fn a_decoded_packet_encodes_to_the_same_bytes(bytes in any_packet()) {
        let Ok(Decoded::Packet { packet, len }) = decode(V, &bytes) else {
            panic!("{:?}", decode(V, &bytes));
        };
        prop_assert_eq!(len, bytes.len());
        prop_assert_eq!(encoded(&packet), bytes);
    }

    /// However the network cuts a stream, and whatever is wrong in it, the same packets come out,
    /// then the same error.
    #[test]
    fn a_stream_cut_anywhere_has_the_same_packets_and_the_same_end(
        packets in vec(any_packet(), 1..12),
        wrong in proptest::option::of((any::<proptest::sample::Index>(), any::<u8>())),
        cuts in vec(any::<proptest::sample::Index>(), 0..20),
    ) {
        let mut stream = packets.concat();
        if let Some((at, byte)) = wrong {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        let whole = received(std::iter::once(&stream[..]));
        prop_assert!(wrong.is_some() || whole == (whole.0.clone(), Ok(0)));
        prop_assert!(wrong.is_some() || whole.0.len() == packets.len());
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        prop_assert_eq!(&received(cuts.windows(2).map(|cut| &stream[cut[0]..cut[1]])), &whole);
        prop_assert_eq!(&received(stream.chunks(1)), &whole);
    }

    #[test]
    fn a_packet_cut_at_any_point_is_incomplete_and_asks_for_no_more_than_the_packet(
        bytes in any_packet(),
    ) {
        for cut in 0..bytes.len() {
            match decode(V, &bytes[..cut]) {
                Ok(Decoded::Incomplete { needed }) => {
                    prop_assert!(needed > cut && needed <= bytes.len());
                }
                other => panic!("cut at {cut}: {other:?}"),
            }
        }
    }

    #[test]
    fn any_bytes_decode_without_a_panic_and_within_their_length(
        bytes in vec(any::<u8>(), 0..200),
    ) {
        if let Ok(Decoded::Packet { len, .. }) = decode(V, &bytes) {
            prop_assert!(len <= bytes.len());
        }
    }

    #[test]
    fn a_packet_with_one_byte_changed_decodes_to_what_encodes_to_it_or_not_at_all(
        mut bytes in any_packet(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(Decoded::Packet { packet, .. }) = decode(V, &bytes) {
            let again = encoded(&packet);
            // A length may be written with more bytes than it needs, so packets are compared.
            let Ok(Decoded::Packet { packet: second, .. }) = decode(V, &again) else {
                panic!("{packet:?}");
            };
            prop_assert_eq!(second, packet);
        }
    }
}
