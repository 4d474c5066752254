//! The topic and the properties of a received PUBLISH. The properties are walked once, and only if
//! a delivery depends on them.

use std::cell::OnceCell;

use mqtt::{Properties, Property, Publish, Value};
use plan::{STAMP_PROPERTY, Stamp};

use super::TokenSession;
use crate::seam::received::{Beside, Carried};

/// A PUBLISH, beside its payload.
pub struct ReceivedPublish<'s, 'a> {
    /// Session that has received the PUBLISH.
    pub session: &'s TokenSession,
    /// The PUBLISH.
    pub publish: Publish<'a>,
    /// Parts of its properties, once they were asked for.
    pub carried: OnceCell<Carried<'a>>,
}

impl<'a> ReceivedPublish<'_, 'a> {
    /// Parts of the properties.
    pub fn carried(&self) -> &Carried<'a> {
        self.carried.get_or_init(|| carried(self.publish.properties))
    }
}

impl Beside for ReceivedPublish<'_, '_> {
    fn topic(&self) -> Option<&str> {
        self.session.topic(&self.publish)
    }

    fn carried(&self) -> Carried<'_> {
        *self.carried()
    }
}

fn carried(properties: Properties<'_>) -> Carried<'_> {
    let (mut carried, mut identifiers) = (Carried::default(), 0);
    for (property, value) in properties.iter() {
        match (property, value) {
            (Property::UserProperty, Value::Pair(STAMP_PROPERTY, text)) => {
                carried.stamp = carried.stamp.or_else(|| Stamp::of_text(text.as_bytes()));
            }
            (Property::CorrelationData, Value::Binary(bytes)) => carried.correlation = Some(bytes),
            (Property::ResponseTopic, Value::Text(topic)) => carried.response = Some(topic),
            (Property::MessageExpiryInterval, Value::Number(s)) => carried.expiry_s = Some(s),
            (Property::SubscriptionIdentifier, Value::Number(number)) => {
                identifiers += 1;
                carried.identifier = (identifiers == 1).then_some(number);
            }
            _ => {}
        }
    }
    carried
}

#[cfg(test)]
mod tests {
    use mqtt::{DecodedPacket, Packet, PropertyList, Version, decode};
    use plan::{SentAt, StreamId};

    use super::*;

    fn list(properties: &[(Property, Value<'_>)]) -> PropertyList {
        let mut list = PropertyList::new();
        properties.iter().for_each(|&(property, value)| list.push(property, value).unwrap());
        list
    }

    #[test]
    fn the_first_valid_stamp_counts_and_one_identifier_alone() {
        let stamp = Stamp {
            run_tag: 1,
            stream: StreamId { publication: 2, variant: 3, client: 4 },
            sequence: 5,
            intended_ns: 6,
            sent: SentAt::plain(7),
        };
        let text = stamp.to_text();
        let text = std::str::from_utf8(&text).unwrap();
        let pair = |name, value| (Property::UserProperty, Value::Pair(name, value));
        let identifier = |number| (Property::SubscriptionIdentifier, Value::Number(number));
        // A user property of the scenario may have the name of the stamp's.
        for (properties, found) in [
            (vec![pair("site", "north"), pair(STAMP_PROPERTY, text)], Some(stamp)),
            (vec![pair(STAMP_PROPERTY, "1"), pair(STAMP_PROPERTY, text)], Some(stamp)),
            (vec![pair("site", text), pair(STAMP_PROPERTY, &text[1..])], None),
        ] {
            assert_eq!(carried(list(&properties).properties()).stamp, found);
        }
        for (properties, found) in [
            (vec![], None),
            (vec![identifier(7)], Some(7)),
            (vec![identifier(7), identifier(7)], None),
            (vec![identifier(7), identifier(8), identifier(9)], None),
        ] {
            assert_eq!(carried(list(&properties).properties()).identifier, found);
        }
        let list = list(&[
            (Property::MessageExpiryInterval, Value::Number(9)),
            (Property::ResponseTopic, Value::Text("r")),
            (Property::CorrelationData, Value::Binary(b"c")),
        ]);
        let Carried { correlation, response, expiry_s, .. } = carried(list.properties());
        assert_eq!((correlation, response, expiry_s), (Some(&b"c"[..]), Some("r"), Some(9)));
    }

    #[test]
    fn the_topic_of_an_alias_is_the_topic_of_the_message() {
        let mut session = TokenSession::new();
        let mut aliases = PropertyList::new();
        aliases.push(Property::TopicAliasMaximum, Value::Number(1)).unwrap();
        let connect = mqtt::Connect {
            client_id: "c",
            clean_session: true,
            properties: aliases.properties(),
            ..mqtt::Connect::default()
        };
        let mut out = Vec::new();
        session.connect(Version::V5, &connect, &mut out).unwrap();
        let known = b"\x30\x09\0\x03a/b\x03\x23\0\x01";
        let alone = b"\x30\x06\0\0\x03\x23\0\x01";
        for bytes in [&b"\x20\x03\0\0\0"[..], known, alone] {
            let Ok(DecodedPacket::Packet { packet, .. }) = decode(Version::V5, bytes) else {
                panic!("{bytes:02x?}");
            };
            session.handle(Version::V5, &packet, &mut out).unwrap();
            if let Packet::Publish(publish) = packet {
                let message =
                    ReceivedPublish { session: &session, publish, carried: OnceCell::new() };
                assert_eq!(message.topic(), Some("a/b"));
            }
        }
    }
}
