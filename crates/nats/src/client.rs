//! Operations that a client sends: CONNECT, PUB, HPUB, SUB, UNSUB, PING, PONG.

use serde::Serialize;

use crate::{
    Headers, NatsError,
    line::{self, DecodedOperation, Line},
};

pub use crate::line::END;

/// PING with its end.
pub(crate) const PING: &[u8] = b"PING\r\n";
/// PONG with its end.
pub(crate) const PONG: &[u8] = b"PONG\r\n";

/// An operation of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ClientOperation<'a> {
    /// The JSON object of CONNECT.
    Connect(&'a [u8]),
    /// A message, with headers or without.
    Publish(NatsPublish<'a>),
    /// A subscription.
    Subscribe(NatsSubscribe<'a>),
    /// The end of the subscription with this number, after so many further messages.
    Unsubscribe(u64, Option<u64>),
    /// The client asks for a PONG.
    Ping,
    /// Answer to a PING of the server.
    Pong,
}

/// A message to publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NatsPublish<'a> {
    /// Subject, without wildcards.
    pub subject: &'a [u8],
    /// Subject for an answer; `None` if none is wanted.
    pub reply: Option<&'a [u8]>,
    /// The block of headers; empty if there are none.
    pub headers: Headers<'a>,
    /// The payload.
    pub payload: &'a [u8],
}

/// A subscription to add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NatsSubscribe<'a> {
    /// Subject, with wildcards or without.
    pub subject: &'a [u8],
    /// Queue group; `None` if each subscription receives each message.
    pub group: Option<&'a [u8]>,
    /// Number of the subscription, which its messages carry.
    pub sid: u64,
}

/// Options and credentials of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ConnectOptions<'a> {
    /// Name of the client in the server's lists.
    pub name: &'a str,
    /// True if the client receives its own messages.
    pub echo: bool,
    /// Credentials.
    #[serde(flatten)]
    pub login: NatsCredentials<'a>,
    /// True if TLS has begun.
    pub tls_required: bool,
}

/// Credentials of a client. A server looks at those that its configuration asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NatsCredentials<'a> {
    /// User name.
    #[serde(rename = "user", skip_serializing_if = "Option::is_none")]
    pub username: Option<&'a str>,
    /// Password.
    #[serde(rename = "pass", skip_serializing_if = "Option::is_none")]
    pub password: Option<&'a str>,
    /// Token.
    #[serde(rename = "auth_token", skip_serializing_if = "Option::is_none")]
    pub token: Option<&'a str>,
    /// JSON Web Token of the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwt: Option<&'a str>,
    /// Public nkey of the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nkey: Option<&'a str>,
    /// Signature of the server's nonce, see [`crate::nkey::signature_text`].
    #[serde(rename = "sig", skip_serializing_if = "Option::is_none")]
    pub signature: Option<&'a str>,
}

/// The object of CONNECT, with the options that are the same for all clients.
#[derive(Serialize)]
struct Object<'a> {
    #[serde(flatten)]
    connect: &'a ConnectOptions<'a>,
    verbose: bool,
    pedantic: bool,
    headers: bool,
    no_responders: bool,
    lang: &'static str,
    version: &'static str,
    /// 1: the server may send INFO at any time.
    protocol: u8,
}

impl ConnectOptions<'_> {
    /// Appends CONNECT.
    ///
    /// # Panics
    /// Never: the object has text keys and plain values only.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let object = Object {
            connect: self,
            verbose: false,
            pedantic: false,
            headers: true,
            no_responders: true,
            lang: "rust",
            version: env!("CARGO_PKG_VERSION"),
            protocol: 1,
        };
        out.extend_from_slice(b"CONNECT ");
        serde_json::to_writer(&mut *out, &object).expect("plain values and a vector");
        out.extend_from_slice(END);
    }
}

impl NatsPublish<'_> {
    /// Appends PUB, or HPUB for a message with headers.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        let Self { subject, reply, headers, payload } = *self;
        encode_publish(reply, headers, payload.len(), out, |out| out.extend_from_slice(subject));
        out.extend_from_slice(payload);
        out.extend_from_slice(END);
    }
}

/// Appends the front of PUB, or of HPUB for a message with headers: `subject` appends its subject.
/// The payload of `payload_len` bytes and [`END`] follow.
#[inline]
pub fn encode_publish(
    reply: Option<&[u8]>,
    headers: Headers<'_>,
    payload_len: usize,
    out: &mut Vec<u8>,
    subject: impl FnOnce(&mut Vec<u8>),
) {
    let headers = headers.as_bytes();
    out.extend_from_slice(if headers.is_empty() { b"PUB " } else { b"HPUB " });
    subject(out);
    if let Some(reply) = reply {
        out.push(b' ');
        out.extend_from_slice(reply);
    }
    if !headers.is_empty() {
        out.push(b' ');
        line::push_number(headers.len() as u64, out);
    }
    out.push(b' ');
    line::push_number((headers.len() + payload_len) as u64, out);
    out.extend_from_slice(END);
    out.extend_from_slice(headers);
}

