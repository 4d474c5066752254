//! One session, packet by packet. Whole exchanges with a broker are in `tests/simulation.rs`.

use proptest::prelude::*;

use super::*;
use crate::codec::{Ack, ConnAck, Packet, PropertyList, Publish, SubAck, Value};

const V: Version = Version::V311;
const CLEAN: Connect<'static> = Connect {
    client_id: "c",
    username: None,
    password: None,
    will: None,
    keep_alive_s: 60,
    clean_session: true,
    bridge: false,
    properties: Properties::NONE,
};
const PERSISTENT: Connect<'static> = Connect { clean_session: false, ..CLEAN };

fn connected(connect: &Connect<'_>) -> MqttSession<u32> {
    let mut session = MqttSession::new();
    reconnect(&mut session, connect, false);
    session
}

fn reconnect(session: &mut MqttSession<u32>, connect: &Connect<'_>, session_present: bool) {
    session.connect(V, connect, &mut Vec::new()).unwrap();
    let connack = Packet::ConnAck(ConnAck { session_present, code: 0, ..ConnAck::default() });
    let event = session.handle(V, &connack, &mut Vec::new());
    assert_eq!(
        event,
        Ok(MqttEvent::Connected { session_present, dropped: 0, properties: Properties::NONE })
    );
    assert!(session.is_connected());
}

/// Handles a packet and returns the event and the bytes of the answer.
fn handle<'a>(session: &mut MqttSession<u32>, packet: Packet<'a>) -> (MqttEvent<'a, u32>, Vec<u8>) {
    let mut out = Vec::new();
    (session.handle(V, &packet, &mut out).unwrap(), out)
}

/// Handles a packet of MQTT 5 and returns the outcome and the bytes of the answer.
pub(super) fn handle_5<'a>(
    session: &mut MqttSession<u32>,
    packet: &Packet<'a>,
) -> (Result<MqttEvent<'a, u32>, ProtocolError>, Vec<u8>) {
    let mut out = Vec::new();
    (session.handle(Version::V5, packet, &mut out), out)
}

pub(super) fn list(properties: &[(Property, Value<'_>)]) -> PropertyList {
    let mut list = PropertyList::new();
    properties.iter().for_each(|&(property, value)| list.push(property, value).unwrap());
    list
}

fn message(qos: QoS, packet_id: PacketId) -> Publish<'static> {
    Publish { qos, packet_id, topic: "t", payload: b"p", ..Publish::default() }
}

/// Packets that `retransmit` sends: (DUP PUBLISH of token, id) as `Some`, PUBREL as `None`.
fn retransmitted(session: &mut MqttSession<u32>) -> Vec<(Option<u32>, PacketId)> {
    let mut out = Vec::new();
    let mut sent = session.retransmit(&mut out, |token, id, out| {
        let [high, low] = id.to_be_bytes();
        out.extend_from_slice(&[0xff, u8::try_from(token).unwrap(), high, low]);
        true
    });
    let list = out
        .chunks(4)
        .inspect(|_| sent -= 1)
        .map(|bytes| {
            let id = PacketId::from_be_bytes([bytes[2], bytes[3]]);
            ((bytes[0] == 0xff).then_some(u32::from(bytes[1])), id)
        })
        .collect();
    assert_eq!(sent, 0, "returns the number of messages sent");
    list
}

#[test]
fn a_refusal_names_its_code_and_leaves_the_session_disconnected() {
    let mut session = MqttSession::<u32>::new();
    session.connect(V, &CLEAN, &mut Vec::new()).unwrap();
    let connack =
        Packet::ConnAck(ConnAck { session_present: false, code: 5, ..ConnAck::default() });
    assert_eq!(
        handle(&mut session, connack).0,
        MqttEvent::Refused { code: 5, properties: Properties::NONE }
    );
    assert!(!session.is_connected());
}

#[test]
fn a_packet_that_a_server_must_not_send_is_a_protocol_error() {
    let connack = Packet::ConnAck(ConnAck::default());
    let mut session = MqttSession::<u32>::new();
    let handle = |session: &mut MqttSession<u32>, packet: Packet<'_>| {
        session.handle(V, &packet, &mut Vec::new()).map(|_| ()).unwrap_err()
    };
    assert_eq!(handle(&mut session, connack), ProtocolError::ConnAckWithoutConnect);
    session.connect(V, &CLEAN, &mut Vec::new()).unwrap();
    let publish = Packet::Publish(message(QoS::AtMostOnce, 0));
    assert_eq!(handle(&mut session, publish), ProtocolError::BeforeConnAck(PacketType::Publish));
    let present = Packet::ConnAck(ConnAck { session_present: true, code: 0, ..ConnAck::default() });
    assert_eq!(handle(&mut session, present), ProtocolError::SessionPresentOnCleanSession);
    session.handle(V, &connack, &mut Vec::new()).unwrap();
    assert_eq!(handle(&mut session, connack), ProtocolError::SecondConnAck);
    for packet in [Packet::Connect(CLEAN), Packet::PingReq, Packet::Disconnect(Reasoned::default())]
    {
        let error = ProtocolError::FromClient(packet.packet_type());
        assert_eq!(handle(&mut session, packet), error);
    }
}

