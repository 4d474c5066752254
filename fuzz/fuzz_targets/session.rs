//! Fuzzes a session that has messages in flight with any bytes from a server, in every version of
//! MQTT; the first byte chooses the version. The session never panics, answers with well-formed
//! packets only, and never has more in flight than published. Run with `cargo +nightly fuzz run
//! session`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mqtt::{
    Connect, Decoded, Event, Property, PropertyList, QoS, Session, Value, Version, decode,
};

fuzz_target!(|input: &[u8]| {
    let Some((choice, bytes)) = input.split_first() else { return };
    let version = Version::ALL[usize::from(*choice) % Version::ALL.len()];
    let (mut session, mut out) = (Session::<u32>::new(), Vec::new());
    let mut list = PropertyList::new();
    list.push(Property::TopicAliasMaximum, Value::Number(9)).expect("the value is allowed");
    let connect = Connect { client_id: "c", properties: list.properties(), ..Connect::default() };
    session.connect(version, &connect, &mut out).expect("the packet is short");
    out.clear();
    let (mut rest, mut published) = (bytes, 0);
    while let Ok(Decoded::Packet { packet, len }) = decode(version, rest) {
        rest = &rest[len..];
        match session.handle(version, &packet, &mut out) {
            Ok(Event::Connected { .. }) => {
                for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce].into_iter().cycle().take(8) {
                    // A server of MQTT 5 may accept fewer.
                    published += u32::from(session.publish(qos, published).is_ok());
                }
            }
            Ok(Event::Acknowledged(token) | Event::Rejected { token, .. }) => {
                assert!(token < published);
            }
            Ok(Event::Delivered(publish)) => assert!(session.topic(&publish).is_some()),
            Ok(_) => {}
            Err(_) => break,
        }
        assert!(session.in_flight() <= published as usize);
    }
    let mut replies = &out[..];
    while !replies.is_empty() {
        match decode(version, replies) {
            Ok(Decoded::Packet { len, .. }) => replies = &replies[len..],
            other => panic!("{other:?}"),
        }
    }
    session.connection_lost(true);
    let kept = session.in_flight();
    assert_eq!(session.retransmit(&mut out, |_, _, _| ()), kept);
    assert_eq!((session.connection_lost(false), session.in_flight()), (kept, 0));
});
