//! Packets of AMQP in bytes, and keys.

use std::collections::BTreeMap;

/// Port of the broker in the plans.
pub const PORT: u16 = 5672;
/// A frame of a type that is none.
pub const GARBAGE: &[u8] = b"\x09\0\0\0\0\0\0\xce";
/// A heartbeat.
pub const BEAT: &[u8] = b"\x08\0\0\0\0\0\0\xce";
/// First bytes of a client.
const PROTOCOL: &[u8] = b"AMQP\0\0\x09\x01";
/// Numbers of the methods with contents: publish, return and deliver of class 60.
const WITH_CONTENT: [u16; 3] = [40, 50, 60];
/// Class of messages.
const BASIC: u16 = 60;

/// A packet of either end: a method with its content, a heartbeat, or the protocol header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AmqpPacket {
    /// Channel.
    pub channel: u16,
    /// Class and number of the method; zeros for a heartbeat and for the protocol header.
    pub method: (u16, u16),
    /// Fields of the method.
    pub fields: Vec<u8>,
    /// Properties of the content: the header behind the size of the body.
    pub properties: Vec<u8>,
    /// Body of the content.
    pub body: Vec<u8>,
}

/// Bytes that are no packet.
#[derive(Debug, PartialEq, Eq)]
pub struct NoPacket;

/// Packets of one direction, some of which have come in part.
#[derive(Default)]
pub struct PacketReader {
    front: Vec<u8>,
    /// Methods whose content is missing in part, by channel: the packet, and bytes of the body once
    /// the header has come.
    open: BTreeMap<u16, (AmqpPacket, Option<u64>)>,
}

impl PacketReader {
    /// Takes bytes; returns the packets that are whole now, up to bytes that are none.
    pub fn take(&mut self, bytes: &[u8]) -> (Vec<AmqpPacket>, Result<(), NoPacket>) {
        self.front.extend_from_slice(bytes);
        let mut packets = Vec::new();
        loop {
            match length(&self.front) {
                Ok(None) => return (packets, Ok(())),
                Ok(Some(len)) => {
                    let frame: Vec<u8> = self.front.drain(..len).collect();
                    match self.frame(&frame) {
                        Ok(packet) => packets.extend(packet),
                        Err(error) => return (packets, Err(error)),
                    }
                }
                Err(error) => return (packets, Err(error)),
            }
        }
    }

    /// Takes a frame; returns the packet that is whole with it.
    fn frame(&mut self, frame: &[u8]) -> Result<Option<AmqpPacket>, NoPacket> {
        if frame == PROTOCOL || frame == BEAT {
            return Ok(Some(AmqpPacket::default()));
        }
        let channel = u16::from_be_bytes([frame[1], frame[2]]);
        let payload = &frame[7..frame.len() - 1];
        match frame[0] {
            1 => {
                let (head, fields) = payload.split_at_checked(4).ok_or(NoPacket)?;
                let number = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
                let (method, fields) = ((number(0), number(2)), fields.to_vec());
                let packet = AmqpPacket { channel, method, fields, ..AmqpPacket::default() };
                if method.0 == BASIC && WITH_CONTENT.contains(&method.1) {
                    let before = self.open.insert(channel, (packet, None));
                    return if before.is_some() { Err(NoPacket) } else { Ok(None) };
                }
                return Ok(Some(packet));
            }
            2 => {
                let (packet, left) = self.open.get_mut(&channel).ok_or(NoPacket)?;
                let size = payload.get(4..12).and_then(|size| size.try_into().ok());
                *left = Some(u64::from_be_bytes(size.ok_or(NoPacket)?));
                packet.properties = payload[12..].to_vec();
            }
            3 => {
                let (packet, left) = self.open.get_mut(&channel).ok_or(NoPacket)?;
                let left = left.as_mut().ok_or(NoPacket)?;
                *left = left.checked_sub(payload.len() as u64).ok_or(NoPacket)?;
                packet.body.extend_from_slice(payload);
            }
            _ => return Err(NoPacket),
        }
        let is_whole = self.open.get(&channel).is_some_and(|(_, left)| *left == Some(0));
        let whole = is_whole.then(|| self.open.remove(&channel)).flatten();
        Ok(whole.map(|(packet, _)| packet))
    }
}

