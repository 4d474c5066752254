//! JetStream: streams and durable consumers of a client, messages that a stream acknowledges, and
//! receipts of deliveries.

use nats::NatsSession;
use nats::client::{NatsPublish, NatsSubscribe};
use nats::jetstream::{self, Acknowledgement, JetStreamError, Receipt};
use nats::server::NatsMessage;
use plan::{Family, Nats, PlannedConsumer, PlannedStream, Population, Reason};

use crate::seam::cause::{Cause, ReasonTexts};
use crate::seam::protocol::{At, Cut};
use crate::seam::token::Token;

/// Front of the subjects that belong to JetStream itself.
const OWN: &[u8] = b"$JS.";

/// Largest number of unacknowledged messages of a consumer: the default of the server.
const ACK_PENDING_MAX: u32 = 1000;

/// Requests for the streams of a population, each with its subject and its body.
#[derive(Default)]
pub struct StoredSetup {
    streams: Vec<(String, Vec<u8>)>,
    /// Clients use JetStream.
    is_used: bool,
}

impl StoredSetup {
    /// Settings of a population with these options.
    pub fn new(population: &Population, options: &Nats) -> Self {
        let is_stored = population.publications.iter().any(|own| own.qos > 0);
        let is_used = is_stored || !options.streams.is_empty() || !options.consumers.is_empty();
        Self { streams: options.streams.iter().map(request_of).collect(), is_used }
    }
}

fn request_of(stream: &PlannedStream) -> (String, Vec<u8>) {
    let PlannedStream { name, subjects, in_memory, replicas } = stream;
    let subjects: Vec<_> = subjects.iter().map(String::as_str).collect();
    let storage = if *in_memory { jetstream::Storage::Memory } else { jetstream::Storage::File };
    let stream =
        jetstream::StreamConfig { name, subjects: &subjects, storage, replicas: *replicas };
    (stream.subject(), stream.body())
}

/// Appends the subscription to answers, and the requests for the streams of a client. Returns the
/// number of operations.
pub fn prepare<S>(
    session: &mut NatsSession<Token>,
    at: &At<'_, S>,
    setup: &StoredSetup,
    out: &mut Vec<u8>,
) -> u64 {
    if !setup.is_used {
        return 0;
    }
    let inbox = format!("_INBOX.{}.{}.{}", at.population.name, at.n, at.now_ns);
    session.await_answers(inbox.as_bytes(), out);
    for (subject, body) in &setup.streams {
        session.request(subject, body, out);
    }
    1 + setup.streams.len() as u64
}

/// A filter of a client.
pub struct StoredFilter<'a> {
    /// Durable consumers of its subscription; `None` if it has none.
    pub consumer: Option<&'a PlannedConsumer>,
    /// Number of the subscription for the server.
    pub sid: u64,
    /// Number of the filter: among those of its subscription in a queue group, else among those of
    /// the client.
    pub number: u64,
    /// Queue group.
    pub group: Option<&'a str>,
    /// Subject.
    pub subject: &'a str,
}

/// Appends a subscription: to the subject, or behind the request for its durable consumer to what
/// the consumer delivers. Returns the number of operations.
pub fn subscribe(
    session: &mut NatsSession<Token>,
    filter: &StoredFilter<'_>,
    client_name: impl FnOnce() -> String,
    out: &mut Vec<u8>,
) -> u64 {
    let StoredFilter { consumer, sid, number, group, subject } = *filter;
    let group_bytes = group.map(str::as_bytes);
    let Some(consumer) = consumer else {
        let subject = subject.as_bytes();
        session.subscribe(&NatsSubscribe { subject, group: group_bytes, sid }, out);
        return 1;
    };
    let owner = group.map_or_else(client_name, ToOwned::to_owned);
    let durable = if number == 0 { owner } else { format!("{owner}_{number}") };
    let deliver_subject = format!("_INBOX.{}.{durable}", consumer.stream);
    let request = jetstream::Consumer {
        stream: &consumer.stream,
        durable: &durable,
        deliver_subject: &deliver_subject,
        group,
        filter: Some(subject),
        ack_wait_ns: consumer.ack_wait_ns,
        max_ack_pending: ACK_PENDING_MAX,
    };
    session.create(&request, out);
    let subject = deliver_subject.as_bytes();
    session.subscribe(&NatsSubscribe { subject, group: group_bytes, sid }, out);
    2
}

/// Acknowledges a delivery, if the consumer expects that. Returns the number of operations.
#[inline]
pub fn acknowledge(message: &NatsMessage<'_>, out: &mut Vec<u8>) -> u32 {
    match message.reply.filter(|reply| Receipt::is_wanted(reply)) {
        Some(reply) => {
            Acknowledgement::Done.encode(reply, out);
            1
        }
        None => 0,
    }
}

/// Adds a message of a client to those that a connection leaves behind. Requests and receipts are
/// no messages.
pub fn count(publish: &NatsPublish<'_>, cut: &mut Cut) {
    if publish.subject.starts_with(OWN) {
        return;
    }
    let is_acknowledged = publish.reply.is_some();
    cut.acknowledged += u64::from(is_acknowledged);
    cut.unacknowledged += u64::from(!is_acknowledged);
}

/// The cause behind an error of JetStream.
pub fn cause<'b>(refusal: &JetStreamError<'b>) -> Cause<'b> {
    let reason = Reason::of(Family::Jetstream, refusal.number());
    let texts = ReasonTexts { reason_string: Some(refusal.text), server_reference: None };
    Cause { reason, texts }
}
