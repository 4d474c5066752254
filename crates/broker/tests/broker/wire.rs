//! As much of MQTT as the tests need, written out in bytes so that nothing of Pubstorm's own codec
//! is trusted here. Packets are below 128 bytes, so that a length is one byte.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

#[derive(Clone, Copy, PartialEq)]
pub enum Version {
    V311,
    V5,
}

/// One connection. Every read ends after `PATIENCE`.
pub struct Client {
    stream: TcpStream,
    version: Version,
}

impl Client {
    /// Opens a TCP connection without CONNECT.
    pub fn dial(port: u16, version: Version) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream, version }
    }

    /// Connects with a clean session, and is accepted.
    pub fn connect(port: u16, version: Version, id: &str) -> Self {
        let mut client = Self::dial(port, version);
        assert_eq!(client.offer(id), 0);
        client
    }

    /// Sends CONNECT and gives the code of the CONNACK.
    pub fn offer(&mut self, id: &str) -> u8 {
        self.offer_as(id, None, None)
    }

    /// Connects with a user and a password, and with a will on a topic.
    pub fn offer_as(&mut self, id: &str, user: Option<(&str, &str)>, will: Option<&str>) -> u8 {
        let level = if self.version == Version::V5 { 5 } else { 4 };
        let mut flags = 0b10;
        let mut rest = text(id);
        if let Some(topic) = will {
            flags |= 0b100;
            rest.extend([self.no_properties(), &text(topic), &text("gone")].concat());
        }
        if let Some((name, password)) = user {
            flags |= 0b1100_0000;
            rest.extend([text(name), text(password)].concat());
        }
        let head = [0, 4, b'M', b'Q', b'T', b'T', level, flags, 0, 60];
        self.send(0x10, &[&head, self.no_properties(), &rest]);
        let (first_byte, body) = self.packet();
        assert_eq!(first_byte, 0x20);
        body[1]
    }

    pub fn ping(&mut self) {
        self.send(0xc0, &[]);
        assert_eq!(self.packet(), (0xd0, vec![]));
    }

    /// Subscribes, and is granted the QoS.
    pub fn subscribe(&mut self, filter: &str, qos: u8) {
        assert_eq!(self.subscribed(filter, qos), qos);
    }

    /// Subscribes and gives the code of the SUBACK.
    pub fn subscribed(&mut self, filter: &str, qos: u8) -> u8 {
        self.send(0x82, &[&[0, 1], self.no_properties(), &text(filter), &[qos]]);
        let (first_byte, body) = self.packet();
        assert_eq!(first_byte, 0x90);
        body[body.len() - 1]
    }

    /// Subscribes as deliveries come, and leaves when the broker has answered.
    pub fn subscribe_and_leave(mut self, filter: &str) {
        self.send(0x82, &[&[0, 1], self.no_properties(), &text(filter), &[0]]);
        while self.packet().0 != 0x90 {}
    }

    /// Publishes at QoS 1 and waits for the acknowledgement.
    pub fn publish_qos_1(&mut self, topic: &str, payload: &[u8], retain: bool) {
        let parts: [&[u8]; 4] = [&text(topic), &[0, 7], self.no_properties(), payload];
        self.send(0x32 | u8::from(retain), &parts);
        let (first_byte, body) = self.packet();
        assert_eq!((first_byte, &body[..2]), (0x40, &[0, 7][..]));
    }

    /// Takes a PUBLISH and acknowledges it: its first byte, topic and payload.
    pub fn delivery_of_qos_1(&mut self) -> (u8, String, Vec<u8>) {
        let (first_byte, body) = self.packet();
        let topic_end = 2 + usize::from(body[1]);
        let topic = String::from_utf8(body[2..topic_end].to_vec()).unwrap();
        let (id, rest) = body[topic_end..].split_at(2);
        self.send(0x40, &[id]);
        let properties = if self.version == Version::V5 { 1 + usize::from(rest[0]) } else { 0 };
        (first_byte, topic, rest[properties..].to_vec())
    }

    /// Returns `true` if the broker ends the connection and sends nothing before.
    pub fn is_cut_off(&mut self) -> bool {
        let error = self.stream.read_exact(&mut [0]).unwrap_err().kind();
        matches!(error, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset)
    }

    fn no_properties(&self) -> &'static [u8] {
        if self.version == Version::V5 { &[0] } else { &[] }
    }

    fn send(&mut self, first_byte: u8, parts: &[&[u8]]) {
        let body = parts.concat();
        let length = u8::try_from(body.len()).unwrap();
        assert!(length < 128);
        self.stream.write_all(&[&[first_byte, length], &*body].concat()).unwrap();
    }

    fn packet(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 2];
        self.stream.read_exact(&mut head).unwrap();
        assert!(head[1] < 128);
        let mut body = vec![0; head[1].into()];
        self.stream.read_exact(&mut body).unwrap();
        (head[0], body)
    }
}

/// UTF-8 text with its length before it [MQTT-1.5.3].
fn text(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).unwrap();
    [&length.to_be_bytes(), text.as_bytes()].concat()
}

const PATIENCE: Duration = Duration::from_secs(5);
