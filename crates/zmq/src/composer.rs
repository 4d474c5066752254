//! The frames of a publisher's messages: topic and payload, rendered and stamped as the engine
//! does it, into buffers that are used again. It knows no socket and no clock.

use agent::publication::PublicationSetup;
use plan::{MessageFacts, Payload, Publication, STAMP_BYTES, Stamp, StreamId, payload_bytes};

/// Makes the messages of one publication of one client.
pub struct Composer {
    publication: Publication,
    ready: PublicationSetup,
    /// Index of the client in its population.
    client: u32,
    /// The client's number.
    n: u64,
    run_tag: u32,
    since_1970_ns: u64,
    /// Variant that `topic` has; `None`: no message was made yet.
    variant: Option<u32>,
    topic: Vec<u8>,
    payload: Vec<u8>,
}

/// Whose messages, in which run.
pub struct Sender {
    /// Index of the client in its population.
    pub client: u32,
    /// The client's number.
    pub n: u64,
    /// The plan's mark.
    pub run_tag: u32,
    /// What is to be added to an instant of the clock for nanoseconds since 1970.
    pub since_1970_ns: u64,
}

/// A message's place and time.
#[derive(Clone, Copy)]
pub struct Message {
    /// Its number among those of the publication in the whole run.
    pub number: u64,
    /// When it was due, in nanoseconds.
    pub intended_ns: u64,
    /// When it is sent, in nanoseconds.
    pub actual_ns: u64,
}

impl Composer {
    /// Makes messages of a publication.
    pub const fn new(publication: Publication, ready: PublicationSetup, sender: &Sender) -> Self {
        Self {
            publication,
            ready,
            client: sender.client,
            n: sender.n,
            run_tag: sender.run_tag,
            since_1970_ns: sender.since_1970_ns,
            variant: None,
            topic: Vec::new(),
            payload: Vec::new(),
        }
    }

    /// Makes a message; [`Self::topic`] and [`Self::payload`] are its frames.
    pub fn compose(&mut self, message: Message) {
        let number = message.number as u32;
        let variant = self.ready.variants.of(self.client, number);
        if self.variant != Some(variant) {
            self.variant = Some(variant);
            self.topic.clear();
            self.publication.topic.render(self.n, variant, &mut self.topic);
        }
        let stamp = self.stamp(message, variant);
        let sizes = self.ready.sizes.of(u64::from(self.client));
        match payload_bytes(&self.publication.payload, sizes, u64::from(number)) {
            // What is left of the message before is the same filling.
            Some(bytes) => self.payload.resize(bytes, b'.'),
            None => self.render(message, variant, stamp),
        }
        if self.ready.stamped
            && !matches!(self.publication.payload, Payload::Text { .. })
            && let Some(head) = self.payload.first_chunk_mut::<STAMP_BYTES>()
        {
            *head = stamp.to_bytes();
        }
    }

    /// The first of two frames; `None`: the payload is the only one.
    pub fn topic(&self) -> Option<&[u8]> {
        (!self.topic.is_empty()).then_some(&self.topic)
    }

    /// The last frame.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    fn render(&mut self, message: Message, variant: u32, stamp: Stamp) {
        let Payload::Text { template, .. } = &self.publication.payload else { return };
        let number = message.number as u32;
        let facts = MessageFacts {
            number,
            topic_variants: self.ready.variants.count(),
            chance: self.ready.values.of(u64::from(self.client)).of(u64::from(number)),
            time_ms: (message.actual_ns + self.since_1970_ns) / 1_000_000,
            stamp,
        };
        self.payload.clear();
        template.render_message(self.n, variant, &facts, &mut self.payload);
    }

    fn stamp(&self, message: Message, variant: u32) -> Stamp {
        let publication = self.ready.index;
        Stamp {
            run_tag: self.run_tag,
            stream: StreamId { publication, variant: variant as u16, client: self.client },
            sequence: self.ready.variants.sequence(message.number as u32),
            intended_ns: message.intended_ns,
            actual_ns: message.actual_ns,
        }
    }
}
