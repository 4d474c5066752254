//! The upgrade from HTTP [6455, 4]: the request of a client, and the answer of a server.

use std::io::Write as _;

use data_encoding::BASE64;
use httparse::{EMPTY_HEADER, Header, Status};
use sha1::{Digest, Sha1};

/// Subprotocol of MQTT `[MQTT-6.0.0-3]`.
pub const SUBPROTOCOL: &str = "mqtt";
/// Longest request or answer, in bytes.
pub const HEAD_MAX: usize = 16 * 1024;

const HEADERS_MAX: usize = 100;
const VERSION: &str = "13";
/// Text behind the key that a server hashes [6455, 1.3].
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const SWITCHING: u16 = 101;

/// Reason why a connection is no WebSocket of MQTT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpgradeError {
    /// Bytes that are not HTTP, or a head that is too long.
    #[error("found no answer of HTTP")]
    Invalid,
    /// Another status than 101.
    #[error("found the status {0}")]
    Status(u16),
    /// Status 101 without the upgrade to WebSocket.
    #[error("found no upgrade to WebSocket")]
    Ignored,
    /// An accept key that does not follow from the key.
    #[error("found the wrong accept key")]
    AcceptKey,
    /// Another subprotocol than MQTT, or none.
    #[error("found no subprotocol {SUBPROTOCOL}")]
    Subprotocol,
}

/// Key of a request, from which the accept key follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestKey(String);

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct UpgradeRequest<'a> {
    /// Name and port of the server.
    pub host: &'a str,
    /// Path, with a query if there is one.
    pub path: &'a str,
    /// Further headers. One called `Host` replaces the server's name.
    pub headers: &'a [(&'a str, String)],
}

impl RequestKey {
    /// Key of a nonce.
    #[must_use]
    pub fn new(nonce: [u8; 16]) -> Self {
        Self(BASE64.encode(&nonce))
    }

    /// Text that proves that a server has read the key.
    fn accept(&self) -> String {
        accept(self.0.as_bytes())
    }
}

impl UpgradeRequest<'_> {
    /// Appends the request.
    pub fn write(&self, key: &RequestKey, out: &mut Vec<u8>) {
        let Self { host, path, headers } = *self;
        let own = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host"));
        put(out, format_args!("GET {path} HTTP/1.1\r\n"));
        if !own {
            put(out, format_args!("Host: {host}\r\n"));
        }
        put(out, format_args!("Upgrade: websocket\r\nConnection: Upgrade\r\n"));
        put(out, format_args!("Sec-WebSocket-Key: {}\r\n", key.0));
        put(out, format_args!("Sec-WebSocket-Version: {VERSION}\r\n"));
        put(out, format_args!("Sec-WebSocket-Protocol: {SUBPROTOCOL}\r\n"));
        for (name, value) in headers {
            put(out, format_args!("{name}: {value}\r\n"));
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// Reads the answer to a request with this key. Returns its length, or `None` if its rest has not
/// arrived.
///
/// # Errors
/// [`UpgradeError`]: the answer allows no WebSocket of MQTT.
pub fn read_answer(bytes: &[u8], key: &RequestKey) -> Result<Option<usize>, UpgradeError> {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut answer = httparse::Response::new(&mut headers);
    let Some(len) = complete(answer.parse(bytes), bytes)? else { return Ok(None) };
    let status = answer.code.ok_or(UpgradeError::Invalid)?;
    if status != SWITCHING {
        return Err(UpgradeError::Status(status));
    }
    let headers = &*answer.headers;
    if !has_token(headers, "upgrade", "websocket") || !has_token(headers, "connection", "upgrade") {
        return Err(UpgradeError::Ignored);
    }
    if value(headers, "sec-websocket-accept") != Some(key.accept().as_bytes()) {
        return Err(UpgradeError::AcceptKey);
    }
    if value(headers, "sec-websocket-protocol") != Some(SUBPROTOCOL.as_bytes()) {
        return Err(UpgradeError::Subprotocol);
    }
    // A server must not choose an extension that the request does not offer [6455, 4.1].
    let extended = value(headers, "sec-websocket-extensions").is_some();
    if extended { Err(UpgradeError::Invalid) } else { Ok(Some(len)) }
}

/// Reads a request and appends the answer. Returns the length of the request, or `None` if its
/// rest has not arrived.
///
/// # Errors
/// [`UpgradeError`]: the request asks for no WebSocket of MQTT.
pub fn answer(bytes: &[u8], out: &mut Vec<u8>) -> Result<Option<usize>, UpgradeError> {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let Some(len) = complete(request.parse(bytes), bytes)? else { return Ok(None) };
    let headers = &*request.headers;
    if !has_token(headers, "upgrade", "websocket") || !has_token(headers, "connection", "upgrade") {
        return Err(UpgradeError::Ignored);
    }
    let key = value(headers, "sec-websocket-key").ok_or(UpgradeError::AcceptKey)?;
    if !has_token(headers, "sec-websocket-protocol", SUBPROTOCOL) {
        return Err(UpgradeError::Subprotocol);
    }
    let accept = accept(key);
    put(out, format_args!("HTTP/1.1 101 Switching Protocols\r\n"));
    put(out, format_args!("Upgrade: websocket\r\nConnection: Upgrade\r\n"));
    put(out, format_args!("Sec-WebSocket-Accept: {accept}\r\n"));
    put(out, format_args!("Sec-WebSocket-Protocol: {SUBPROTOCOL}\r\n\r\n"));
    Ok(Some(len))
}

/// Length of a parsed head; `None` if its rest has not arrived.
fn complete(parsed: httparse::Result<usize>, bytes: &[u8]) -> Result<Option<usize>, UpgradeError> {
    match parsed {
        Ok(Status::Complete(len)) if len <= HEAD_MAX => Ok(Some(len)),
        Ok(Status::Partial) if bytes.len() <= HEAD_MAX => Ok(None),
        _ => Err(UpgradeError::Invalid),
    }
}

fn value<'a>(headers: &[Header<'a>], name: &str) -> Option<&'a [u8]> {
    let header = headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
    Some(header.value.trim_ascii())
}