#[test]
fn a_suback_has_one_code_for_each_filter() {
    let filters = [("a", QoS::AtMostOnce.into()), ("b", QoS::ExactlyOnce.into())];
    for codes in [&[0][..], &[0, 0, 0]] {
        let mut session = connected(&CLEAN);
        let id =
            session.subscribe(V, Properties::NONE, filters.into_iter(), &mut Vec::new()).unwrap();
        let suback = Packet::SubAck(SubAck { packet_id: id, codes, ..SubAck::default() });
        let error = session.handle(V, &suback, &mut Vec::new()).unwrap_err();
        assert_eq!(error, ProtocolError::SubAckCodes { codes: codes.len(), filters: 2 });
    }
}

/// UNSUBACK before MQTT 5, of one filter.
fn unsubscribed(packet_id: PacketId) -> MqttEvent<'static, u32> {
    MqttEvent::Unsubscribed { packet_id, filters: 1, codes: &[], properties: Properties::NONE }
}

#[test]
fn only_an_answer_of_the_matching_type_ends_a_request() {
    let mut session = connected(&CLEAN);
    let filters = [("a", QoS::AtMostOnce.into())].into_iter();
    let subscribe = session.subscribe(V, Properties::NONE, filters, &mut Vec::new()).unwrap();
    let unsubscribe = session.unsubscribe(V, ["b"].into_iter(), &mut Vec::new()).unwrap();
    let suback = |packet_id| Packet::SubAck(SubAck { packet_id, codes: &[0], ..SubAck::default() });
    let unsuback = |packet_id| Packet::UnsubAck(SubAck { packet_id, ..SubAck::default() });
    assert_eq!(handle(&mut session, suback(unsubscribe)).0, MqttEvent::UnknownAck);
    assert_eq!(handle(&mut session, unsuback(subscribe)).0, MqttEvent::UnknownAck);
    let subscribed =
        MqttEvent::Subscribed { packet_id: subscribe, codes: &[0], properties: Properties::NONE };
    assert_eq!(handle(&mut session, suback(subscribe)).0, subscribed);
    assert_eq!(handle(&mut session, unsuback(unsubscribe)).0, unsubscribed(unsubscribe));
}

