//! The few MQTT 3.1.1 packets that the floor needs: those of clients built once and sent as they
//! are, and a view of what arrives that looks at the fixed header only. Written apart from the
//! project's codec on purpose: a count that both agree on is not one mistake made once.

use anyhow::{Result, bail};

/// Number of the first client: all numbers have five digits, so all packets of a kind one length.
pub const FIRST_CLIENT: usize = 10_000;

/// First bytes of packets [MQTT-2.2.1].
pub mod first {
    pub const CONNECT: u8 = 0x10;
    pub const CONNACK: u8 = 0x20;
    pub const PUBLISH: u8 = 0x30;
    pub const PUBACK: u8 = 0x40;
    pub const PUBREC: u8 = 0x50;
    pub const PUBREL: u8 = 0x62;
    pub const PUBCOMP: u8 = 0x70;
    pub const SUBSCRIBE: u8 = 0x82;
    pub const SUBACK: u8 = 0x90;
    pub const PINGREQ: u8 = 0xc0;
    pub const PINGRESP: u8 = 0xd0;
}

/// A whole packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Type and flags.
    pub first: u8,
    /// What follows the fixed header.
    pub body: &'a [u8],
    /// All of its bytes.
    pub bytes: &'a [u8],
}

/// Topic of a client, of the same length as in the engine's plan.
pub fn topic(client: usize) -> String {
    format!("bench/device-{}/up", FIRST_CLIENT + client)
}

/// CONNECT of a client: clean session, keep-alive of 60 s.
pub fn connect(client: usize) -> Vec<u8> {
    let mut body = vec![0, 4, b'M', b'Q', b'T', b'T', 4, 0x02, 0, 60];
    push_text(&format!("bench-{}", FIRST_CLIENT + client), &mut body);
    packet(first::CONNECT, &body)
}

/// SUBSCRIBE to one filter at QoS 0.
pub fn subscribe(filter: &str) -> Vec<u8> {
    let mut body = vec![0, 1];
    push_text(filter, &mut body);
    body.push(0);
    packet(first::SUBSCRIBE, &body)
}

/// PUBLISH at QoS 0 with a payload of this size.
pub fn publish(topic: &str, payload_bytes: usize) -> Vec<u8> {
    let mut body = Vec::new();
    push_text(topic, &mut body);
    body.resize(body.len() + payload_bytes, b'.');
    packet(first::PUBLISH, &body)
}

/// A packet of a body shorter than 256 MB.
pub fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    let mut rest = body.len();
    while rest >= 0x80 {
        bytes.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes.extend_from_slice(body);
    bytes
}

/// The packet at the front of `bytes`; `None` while some of it is missing.
///
/// # Errors
/// When the length is written in more than four bytes [MQTT-2.2.3].
pub fn next(bytes: &[u8]) -> Result<Option<Packet<'_>>> {
    let mut body_len = 0;
    for at in 1..=4 {
        let Some(&byte) = bytes.get(at) else { return Ok(None) };
        body_len |= usize::from(byte & 0x7f) << (7 * (at - 1));
        if byte & 0x80 == 0 {
            let end = at + 1 + body_len;
            let Some(whole) = bytes.get(..end) else { return Ok(None) };
            return Ok(Some(Packet { first: bytes[0], body: &whole[at + 1..], bytes: whole }));
        }
    }
    bail!("found a length of more than four bytes")
}

fn push_text(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_found_once_its_last_byte_is_there() -> Result<()> {
        for payload_bytes in [0, 100, 200, 20_000] {
            let bytes = publish(&topic(7), payload_bytes);
            let found = next(&bytes)?;
            assert_eq!(found.map(|packet| packet.bytes), Some(&bytes[..]));
            assert_eq!(found.map(|packet| packet.body.len()), Some(2 + 21 + payload_bytes));
            for end in 0..bytes.len() {
                assert_eq!(next(&bytes[..end])?, None);
            }
        }
        assert!(next(&[first::PUBLISH, 0xff, 0xff, 0xff, 0xff, 1]).is_err());
        Ok(())
    }

    #[test]
    fn packets_of_a_kind_have_one_length() {
        assert_eq!(connect(0).len(), connect(19_999).len());
        assert_eq!(publish(&topic(0), 100).len(), publish(&topic(19_999), 100).len());
        assert_eq!(connect(0)[..2], [first::CONNECT, 10 + 2 + 11]);
    }
}
