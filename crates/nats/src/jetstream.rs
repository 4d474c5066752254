//! JetStream: requests for streams and consumers, answers to publications and requests, receipts of
//! deliveries.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::{Headers, NatsError, client::NatsPublish};

/// Front of the reply subject of each delivery that a consumer must acknowledge.
const ACK: &[u8] = b"$JS.ACK.";

/// Header with an identifier, by which a stream stores a message once.
pub const MESSAGE_ID: &str = "Nats-Msg-Id";

/// Answer of a client to a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledgement {
    /// The message is done.
    Done,
    /// The server delivers the message again.
    Again,
    /// The client needs more time.
    InProgress,
    /// The server delivers the message no more.
    Never,
}

/// The parts of the reply subject of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt<'a> {
    /// Name of the stream.
    pub stream: &'a str,
    /// Name of the consumer.
    pub consumer: &'a str,
    /// Number of deliveries of this message to the consumer, this one included.
    pub delivered: u64,
    /// Number of the message in the stream.
    pub sequence: u64,
    /// Number of messages that wait for the consumer after this one.
    pub pending: u64,
}

/// A stream to create.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StreamConfig<'a> {
    /// Name: a token without wildcards.
    pub name: &'a str,
    /// Subjects whose messages the stream stores.
    pub subjects: &'a [&'a str],
    /// Place of the messages.
    pub storage: Storage,
    /// Number of servers that store each message.
    #[serde(rename = "num_replicas")]
    pub replicas: u8,
}

/// Place of the messages of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Storage {
    /// Files, which outlive the server.
    File,
    /// Memory.
    Memory,
}

/// A durable consumer to create: the server sends the messages that a stream stores from then on to
/// a subject, to which clients subscribe, and expects an acknowledgement of each.
#[derive(Clone, Copy, Debug)]
pub struct Consumer<'a> {
    /// Name of the stream.
    pub stream: &'a str,
    /// Name of the consumer: a token without wildcards.
    pub durable: &'a str,
    /// Subject to which the server sends the messages.
    pub deliver_subject: &'a str,
    /// Queue group of the subscribers; `None` if there is one subscriber.
    pub group: Option<&'a str>,
    /// Filter of the messages; `None` for all messages of the stream.
    pub filter: Option<&'a str>,
    /// Time after which the server delivers an unacknowledged message again, in nanoseconds.
    pub ack_wait_ns: u64,
    /// Largest number of unacknowledged messages.
    pub max_ack_pending: u32,
}

/// Answer of JetStream to a publication or request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct JetStreamAnswer<'a> {
    /// Error; `None` if the server has done it.
    #[serde(borrow)]
    pub error: Option<JetStreamError<'a>>,
    /// Number of the message in its stream; 0 in answers to requests.
    #[serde(rename = "seq")]
    pub sequence: u64,
    /// True if the stream had the message already, by its [`MESSAGE_ID`].
    pub duplicate: bool,
}

/// Error of JetStream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct JetStreamError<'a> {
    /// Code of the kind of HTTP.
    pub code: u16,
    /// Code of the exact error; 0 if there is none.
    pub err_code: u16,
    /// Text.
    #[serde(borrow)]
    pub description: Cow<'a, str>,
    /// The whole answer, with numbers and text.
    #[serde(skip)]
    pub text: &'a str,
}

#[derive(Serialize)]
struct CreateConsumer<'a> {
    stream_name: &'a str,
    config: ConsumerConfig<'a>,
}

#[derive(Serialize)]
struct ConsumerConfig<'a> {
    durable_name: &'a str,
    deliver_subject: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    deliver_group: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter_subject: Option<&'a str>,
    deliver_policy: &'static str,
    ack_policy: &'static str,
    ack_wait: u64,
    max_ack_pending: u32,
}

impl Acknowledgement {
    /// Payload of the acknowledgement.
    #[must_use]
    pub const fn as_bytes(self) -> &'static [u8] {
        match self {
            Self::Done => b"+ACK",
            Self::Again => b"-NAK",
            Self::InProgress => b"+WPI",
            Self::Never => b"+TERM",
        }
    }

    /// Appends the acknowledgement of the delivery with this reply subject.
    #[inline]
    pub fn encode(self, reply: &[u8], out: &mut Vec<u8>) {
        let payload = self.as_bytes();
        NatsPublish { subject: reply, reply: None, headers: Headers::NONE, payload }.encode(out);
    }
}

impl<'a> Receipt<'a> {
    /// Returns true if the reply subject of a delivery asks for an acknowledgement.
    #[must_use]
    #[inline]
    pub fn is_wanted(reply: &[u8]) -> bool {
        reply.starts_with(ACK)
    }

    /// Decodes the reply subject of a delivery; `None` if the subject is of another kind. Servers
    /// with a domain put two tokens before the name of the stream.
    #[must_use]
    pub fn decode(reply: &'a [u8]) -> Option<Self> {
        let rest = str::from_utf8(reply.strip_prefix(ACK)?).ok()?;
        let tokens: Vec<_> = rest.split('.').collect();
        let tokens = if tokens.len() >= 9 { tokens.get(2..9)? } else { &tokens[..] };
        let &[stream, consumer, delivered, sequence, _, _, pending] = tokens else { return None };
        let number = |text: &str| text.parse().ok();
        let (delivered, sequence) = (number(delivered)?, number(sequence)?);
        Some(Self { stream, consumer, delivered, sequence, pending: number(pending)? })
    }
}

impl StreamConfig<'_> {
    /// Subject of the request that creates the stream. A stream with the same settings may exist.
    #[must_use]
    pub fn subject(&self) -> String {
        format!("$JS.API.STREAM.CREATE.{}", self.name)
    }

    /// Body of the request.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        json(self)
    }
}

impl Consumer<'_> {
    /// Subject of the request that creates the consumer. A consumer with the same settings may
    /// exist.
    #[must_use]
    pub fn subject(&self) -> String {
        format!("$JS.API.CONSUMER.DURABLE.CREATE.{}.{}", self.stream, self.durable)
    }

    /// Subject of the request for the state of the consumer.
    #[must_use]
    pub fn info_subject(&self) -> String {
        format!("$JS.API.CONSUMER.INFO.{}.{}", self.stream, self.durable)
    }

    /// Body of the request.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        json(&CreateConsumer {
            stream_name: self.stream,
            config: ConsumerConfig {
                durable_name: self.durable,
                deliver_subject: self.deliver_subject,
                deliver_group: self.group,
                filter_subject: self.filter,
                deliver_policy: "new",
                ack_policy: "explicit",
                ack_wait: self.ack_wait_ns,
                max_ack_pending: self.max_ack_pending,
            },
        })
    }
}

impl JetStreamError<'_> {
    /// Number of the exact error, or of its kind if there is none.
    #[must_use]
    pub const fn number(&self) -> u16 {
        if self.err_code == 0 { self.code } else { self.err_code }
    }
}

impl<'a> JetStreamAnswer<'a> {
    /// Decodes the payload of an answer.
    ///
    /// # Errors
    /// [`NatsError::Malformed`] if the payload is no JSON object with these fields.
    pub fn decode(payload: &'a [u8]) -> Result<Self, NatsError> {
        let malformed = NatsError::Malformed("answer of JetStream");
        let text = str::from_utf8(payload).map_err(|_| malformed)?;
        let mut answer: Self = serde_json::from_str(text).map_err(|_| malformed)?;
        answer.error.iter_mut().for_each(|refusal| refusal.text = text);
        Ok(answer)
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain values in a vector")
}
