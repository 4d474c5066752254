//! The frames of a publisher's messages: topic and payload, rendered and stamped as in the engine,
//! in buffers that are used again.

use agent::publication::{Moment, PublicationSetup, Sender};
use plan::{Payload, Publication, STAMP_BYTES, payload_bytes};

/// Makes the messages of one publication of one client.
pub struct Composer {
    publication: Publication,
    ready: PublicationSetup,
    sender: Sender,
    /// Variant of `topic`; `None`: no message was made yet.
    variant: Option<u32>,
    topic: Vec<u8>,
    payload: Vec<u8>,
}

impl Composer {
    /// Creates the composer of a publication.
    pub const fn new(publication: Publication, ready: PublicationSetup, sender: Sender) -> Self {
        Self { publication, ready, sender, variant: None, topic: Vec::new(), payload: Vec::new() }
    }

    /// Makes a message; [`Self::topic`] and [`Self::payload`] are its frames.
    pub fn compose(&mut self, moment: Moment) {
        let (sender, ready) = (&self.sender, &self.ready);
        let variant = ready.variants.of(sender.client, moment.number);
        if self.variant != Some(variant) {
            self.variant = Some(variant);
            self.topic.clear();
            self.publication.topic.render(sender.n, variant, &mut self.topic);
        }
        if matches!(self.publication.payload, Payload::Records { .. } | Payload::Text { .. }) {
            let place = (sender, moment, variant);
            self.payload.clear();
            ready.write_content(&self.publication.payload, place, &mut self.payload);
            return;
        }
        let sizes = ready.sizes.of(u64::from(sender.client));
        let bytes = payload_bytes(&self.publication.payload, sizes, moment.number).unwrap_or(0);
        // The rest of the message before is the same filling.
        self.payload.resize(bytes, b'.');
        if ready.stamped
            && let Some(head) = self.payload.first_chunk_mut::<STAMP_BYTES>()
        {
            *head = ready.stamp(sender, moment, variant).to_bytes();
        }
    }

    /// Returns the first of two frames; `None`: the payload is the only frame.
    pub fn topic(&self) -> Option<&[u8]> {
        (!self.topic.is_empty()).then_some(&self.topic)
    }

    /// Returns the last frame.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }
}
