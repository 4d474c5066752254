//! Recorded messages that clients play again: the instants, topics and sizes of one publication, by
//! recorded client. Client `c` plays recorded client `c % clients`. So more clients are more of the
//! same kind, at the same rate each. A file has at most [`Recorded::MESSAGES_MAX`] messages.

use std::collections::HashMap;

use data_encoding::{BASE64, DecodeError};
use serde::{Deserialize, Serialize};

use crate::model::bounds;
use crate::record::stamp::STAMP_BYTES;
use crate::schedule::clones::{Clones, ReadOnce};
use crate::schedule::shard::Shard;
use crate::text::template::{Template, TemplateError};

/// An instant that no stage reaches.
pub(crate) const NEVER_NS: u64 = 1 << 62;
/// Topics of one client: a stamp has 16 bits for them.
const CLIENT_TOPICS_MAX: usize = 1 << 16;

/// A file of recorded messages, as the plan describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    /// Path of the file.
    pub file: String,
    /// Client number `{n}` of the first recorded client.
    #[serde(deserialize_with = "bounds::number")]
    pub first: u64,
    /// Number of recorded clients.
    pub clients: u32,
    /// Mean size of the payloads, in bytes.
    pub mean_bytes: u32,
    /// Largest size, in bytes.
    pub max_bytes: u32,
    /// Clients beyond the recorded ones are later by up to this time, in nanoseconds.
    #[serde(deserialize_with = "bounds::number")]
    pub shift_ns: u64,
    /// Content of the payloads.
    #[serde(default)]
    pub content: RecordedContent,
    /// The messages, set when the file is read.
    #[serde(skip)]
    pub messages: RecordedMessages,
}

/// Content of the payloads of recorded messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordedContent {
    /// A stamp and filler, in the recorded sizes.
    #[default]
    Sizes,
    /// The recorded bytes. With MQTT 5 a user property has the stamp.
    Beside,
    /// A stamp of 32 bytes, then the recorded bytes.
    Front,
}

/// Messages of a recording; empty until the file is read.
pub type RecordedMessages = ReadOnce<Recorded>;

/// A row of a file of recorded messages.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct RecordedRow<'a> {
    /// Instant after the start of the recording, in nanoseconds.
    pub after_ns: u64,
    /// Recorded client, from 0 on.
    pub client: u32,
    /// Template of the topic.
    pub topic: &'a str,
    /// Size of the payload, in bytes.
    pub bytes: u32,
    /// QoS 0, 1 or 2.
    pub qos: u8,
    /// `true` if the broker keeps the message.
    pub retain: bool,
    /// Payload in base64; `None` if it is empty, or the file has no payloads.
    #[serde(default)]
    pub payload: Option<&'a str>,
}

/// Row that cannot be played.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordedError {
    /// A client beyond those of the plan.
    #[error("found client {0}, allowed are numbers below {1}")]
    Client(u32, u32),
    /// An instant before that of the row before.
    #[error("found the instant {0} ns after {1} ns, allowed is the order of time")]
    Order(u64, u64),
    /// A size beyond that of the plan.
    #[error("found {0} bytes, allowed are up to {1}")]
    Bytes(u32, u32),
    /// A topic that is no template.
    #[error("topic '{0}': {1}")]
    Topic(String, TemplateError),
    /// A topic with a variable that has no value here.
    #[error("topic '{0}': allowed are the variables {{n}}, {{n%K}} and {{n/K}}")]
    Variable(String),
    /// Too many topics of one client.
    #[error("found more than {CLIENT_TOPICS_MAX} topics of client {0}, allowed are as many")]
    Topics(u32),
    /// A payload that is no base64.
    #[error("payload: {0}")]
    Payload(DecodeError),
    /// A payload of another size than the row says.
    #[error("found a payload of {0} bytes, needed are {1}")]
    Length(usize, u32),
    /// Too many bytes of payloads.
    #[error("found more than {} bytes of payloads, allowed are as many", Recorded::PAYLOADS_MAX)]
    Payloads,
    /// Too many rows.
    #[error("found more than {} messages, allowed are as many", Recorded::MESSAGES_MAX)]
    Messages,
}

