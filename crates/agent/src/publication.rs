//! A publication prepared for playing: schedule of its messages, order of topics, and random
//! streams of payloads.

use plan::{
    INCARNATION_PLACES, Late, MessageFacts, Pace, Pacer, Payload, Population, Random,
    RecordedContent, Recording, STAMP_BYTES, SentAt, Stamp, StreamId, Variants, payload_bytes,
};
use sparkplug::MetricSet;

/// One publication.
#[derive(Clone, Debug)]
pub struct PublicationSetup {
    /// Index over all populations.
    pub index: u16,
    /// Schedule; `None`: closed loop.
    pub pacer: Option<Pacer>,
    /// `true` if messages more than a period late are skipped.
    pub skips_late: bool,
    /// Topics, and their order.
    pub variants: Variants,
    /// Records of the payload, and their order.
    pub records: Variants,
    /// `true` if payloads carry a stamp.
    pub stamped: bool,
    /// The stream from which payload sizes are drawn.
    pub sizes: Random,
    /// The stream from which values in payloads are drawn.
    pub values: Random,
}

/// Sender of messages in a run.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    /// The plan's mark.
    pub run_tag: u32,
    /// Difference from an instant of the clock to nanoseconds since 1970.
    pub since_1970_ns: u64,
    /// Place of its first message in each of its streams.
    pub first_sequence: u32,
    /// Index in the population over all agents.
    pub client: u32,
    /// The client's number.
    pub n: u64,
    /// Number of the next message of an edge node of Sparkplug since its birth; 0 for others.
    pub node_number: u64,
}

/// A message's place in its publication, and its times.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Number among the messages of its client and publication, in the whole run.
    pub number: u64,
    /// Scheduled instant, in nanoseconds.
    pub intended_ns: u64,
    /// Instant of sending, and the wait before.
    pub sent: SentAt,
}

impl PublicationSetup {
    /// The stamp of a message on a variant of its topic.
    #[inline]
    #[must_use]
    pub fn stamp(&self, sender: &Sender, moment: Moment, variant: u32) -> Stamp {
        let (publication, client) = (self.index, sender.client);
        Stamp {
            run_tag: sender.run_tag,
            stream: StreamId { publication, variant: variant as u16, client },
            // A longer stream begins at its first place again: those behind are the next
            // incarnation's.
            sequence: sender.first_sequence
                + self.variants.sequence(client, moment.number) as u32 % INCARNATION_PLACES,
            intended_ns: moment.intended_ns,
            sent: moment.sent,
        }
    }

    /// Appends the payload of a message if it has content: a text, a record or data of Sparkplug.
    /// Returns `false` and appends nothing for payloads of a size.
    #[inline]
    pub fn write_content(
        &self,
        payload: &Payload,
        (sender, moment, variant): (&Sender, Moment, u32),
        out: &mut Vec<u8>,
    ) -> bool {
        match payload {
            Payload::Text { template, .. } => {
                let facts = self.facts(sender, moment, variant);
                template.render_message(sender.n, variant, &facts, out);
            }
            Payload::Records { records, stamped, .. } => {
                if *stamped {
                    out.extend_from_slice(&self.stamp(sender, moment, variant).to_bytes());
                }
                let record = self.records.of(sender.client, moment.number);
                out.extend_from_slice(records.at(record as usize));
            }
            Payload::Recorded(Recording { content, messages, .. })
                if *content != RecordedContent::Sizes =>
            {
                if *content == RecordedContent::Front {
                    out.extend_from_slice(&self.stamp(sender, moment, variant).to_bytes());
                }
                let recorded = messages.get();
                out.extend_from_slice(
                    recorded.map_or(&[], |own| own.payload(sender.client, moment.number)),
                );
            }
            Payload::Sparkplug { metrics, changed, .. } => {
                let stamp = self.stamp(sender, moment, variant);
                let actual_ns = moment.sent.actual_ns(moment.intended_ns);
                let number = sender.node_number;
                sparkplug::write_data(
                    ((actual_ns + sender.since_1970_ns) / 1_000_000, number as u8),
                    MetricSet::of_device(variant, *metrics),
                    (*changed, moment.number),
                    &stamp.to_numbered(number),
                    out,
                );
            }
            _ => return false,
        }
        true
    }

