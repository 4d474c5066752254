//! Operations that a server sends: INFO, MSG, HMSG, PING, PONG, +OK, -ERR.

use serde::Deserialize;

use crate::{
    Headers, NatsError,
    line::{self, DecodedOperation, END, Line},
};

/// An operation of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ServerOperation<'a> {
    /// The JSON object of INFO.
    Info(&'a [u8]),
    /// A message, with headers or without.
    Message(NatsMessage<'a>),
    /// The server asks for a PONG.
    Ping,
    /// The server has read everything up to a PING.
    Pong,
    /// Answer to an operation of a client that is verbose.
    Ok,
    /// The text of an error, without quotes.
    Error(&'a str),
}

/// A received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NatsMessage<'a> {
    /// Subject to which the message was published.
    pub subject: &'a [u8],
    /// Number of the subscription.
    pub sid: u64,
    /// Subject for an answer; `None` if there is none.
    pub reply: Option<&'a [u8]>,
    /// The block of headers; empty if there are none.
    pub headers: Headers<'a>,
    /// The payload.
    pub payload: &'a [u8],
}

/// The fields of INFO that a client needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Info<'a> {
    /// Largest payload of a message with its headers, in bytes.
    pub max_payload: u32,
    /// True if the server supports headers.
    pub headers: bool,
    /// True if clients must log in.
    pub auth_required: bool,
    /// True if clients must begin TLS after INFO.
    pub tls_required: bool,
    /// True if the server has JetStream.
    pub jetstream: bool,
    /// The text that a client with an nkey must sign; `None` if no user has an nkey.
    #[serde(borrow)]
    pub nonce: Option<&'a str>,
}

impl<'a> Info<'a> {
    /// Decodes the object of INFO.
    ///
    /// # Errors
    /// [`NatsError::Malformed`] if `json` is no object with these fields.
    pub fn decode(json: &'a [u8]) -> Result<Self, NatsError> {
        serde_json::from_slice(json).map_err(|_| NatsError::Malformed("INFO"))
    }
}

/// Decodes the operation at the front of `bytes`.
///
/// # Errors
/// [`NatsError`] if the protocol forbids the bytes.
#[inline]
pub fn decode(bytes: &[u8]) -> Result<DecodedOperation<ServerOperation<'_>>, NatsError> {
    let Some(line) = Line::find(bytes)? else { return Ok(DecodedOperation::Incomplete) };
    if let Some(rest) = line.text.strip_prefix(b"MSG ") {
        return message(bytes, &line, rest);
    }
    decode_rest(bytes, &line)
}

#[inline(never)]
fn decode_rest<'a>(
    bytes: &'a [u8],
    line: &Line<'a>,
) -> Result<DecodedOperation<ServerOperation<'a>>, NatsError> {
    let (name, rest) = line.split();
    let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
    let operation = match () {
        () if is("MSG") => return message(bytes, line, rest),
        () if is("HMSG") => return message_with_headers(bytes, line, rest),
        () if is("PING") => ServerOperation::Ping,
        () if is("PONG") => ServerOperation::Pong,
        () if is("INFO") => ServerOperation::Info(rest),
        () if is("+OK") => ServerOperation::Ok,
        () if is("-ERR") => ServerOperation::Error(error_text(rest)),
        () => return Err(NatsError::Unknown),
    };
    Ok(DecodedOperation::Whole { operation, len: line.len })
}

#[inline]
fn message<'a>(
    bytes: &'a [u8],
    line: &Line<'a>,
    rest: &'a [u8],
) -> Result<DecodedOperation<ServerOperation<'a>>, NatsError> {
    let (subject, sid, reply, size) = match line::fields(rest) {
        ([subject, sid, size, _], 3) => (subject, sid, None, size),
        ([subject, sid, reply, size], 4) => (subject, sid, Some(reply), size),
        _ => return Err(NatsError::Malformed("MSG")),
    };
    let sizes = (0, line::size(size, "MSG")?);
    let sid = line::number(sid, "MSG")?;
    let Some(body) = line.body(bytes, sizes, "MSG")? else {
        return Ok(DecodedOperation::Incomplete);
    };
    let headers = Headers::NONE;
    let message = NatsMessage { subject, sid, reply, headers, payload: body.payload };
    Ok(DecodedOperation::Whole { operation: ServerOperation::Message(message), len: body.len })
}

fn message_with_headers<'a>(
    bytes: &'a [u8],
    line: &Line<'a>,
    rest: &'a [u8],
) -> Result<DecodedOperation<ServerOperation<'a>>, NatsError> {
    let (subject, sid, reply, sizes) = match line::fields(rest) {
        ([subject, sid, headers, total, _], 4) => (subject, sid, None, (headers, total)),
        ([subject, sid, reply, headers, total], 5) => (subject, sid, Some(reply), (headers, total)),
        _ => return Err(NatsError::Malformed("HMSG")),
    };
    let sizes = (line::size(sizes.0, "HMSG")?, line::size(sizes.1, "HMSG")?);
    let sid = line::number(sid, "HMSG")?;
    let Some(body) = line.body(bytes, sizes, "HMSG")? else {
        return Ok(DecodedOperation::Incomplete);
    };
    let headers = Headers::decode(body.headers)?;
    let message = NatsMessage { subject, sid, reply, headers, payload: body.payload };
    Ok(DecodedOperation::Whole { operation: ServerOperation::Message(message), len: body.len })
}

/// Text of -ERR without its quotes.
fn error_text(rest: &[u8]) -> &str {
    let text = str::from_utf8(rest).unwrap_or("the text is not UTF-8").trim();
    text.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')).unwrap_or(text)
}

impl NatsMessage<'_> {
    /// Appends the message as a server sends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let headers = self.headers.as_bytes();
        out.extend_from_slice(if headers.is_empty() { b"MSG " } else { b"HMSG " });
        out.extend_from_slice(self.subject);
        out.push(b' ');
        line::push_number(self.sid, out);
        if let Some(reply) = self.reply {
            out.push(b' ');
            out.extend_from_slice(reply);
        }
        if !headers.is_empty() {
            out.push(b' ');
            line::push_number(headers.len() as u64, out);
        }
        out.push(b' ');
        line::push_number((headers.len() + self.payload.len()) as u64, out);
        for part in [END, headers, self.payload, END] {
            out.extend_from_slice(part);
        }
    }
}