#[test]
fn qos_0_and_subscriptions_leave_nothing_on_the_heap() {
    let mut session = connected(&CLEAN);
    assert_eq!(session.publish(QoS::AtMostOnce, 1), Ok(0));
    let mut out = Vec::new();
    let filters = [("a", QoS::AtMostOnce.into()), ("b", QoS::ExactlyOnce.into())];
    let id = session.subscribe(V, Properties::NONE, filters.into_iter(), &mut out).unwrap();
    assert_eq!(out, b"\x82\x0a\0\x01\0\x01a\0\0\x01b\x02");
    let suback = Packet::SubAck(SubAck { packet_id: id, codes: &[0, 2], ..SubAck::default() });
    let properties = Properties::NONE;
    let subscribed = MqttEvent::Subscribed { packet_id: id, codes: &[0, 2], properties };
    assert_eq!(handle(&mut session, suback).0, subscribed);
    assert_eq!(handle(&mut session, suback).0, MqttEvent::UnknownAck);
    let id = session.unsubscribe(V, ["a"].into_iter(), &mut Vec::new()).unwrap();
    let unsuback = Packet::UnsubAck(SubAck { packet_id: id, ..SubAck::default() });
    assert_eq!(handle(&mut session, unsuback).0, unsubscribed(id));
    assert!(session.windows.is_none());
    let (event, out) = handle(&mut session, Packet::Publish(message(QoS::AtLeastOnce, 9)));
    assert_eq!(event, MqttEvent::Delivered(message(QoS::AtLeastOnce, 9)));
    assert_eq!(out, [0x40, 2, 0, 9]);
    assert!(session.windows.is_none());
}

#[test]
fn a_request_that_cannot_be_encoded_uses_no_packet_id() {
    let mut session = connected(&CLEAN);
    let error = session.subscribe(V, Properties::NONE, [].into_iter(), &mut Vec::new());
    assert_eq!(error, Err(RequestError::Encode(codec::EncodeError::NoFilters)));
    assert!(session.windows.is_none());
    assert_eq!(session.publish(QoS::AtLeastOnce, 1), Ok(1));
}

#[test]
fn own_messages_are_acknowledged_with_their_token_in_any_order() {
    let mut session = connected(&CLEAN);
    let ids: Vec<_> =
        (0..4).map(|token| session.publish(QoS::AtLeastOnce, token).unwrap()).collect();
    assert_eq!(ids, [1, 2, 3, 4]);
    for token in [2, 0, 3, 1] {
        let packet_id = ids[token as usize];
        assert_eq!(
            handle(&mut session, Packet::PubAck(Ack::of(packet_id))).0,
            MqttEvent::Acknowledged(token)
        );
        assert_eq!(
            handle(&mut session, Packet::PubAck(Ack::of(packet_id))).0,
            MqttEvent::UnknownAck
        );
    }
    assert_eq!(session.in_flight(), 0);
}

#[test]
fn a_qos_2_message_goes_through_its_four_packets() {
    let mut session = connected(&CLEAN);
    let packet_id = session.publish(QoS::ExactlyOnce, 7).unwrap();
    assert_eq!(handle(&mut session, Packet::PubAck(Ack::of(packet_id))).0, MqttEvent::UnknownAck);
    assert_eq!(handle(&mut session, Packet::PubComp(Ack::of(packet_id))).0, MqttEvent::UnknownAck);
    let pubrel = vec![0x62, 2, 0, 1];
    let received = (MqttEvent::Received, pubrel.clone());
    assert_eq!(handle(&mut session, Packet::PubRec(Ack::of(packet_id))), received);
    assert_eq!(handle(&mut session, Packet::PubRec(Ack::of(packet_id))), received);
    assert_eq!(session.in_flight(), 1);
    assert_eq!(
        handle(&mut session, Packet::PubComp(Ack::of(packet_id))).0,
        MqttEvent::Acknowledged(7)
    );
    assert_eq!(
        handle(&mut session, Packet::PubRec(Ack::of(packet_id))),
        (MqttEvent::UnknownAck, pubrel)
    );
    assert_eq!(session.in_flight(), 0);
}

#[test]
fn a_qos_2_message_is_delivered_once_until_it_is_released() {
    let mut session = connected(&CLEAN);
    let first = message(QoS::ExactlyOnce, 5);
    let again = Publish { dup: true, ..first };
    let pubrec = vec![0x50, 2, 0, 5];
    assert_eq!(
        handle(&mut session, Packet::Publish(first)),
        (MqttEvent::Delivered(first), pubrec.clone())
    );
    assert_eq!(handle(&mut session, Packet::Publish(again)), (MqttEvent::Redelivered, pubrec));
    for _ in 0..2 {
        let released = handle(&mut session, Packet::PubRel(Ack::of(5)));
        assert_eq!(released, (MqttEvent::Released, vec![0x70, 2, 0, 5]));
    }
    assert_eq!(handle(&mut session, Packet::Publish(first)).0, MqttEvent::Delivered(first));
}

