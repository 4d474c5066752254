//! A session of MQTT 5: limits of the server, reason codes and topic aliases.

use super::super::tests::{handle_5, list};
use super::super::{Blocked, MqttEvent, ProtocolError};
use super::*;
use crate::codec::{
    Ack, ConnAck, Connect, Packet, PacketType, PropertyList, ReasonCode, Reasoned, SubAck, Version,
};

const V: Version = Version::V5;

fn connect() -> Connect<'static> {
    Connect { client_id: "c", ..Connect::default() }
}

/// A session that a server with these properties in CONNACK has accepted.
fn connected(connect: &Connect<'_>, properties: &[(Property, Value<'_>)]) -> MqttSession<u32> {
    let mut session = MqttSession::new();
    session.connect(V, connect, &mut Vec::new()).unwrap();
    let list = list(properties);
    let connack = ConnAck { properties: list.properties(), ..ConnAck::default() };
    let event = handle_5(&mut session, &Packet::ConnAck(connack)).0;
    assert_eq!(
        event,
        Ok(MqttEvent::Connected {
            session_present: false,
            dropped: 0,
            properties: list.properties()
        })
    );
    session
}

fn code(packet: PacketType, code: u8) -> ReasonCode {
    ReasonCode::of(packet, code).unwrap()
}

#[test]
fn a_server_without_limits_costs_no_memory() {
    let properties = [(Property::UserProperty, Value::Pair("a", "b"))];
    let session = connected(&connect(), &properties);
    assert!(session.server.is_none());
    assert_eq!(session.limits().check(QoS::ExactlyOnce, true), Ok(()));
    assert_eq!(session.limits().packet_bytes_max(), u32::MAX as usize);
    assert_eq!(session.keep_alive_s(60), 60);
}

#[test]
fn the_receive_maximum_of_the_server_is_obeyed() {
    let properties = [(Property::ReceiveMaximum, Value::Number(2))];
    let mut session = connected(&connect(), &properties);
    assert_eq!(session.publish(QoS::AtLeastOnce, 1), Ok(1));
    assert_eq!(session.publish(QoS::ExactlyOnce, 2), Ok(2));
    assert_eq!(session.publish(QoS::AtLeastOnce, 3), Err(Blocked::ReceiveMaximum));
    assert_eq!(session.publish(QoS::AtMostOnce, 4), Ok(0));
    // PUBREC does not free a place, PUBCOMP does (4.9).
    let rec = handle_5(&mut session, &Packet::PubRec(Ack::of(2)));
    assert_eq!(rec, (Ok(MqttEvent::Received), vec![0x62, 2, 0, 2]));
    assert_eq!(session.publish(QoS::AtLeastOnce, 3), Err(Blocked::ReceiveMaximum));
    assert_eq!(
        handle_5(&mut session, &Packet::PubComp(Ack::of(2))).0,
        Ok(MqttEvent::Acknowledged(2))
    );
    assert_eq!(session.publish(QoS::AtLeastOnce, 3), Ok(3));
}

#[test]
fn auth_is_allowed_between_connect_and_connack_if_connect_names_a_method() {
    let method = [
        (Property::AuthenticationMethod, Value::Text("m")),
        (Property::AuthenticationData, Value::Binary(b"1")),
    ];
    let (named, step) = (list(&method[..1]), list(&method));
    let properties = step.properties();
    let continued = ReasonCode::CONTINUE_AUTHENTICATION;
    let challenge = Packet::Auth(Reasoned { code: continued, properties });
    let mut session = MqttSession::<u32>::new();
    session.connect(V, &connect(), &mut Vec::new()).unwrap();
    let refused = Err(ProtocolError::BeforeConnAck(PacketType::Auth));
    assert_eq!(handle_5(&mut session, &challenge).0, refused);
    let authenticates = Connect { properties: named.properties(), ..connect() };
    session.connect(V, &authenticates, &mut Vec::new()).unwrap();
    for _ in 0..2 {
        assert_eq!(
            handle_5(&mut session, &challenge),
            (Ok(MqttEvent::Challenged(properties)), vec![])
        );
    }
    let success = Packet::Auth(Reasoned { properties, ..Reasoned::default() });
    assert_eq!(handle_5(&mut session, &success).0, Err(ProtocolError::UnexpectedAuth));
    let connack = Packet::ConnAck(ConnAck { properties, ..ConnAck::default() });
    let connected = MqttEvent::Connected { session_present: false, dropped: 0, properties };
    assert_eq!(handle_5(&mut session, &connack).0, Ok(connected));
    assert_eq!(handle_5(&mut session, &challenge).0, Err(ProtocolError::UnexpectedAuth));
    let mut out = Vec::new();
    crate::encode_auth(properties, &mut out).unwrap();
    assert_eq!(out, b"\xf0\x0a\x18\x08\x15\0\x01m\x16\0\x011");
}

