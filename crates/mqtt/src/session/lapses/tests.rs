//! Breaches of a server of MQTT 5 after which the connection continues.

use super::super::tests::{handle_5, list};
use super::super::{MqttEvent, MqttSession, ProtocolError};
use super::*;
use crate::codec::{
    Ack, ConnAck, Connect, Packet, PacketType, Properties, Property, QoS, ReasonCode, Reasoned,
    SubAck, SubscriptionOptions, Value, Version,
};

const V: Version = Version::V5;
const METHOD: (Property, Value<'_>) = (Property::AuthenticationMethod, Value::Text("M"));
const OTHER: (Property, Value<'_>) = (Property::AuthenticationMethod, Value::Text("N"));

type Given<'a> = &'a [(Property, Value<'a>)];

/// A session for which the server answers CONNECT with these properties, and the breaches.
fn accepted(
    client_id: &str,
    (own, connack): (Given<'_>, Given<'_>),
) -> (MqttSession<u32>, Vec<Lapse>) {
    let mut session = MqttSession::new();
    let own = list(own);
    let connect = Connect { client_id, properties: own.properties(), ..Connect::default() };
    session.connect(V, &connect, &mut Vec::new()).unwrap();
    let lapses = answered(&mut session, connack);
    (session, lapses)
}

fn answered(session: &mut MqttSession<u32>, connack: &[(Property, Value<'_>)]) -> Vec<Lapse> {
    let list = list(connack);
    let connack = ConnAck { properties: list.properties(), ..ConnAck::default() };
    handle_5(session, &Packet::ConnAck(connack)).0.unwrap();
    session.take_lapses().iter().collect()
}

#[test]
fn a_client_without_an_identifier_gets_one() {
    let assigned = (Property::AssignedClientIdentifier, Value::Text("a"));
    for (client_id, connack, lapses) in
        [("", &[][..], &[Lapse::NoClientId][..]), ("", &[assigned], &[]), ("c", &[], &[])]
    {
        assert_eq!(accepted(client_id, (&[], connack)).1, lapses);
    }
    let mut session: MqttSession<u32> = MqttSession::new();
    let kept = Connect { clean_session: false, ..Connect::default() };
    session.connect(V, &kept, &mut Vec::new()).unwrap();
    assert_eq!(answered(&mut session, &[assigned]), []);
    // The client continues with the identifier that it was given.
    session.connect(V, &kept, &mut Vec::new()).unwrap();
    assert_eq!(answered(&mut session, &[]), []);
    let mut older: MqttSession<u32> = MqttSession::new();
    older.connect(Version::V311, &Connect::default(), &mut Vec::new()).unwrap();
    older.handle(Version::V311, &Packet::ConnAck(ConnAck::default()), &mut Vec::new()).unwrap();
    assert!(older.take_lapses().is_empty());
}

#[test]
fn the_server_repeats_the_method_of_the_client() {
    for (own, connack, lapses) in [
        (&[METHOD][..], &[METHOD][..], &[][..]),
        (&[METHOD], &[OTHER], &[Lapse::OtherMethod]),
        (&[METHOD], &[], &[Lapse::OtherMethod]),
        (&[], &[], &[]),
    ] {
        assert_eq!(accepted("c", (own, connack)).1, lapses);
    }
    for (challenge, lapses) in [(METHOD, &[][..]), (OTHER, &[Lapse::OtherMethod])] {
        let mut session: MqttSession<u32> = MqttSession::new();
        let (own, challenge) = (list(&[METHOD]), list(&[challenge]));
        let connect =
            Connect { client_id: "c", properties: own.properties(), ..Connect::default() };
        session.connect(V, &connect, &mut Vec::new()).unwrap();
        let code = ReasonCode::CONTINUE_AUTHENTICATION;
        let auth = Reasoned { code, properties: challenge.properties() };
        assert!(matches!(
            handle_5(&mut session, &Packet::Auth(auth)).0,
            Ok(MqttEvent::Challenged(_))
        ));
        assert!(session.take_lapses().iter().eq(lapses.iter().copied()));
    }
}

#[test]
fn a_server_grants_nothing_that_it_has_not() {
    use Property::{
        SharedSubscriptionAvailable as Shared, SubscriptionIdentifierAvailable as Identifiers,
        WildcardSubscriptionAvailable as Wildcards,
    };
    for (lacks, filters, identified, codes, is_lapse) in [
        (Wildcards, &["a/+"][..], false, &[0][..], true),
        (Wildcards, &["#"], false, &[0x83], false),
        (Wildcards, &["a"], false, &[0], false),
        (Wildcards, &["a", "b/#"], false, &[0, 0xa2], false),
        (Wildcards, &["a", "b/#"], false, &[0, 0], true),
        (Identifiers, &["a"], true, &[0], true),
        (Identifiers, &["a"], true, &[0xa1], false),
        (Identifiers, &["a/#"], false, &[0], false),
        (Shared, &["$share/g/a"], false, &[2], true),
        (Shared, &["$share/g/a"], false, &[0x9e], false),
        (Shared, &["a/$share/b"], false, &[2], false),
    ] {
        let (mut session, _) = accepted("c", (&[], &[(lacks, Value::Number(0))]));
        let identifier = list(&[(Property::SubscriptionIdentifier, Value::Number(1))]);
        let properties = if identified { identifier.properties() } else { Properties::NONE };
        let asked = filters.iter().map(|&filter| (filter, SubscriptionOptions::default()));
        let packet_id = session.subscribe(V, properties, asked, &mut Vec::new()).unwrap();
        let suback = SubAck { packet_id, codes, properties: Properties::NONE };
        handle_5(&mut session, &Packet::SubAck(suback)).0.unwrap();
        assert_eq!(session.take_lapses().iter().any(|l| l == Lapse::Unavailable), is_lapse);
    }
}

#[test]
fn pubcomp_with_an_error_completes_a_message_and_breaks_a_rule() {
    let code = ReasonCode::of(PacketType::PubComp, 0x92).unwrap();
    let refused = |packet_id| Packet::PubComp(Ack { code, ..Ack::of(packet_id) });
    let (mut session, _) = accepted("c", (&[], &[]));
    assert_eq!(handle_5(&mut session, &refused(9)).0, Ok(MqttEvent::UnknownAck));
    assert!(session.take_lapses().is_empty());
    session.publish(QoS::ExactlyOnce, 7).unwrap();
    handle_5(&mut session, &Packet::PubRec(Ack::of(1))).0.unwrap();
    assert_eq!(handle_5(&mut session, &refused(1)).0, Ok(MqttEvent::Acknowledged(7)));
    assert!(session.take_lapses().iter().eq([Lapse::PubCompError]));
    assert!(session.take_lapses().is_empty());
}

#[test]
fn a_server_may_have_forgotten_a_message_that_is_sent_again() {
    let code = ReasonCode::of(PacketType::PubComp, 0x92).unwrap();
    let kept = Connect { client_id: "c", clean_session: false, ..Connect::default() };
    let mut session = MqttSession::new();
    for session_present in [false, true] {
        session.connect(V, &kept, &mut Vec::new()).unwrap();
        let connack = ConnAck { session_present, ..ConnAck::default() };
        handle_5(&mut session, &Packet::ConnAck(connack)).0.unwrap();
        if !session_present {
            session.publish(QoS::ExactlyOnce, 7).unwrap();
            handle_5(&mut session, &Packet::PubRec(Ack::of(1))).0.unwrap();
        }
    }
    session.retransmit(&mut Vec::new(), |_, _, _| true);
    let refused = Packet::PubComp(Ack { code, ..Ack::of(1) });
    assert_eq!(handle_5(&mut session, &refused).0, Ok(MqttEvent::Acknowledged(7)));
    assert!(session.take_lapses().is_empty());
}

#[test]
fn the_code_of_a_will_in_disconnect_is_for_clients_only() {
    let (mut session, _) = accepted("c", (&[], &[]));
    let reasoned = Reasoned { code: ReasonCode::DISCONNECT_WITH_WILL, ..Reasoned::default() };
    let event = handle_5(&mut session, &Packet::Disconnect(reasoned)).0;
    assert_eq!(event, Err(ProtocolError::WillFromServer));
}