impl NatsSubscribe<'_> {
    /// Appends SUB.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"SUB ");
        out.extend_from_slice(self.subject);
        out.push(b' ');
        if let Some(group) = self.group {
            out.extend_from_slice(group);
            out.push(b' ');
        }
        line::push_number(self.sid, out);
        out.extend_from_slice(END);
    }
}

/// Appends UNSUB, which ends the subscription with this number at once.
pub fn encode_unsubscribe(sid: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"UNSUB ");
    line::push_number(sid, out);
    out.extend_from_slice(END);
}

/// Decodes the operation at the front of `bytes`.
///
/// # Errors
/// [`NatsError`] if the protocol forbids the bytes.
pub fn decode(bytes: &[u8]) -> Result<DecodedOperation<ClientOperation<'_>>, NatsError> {
    let Some(line) = Line::find(bytes)? else { return Ok(DecodedOperation::Incomplete) };
    let (name, rest) = line.split();
    let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
    let operation = match () {
        () if is("PUB") => return publish(bytes, &line, rest),
        () if is("HPUB") => return publish_with_headers(bytes, &line, rest),
        () if is("SUB") => ClientOperation::Subscribe(subscribe(rest)?),
        () if is("UNSUB") => unsubscribe(rest)?,
        () if is("CONNECT") => ClientOperation::Connect(rest),
        () if is("PING") => ClientOperation::Ping,
        () if is("PONG") => ClientOperation::Pong,
        () => return Err(NatsError::Unknown),
    };
    Ok(DecodedOperation::Whole { operation, len: line.len })
}

fn publish<'a>(
    bytes: &'a [u8],
    line: &Line<'a>,
    rest: &'a [u8],
) -> Result<DecodedOperation<ClientOperation<'a>>, NatsError> {
    let (subject, reply, size) = match line::fields(rest) {
        ([subject, size, _], 2) => (subject, None, size),
        ([subject, reply, size], 3) => (subject, Some(reply), size),
        _ => return Err(NatsError::Malformed("PUB")),
    };
    let sizes = (0, line::size(size, "PUB")?);
    let Some(body) = line.body(bytes, sizes, "PUB")? else {
        return Ok(DecodedOperation::Incomplete);
    };
    let publish = NatsPublish { subject, reply, headers: Headers::NONE, payload: body.payload };
    Ok(DecodedOperation::Whole { operation: ClientOperation::Publish(publish), len: body.len })
}

fn publish_with_headers<'a>(
    bytes: &'a [u8],
    line: &Line<'a>,
    rest: &'a [u8],
) -> Result<DecodedOperation<ClientOperation<'a>>, NatsError> {
    let (subject, reply, sizes) = match line::fields(rest) {
        ([subject, headers, total, _], 3) => (subject, None, (headers, total)),
        ([subject, reply, headers, total], 4) => (subject, Some(reply), (headers, total)),
        _ => return Err(NatsError::Malformed("HPUB")),
    };
    let sizes = (line::size(sizes.0, "HPUB")?, line::size(sizes.1, "HPUB")?);
    let Some(body) = line.body(bytes, sizes, "HPUB")? else {
        return Ok(DecodedOperation::Incomplete);
    };
    let headers = Headers::decode(body.headers)?;
    let publish = NatsPublish { subject, reply, headers, payload: body.payload };
    Ok(DecodedOperation::Whole { operation: ClientOperation::Publish(publish), len: body.len })
}

fn subscribe(rest: &[u8]) -> Result<NatsSubscribe<'_>, NatsError> {
    let (subject, group, sid) = match line::fields(rest) {
        ([subject, sid, _], 2) => (subject, None, sid),
        ([subject, group, sid], 3) => (subject, Some(group), sid),
        _ => return Err(NatsError::Malformed("SUB")),
    };
    Ok(NatsSubscribe { subject, group, sid: line::number(sid, "SUB")? })
}

fn unsubscribe(rest: &[u8]) -> Result<ClientOperation<'_>, NatsError> {
    let (sid, most) = match line::fields(rest) {
        ([sid, _], 1) => (sid, None),
        ([sid, most], 2) => (sid, Some(line::number(most, "UNSUB")?)),
        _ => return Err(NatsError::Malformed("UNSUB")),
    };
    Ok(ClientOperation::Unsubscribe(line::number(sid, "UNSUB")?, most))
}
