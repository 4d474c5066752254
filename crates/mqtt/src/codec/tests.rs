//! Properties of every packet: round trips, any bytes, any split point. The tables are in the files
//! of the packets.

use proptest::collection::vec;
use proptest::prelude::*;

use super::property::tests::any_list;
use super::*;

const V: Version = Version::V311;

/// Asserts that the bytes decode to this packet and that the packet encodes to these bytes.
pub(super) fn assert_packet(bytes: &[u8], packet: Packet<'_>) {
    assert_packet_of(V, bytes, packet);
}

/// As [`assert_packet`], with MQTT 5.
pub(super) fn assert_packet_5(bytes: &[u8], packet: Packet<'_>) {
    assert_packet_of(Version::V5, bytes, packet);
}

fn assert_packet_of(version: Version, bytes: &[u8], packet: Packet<'_>) {
    assert_eq!(decode(version, bytes), Ok(DecodedPacket::Packet { packet, len: bytes.len() }));
    assert_eq!(encoded(version, &packet), bytes);
}

pub(super) fn assert_rejected(bytes: &[u8], error: DecodeError) {
    assert_eq!(decode(V, bytes), Err(error), "{bytes:02x?}");
}

/// As [`assert_rejected`], with MQTT 5.
pub(super) fn assert_rejected_5(bytes: &[u8], error: DecodeError) {
    assert_eq!(decode(Version::V5, bytes), Err(error), "{bytes:02x?}");
}

fn encoded(version: Version, packet: &Packet<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    packet.encode(version, &mut out).unwrap();
    out
}

#[test]
fn reserved_packet_types_are_rejected_at_the_first_byte() {
    assert_rejected(&[0x00], DecodeError::ReservedPacketType(0));
    assert_rejected(&[0xf0], DecodeError::ReservedPacketType(15));
}

#[test]
fn mqtt_3_1_sends_some_packets_again_with_dup() {
    for first in [0x6a, 0x8a, 0xaa] {
        assert_eq!(decode(Version::V31, &[first]), Ok(DecodedPacket::Incomplete { needed: 2 }));
    }
    assert!(matches!(decode(Version::V31, &[0x4a]), Err(DecodeError::BadHeaderFlags { .. })));
}