#[test]
fn a_persistent_session_sends_again_in_the_original_order() {
    let mut session = connected(&PERSISTENT);
    for token in 0..5 {
        let qos = if token % 2 == 0 { QoS::ExactlyOnce } else { QoS::AtLeastOnce };
        session.publish(qos, token).unwrap();
    }
    handle(&mut session, Packet::PubRec(Ack::of(3)));
    handle(&mut session, Packet::PubAck(Ack::of(2)));
    assert_eq!(session.connection_lost(true), 0);
    assert!(!session.is_connected());
    assert_eq!(session.in_flight(), 4);
    reconnect(&mut session, &PERSISTENT, true);
    let expected = [(Some(0), 1), (None, 3), (Some(3), 4), (Some(4), 5)];
    assert_eq!(retransmitted(&mut session), expected);
    assert_eq!(session.publish(QoS::AtLeastOnce, 9), Ok(6));
}

#[test]
fn a_clean_session_drops_messages_in_flight_and_returns_their_number() {
    let mut session = connected(&PERSISTENT);
    for token in 0..3 {
        session.publish(QoS::AtLeastOnce, token).unwrap();
    }
    assert_eq!(session.connection_lost(true), 0);
    assert_eq!(session.connect(V, &CLEAN, &mut Vec::new()), Ok(3));
    assert_eq!(session.in_flight(), 0);

    let mut session = connected(&CLEAN);
    session.publish(QoS::ExactlyOnce, 1).unwrap();
    assert_eq!(session.connection_lost(false), 1);
    assert!(session.windows.is_none());
}

#[test]
fn a_server_that_lost_its_session_may_use_old_packet_ids_for_new_messages() {
    let mut session = connected(&PERSISTENT);
    let publish = Packet::Publish(message(QoS::ExactlyOnce, 1));
    handle(&mut session, publish);
    session.connection_lost(true);
    reconnect(&mut session, &PERSISTENT, true);
    assert_eq!(handle(&mut session, publish).0, MqttEvent::Redelivered);
    session.connection_lost(true);
    reconnect(&mut session, &PERSISTENT, false);
    assert!(matches!(handle(&mut session, publish).0, MqttEvent::Delivered(_)));
}

#[test]
fn a_session_that_another_client_has_continued_may_use_old_packet_ids_for_new_messages() {
    let mut session = connected(&PERSISTENT);
    let publish = Packet::Publish(message(QoS::ExactlyOnce, 1));
    handle(&mut session, publish);
    session.connection_lost(true);
    reconnect(&mut session, &PERSISTENT, true);
    session.forget_received();
    assert!(matches!(handle(&mut session, publish).0, MqttEvent::Delivered(_)));
    assert_eq!(handle(&mut session, publish).0, MqttEvent::Redelivered);
}

#[test]
fn packet_ids_wrap_around_and_skip_ids_in_flight() {
    let mut session = connected(&CLEAN);
    session.publish(QoS::AtLeastOnce, 1).unwrap();
    let id = session.subscribe(
        V,
        Properties::NONE,
        [("a", QoS::AtMostOnce.into())].into_iter(),
        &mut Vec::new(),
    );
    assert_eq!(id, Ok(2));
    for expected in (3..=u16::MAX).chain(3..=10) {
        let packet_id = session.publish(QoS::AtLeastOnce, 2).unwrap();
        assert_eq!(packet_id, expected);
        assert_eq!(
            handle(&mut session, Packet::PubAck(Ack::of(packet_id))).0,
            MqttEvent::Acknowledged(2)
        );
    }
    assert_eq!(handle(&mut session, Packet::PubAck(Ack::of(1))).0, MqttEvent::Acknowledged(1));
}

