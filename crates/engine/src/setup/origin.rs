//! The origin of a received message: its stamp is in the payload or, of requests and answers, in
//! the correlation data.

use mqtt::{Property, Value};
use plan::{STAMP_BYTES, Stamp};

use super::Setup;
use crate::protocol::Message;

/// A message of this run, by its stamp and the index of the publishing population.
pub enum Origin {
    /// A message of a publication.
    Message(Stamp, usize),
    /// An answer to the message with this stamp.
    Answer(Stamp, usize),
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
        if !self.has_requests || message.properties().is_empty() {
            let stamp = stamp?;
            return Some(Origin::Message(stamp, self.publisher(&stamp)?));
        }
        self.origin_by_properties(message, stamp)
    }

    fn origin_by_properties(&self, message: &Message<'_>, stamp: Option<Stamp>) -> Option<Origin> {
        let (mut request, mut response) = (None, None);
        for (property, value) in message.properties().iter() {
            match (property, value) {
                (Property::CorrelationData, Value::Binary(bytes)) => {
                    request = self.request_of(bytes);
                }
                (Property::ResponseTopic, Value::Text(topic)) => response = Some(topic),
                _ => {}
            }
        }
        let came_back = response.is_none_or(|topic| message.has_topic(topic));
        if let Some(request) = request.filter(|_| came_back) {
            return Some(Origin::Answer(request, self.publisher(&request)?));
        }
        let stamp = stamp.or(request)?;
        Some(Origin::Message(stamp, self.publisher(&stamp)?))
    }

    /// The stamp of the request with this correlation data, if this run made it.
    #[inline]
    pub fn request_of(&self, correlation: &[u8]) -> Option<Stamp> {
        if !self.has_requests || correlation.len() != STAMP_BYTES {
            return None;
        }
        let is_ours = |stamp: &Stamp| stamp.run_tag == self.plan.run_tag && self.is_request(stamp);
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
