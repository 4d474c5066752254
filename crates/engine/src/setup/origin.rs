//! The origin of a received message: its stamp is in the payload or in a property, which is the
//! correlation data of requests and answers, and a user property of texts of the user's own.

use mqtt::{Property, Value};
use plan::{STAMP_BYTES, STAMP_PROPERTY, Stamp};

use super::Setup;
use crate::protocol::Message;

/// A message of this run, by its stamp and the index of the publishing population.
pub enum Origin {
    /// A message of a publication.
    Message(Stamp, usize),
    /// An answer to the message with this stamp.
    Answer(Stamp, usize),
    /// A message of another run.
    OtherRun,
}

impl Setup {
    /// The origin of a message of MQTT; `None` if this run did not make it.
    ///
    /// An answer repeats the correlation data of its request, and asks for no answer itself. A
    /// program that answers may also send back the payload, or all properties.
    #[inline]
    pub fn origin_of_message(&self, message: &Message<'_>) -> Option<Origin> {
        let stamp = self.stamp_of(message.payload());
        if let Some(stamp) = stamp {
            if let Some(stream) = stamp.stream.of_requests() {
                let stamp = Stamp { stream, ..stamp };
                return Some(Origin::Answer(stamp, self.publisher(&stamp)?));
            }
            if !self.is_request(&stamp) {
                return Some(Origin::Message(stamp, self.publisher(&stamp)?));
            }
        }
        if !(self.has_requests || self.stamps_properties) || message.properties().is_empty() {
            let stamp = stamp?;
            return Some(Origin::Message(stamp, self.publisher(&stamp)?));
        }
        self.origin_by_properties(message, stamp)
    }

    fn origin_by_properties(&self, message: &Message<'_>, stamp: Option<Stamp>) -> Option<Origin> {
        let (mut request, mut response, mut beside) = (None, None, None);
        for (property, value) in message.properties().iter() {
            match (property, value) {
                (Property::CorrelationData, Value::Binary(bytes)) => {
                    request = self.request_of(bytes);
                }
                (Property::ResponseTopic, Value::Text(topic)) => response = Some(topic),
                (Property::UserProperty, Value::Pair(STAMP_PROPERTY, text))
                    if self.stamps_properties =>
                {
                    beside = beside.or(Stamp::of_text(text.as_bytes()));
                }
                _ => {}
            }
        }
        let came_back = response.is_none_or(|topic| message.has_topic(topic));
        if let Some(request) = request.filter(|_| came_back) {
            return Some(Origin::Answer(request, self.publisher(&request)?));
        }
        if stamp.or(request).is_none() && beside.is_some_and(|stamp| !self.has_made(&stamp)) {
            return Some(Origin::OtherRun);
        }
        let stamp = stamp.or(request).or(beside)?;
        Some(Origin::Message(stamp, self.publisher(&stamp)?))
    }

    /// The stamp of the request with this correlation data, if this run made it.
    #[inline]
    pub fn request_of(&self, correlation: &[u8]) -> Option<Stamp> {
        if !self.has_requests || correlation.len() != STAMP_BYTES {
            return None;
        }
        let is_ours = |stamp: &Stamp| self.has_made(stamp) && self.is_request(stamp);
        Stamp::read(correlation).filter(is_ours)
    }

    #[inline]
    fn is_request(&self, stamp: &Stamp) -> bool {
        self.has_requests
            && self.requests.get(usize::from(stamp.stream.publication)).copied().unwrap_or(false)
    }

    /// Population of the publication of a stamp.
    #[inline]
    pub(super) fn publisher(&self, stamp: &Stamp) -> Option<usize> {
        self.publisher_of.get(usize::from(stamp.stream.publication)).copied()
    }
}

#[cfg(test)]
mod tests {
    use mqtt::{PropertyList, Publish};
    use plan::{MqttVersion, Payload, Protocol, Shard, StreamId};

    use super::*;
    use crate::simulation::plans::{self, publication, template};

    /// A plan with a publication of MQTT 5 for each payload.
    fn setup(payloads: Vec<Payload>) -> Setup {
        let mut population = plans::population("p", 1);
        if let Protocol::Mqtt(mqtt) = &mut population.protocol {
            mqtt.version = MqttVersion::V5;
        }
        let of = |payload| plan::Publication { payload, ..publication("t", 0, 1) };
        population.publications = payloads.into_iter().map(of).collect();
        let plan = plan::Plan { populations: vec![population], ..plans::empty(1) };
        Setup::new(plan, Shard::WHOLE, 0).unwrap()
    }

    fn text(source: &str) -> Payload {
        Payload::Text { template: template(source), is_json: false }
    }

    fn stamp(setup: &Setup, run_tag_after: u32) -> Stamp {
        Stamp {
            run_tag: setup.plan.run_tag + run_tag_after,
            stream: StreamId { publication: 0, variant: 0, client: 0 },
            sequence: 3,
            intended_ns: 4,
            actual_ns: 5,
        }
    }

    /// The origin of a message with these user properties.
    fn origin(setup: &Setup, pairs: &[(&str, &[u8])]) -> Option<Origin> {
        let mut list = PropertyList::new();
        for (name, value) in pairs {
            let value = std::str::from_utf8(value).unwrap();
            list.push(Property::UserProperty, Value::Pair(name, value)).unwrap();
        }
        let properties = list.properties();
        let publish = Publish { topic: "t", payload: b"on", properties, ..Publish::default() };
        setup.origin_of_message(&Message::Mqtt(publish))
    }

    #[test]
    fn a_stamp_is_read_from_its_property_if_some_publication_has_one() {
        let setup_of_texts = setup(vec![text("on"), text("{stamp}")]);
        let (own, other) = (stamp(&setup_of_texts, 0), stamp(&setup_of_texts, 1));
        let (mine, theirs) = (own.to_text(), other.to_text());
        let found = origin(&setup_of_texts, &[("site", b"north"), (STAMP_PROPERTY, &mine)]);
        assert!(matches!(found, Some(Origin::Message(stamp, 0)) if stamp == own));
        // A user property of the scenario may have the same name.
        let found = origin(&setup_of_texts, &[(STAMP_PROPERTY, b"1"), (STAMP_PROPERTY, &mine)]);
        assert!(matches!(found, Some(Origin::Message(stamp, 0)) if stamp == own));
        let found = origin(&setup_of_texts, &[(STAMP_PROPERTY, &theirs)]);
        assert!(matches!(found, Some(Origin::OtherRun)));
        for pairs in [&[][..], &[("site", &mine[..])], &[(STAMP_PROPERTY, &mine[1..])]] {
            assert!(origin(&setup_of_texts, pairs).is_none());
        }
        let without = setup(vec![text("{stamp}"), Payload::Fixed { bytes: 10 }]);
        assert!(origin(&without, &[(STAMP_PROPERTY, &mine)]).is_none());
    }
}
