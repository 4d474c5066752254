//! The broker alone, driven with packets.

use mqtt::{Connect, Properties, Reasoned, Will, encode_subscribe};

use super::*;

const V: Version = Version::V311;

fn connect(client_id: &str) -> Connect<'_> {
    Connect { client_id, clean_session: true, ..Connect::default() }
}

fn bytes(packet: &Packet<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    write(packet, V, &mut out);
    out
}

/// Opens a link and connects a client.
fn link(broker: &mut Broker, connect: &Connect<'_>) -> LinkId {
    let id = broker.open();
    broker.receive(id, &bytes(&Packet::Connect(*connect))).unwrap();
    assert_eq!(broker.take_output(id)[3], 0, "accepted");
    id
}

fn subscribe(broker: &mut Broker, id: LinkId, filter: &str, qos: QoS) {
    let mut out = Vec::new();
    encode_subscribe(V, (1, Properties::NONE), [(filter, qos.into())], &mut out).unwrap();
    broker.receive(id, &out).unwrap();
}

fn message(topic: &str, qos: QoS, retain: bool) -> BrokerMessage {
    BrokerMessage {
        topic: topic.to_owned(),
        payload: b"p".to_vec(),
        qos,
        retain,
        ..BrokerMessage::default()
    }
}

#[test]
fn a_message_reaches_its_subscribers_with_the_lower_qos() {
    let mut broker = Broker::new(Script::reliable());
    let a = link(&mut broker, &connect("a"));
    let b = link(&mut broker, &connect("b"));
    subscribe(&mut broker, a, "t/+", QoS::AtLeastOnce);
    subscribe(&mut broker, b, "u", QoS::AtMostOnce);
    assert_eq!(broker.take_output(a), [0x90, 3, 0, 1, 1]);
    broker.take_output(b);
    broker.publish(&message("t/1", QoS::ExactlyOnce, false));
    assert_eq!(broker.take_output(a), b"\x32\x08\0\x03t/1\0\x01p");
    assert!(broker.take_output(b).is_empty());
    assert_eq!(broker.pending("a"), 1);
    broker.receive(a, &[0x40, 2, 0, 1]).unwrap();
    assert_eq!(broker.pending("a"), 0);
}

#[test]
fn a_retained_message_follows_a_subscription_until_it_is_cleared() {
    let mut broker = Broker::new(Script::reliable());
    broker.publish(&message("t", QoS::AtMostOnce, true));
    let a = link(&mut broker, &connect("a"));
    subscribe(&mut broker, a, "#", QoS::AtMostOnce);
    assert_eq!(broker.take_output(a), b"\x90\x03\0\x01\0\x31\x04\0\x01tp");
    broker.publish(&BrokerMessage { payload: Vec::new(), ..message("t", QoS::AtMostOnce, true) });
    broker.take_output(a);
    subscribe(&mut broker, a, "#", QoS::AtMostOnce);
    assert_eq!(broker.take_output(a), [0x90, 3, 0, 1, 0]);
}

#[test]
fn a_will_is_published_unless_the_client_sends_disconnect() {
    let mut broker = Broker::new(Script::reliable());
    let will = Will { topic: "w", payload: b"p", ..Will::default() };
    let with_will = Connect { will: Some(will), ..connect("a") };
    let a = link(&mut broker, &with_will);
    broker.receive(a, &bytes(&Packet::Disconnect(Reasoned::default()))).unwrap();
    assert!(!broker.is_open(a) && broker.accepted().is_empty());
    let a = link(&mut broker, &with_will);
    broker.cut(a);
    assert_eq!(broker.accepted(), [message("w", QoS::AtMostOnce, false)]);
}

#[test]
fn a_persistent_session_queues_messages_while_its_client_is_offline() {
    let mut broker = Broker::new(Script::reliable());
    let persistent = Connect { clean_session: false, ..connect("a") };
    let a = link(&mut broker, &persistent);
    subscribe(&mut broker, a, "t", QoS::ExactlyOnce);
    broker.cut(a);
    broker.publish(&message("t", QoS::AtMostOnce, false));
    broker.publish(&message("t", QoS::ExactlyOnce, false));
    let a = broker.open();
    broker.receive(a, &bytes(&Packet::Connect(persistent))).unwrap();
    assert_eq!(broker.take_output(a), b"\x20\x02\x01\0\x34\x06\0\x01t\0\x01p");
    broker.cut(a);
    link(&mut broker, &connect("a"));
    assert_eq!(broker.pending("a"), 0, "a clean session drops messages");
}

#[test]
fn the_same_client_id_takes_the_session_over() {
    let mut broker = Broker::new(Script::reliable());
    let old = link(&mut broker, &connect("a"));
    let new = link(&mut broker, &connect("a"));
    assert!(!broker.is_open(old) && broker.is_open(new));
    assert_eq!(broker.receive(old, &[0xc0, 0]), Err(BrokerError::Closed));
}

#[test]
fn clients_that_break_the_protocol_lose_their_link() {
    let mut broker = Broker::new(Script::reliable());
    let id = broker.open();
    let error = BrokerError::Unexpected(PacketType::PingReq);
    assert_eq!(broker.receive(id, &[0xc0, 0]), Err(error));
    assert!(!broker.is_open(id));
    let id = link(&mut broker, &connect("a"));
    let again = bytes(&Packet::Connect(connect("a")));
    assert_eq!(broker.receive(id, &again), Err(BrokerError::Unexpected(PacketType::Connect)));
    let id = link(&mut broker, &connect("a"));
    let error = BrokerError::Malformed(DecodeError::ReservedPacketType(0));
    assert_eq!(broker.receive(id, &[0]), Err(error));
}

#[test]
fn acknowledgements_have_the_fate_of_the_script() {
    let mut fates = [Fate::Drop, Fate::Duplicate, Fate::Delay, Fate::Send].into_iter();
    let script = Script::with_fates(move |_| fates.next().unwrap());
    let mut broker = Broker::new(script);
    let id = link(&mut broker, &connect("a"));
    let mut publish = |packet_id: u8| {
        broker.receive(id, &[0x32, 5, 0, 1, b't', 0, packet_id]).unwrap();
        broker.take_output(id)
    };
    assert_eq!(publish(1), b"");
    assert_eq!(publish(2), [0x40, 2, 0, 2, 0x40, 2, 0, 2]);
    assert_eq!(publish(3), b"");
    assert_eq!(publish(4), [0x40, 2, 0, 4, 0x40, 2, 0, 3]);
    assert_eq!(broker.accepted().len(), 4);
}

#[test]
fn connections_are_refused_with_the_code_of_the_script_or_of_the_standard() {
    let mut broker = Broker::new(Script { connack_code: 3, ..Script::reliable() });
    let refused = |broker: &mut Broker, connect: Vec<u8>| {
        let id = broker.open();
        broker.receive(id, &connect).unwrap();
        assert!(!broker.is_open(id));
        broker.take_output(id)
    };
    let plain = bytes(&Packet::Connect(connect("a")));
    assert_eq!(refused(&mut broker, plain.clone()), [0x20, 2, 0, 3]);
    broker.set_script(Script::reliable());
    let unnamed = bytes(&Packet::Connect(Connect { clean_session: false, ..connect("") }));
    assert_eq!(refused(&mut broker, unnamed), [0x20, 2, 0, 2]);
    let mut other_version = plain;
    other_version[8] = 6;
    assert_eq!(refused(&mut broker, other_version), [0x20, 2, 0, 1]);
}