#[test]
fn a_refused_message_leaves_the_session_with_its_reason() {
    let mut session = connected(&connect(), &[]);
    session.publish(QoS::AtLeastOnce, 1).unwrap();
    session.publish(QoS::ExactlyOnce, 2).unwrap();
    let refused = code(PacketType::PubAck, 0x97);
    let mut list = PropertyList::new();
    list.push(Property::ReasonString, Value::Text("full")).unwrap();
    let properties = list.properties();
    let puback = Packet::PubAck(Ack { code: refused, properties, ..Ack::of(1) });
    let rejected = |token| Ok(MqttEvent::Rejected { token, code: refused, properties });
    assert_eq!(handle_5(&mut session, &puback), (rejected(1), vec![]));
    let pubrec = Packet::PubRec(Ack { code: refused, properties, ..Ack::of(2) });
    assert_eq!(handle_5(&mut session, &pubrec), (rejected(2), vec![]), "no PUBREL");
    assert_eq!(handle_5(&mut session, &pubrec).0, Ok(MqttEvent::UnknownAck));
    assert_eq!(session.in_flight(), 0);
    session.publish(QoS::AtLeastOnce, 3).unwrap();
    let unheard = code(PacketType::PubAck, 0x10);
    let puback = Packet::PubAck(Ack { code: unheard, ..Ack::of(3) });
    assert_eq!(handle_5(&mut session, &puback).0, Ok(MqttEvent::Acknowledged(3)));
}

#[test]
fn messages_that_the_server_does_not_support_are_not_sent() {
    let properties = [
        (Property::MaximumPacketSize, Value::Number(100)),
        (Property::MaximumQoS, Value::Number(1)),
        (Property::RetainAvailable, Value::Number(0)),
    ];
    let mut session = connected(&connect(), &properties);
    assert_eq!(session.limits().check(QoS::AtLeastOnce, false), Ok(()));
    assert_eq!(session.limits().check(QoS::ExactlyOnce, false), Err(Unsupported::QoS));
    assert_eq!(session.limits().check(QoS::AtMostOnce, true), Err(Unsupported::Retain));
    assert_eq!(session.limits().packet_bytes_max(), 100);
    let packet_id = session.publish(QoS::AtLeastOnce, 1).unwrap();
    session.withdraw(packet_id, Alias::Unusable);
    assert_eq!(session.in_flight(), 0);
}

#[test]
fn the_keep_alive_of_the_server_replaces_the_one_of_the_client() {
    let session = connected(&connect(), &[(Property::ServerKeepAlive, Value::Number(7))]);
    assert_eq!(session.keep_alive_s(60), 7);
    assert_eq!(session.keep_alive_s(0), 7);
    let session = connected(&connect(), &[(Property::ServerKeepAlive, Value::Number(0))]);
    assert_eq!(session.keep_alive_s(60), 0);
}

