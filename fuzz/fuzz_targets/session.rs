//! Fuzzes a session that has messages and requests in flight with any bytes from a server, in every
//! version of MQTT, with and without AUTH; the first byte chooses. The session never panics,
//! answers with well-formed packets only, and never has more in flight than published. No split of
//! the bytes changes its events or its answers. Run with `cargo +nightly fuzz run session`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mqtt::{
    Connect, DecodedPacket, MqttEvent, MqttSession, Packet, Properties, Property, PropertyList,
    QoS, SubscriptionOptions, Value, Version, decode, encode_auth,
};

const METHOD: &str = "m";
const FILTERS: [&str; 2] = ["a/#", "b"];

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (choice, split, bytes) = input;
    let version = Version::ALL[usize::from(choice) % Version::ALL.len()];
    let auth = version == Version::V5 && choice >= 128;
    let whole = Played::new(version, auth, bytes, bytes.len());
    assert_eq!(whole, Played::new(version, auth, bytes, usize::from(split) + 1));
});

#[derive(Debug, Default, PartialEq)]
struct Played {
    published: u32,
    events: Vec<String>,
    out: Vec<u8>,
}

impl Played {
    /// A session whose server sends these bytes in pieces of `piece` bytes.
    fn new(version: Version, auth: bool, bytes: &[u8], piece: usize) -> Self {
        let mut played = Self::default();
        let mut session = connected(version, auth);
        let (mut start, mut end) = (0, 0);
        loop {
            match decode(version, &bytes[start..end]) {
                Ok(DecodedPacket::Packet { packet, len }) => {
                    start += len;
                    if !played.packet(version, &mut session, &packet) {
                        break;
                    }
                }
                Ok(DecodedPacket::Incomplete { .. }) if end < bytes.len() => {
                    end = bytes.len().min(end + piece);
                }
                _ => break,
            }
            assert!(session.in_flight() <= played.published as usize);
        }
        played.end(version, &mut session);
        played
    }

    /// Returns `false` if the server has broken the protocol.
    fn packet(
        &mut self,
        version: Version,
        session: &mut MqttSession<u32>,
        packet: &Packet<'_>,
    ) -> bool {
        let handled = session.handle(version, packet, &mut self.out);
        self.events.push(format!("{handled:?}"));
        match handled {
            Ok(MqttEvent::Connected { .. }) => {
                for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce].into_iter().cycle().take(8) {
                    // A server of MQTT 5 may accept fewer.
                    self.published += u32::from(session.publish(qos, self.published).is_ok());
                }
                let filters = FILTERS.map(|filter| (filter, SubscriptionOptions::default()));
                let out = &mut self.out;
                session
                    .subscribe(version, Properties::NONE, filters.into_iter(), out)
                    .expect("ids are free");
                session.unsubscribe(version, FILTERS.into_iter(), out).expect("ids are free");
            }
            Ok(MqttEvent::Challenged(_)) => {
                let mut list = PropertyList::new();
                list.push(Property::AuthenticationMethod, Value::Text(METHOD))
                    .expect("the value is allowed");
                encode_auth(list.properties(), &mut self.out).expect("the packet is short");
            }
            Ok(MqttEvent::Acknowledged(token) | MqttEvent::Rejected { token, .. }) => {
                assert!(token < self.published);
            }
            Ok(MqttEvent::Delivered(publish)) => assert!(session.topic(&publish).is_some()),
            Ok(_) => {}
            Err(_) => return false,
        }
        true
    }

    fn end(&mut self, version: Version, session: &mut MqttSession<u32>) {
        let mut replies = &self.out[..];
        while !replies.is_empty() {
            match decode(version, replies) {
                Ok(DecodedPacket::Packet { len, .. }) => replies = &replies[len..],
                other => panic!("{other:?}"),
            }
        }
        session.connection_lost(true);
        let kept = session.in_flight();
        assert_eq!(session.retransmit(&mut self.out, |_, _, _| true), kept);
        assert_eq!((session.connection_lost(false), session.in_flight()), (kept, 0));
    }
}

fn connected(version: Version, auth: bool) -> MqttSession<u32> {
    let mut list = PropertyList::new();
    list.push(Property::TopicAliasMaximum, Value::Number(9)).expect("the value is allowed");
    if auth {
        list.push(Property::AuthenticationMethod, Value::Text(METHOD)).expect("it is short");
    }
    let connect = Connect { client_id: "c", properties: list.properties(), ..Connect::default() };
    let mut session = MqttSession::new();
    session.connect(version, &connect, &mut Vec::new()).expect("the packet is short");
    session
}
