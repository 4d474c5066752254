//! The origin of a received message: its stamp is in the payload or beside it, in the correlation
//! data of requests and answers, in the body of data of Sparkplug, or in a property of texts of the
//! user's own.

use agent::publication::is_stamped_text;
use plan::{NUMBERED_BYTES, Payload, Plan, Stamp};
use sparkplug::body_at_end;

use crate::seam::received::{BESIDE, Beside, Received};

/// A message of this run, by its stamp and the index of the publishing population.
pub enum Origin {
    /// A message of a publication.
    Message(Stamp, usize),
    /// An answer to the message with this stamp.
    Answer(Stamp, usize),
    /// A message of another run.
    OtherRun,
}

/// Facts of the plan from which the origin of a message follows.
pub struct Origins {
    run_tag: u32,
    /// Population of each publication, over all populations.
    publisher_of: Vec<usize>,
    /// For each publication, over all populations, `true` if its messages are requests.
    requests: Vec<bool>,
    has_requests: bool,
    /// `true` if some payloads of text carry a stamp.
    stamps_text: bool,
    /// `true` if some messages carry their stamp in a property.
    stamps_properties: bool,
    /// `true` if some payloads of Sparkplug carry a stamp in their body.
    stamps_bodies: bool,
}

impl Origins {
    /// Facts of a plan.
    pub fn new(plan: &Plan) -> Self {
        let populations = || plan.populations.iter().enumerate();
        let publications = || {
            populations().flat_map(|(p, population)| {
                population.publications.iter().map(move |publication| (p, population, publication))
            })
        };
        let requests: Vec<bool> = publications().map(|(.., own)| own.request).collect();
        Self {
            run_tag: plan.run_tag,
            publisher_of: publications().map(|(p, ..)| p).collect(),
            has_requests: requests.contains(&true),
            requests,
            stamps_text: publications().any(|(.., own)| is_stamped_text(&own.payload)),
            stamps_properties: publications()
                .any(|(_, population, own)| population.stamps_property(own)),
            stamps_bodies: publications()
                .any(|(.., own)| matches!(own.payload, Payload::Sparkplug { .. })),
        }
    }

    /// Returns `true` if the origin of some messages follows from what is beside the payload.
    pub const fn are_beside(&self) -> bool {
        self.has_requests || self.stamps_properties
    }

    /// The stamp at the start of a payload, if this run made it.
    #[inline]
    pub fn stamp_at_start(&self, payload: &[u8]) -> Option<Stamp> {
        Stamp::read(payload).filter(|stamp| self.has_made(stamp))
    }

    /// The origin of a message; `None` if this run did not make it.
    ///
    /// An answer repeats the correlation data of its request, and asks for no answer itself. A
    /// program that answers may also send back the payload, or all properties.
    pub fn of(&self, message: &Received<'_>) -> Option<Origin> {
        let stamp = self.stamp_at_start(message.payload).or_else(|| {
            let in_text = self.stamps_text.then(|| Stamp::find(message.payload)).flatten();
            let in_body = || self.numbered(message.payload).map(|(stamp, _)| stamp);
            in_text.filter(|stamp| self.has_made(stamp)).or_else(in_body)
        });
        if let Some(stamp) = stamp {
            if let Some(stream) = stamp.stream.of_requests() {
                return self.answer(Stamp { stream, ..stamp });
            }
            if !self.is_request(&stamp) {
                return self.message(stamp);
            }
        }
        if !self.are_beside() || message.marks & BESIDE == 0 {
            return self.message(stamp?);
        }
        self.beside(message.beside, stamp)
    }

    /// The stamp and the number in the body of data of Sparkplug, if this run made it.
    pub fn numbered(&self, payload: &[u8]) -> Option<(Stamp, u64)> {
        let body = self.stamps_bodies.then(|| body_at_end(payload, NUMBERED_BYTES as u8));
        Stamp::of_numbered(body.flatten()?).filter(|(stamp, _)| self.has_made(stamp))
    }

    fn beside(&self, message: &dyn Beside, stamp: Option<Stamp>) -> Option<Origin> {
        let carried = message.carried();
        let request = carried.correlation.and_then(|bytes| self.request_of(bytes));
        let came_back = carried.response.is_none_or(|topic| message.topic() == Some(topic));
        if let Some(request) = request.filter(|_| came_back) {
            return self.answer(request);
        }
        let in_property = carried.stamp.filter(|_| self.stamps_properties);
        match stamp.or(request) {
            Some(stamp) => self.message(stamp),
            None if in_property.is_some_and(|stamp| !self.has_made(&stamp)) => {
                Some(Origin::OtherRun)
            }
            None => self.message(in_property?),
        }
    }