#[test]
fn a_server_without_the_session_drops_messages_in_flight() {
    let mut session = connected(&connect(), &[(Property::ReceiveMaximum, Value::Number(2))]);
    session.publish(QoS::AtLeastOnce, 1).unwrap();
    session.publish(QoS::ExactlyOnce, 2).unwrap();
    assert_eq!(session.connection_lost(true), 0);
    session.connect(V, &connect(), &mut Vec::new()).unwrap();
    let event = handle_5(&mut session, &Packet::ConnAck(ConnAck::default())).0;
    assert_eq!(
        event,
        Ok(MqttEvent::Connected {
            session_present: false,
            dropped: 2,
            properties: Properties::NONE
        })
    );
    assert_eq!(session.in_flight(), 0);
    assert!(session.server.is_none(), "limits end with their connection");
}

#[test]
fn a_server_may_disconnect_and_must_not_authenticate() {
    let mut session = connected(&connect(), &[]);
    let auth = Packet::Auth(Reasoned::default());
    assert_eq!(handle_5(&mut session, &auth).0, Err(ProtocolError::UnexpectedAuth));
    let taken_over = Reasoned { code: code(PacketType::Disconnect, 0x8e), ..Reasoned::default() };
    let event = handle_5(&mut session, &Packet::Disconnect(taken_over)).0;
    assert_eq!(event, Ok(MqttEvent::Disconnected(taken_over)));
    assert!(!session.is_open());
}

#[test]
fn own_topic_aliases_stay_within_the_maximum_of_the_server_and_the_connection() {
    let properties = [(Property::TopicAliasMaximum, Value::Number(65))];
    let mut session = connected(&connect(), &properties);
    for alias in [1, 64, 65] {
        assert_eq!(session.announce(alias), Alias::New(alias));
        session.withdraw(0, Alias::New(alias));
        assert_eq!(session.announce(alias), Alias::New(alias));
        assert_eq!(session.announce(alias), Alias::Known(alias));
    }
    assert_eq!((session.announce(0), session.announce(66)), (Alias::Unusable, Alias::Unusable));
    session.connection_lost(true);
    assert_eq!(session.announce(1), Alias::Unusable);
    session.connect(V, &connect(), &mut Vec::new()).unwrap();
    let list = list(&properties);
    let connack = ConnAck { properties: list.properties(), ..ConnAck::default() };
    handle_5(&mut session, &Packet::ConnAck(connack)).0.unwrap();
    assert_eq!(session.announce(1), Alias::New(1));
}

#[test]
fn aliases_of_the_server_stand_for_their_last_topic() {
    let most = list(&[(Property::TopicAliasMaximum, Value::Number(2))]);
    let connect = Connect { properties: most.properties(), ..connect() };
    let mut session = connected(&connect, &[]);
    let mut receive = |topic, alias| {
        let list = list(&[(Property::TopicAlias, Value::Number(alias))]);
        let publish = Publish { topic, properties: list.properties(), ..Publish::default() };
        let outcome = handle_5(&mut session, &Packet::Publish(publish)).0;
        outcome.map(|_| session.topic(&publish).map(str::to_owned))
    };
    let topic = |topic: &str| Ok(Some(topic.to_owned()));
    assert_eq!(receive("", 2), Err(ProtocolError::TopicAlias(2)));
    assert_eq!(receive("a", 2), topic("a"));
    assert_eq!(receive("", 2), topic("a"));
    assert_eq!(receive("", 1), Err(ProtocolError::TopicAlias(1)));
    assert_eq!(receive("b", 2), topic("b"));
    assert_eq!(receive("", 2), topic("b"));
    assert_eq!(receive("c", 3), Err(ProtocolError::TopicAlias(3)));
}

#[test]
fn a_client_keeps_its_assigned_identifier_with_its_session() {
    let unnamed = Connect::default();
    let assigned = [(Property::AssignedClientIdentifier, Value::Text("x7"))];
    let mut session = connected(&unnamed, &assigned);
    let again = |session: &mut MqttSession<u32>, keep: bool| {
        session.connection_lost(keep);
        let mut out = Vec::new();
        session.connect(V, &unnamed, &mut out).unwrap();
        out.ends_with(b"\0\x02x7")
    };
    assert!(again(&mut session, true) && again(&mut session, true));
    assert!(!again(&mut session, false));
}

