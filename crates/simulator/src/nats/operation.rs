//! Operations of NATS in bytes, and subjects.

/// Port of the NATS server in the plans.
pub const PORT: u16 = 4222;
/// A line that is no NATS.
pub const GARBAGE: &[u8] = b"\0\xff\xff\xff\r\n";
/// An operation that asks for an answer.
pub const PING: &[u8] = b"PING\r\n";
/// End of a line and of a payload.
pub const END: &str = "\r\n";
/// Longest line that an end of these plans writes, in bytes.
const LINE_MAX: usize = 4096;

/// An operation of either end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NatsOperation {
    /// Name in capitals.
    pub name: String,
    /// Rest of the line.
    pub rest: String,
    /// Headers of a message; empty if there are none.
    pub headers: Vec<u8>,
    /// Payload of a message.
    pub payload: Vec<u8>,
}

/// Bytes that are no operation.
#[derive(Debug, PartialEq, Eq)]
pub struct NoOperation;

impl NatsOperation {
    /// The operation at the front of some bytes and its length; `None`: a part of it is missing.
    pub fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, NoOperation> {
        let Some(end) = bytes.windows(2).position(|pair| pair == END.as_bytes()) else {
            return if bytes.len() > LINE_MAX { Err(NoOperation) } else { Ok(None) };
        };
        let line = std::str::from_utf8(&bytes[..end]).map_err(|_| NoOperation)?;
        let (name, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        let name = name.to_ascii_uppercase();
        let (of_headers, of_sizes) = match &name[..] {
            "PUB" => (false, 2..=3),
            "MSG" => (false, 3..=4),
            "HPUB" => (true, 3..=4),
            "HMSG" => (true, 4..=5),
            "INFO" | "CONNECT" | "SUB" | "UNSUB" | "PING" | "PONG" | "+OK" | "-ERR" => {
                let rest = rest.to_owned();
                return Ok(Some((Self { name, rest, ..Self::default() }, end + 2)));
            }
            _ => return Err(NoOperation),
        };
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        if !of_sizes.contains(&fields.len()) {
            return Err(NoOperation);
        }
        let number =
            |back: usize| fields[fields.len() - back].parse::<usize>().map_err(|_| NoOperation);
        let (total, headers) = (number(1)?, if of_headers { number(2)? } else { 0 });
        let start = end + 2;
        let Some(body) = bytes.get(start..start + total + 2) else { return Ok(None) };
        if headers > total || &body[total..] != END.as_bytes() {
            return Err(NoOperation);
        }
        let (headers, payload) = body[..total].split_at(headers);
        let (headers, payload, rest) = (headers.into(), payload.into(), rest.to_owned());
        Ok(Some((Self { name, rest, headers, payload }, start + total + 2)))
    }

    /// Words of the line after the name.
    pub fn fields(&self) -> Vec<&str> {
        self.rest.split_ascii_whitespace().collect()
    }
}

/// Returns `true` if a subscription to `filter` receives the messages of `subject`.
pub fn matches(filter: &str, subject: &str) -> bool {
    match (filter.split_once('.'), subject.split_once('.')) {
        (None, _) if filter == ">" => true,
        (None, None) => filter == "*" || filter == subject,
        (Some((first, filter)), Some((token, subject))) => {
            (first == "*" || first == token) && matches(filter, subject)
        }
        _ => false,
    }
}

#[test]
fn operations_are_read_as_the_documentation_writes_them() {
    let read = |text: &str| NatsOperation::read(text.as_bytes()).unwrap().unwrap();
    let (message, len) = read("HPUB a.b c 12 14\r\nNATS/1.0\r\n\r\nhi\r\nPING\r\n");
    assert_eq!(message.fields(), ["a.b", "c", "12", "14"]);
    assert_eq!((&message.payload[..], len), (&b"hi"[..], 34));
    assert_eq!(read("ping\r\n").0.name, "PING");
    for whole in ["PUB a 2\r\nhi\r\n", "MSG a 1 2\r\nhi\r\n", "SUB a 1\r\n"] {
        for len in 0..whole.len() {
            assert_eq!(NatsOperation::read(&whole.as_bytes()[..len]), Ok(None), "{whole} {len}");
        }
    }
    for broken in ["PUB a 2\r\nhi!\r\n", "PUB a\r\n", "HPUB a 3 2\r\nhi\r\n", "HELLO\r\n"] {
        assert_eq!(NatsOperation::read(broken.as_bytes()), Err(NoOperation), "{broken}");
    }
}

#[test]
fn wildcards_stand_for_tokens() {
    for (filter, subject, expected) in [
        ("a.*", "a.b", true),
        ("a.*", "a", false),
        ("a.*", "a.b.c", false),
        ("a.>", "a.b.c", true),
        ("a.>", "a", false),
        (">", "a", true),
        ("*.b", "a.b", true),
        ("a.b", "a.c", false),
    ] {
        assert_eq!(matches(filter, subject), expected, "{filter} {subject}");
    }
}