/// Length of the frame at the front of some bytes; `None`: a part of it is missing.
fn length(bytes: &[u8]) -> Result<Option<usize>, NoPacket> {
    if bytes.first() == Some(&b'A') {
        return Ok(Some(PROTOCOL.len()).filter(|len| *len <= bytes.len()));
    }
    let Some(front) = bytes.get(..7) else { return Ok(None) };
    if ![1, 2, 3, 8].contains(&front[0]) {
        return Err(NoPacket);
    }
    let size = u32::from_be_bytes([front[3], front[4], front[5], front[6]]) as usize;
    match bytes.get(size + 7) {
        None => Ok(None),
        Some(206) => Ok(Some(size + 8)),
        Some(_) => Err(NoPacket),
    }
}

impl AmqpPacket {
    /// A method of a broker.
    pub fn new(channel: u16, method: (u16, u16), fields: Vec<u8>) -> Self {
        Self { channel, method, fields, ..Self::default() }
    }

    /// Its bytes, with a body in frames of `part` bytes at most.
    pub fn bytes(&self, part: usize) -> Vec<u8> {
        let (class, number) = self.method;
        let head = [class.to_be_bytes(), number.to_be_bytes()].concat();
        let mut bytes = frame(1, self.channel, &[&head[..], &self.fields].concat());
        if class == BASIC && WITH_CONTENT.contains(&number) {
            let size = (self.body.len() as u64).to_be_bytes();
            let header = [&[0, 60, 0, 0][..], &size, &self.properties].concat();
            bytes.extend(frame(2, self.channel, &header));
            self.body.chunks(part).for_each(|part| bytes.extend(frame(3, self.channel, part)));
        }
        bytes
    }

    /// Number of 8 bytes at a place of its fields.
    pub fn number(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.fields[at..at + 8].try_into().expect("8 bytes"))
    }

    /// Short strings of its fields from a place on, as many as are wanted.
    pub fn texts<const N: usize>(&self, mut at: usize) -> [String; N] {
        std::array::from_fn(|_| {
            let len = usize::from(self.fields[at]);
            let text = String::from_utf8_lossy(&self.fields[at + 1..at + 1 + len]).into_owned();
            at += 1 + len;
            text
        })
    }
}

fn frame(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
    let size = (payload.len() as u32).to_be_bytes();
    [&[kind][..], &channel.to_be_bytes(), &size, payload, &[206]].concat()
}

/// A short string.
pub fn short(text: &str) -> Vec<u8> {
    [&[text.len() as u8][..], text.as_bytes()].concat()
}

/// Returns `true` if a binding with the key `filter` takes messages with the key `key`.
pub fn matches(filter: &str, key: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        text.split('.').filter(|_| !text.is_empty()).map(ToOwned::to_owned).collect()
    };
    matches_words(&words(filter), &words(key))
}

fn matches_words(filter: &[String], words: &[String]) -> bool {
    match (filter.split_first(), words.split_first()) {
        (None, None) => true,
        (Some((first, rest)), _) if first == "#" => {
            (0..=words.len()).any(|at| matches_words(rest, &words[at..]))
        }
        (Some((first, filter)), Some((word, words))) => {
            (first == "*" || first == word) && matches_words(filter, words)
        }
        _ => false,
    }
}

#[test]
fn packets_are_read_as_the_specification_writes_them() {
    let fields = [&[0, 0][..], &short("e"), &short("a.b"), &[0]].concat();
    let body = b"hello".to_vec();
    let message =
        AmqpPacket { body, properties: vec![0, 0], ..AmqpPacket::new(7, (60, 40), fields) };
    let bytes = [PROTOCOL, &message.bytes(2), BEAT].concat();
    for piece in [1, 3, 1000] {
        let mut reader = PacketReader::default();
        let parts = bytes.chunks(piece).flat_map(|part| reader.take(part).0);
        let packets: Vec<AmqpPacket> = parts.collect();
        assert_eq!(packets, [AmqpPacket::default(), message.clone(), AmqpPacket::default()]);
    }
    assert_eq!(message.texts(2), ["e", "a.b"]);
    let broken = PacketReader::default().take(&[BEAT, GARBAGE].concat());
    assert_eq!(broken, (vec![AmqpPacket::default()], Err(NoPacket)));
}

#[test]
fn wildcards_of_keys_are_words() {
    for (filter, key, expected) in [
        ("a.*", "a.b", true),
        ("a.*", "a", false),
        ("a.#", "a", true),
        ("#", "", true),
        ("*", "", false),
        ("#.c", "a.b.c", true),
        ("a.#.c", "a.c.d", false),
    ] {
        assert_eq!(matches(filter, key), expected, "{filter} {key}");
    }
}