    /// The stamp of the request with this correlation data, if this run made it.
    pub fn request_of(&self, correlation: &[u8]) -> Option<Stamp> {
        let is_ours = |stamp: &Stamp| self.has_made(stamp) && self.is_request(stamp);
        Stamp::of_correlation(correlation).filter(is_ours)
    }

    /// Population of the publication of a stamp.
    #[inline]
    pub fn publisher(&self, stamp: &Stamp) -> Option<usize> {
        self.publisher_of.get(usize::from(stamp.stream.publication)).copied()
    }

    fn message(&self, stamp: Stamp) -> Option<Origin> {
        Some(Origin::Message(stamp, self.publisher(&stamp)?))
    }

    fn answer(&self, request: Stamp) -> Option<Origin> {
        Some(Origin::Answer(request, self.publisher(&request)?))
    }

    /// Returns `true` for a stamp of this run.
    #[inline]
    const fn has_made(&self, stamp: &Stamp) -> bool {
        stamp.run_tag == self.run_tag
    }

    fn is_request(&self, stamp: &Stamp) -> bool {
        self.has_requests
            && self.requests.get(usize::from(stamp.stream.publication)).copied().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use plan::{SentAt, StreamId};

    use super::*;
    use crate::seam::received::{Carried, Rest};
    use testkit::plans::{self, publication, template};

    /// A plan with a publication for each payload of a client of MQTT 5; `request`: of requests.
    fn plan(payloads: Vec<Payload>, request: bool) -> Plan {
        let mut population = plans::population("p", 1);
        if let plan::PlannedProtocol::Mqtt(mqtt) = &mut population.protocol {
            mqtt.version = plan::MqttVersion::V5;
        }
        let of = |payload| plan::Publication { payload, request, ..publication("t", 0, 1) };
        population.publications = payloads.into_iter().map(of).collect();
        Plan { populations: vec![population], ..plans::empty(1) }
    }

    fn text(source: &str) -> Payload {
        Payload::Text { template: template(source), is_json: false }
    }

    fn stamp(plan: &Plan, run_tag_after: u32) -> Stamp {
        Stamp {
            run_tag: plan.run_tag + run_tag_after,
            stream: StreamId { publication: 0, variant: 0, client: 0 },
            sequence: 3,
            intended_ns: 4,
            sent: SentAt::plain(5),
        }
    }

    /// The origin of a message that carries this.
    fn origin(plan: &Plan, carried: Carried<'_>) -> Option<Origin> {
        let rest = Rest { topic: "t", carried, ..Rest::default() };
        let message = Received { payload: b"on", marks: BESIDE, beside: &rest };
        Origins::new(plan).of(&message)
    }

    #[test]
    fn a_stamp_is_read_from_its_property_if_some_publication_has_one() {
        let of_texts = plan(vec![text("on"), text("{stamp}")], false);
        let carrying = |stamp| Carried { stamp: Some(stamp), ..Carried::default() };
        let (own, other) = (stamp(&of_texts, 0), stamp(&of_texts, 1));
        let found = origin(&of_texts, carrying(own));
        assert!(matches!(found, Some(Origin::Message(stamp, 0)) if stamp == own));
        assert!(matches!(origin(&of_texts, carrying(other)), Some(Origin::OtherRun)));
        assert!(origin(&of_texts, Carried::default()).is_none());
        let without = plan(vec![text("{stamp}"), Payload::Fixed { bytes: 10 }], false);
        assert!(origin(&without, carrying(own)).is_none());
    }

    #[test]
    fn a_request_that_comes_back_on_its_response_topic_is_an_answer() {
        let requesting = plan(vec![Payload::Fixed { bytes: 10 }], true);
        let request = stamp(&requesting, 0);
        let bytes = request.to_correlation();
        let changed = Stamp { intended_ns: 1, ..request }.to_bytes();
        let changed = [&changed, &bytes[changed.len()..]].concat();
        let correlation = Some(&bytes[..]);
        let is_answer = |carried| match origin(&requesting, carried) {
            Some(Origin::Answer(stamp, 0)) => stamp == request,
            _ => false,
        };
        assert!(is_answer(Carried { correlation, ..Carried::default() }));
        assert!(is_answer(Carried { correlation, response: Some("t"), ..Carried::default() }));
        assert!(!is_answer(Carried { correlation, response: Some("a"), ..Carried::default() }));
        for other in [&bytes[1..], &bytes[..32], &changed] {
            assert!(!is_answer(Carried { correlation: Some(other), ..Carried::default() }));
        }
    }
}
