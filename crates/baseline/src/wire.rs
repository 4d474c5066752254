//! The few MQTT 3.1.1 packets of the baseline's clients, built once and sent unchanged. The
//! project's codec does not build them: the sink reads them with it, and both must agree.

/// Number of the first client: all numbers have five digits, so all packets of a kind one length.
pub const FIRST_CLIENT: usize = 10_000;

/// First bytes of packets [MQTT-2.2.1].
pub mod first {
    pub const CONNECT: u8 = 0x10;
    pub const CONNACK: u8 = 0x20;
    pub const PUBLISH: u8 = 0x30;
    pub const SUBSCRIBE: u8 = 0x82;
    pub const SUBACK: u8 = 0x90;
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
fn packet(first: u8, body: &[u8]) -> Vec<u8> {
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

fn push_text(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_a_kind_have_one_length() {
        assert_eq!(connect(0).len(), connect(19_999).len());
        assert_eq!(publish(&topic(0), 100).len(), publish(&topic(19_999), 100).len());
        assert_eq!(connect(0)[..2], [first::CONNECT, 10 + 2 + 11]);
    }
}