#[test]
fn no_packet_id_is_free_if_all_are_in_flight() {
    let mut session = connected(&CLEAN);
    for token in 0..65_535 {
        assert!(session.publish(QoS::AtLeastOnce, token).is_ok());
    }
    assert_eq!(session.in_flight(), 65_535);
    assert_eq!(session.publish(QoS::AtLeastOnce, 0), Err(Blocked::NoPacketId));
    let filters = [("a", QoS::AtMostOnce.into())];
    let error = session.subscribe(V, Properties::NONE, filters.into_iter(), &mut Vec::new());
    assert_eq!(error, Err(RequestError::NoPacketId));
    assert_eq!(session.publish(QoS::AtMostOnce, 0), Ok(0));
    handle(&mut session, Packet::PubAck(Ack::of(777)));
    assert_eq!(session.publish(QoS::AtLeastOnce, 0), Ok(777));
}

#[test]
fn the_answer_to_a_ping_is_an_event() {
    let (mut session, mut out) = (connected(&CLEAN), Vec::new());
    session.ping(&mut out);
    assert_eq!(out, [0xc0, 0]);
    assert_eq!(handle(&mut session, Packet::PingResp).0, MqttEvent::Pong);
}

#[test]
fn after_disconnect_no_packet_is_expected_and_messages_stay_in_flight() {
    let mut session = connected(&CLEAN);
    session.publish(QoS::AtLeastOnce, 1).unwrap();
    let mut out = Vec::new();
    session.disconnect(V, ReasonCode::SUCCESS, &mut out);
    assert_eq!(out, [0xe0, 0]);
    assert!(!session.is_connected());
    assert_eq!(session.connection_lost(false), 1);
}

/// A packet that a faulty server may send too; few packet ids, so that ids collide.
fn any_server_packet() -> impl Strategy<Value = Packet<'static>> {
    let qos = prop_oneof![Just(QoS::AtMostOnce), Just(QoS::AtLeastOnce), Just(QoS::ExactlyOnce)];
    (0..11_u8, 1..12_u16, qos).prop_map(|(kind, packet_id, qos)| match kind {
        0 => Packet::ConnAck(ConnAck::default()),
        1 => Packet::PubAck(Ack::of(packet_id)),
        2 | 3 => Packet::PubRec(Ack::of(packet_id)),
        4 | 5 => Packet::PubComp(Ack::of(packet_id)),
        6 => Packet::PubRel(Ack::of(packet_id)),
        7 => Packet::SubAck(SubAck { packet_id, codes: &[0], ..SubAck::default() }),
        8 => Packet::UnsubAck(SubAck { packet_id, ..SubAck::default() }),
        9 => Packet::PingResp,
        _ => Packet::Publish(message(qos, if qos == QoS::AtMostOnce { 0 } else { packet_id })),
    })
}

proptest! {
    #[test]
    fn any_packets_of_a_server_return_every_token_at_most_once(
        packets in proptest::collection::vec(any_server_packet(), 0..200),
    ) {
        let mut session = connected(&PERSISTENT);
        let (mut out, mut published, mut acknowledged) = (Vec::new(), 0, Vec::new());
        for packet in packets {
            if session.in_flight() < 6 {
                let qos = if published % 2 == 0 { QoS::AtLeastOnce } else { QoS::ExactlyOnce };
                session.publish(qos, published).unwrap();
                published += 1;
            }
            if let Ok(MqttEvent::Acknowledged(token)) = session.handle(V, &packet, &mut out) {
                prop_assert!(!acknowledged.contains(&token));
                acknowledged.push(token);
            }
            prop_assert_eq!(acknowledged.len() + session.in_flight(), published as usize);
        }
        let mut replies = &out[..];
        while let Ok(codec::DecodedPacket::Packet { len, .. }) = codec::decode(V, replies) {
            replies = &replies[len..];
        }
        prop_assert!(replies.is_empty(), "the answers are whole packets");
    }
}