/// The recorded messages of one publication.
#[derive(Debug)]
pub struct Recorded {
    /// Number of the population's first client.
    first: u64,
    clones: Clones,
    /// Index of the first message of each recorded client; one more at the end.
    starts: Vec<u32>,
    /// Messages by client, then by time.
    messages: Vec<Message>,
    /// Index in `topics` of the first topic of each recorded client; one more at the end.
    topic_starts: Vec<u32>,
    /// The topics of each client.
    topics: Vec<OwnTopic>,
    /// Places of the messages on each topic, among those of their client.
    places: Vec<u32>,
    /// All topics.
    templates: Vec<Template>,
    /// Recorded payloads; empty if messages have a size alone.
    payloads: Vec<u8>,
    /// End of each payload.
    ends: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    after_ns: u64,
    bytes: u32,
    /// Number of its topic among those of its client.
    variant: u32,
    /// Number among the messages of its client on this topic.
    sequence: u32,
    /// Number of its payload.
    payload: u32,
}

#[derive(Clone, Copy, Debug)]
struct OwnTopic {
    /// Index in the templates.
    template: u32,
    /// Index in `places` of the first message on the topic.
    start: u32,
    /// Number of messages on the topic.
    count: u32,
}

impl Recorded {
    /// Most messages of a file. They take 28 bytes each.
    pub const MESSAGES_MAX: usize = 10_000_000;
    /// Most bytes of the payloads of a file.
    pub const PAYLOADS_MAX: usize = 256 << 20;

    fn of(&self, client: u32) -> &[Message] {
        let own = self.clones.own(client);
        &self.messages[self.starts[own] as usize..self.starts[own + 1] as usize]
    }

    fn topics_of(&self, client: u32) -> &[OwnTopic] {
        let own = self.clones.own(client);
        &self.topics[self.topic_starts[own] as usize..self.topic_starts[own + 1] as usize]
    }

    /// Messages of a client (its index over all agents) in one round of the recording.
    #[must_use]
    pub fn messages_of(&self, client: u32) -> u64 {
        self.of(client).len() as u64
    }

    /// Scheduled time of the message of `client` at `place`, in nanoseconds after publishing began.
    #[must_use]
    pub fn due_ns(&self, client: u32, place: u64) -> u64 {
        let message = self.of(client).get(place as usize);
        message.map_or(NEVER_NS, |message| message.after_ns + self.clones.shift_ns(client))
    }

    /// Place of the first message of `client` scheduled at `elapsed_ns` or later.
    #[must_use]
    pub fn first_from(&self, client: u32, elapsed_ns: u64) -> u64 {
        let elapsed_ns = elapsed_ns.saturating_sub(self.clones.shift_ns(client));
        self.of(client).partition_point(|message| message.after_ns < elapsed_ns) as u64
    }

    /// Message `number` of a client, and the round of the recording that the message belongs to. A
    /// further publish stage plays the recording once more.
    fn message(&self, client: u32, number: u64) -> Option<(&Message, u64)> {
        let own = self.of(client);
        let round = number.checked_div(own.len() as u64)?;
        Some((&own[(number % own.len() as u64) as usize], round))
    }

    /// Size of the payload of message `number` of a client, in bytes: at least that of a stamp.
    #[must_use]
    pub fn bytes(&self, client: u32, number: u64) -> usize {
        let bytes = self.message(client, number).map_or(0, |(message, _)| message.bytes as usize);
        bytes.max(STAMP_BYTES)
    }

    /// Recorded payload of message `number` of a client; empty without payloads.
    #[must_use]
    pub fn payload(&self, client: u32, number: u64) -> &[u8] {
        let payload = self.message(client, number).map(|(message, _)| message.payload as usize);
        let end = payload.and_then(|payload| self.ends.get(payload));
        let Some((payload, &end)) = payload.zip(end) else { return &[] };
        let start = payload.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.payloads[start..end]
    }

    /// Number of topics of a client.
    #[must_use]
    pub fn variants(&self, client: u32) -> u32 {
        self.topics_of(client).len() as u32
    }

    /// Number of the topic of message `number` of a client, among the client's topics.
    #[must_use]
    pub fn variant(&self, client: u32, number: u64) -> u32 {
        self.message(client, number).map_or(0, |(message, _)| message.variant)
    }

    /// Number of message `number` of a client among the client's messages on the same topic.
    #[must_use]
    pub fn sequence(&self, client: u32, number: u64) -> u64 {
        self.message(client, number).map_or(0, |(message, round)| {
            let each = self.topics_of(client)[message.variant as usize].count;
            round * u64::from(each) + u64::from(message.sequence)
        })
    }