/// Returns `true` if one of the headers of this name lists the word.
fn has_token(headers: &[Header<'_>], name: &str, word: &str) -> bool {
    let named = headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
    let mut listed = named.flat_map(|header| header.value.split(|&byte| byte == b','));
    listed.any(|listed| listed.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
}

fn accept(key: &[u8]) -> String {
    let hash = Sha1::new().chain_update(key).chain_update(GUID).finalize();
    BASE64.encode(&hash)
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a vector takes every byte");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Example of the standard [6455, 1.3].
    fn key() -> RequestKey {
        RequestKey("dGhlIHNhbXBsZSBub25jZQ==".into())
    }

    const ANSWER: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\n\
        Connection: keep-alive, upgrade\r\n\
        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\
        sec-websocket-protocol: mqtt\r\n\r\n";

    #[test]
    fn the_accept_key_is_that_of_the_standard() {
        assert_eq!(RequestKey::new(*b"the sample nonce"), key());
        assert_eq!(key().accept(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn an_answer_is_read_up_to_its_end_however_it_is_split() {
        let bytes = [ANSWER.as_bytes(), b"\x82\0"].concat();
        for count in 0..ANSWER.len() {
            assert_eq!(read_answer(&bytes[..count], &key()), Ok(None), "{count} bytes");
        }
        assert_eq!(read_answer(&bytes, &key()), Ok(Some(ANSWER.len())));
    }

    #[test]
    fn every_other_answer_is_refused_with_its_reason() {
        for (from, to, error) in [
            ("101 Switching", "404 Not", UpgradeError::Status(404)),
            ("101 Switching", "200 OK", UpgradeError::Status(200)),
            ("Upgrade: WebSocket\r\n", "", UpgradeError::Ignored),
            ("keep-alive, upgrade", "keep-alive", UpgradeError::Ignored),
            ("s3pPLM", "S3pPLM", UpgradeError::AcceptKey),
            ("sec-websocket-protocol: mqtt\r\n", "", UpgradeError::Subprotocol),
            ("protocol: mqtt", "protocol: mqttv3.1", UpgradeError::Subprotocol),
            ("\r\n\r\n", "\r\nSec-WebSocket-Extensions: x\r\n\r\n", UpgradeError::Invalid),
            ("HTTP/1.1", "\x20\x02\0\x05", UpgradeError::Invalid),
        ] {
            let answer = ANSWER.replace(from, to);
            assert_eq!(read_answer(answer.as_bytes(), &key()), Err(error), "{answer}");
        }
        let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(HEAD_MAX));
        assert_eq!(read_answer(endless.as_bytes(), &key()), Err(UpgradeError::Invalid));
    }

    #[test]
    fn a_request_is_answered_as_its_client_expects() {
        let headers = [("Authorization", "Bearer x".to_owned())];
        let request = UpgradeRequest { host: "h:80", path: "/mqtt?a=b", headers: &headers };
        let (mut up, mut down) = (Vec::new(), Vec::new());
        request.write(&key(), &mut up);
        let text = String::from_utf8(up.clone()).unwrap();
        assert!(text.starts_with("GET /mqtt?a=b HTTP/1.1\r\nHost: h:80\r\n"), "{text}");
        assert!(text.contains("\r\nAuthorization: Bearer x\r\n"), "{text}");
        for count in 0..up.len() {
            assert_eq!(answer(&up[..count], &mut down), Ok(None));
        }
        assert_eq!(answer(&up, &mut down), Ok(Some(up.len())));
        assert_eq!(read_answer(&down, &key()), Ok(Some(down.len())));
    }

    #[test]
    fn a_header_of_the_user_can_name_the_host() {
        let headers = [("HOST", "front.example".to_owned())];
        let mut out = Vec::new();
        UpgradeRequest { host: "h", path: "/", headers: &headers }.write(&key(), &mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches("front.example").count(), 1);
        assert!(!text.contains("Host: h\r\n"), "{text}");
    }

    #[test]
    fn requests_for_something_else_are_refused() {
        let mut up = Vec::new();
        UpgradeRequest { host: "h", path: "/", headers: &[] }.write(&key(), &mut up);
        let text = String::from_utf8(up).unwrap();
        for (from, to, error) in [
            ("Upgrade: websocket\r\n", "", UpgradeError::Ignored),
            ("Sec-WebSocket-Key", "Key", UpgradeError::AcceptKey),
            ("Protocol: mqtt", "Protocol: amqp", UpgradeError::Subprotocol),
            ("GET / HTTP", "GET HTTP", UpgradeError::Invalid),
        ] {
            let mut out = Vec::new();
            assert_eq!(answer(text.replace(from, to).as_bytes(), &mut out), Err(error), "{to}");
            assert!(out.is_empty());
        }
    }
}