    /// Size of the payload of a message, in bytes; 0 for payloads with content.
    #[inline]
    #[must_use]
    pub fn payload_bytes(&self, payload: &Payload, sender: &Sender, number: u64) -> usize {
        match payload.recorded() {
            Some(recorded) => recorded.bytes(sender.client, number),
            None => {
                let sizes = self.sizes.of(u64::from(sender.client));
                payload_bytes(payload, sizes, number).unwrap_or(0)
            }
        }
    }

    /// Values for the text of a message.
    #[must_use]
    pub fn facts(&self, sender: &Sender, moment: Moment, variant: u32) -> MessageFacts {
        let chance = self.values.of(u64::from(sender.client)).of(moment.number);
        MessageFacts {
            number: moment.number as u32,
            topic_variants: self.variants.count(sender.client),
            chance,
            time_ms: (moment.sent.actual_ns(moment.intended_ns) + sender.since_1970_ns) / 1_000_000,
            stamp: self.stamp(sender, moment, variant),
        }
    }
}

/// The publications of a population; `first_index` is that of its first one over all populations.
#[must_use]
pub fn publications(
    population: &Population,
    seed: u64,
    first_index: usize,
) -> Vec<PublicationSetup> {
    let ready = |(i, publication): (usize, &plan::Publication)| {
        let index = first_index + i;
        let purpose = index as u64 * 2;
        PublicationSetup {
            index: index as u16,
            pacer: Pacer::new(&publication.pace, seed, purpose)
                .map(|pacer| pacer.of_recorded(publication.payload.recorded())),
            skips_late: matches!(publication.pace, Pace::Open { late: Late::Skip, .. }),
            variants: Variants::new(publication, seed, index),
            records: Variants::of_records(publication, seed, index),
            stamped: holds_stamp(&publication.payload),
            sizes: Random::new(seed, purpose + 1),
            values: MessageFacts::stream(seed, index),
        }
    };
    population.publications.iter().enumerate().map(ready).collect()
}

/// Returns `true` if every payload has a stamp, or room for one. A publication is stamped as a
/// whole or not at all.
fn holds_stamp(payload: &Payload) -> bool {
    match *payload {
        Payload::Fixed { bytes } => bytes as usize >= STAMP_BYTES,
        Payload::Gaussian { mean_bytes, sd_bytes } => {
            i64::from(mean_bytes) - 4 * i64::from(sd_bytes) >= STAMP_BYTES as i64
        }
        Payload::Histogram { ref bins } => bins.iter().all(|bin| bin.bytes as usize >= STAMP_BYTES),
        Payload::Records { stamped, .. } => stamped,
        Payload::Text { .. } => is_stamped_text(payload),
        // Smaller messages are raised to the size of a stamp.
        Payload::Recorded(ref recording) => recording.content != RecordedContent::Beside,
        Payload::Sparkplug { .. } => true,
    }
}

/// Returns `true` for a text with a stamp.
#[must_use]
pub fn is_stamped_text(payload: &Payload) -> bool {
    matches!(payload, Payload::Text { template, .. } if template.has_stamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_is_longer_than_its_places_stays_in_its_incarnation() {
        let pace = Pace::Closed;
        let publication = plan::Publication {
            topic: plan::Template::new("t/{1..4}").unwrap(),
            order: plan::Order::Turn,
            weights: Vec::new(),
            qos: 0,
            retain: false,
            pace,
            window: 1,
            payload: Payload::Fixed { bytes: 32 },
            properties: Vec::new(),
            topic_alias: false,
            request: false,
        };
        let setup = PublicationSetup {
            index: 0,
            pacer: None,
            skips_late: false,
            variants: Variants::new(&publication, 1, 0),
            records: Variants::of_records(&publication, 1, 0),
            stamped: true,
            sizes: Random::new(1, 1),
            values: MessageFacts::stream(1, 0),
        };
        let first_sequence = 3 * INCARNATION_PLACES;
        let sender = Sender {
            run_tag: 1,
            since_1970_ns: 0,
            first_sequence,
            client: 0,
            n: 0,
            node_number: 0,
        };
        let sequence = |number| {
            let moment = Moment { number, intended_ns: 0, sent: SentAt::plain(0) };
            setup.stamp(&sender, moment, 0).sequence
        };
        let last = 4 * (u64::from(INCARNATION_PLACES) - 1);
        assert_eq!(sequence(4), first_sequence + 1);
        assert_eq!(sequence(last), first_sequence + INCARNATION_PLACES - 1);
        assert_eq!(sequence(last + 4), first_sequence);
    }
}