    /// Number of messages on topic `variant` among the first `messages` of a client.
    #[must_use]
    pub fn messages_on(&self, client: u32, variant: u32, messages: u64) -> u64 {
        let (count, topics) = (self.messages_of(client), self.topics_of(client));
        let Some(topic) = topics.get(variant as usize).filter(|_| count > 0) else { return 0 };
        let (rounds, rest) = (messages / count, (messages % count) as u32);
        let places = &self.places[topic.start as usize..(topic.start + topic.count) as usize];
        rounds * u64::from(topic.count) + places.partition_point(|&place| place < rest) as u64
    }

    /// Topic `variant` of the client with number `n`; `None` if the client has fewer topics.
    pub(crate) fn topic(&self, n: u64, variant: u32) -> Option<&Template> {
        let client = u32::try_from(n.checked_sub(self.first)?).ok()?;
        let topic = self.topics_of(client).get(variant as usize)?;
        self.templates.get(topic.template as usize)
    }

    /// Length of the longest topic, in bytes.
    pub(crate) fn topic_bytes_max(&self) -> usize {
        self.templates.iter().map(Template::bytes_max).max().unwrap_or(0)
    }

    /// Returns `true` if some client publishes on `topic`; any number counts as a client's.
    pub(crate) fn renders(&self, topic: &str) -> bool {
        self.templates.iter().any(|template| template.renders(topic))
    }

    /// The topics.
    pub(crate) fn templates(&self) -> &[Template] {
        &self.templates
    }

    /// Up to `most` clients of the first `clients`, each with a number of a topic, evenly spread
    /// over all recorded messages.
    pub(crate) fn sampled(&self, clients: u32, most: u64) -> Vec<(u32, u32)> {
        let recorded = (self.starts.len() - 1).min(clients as usize);
        let messages = u64::from(self.starts[recorded]);
        let count = messages.min(most);
        let mut sampled = Vec::with_capacity(count as usize);
        for i in 0..count {
            let at = (i * messages / count) as u32;
            let client = self.starts[..=recorded].partition_point(|&start| start <= at) - 1;
            sampled.push((client as u32, self.messages[at as usize].variant));
        }
        sampled
    }
}

/// Clients that play a recording.
#[derive(Clone, Copy, Debug)]
pub struct Played {
    /// Clients of the agent.
    pub shard: Shard,
    /// Number of the population's first client.
    pub first: u64,
    /// Clients of the population over all agents.
    pub clients: u32,
}

impl Played {
    /// Indices of the clients of the agent, over all agents.
    pub(crate) fn globals(&self) -> impl Iterator<Item = u32> + use<> {
        let shard = self.shard;
        (0..shard.share(self.clients)).map(move |local| shard.global(local))
    }
}

/// Collects the rows of a file for one publication.
pub struct RecordedBuilder {
    first: u64,
    clones: Clones,
    max_bytes: u32,
    wanted: (u8, bool),
    /// For each recorded client, `true` if a client of this agent plays it.
    kept: Vec<bool>,
    rows: usize,
    last_ns: u64,
    messages: Vec<(u32, u32, Message)>,
    templates: Vec<Template>,
    has_payloads: bool,
    payloads: Vec<u8>,
    ends: Vec<usize>,
    numbers: HashMap<Box<str>, u32>,
}

impl RecordedBuilder {
    /// Begins with a recording of messages with this QoS and RETAIN flag, for the clients of an
    /// agent.
    #[must_use]
    pub fn new(
        recording: &Recording,
        (qos, retain): (u8, bool),
        seed: u64,
        played: &Played,
    ) -> Self {
        let first = played.first;
        let recorded = (recording.first, recording.clients);
        let clones = Clones::new(recorded, first, seed, recording.shift_ns);
        Self {
            first,
            clones,
            max_bytes: recording.max_bytes,
            wanted: (qos, retain),
            kept: clones.kept(played.globals()),
            rows: 0,
            last_ns: 0,
            messages: Vec::new(),
            templates: Vec::new(),
            has_payloads: recording.content != RecordedContent::Sizes,
            payloads: Vec::new(),
            ends: Vec::new(),
            numbers: HashMap::new(),
        }
    }