#[test]
fn an_unsuback_with_codes_ends_its_request() {
    let mut session = connected(&connect(), &[]);
    let packet_id = session.unsubscribe(V, ["a"].into_iter(), &mut Vec::new()).unwrap();
    let unsuback = SubAck { packet_id, codes: &[0x11], ..SubAck::default() };
    let event = handle_5(&mut session, &Packet::UnsubAck(unsuback)).0;
    let properties = Properties::NONE;
    let unsubscribed =
        MqttEvent::Unsubscribed { packet_id, filters: 1, codes: &[0x11], properties };
    assert_eq!(event, Ok(unsubscribed));
}

#[test]
fn an_unsuback_needs_a_code_for_each_filter() {
    for codes in [&[][..], &[0], &[0, 0, 0]] {
        let mut session = connected(&connect(), &[]);
        let packet_id = session.unsubscribe(V, ["a", "b"].into_iter(), &mut Vec::new()).unwrap();
        let unsuback = SubAck { packet_id, codes, ..SubAck::default() };
        let event = handle_5(&mut session, &Packet::UnsubAck(unsuback)).0;
        let codes = codes.len();
        assert_eq!(event, Err(ProtocolError::UnsubAckCodes { codes, filters: 2 }));
    }
}

#[test]
fn messages_are_sent_again_as_the_new_connection_allows() {
    let kept = Connect { clean_session: false, ..connect() };
    let mut session = connected(&kept, &[]);
    (0..5).for_each(|token| assert!(session.publish(QoS::AtLeastOnce, token).is_ok()));
    session.connection_lost(true);
    session.connect(V, &kept, &mut Vec::new()).unwrap();
    let two = list(&[(Property::ReceiveMaximum, Value::Number(2))]);
    let connack = ConnAck { session_present: true, properties: two.properties(), code: 0 };
    handle_5(&mut session, &Packet::ConnAck(connack)).0.unwrap();
    let again = |session: &mut MqttSession<u32>| {
        let mut offered = Vec::new();
        session.retransmit(&mut Vec::new(), |token, packet_id, _| {
            offered.push((token, packet_id));
            token != 3
        });
        offered
    };
    let acknowledge = |session: &mut MqttSession<u32>, packet_id| {
        handle_5(session, &Packet::PubAck(Ack::of(packet_id))).0
    };
    assert_eq!(again(&mut session), [(0, 1), (1, 2)]);
    assert_eq!((again(&mut session), session.holds_back()), (vec![], true));
    assert_eq!(session.publish(QoS::AtLeastOnce, 9), Err(Blocked::ReceiveMaximum));
    let subscribed = session.subscribe(
        V,
        Properties::NONE,
        [("a", QoS::AtMostOnce.into())].into_iter(),
        &mut Vec::new(),
    );
    assert_eq!(subscribed, Ok(6), "the identifiers of all messages are taken");
    assert_eq!(acknowledge(&mut session, 1), Ok(MqttEvent::Acknowledged(0)));
    assert_eq!(again(&mut session), [(2, 3)]);
    // The server has got this one on the first connection.
    assert_eq!(acknowledge(&mut session, 5), Ok(MqttEvent::Acknowledged(4)));
    assert_eq!(acknowledge(&mut session, 2), Ok(MqttEvent::Acknowledged(1)));
    assert_eq!(again(&mut session), [(3, 4)], "which is given up");
    assert_eq!((session.in_flight(), session.holds_back()), (1, false));
    assert_eq!(acknowledge(&mut session, 4), Ok(MqttEvent::UnknownAck));
    assert_eq!(session.publish(QoS::AtLeastOnce, 9), Ok(7));
    // Messages that were sent again come before those that were not.
    session.connection_lost(true);
    assert_eq!(again(&mut session), [(2, 3), (9, 7)]);
}