#[test]
fn header_flags_other_than_the_fixed_ones_are_rejected_at_the_first_byte() {
    for nibble in (1..=14).filter(|&nibble| nibble != PacketType::Publish as u8) {
        let fixed = if matches!(nibble, 6 | 8 | 10) { 0b0010 } else { 0 };
        for flags in 0..16 {
            let bytes = [nibble << 4 | flags];
            let found = decode(V, &bytes);
            if flags == fixed {
                assert_eq!(found, Ok(DecodedPacket::Incomplete { needed: 2 }));
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
    // Limits of table 2.4.
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
        let used = write_len(&mut written, len).unwrap();
        assert_eq!(&written[..used], bytes);
        let header = [&[0x30], bytes].concat();
        assert_eq!(
            decode(V, &header),
            Ok(DecodedPacket::Incomplete { needed: header.len() + len })
        );
    }
    assert_rejected(&[0x30, 0x80, 0x80, 0x80, 0x80], DecodeError::BadRemainingLength);
    assert_eq!(write_len(&mut [0; 4], LEN_MAX + 1), Err(EncodeError::PacketTooLong(LEN_MAX + 1)));
}

#[test]
fn decode_ignores_the_bytes_after_the_first_packet() {
    let bytes = [0xd0, 0, 0xff, 0xff];
    assert_eq!(decode(V, &bytes), Ok(DecodedPacket::Packet { packet: Packet::PingResp, len: 2 }));
    assert_eq!(decode(V, &[]), Ok(DecodedPacket::Incomplete { needed: 1 }));
}

#[test]
fn an_encode_error_leaves_the_output_unchanged() {
    let long = "x".repeat(65_536);
    let mut out = vec![1, 2, 3];
    let connect = Connect { client_id: &long, ..Connect::default() };
    assert_eq!(connect.encode(V, &mut out), Err(EncodeError::FieldTooLong(65_536)));
    let publish = Publish { topic: &long, ..Publish::default() };
    assert_eq!(publish.encode(V, &mut out), Err(EncodeError::FieldTooLong(65_536)));
    let id = (1, Properties::NONE);
    let filters = [("a", QoS::AtMostOnce.into()), (&*long, QoS::AtMostOnce.into())];
    assert_eq!(encode_subscribe(V, id, filters, &mut out), Err(EncodeError::FieldTooLong(65_536)));
    assert_eq!(
        encode_unsubscribe(V, id, [&*long], &mut out),
        Err(EncodeError::FieldTooLong(65_536))
    );
    let ack = Packet::PubAck(Ack::of(0));
    assert_eq!(ack.encode(V, &mut out), Err(EncodeError::ZeroPacketId));
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

fn any_version() -> impl Strategy<Value = Version> {
    prop_oneof![Just(Version::V31), Just(Version::V311), Just(Version::V5)]
}

/// Properties for a packet; none before MQTT 5. `None` stands for the will.
fn list(version: Version, packet: Option<PacketType>) -> BoxedStrategy<PropertyList> {
    match version {
        Version::V5 => any_list(packet),
        Version::V31 | Version::V311 => Just(PropertyList::new()).boxed(),
    }
}

/// A reason code that the packet may carry; success before MQTT 5.
fn any_code(version: Version, packet: PacketType) -> BoxedStrategy<ReasonCode> {
    let codes = (0..=255_u8).filter_map(|code| ReasonCode::of(packet, code).ok());
    match version {
        Version::V5 => proptest::sample::select(codes.collect::<Vec<_>>()).boxed(),
        Version::V31 | Version::V311 => Just(ReasonCode::SUCCESS).boxed(),
    }
}

/// Bytes of a valid packet of any type.
fn any_packet(version: Version) -> BoxedStrategy<Vec<u8>> {
    let empty = prop_oneof![Just(Packet::PingReq), Just(Packet::PingResp)];
    let any = prop_oneof![
        any_connect(version),
        any_publish(version),
        any_request(version),
        any_suback(version),
        any_connack(version),
        any_ack(version),
        any_reasoned(version),
        empty.prop_map(move |packet| encoded(version, &packet)),
    ];
    any.boxed()
}

/// Bytes of some packets of one version.
fn any_packets(most: usize) -> impl Strategy<Value = (Version, Vec<Vec<u8>>)> {
    any_version().prop_flat_map(move |v| (Just(v), vec(any_packet(v), 1..=most)))
}

fn any_suback(version: Version) -> impl Strategy<Value = Vec<u8>> {
    let is_request = prop_oneof![Just(PacketType::SubAck), Just(PacketType::UnsubAck)];
    is_request.prop_flat_map(move |packet_type| {
        let codes = match (version, packet_type) {
            (Version::V5, _) => {
                vec(any_code(version, packet_type).prop_map(ReasonCode::number), 1..300).boxed()
            }
            (_, PacketType::SubAck) => {
                vec(prop_oneof![0..=2_u8, Just(SubAck::FAILURE)], 1..300).boxed()
            }
            _ => Just(Vec::new()).boxed(),
        };
        (codes, 1..=u16::MAX, list(version, Some(packet_type))).prop_map(
            move |(codes, packet_id, list)| {
                let suback = SubAck { packet_id, properties: list.properties(), codes: &codes };
                let packet = match packet_type {
                    PacketType::SubAck => Packet::SubAck(suback),
                    _ => Packet::UnsubAck(suback),
                };
                encoded(version, &packet)
            },
        )
    })
}

fn any_connack(version: Version) -> impl Strategy<Value = Vec<u8>> {
    let code = match version {
        Version::V5 => any_code(version, PacketType::ConnAck).prop_map(ReasonCode::number).boxed(),
        Version::V31 | Version::V311 => any::<u8>().boxed(),
    };
    (any::<bool>(), code, list(version, Some(PacketType::ConnAck))).prop_map(
        move |(present, code, list)| {
            let session_present = present && code == 0;
            let properties = list.properties();
            encoded(version, &Packet::ConnAck(ConnAck { session_present, code, properties }))
        },
    )
}

fn any_ack(version: Version) -> impl Strategy<Value = Vec<u8>> {
    let types = [PacketType::PubAck, PacketType::PubRec, PacketType::PubRel, PacketType::PubComp];
    proptest::sample::select(types.to_vec()).prop_flat_map(move |packet_type| {
        let code = any_code(version, packet_type);
        (1..=u16::MAX, code, list(version, Some(packet_type))).prop_map(
            move |(packet_id, code, list)| {
                let ack = Ack { packet_id, code, properties: list.properties() };
                let packet = match packet_type {
                    PacketType::PubAck => Packet::PubAck(ack),
                    PacketType::PubRec => Packet::PubRec(ack),
                    PacketType::PubRel => Packet::PubRel(ack),
                    _ => Packet::PubComp(ack),
                };
                encoded(version, &packet)
            },
        )
    })
}

fn any_reasoned(version: Version) -> impl Strategy<Value = Vec<u8>> {
    let is_auth = if version == Version::V5 { any::<bool>().boxed() } else { Just(false).boxed() };
    is_auth.prop_flat_map(move |is_auth| {
        let packet_type = if is_auth { PacketType::Auth } else { PacketType::Disconnect };
        let code = any_code(version, packet_type);
        (code, list(version, Some(packet_type))).prop_map(move |(code, list)| {
            let reasoned = Reasoned { code, properties: list.properties() };
            let packet =
                if is_auth { Packet::Auth(reasoned) } else { Packet::Disconnect(reasoned) };
            encoded(version, &packet)
        })
    })
}

fn any_connect(version: Version) -> impl Strategy<Value = Vec<u8>> {
    let of_will = list(version, None);
    let will = (topic_name(), vec(any::<u8>(), 0..300), qos(), any::<bool>(), of_will);
    let login = (text(), proptest::option::of(vec(any::<u8>(), 0..40)));
    let options = (proptest::option::of(will), proptest::option::of(login));
    let list = list(version, Some(PacketType::Connect));
    (text(), options, any::<u16>(), any::<[bool; 2]>(), list).prop_map(
        move |(client_id, (will, login), keep_alive_s, [clean_session, bridge], list)| {
            let connect = Connect {
                client_id: &client_id,
                username: login.as_ref().map(|(username, _)| &**username),
                password: login.as_ref().and_then(|(_, password)| password.as_deref()),
                will: will.as_ref().map(|(topic, payload, qos, retain, list)| Will {
                    topic,
                    payload,
                    qos: *qos,
                    retain: *retain,
                    properties: list.properties(),
                }),
                keep_alive_s,
                clean_session,
                bridge,
                properties: list.properties(),
            };
            let bytes = encoded(version, &Packet::Connect(connect));
            assert_packet_of(version, &bytes, Packet::Connect(connect));
            bytes
        },
    )
}

fn any_publish(version: Version) -> impl Strategy<Value = Vec<u8>> {
    let flags = (qos(), any::<bool>(), any::<bool>());
    let list = list(version, Some(PacketType::Publish));
    (flags, topic_name(), 1..=u16::MAX, vec(any::<u8>(), 0..300), list).prop_map(
        move |((qos, dup, retain), topic, packet_id, payload, list)| {
            let with_id = qos != QoS::AtMostOnce;
            let publish = Publish {
                dup: dup && with_id,
                qos,
                retain,
                topic: &topic,
                packet_id: if with_id { packet_id } else { 0 },
                properties: list.properties(),
                payload: &payload,
            };
            let bytes = encoded(version, &Packet::Publish(publish));
            assert_packet_of(version, &bytes, Packet::Publish(publish));
            bytes
        },
    )
}

fn options(version: Version) -> BoxedStrategy<SubscriptionOptions> {
    let handling = prop_oneof![
        Just(RetainHandling::Send),
        Just(RetainHandling::SendIfNew),
        Just(RetainHandling::Never)
    ];
    match version {
        Version::V31 | Version::V311 => qos().prop_map(SubscriptionOptions::from).boxed(),
        Version::V5 => (qos(), any::<[bool; 2]>(), handling)
            .prop_map(|(qos, [no_local, retain_as_published], retain_handling)| {
                SubscriptionOptions { qos, no_local, retain_as_published, retain_handling }
            })
            .boxed(),
    }
}

fn any_request(version: Version) -> impl Strategy<Value = Vec<u8>> {
    let lists =
        (list(version, Some(PacketType::Subscribe)), list(version, Some(PacketType::Unsubscribe)));
    let filters = vec((topic_filter(), options(version)), 1..20);
    (filters, 1..=u16::MAX, any::<bool>(), lists).prop_map(
        move |(filters, packet_id, subscribe, (list, of_unsubscribe))| {
            let mut bytes = Vec::new();
            let pairs = filters.iter().map(|(filter, options)| (&**filter, *options));
            let names = filters.iter().map(|(filter, _)| &**filter);
            if subscribe {
                let id = (packet_id, list.properties());
                encode_subscribe(version, id, pairs.clone(), &mut bytes).unwrap();
            } else {
                let id = (packet_id, of_unsubscribe.properties());
                encode_unsubscribe(version, id, names.clone(), &mut bytes).unwrap();
            }
            match decode(version, &bytes).unwrap() {
                DecodedPacket::Packet { packet: Packet::Subscribe(found), .. } => {
                    assert!(found.filters().eq(pairs));
                    assert_eq!(found.properties, list.properties());
                }
                DecodedPacket::Packet { packet: Packet::Unsubscribe(found), .. } => {
                    assert!(found.filters().eq(names));
                }
                other => panic!("{other:?}"),
            }
            bytes
        },
    )
}

/// Packets in the chunks of a stream, then the error or the remaining bytes.
fn received<'a>(
    version: Version,
    chunks: impl Iterator<Item = &'a [u8]>,
) -> (Vec<String>, Result<usize, DecodeError>) {
    let (mut buffer, mut packets) = (Vec::new(), Vec::new());
    for chunk in chunks {
        buffer.extend_from_slice(chunk);
        loop {
            match decode(version, &buffer) {
                Ok(DecodedPacket::Packet { packet, len }) => {
                    packets.push(format!("{packet:?}"));
                    buffer.drain(..len);
                }
                Ok(DecodedPacket::Incomplete { .. }) => break,
                Err(error) => return (packets, Err(error)),
            }
        }
    }
    (packets, Ok(buffer.len()))
}

proptest! {
    #[test]
    fn a_decoded_packet_encodes_to_the_same_bytes((version, packets) in any_packets(1)) {
        let bytes = &packets[0];
        let Ok(DecodedPacket::Packet { packet, len }) = decode(version, bytes) else {
            panic!("{:?}", decode(version, bytes));
        };
        prop_assert_eq!(len, bytes.len());
        prop_assert_eq!(&encoded(version, &packet), bytes);
    }

    /// A stream gives the same packets and the same error, at every split point and for every
    /// fault.
    #[test]
    fn a_stream_split_anywhere_has_the_same_packets_and_the_same_end(
        (version, packets) in any_packets(12),
        wrong in proptest::option::of((any::<proptest::sample::Index>(), any::<u8>())),
        cuts in vec(any::<proptest::sample::Index>(), 0..20),
    ) {
        let mut stream = packets.concat();
        if let Some((at, byte)) = wrong {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        let whole = received(version, std::iter::once(&stream[..]));
        prop_assert!(wrong.is_some() || whole == (whole.0.clone(), Ok(0)));
        prop_assert!(wrong.is_some() || whole.0.len() == packets.len());
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|cut| &stream[cut[0]..cut[1]]);
        prop_assert_eq!(&received(version, pieces), &whole);
        prop_assert_eq!(&received(version, stream.chunks(1)), &whole);
    }

    #[test]
    fn a_packet_cut_at_any_point_is_incomplete_and_needs_at_most_its_length(
        (version, packets) in any_packets(1),
    ) {
        let bytes = &packets[0];
        for cut in 0..bytes.len() {
            match decode(version, &bytes[..cut]) {
                Ok(DecodedPacket::Incomplete { needed }) => {
                    prop_assert!(needed > cut && needed <= bytes.len());
                }
                other => panic!("cut at {cut}: {other:?}"),
            }
        }
    }

    #[test]
    fn any_bytes_decode_without_a_panic_and_within_their_length(
        version in any_version(),
        bytes in vec(any::<u8>(), 0..200),
    ) {
        if let Ok(DecodedPacket::Packet { len, .. }) = decode(version, &bytes) {
            prop_assert!(len <= bytes.len());
        }
    }

    #[test]
    fn a_packet_with_one_byte_changed_is_rejected_or_survives_a_round_trip(
        (version, mut packets) in any_packets(1),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let bytes = &mut packets[0];
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(DecodedPacket::Packet { packet, .. }) = decode(version, bytes) {
            let again = encoded(version, &packet);
            // A length may be written with more bytes than needed, so the test compares packets.
            let Ok(DecodedPacket::Packet { packet: second, .. }) = decode(version, &again) else {
                panic!("{packet:?}");
            };
            prop_assert_eq!(second, packet);
        }
    }
}