    /// Adds the next row of the file.
    ///
    /// # Errors
    /// [`RecordedError`] with the value found and the values allowed.
    pub fn push(&mut self, row: &RecordedRow<'_>) -> Result<(), RecordedError> {
        self.rows += 1;
        if self.rows > Recorded::MESSAGES_MAX {
            return Err(RecordedError::Messages);
        }
        if row.after_ns < self.last_ns || row.after_ns >= NEVER_NS {
            return Err(RecordedError::Order(row.after_ns, self.last_ns));
        }
        self.last_ns = row.after_ns;
        let clients = self.clones.recorded();
        if row.client >= clients {
            return Err(RecordedError::Client(row.client, clients));
        }
        if (row.qos, row.retain) != self.wanted {
            return Ok(());
        }
        if row.bytes > self.max_bytes {
            return Err(RecordedError::Bytes(row.bytes, self.max_bytes));
        }
        if self.kept[row.client as usize] {
            let template = self.template(row.topic)?;
            let (after_ns, bytes, payload) = (row.after_ns, row.bytes, self.ends.len() as u32);
            if self.has_payloads {
                self.add_payload(row)?;
            }
            let message = Message { after_ns, bytes, variant: 0, sequence: 0, payload };
            self.messages.push((row.client, template, message));
        }
        Ok(())
    }

    fn add_payload(&mut self, row: &RecordedRow<'_>) -> Result<(), RecordedError> {
        let text = row.payload.unwrap_or_default();
        let payload = BASE64.decode(text.as_bytes()).map_err(RecordedError::Payload)?;
        if payload.len() != row.bytes as usize {
            return Err(RecordedError::Length(payload.len(), row.bytes));
        }
        if self.payloads.len() + payload.len() > Recorded::PAYLOADS_MAX {
            return Err(RecordedError::Payloads);
        }
        self.payloads.extend(payload);
        self.ends.push(self.payloads.len());
        Ok(())
    }

    fn template(&mut self, topic: &str) -> Result<u32, RecordedError> {
        if let Some(&number) = self.numbers.get(topic) {
            return Ok(number);
        }
        let wrong = |error| RecordedError::Topic(topic.to_owned(), error);
        let template = Template::new(topic).map_err(wrong)?;
        if !template.is_of_numbers() {
            return Err(RecordedError::Variable(topic.to_owned()));
        }
        let number = self.templates.len() as u32;
        self.templates.push(template);
        self.numbers.insert(topic.into(), number);
        Ok(number)
    }

    /// The messages by client.
    ///
    /// # Errors
    /// [`RecordedError::Topics`] if a client has too many topics.
    pub fn build(mut self) -> Result<Recorded, RecordedError> {
        // A stable sort keeps the order of time.
        self.messages.sort_by_key(|&(client, ..)| client);
        let mut built = Recorded {
            first: self.first,
            clones: self.clones,
            starts: vec![0],
            messages: Vec::with_capacity(self.messages.len()),
            topic_starts: vec![0],
            topics: Vec::new(),
            places: vec![0; self.messages.len()],
            templates: self.templates,
            payloads: self.payloads,
            ends: self.ends,
        };
        let mut rest = self.messages.as_slice();
        for client in 0..self.clones.recorded() {
            let count = rest.partition_point(|&(of, ..)| of == client);
            let (own, others) = rest.split_at(count);
            built.add(client, own)?;
            rest = others;
        }
        Ok(built)
    }
}

impl Recorded {
    /// Adds the messages of the next recorded client.
    fn add(&mut self, client: u32, own: &[(u32, u32, Message)]) -> Result<(), RecordedError> {
        let (from, first) = (self.messages.len() as u32, self.topics.len());
        // In the order of their first messages: agents with other clients have the same numbers.
        let mut variants = HashMap::new();
        for &(_, template, message) in own {
            let next = variants.len() as u32;
            let variant = *variants.entry(template).or_insert(next);
            if variant == next {
                self.topics.push(OwnTopic { template, start: 0, count: 0 });
            }
            let topic = &mut self.topics[first + variant as usize];
            let message = Message { variant, sequence: topic.count, ..message };
            topic.count += 1;
            self.messages.push(message);
        }
        if variants.len() > CLIENT_TOPICS_MAX {
            return Err(RecordedError::Topics(client));
        }
        let mut start = from;
        for topic in &mut self.topics[first..] {
            topic.start = start;
            start += topic.count;
        }
        for (place, message) in self.messages[from as usize..].iter().enumerate() {
            let topic = self.topics[first + message.variant as usize];
            self.places[(topic.start + message.sequence) as usize] = place as u32;
        }
        self.starts.push(self.messages.len() as u32);
        self.topic_starts.push(self.topics.len() as u32);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
