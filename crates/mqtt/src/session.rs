//! The protocol state of one simulated client: connection, packet ids, messages in flight in both
//! directions, keep-alive. Payloads are not stored: a message in flight is a token from which the
//! caller makes the same message again.

mod event;
mod handle;
mod in_flight;
mod keep_alive;

#[cfg(test)]
mod tests;

use crate::codec::{self, Connect, PacketId, PacketType, QoS, Version};
use in_flight::InFlight;

pub use event::{Event, ProtocolError, RequestError};
pub use keep_alive::KeepAlive;

/// Packet identifiers there are: 1 to 65 535.
const PACKET_IDS: usize = 65_535;

const _: () = assert!(size_of::<Session<[u64; 4]>>() <= 24, "windows 8, timer 8, id 2, states 4");

/// The protocol state of one client. `T` is the token of a message in flight.
///
/// An idle client, and one that uses QoS 0 only, has nothing on the heap.
#[derive(Debug)]
pub struct Session<T> {
    windows: Option<Box<Windows<T>>>,
    /// Last packet sent, or the PINGREQ that waits for its answer; ns on the caller's clock.
    timer_ns: u64,
    last_packet_id: PacketId,
    connection: Connection,
    clean_session: bool,
    awaiting_pong: bool,
    /// The server has given a sign of life since the last PINGREQ.
    heard: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connection {
    Lost,
    AwaitingConnAck,
    Up,
}

/// What only clients with something outstanding need.
#[derive(Debug)]
struct Windows<T> {
    /// Own QoS 1 and 2 messages that are not fully acknowledged, in the order of publishing.
    sent: InFlight<Outgoing<T>>,
    /// QoS 2 messages received but not released.
    received: InFlight<()>,
    /// SUBSCRIBE and UNSUBSCRIBE without an answer: rarely more than one.
    requests: Vec<Request>,
}

/// A SUBSCRIBE or UNSUBSCRIBE without an answer.
#[derive(Clone, Copy, Debug)]
struct Request {
    packet_id: PacketId,
    /// Filters of a SUBSCRIBE; 0 for an UNSUBSCRIBE.
    filters: u32,
}

#[derive(Clone, Copy, Debug)]
struct Outgoing<T> {
    token: T,
    awaits: Awaits,
}

/// Which acknowledgement an own message waits for: PUBACK, PUBREC or PUBCOMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaits {
    Ack,
    Rec,
    Comp,
}

impl<T> Default for Windows<T> {
    fn default() -> Self {
        Self { sent: InFlight::new(), received: InFlight::new(), requests: Vec::new() }
    }
}

impl<T: Copy> Default for Session<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy> Session<T> {
    /// A session that was never connected.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            windows: None,
            timer_ns: 0,
            last_packet_id: 0,
            connection: Connection::Lost,
            clean_session: true,
            awaiting_pong: false,
            heard: false,
        }
    }

    /// Whether the server has accepted the connection and it is not lost or closed since.
    #[must_use]
    pub const fn is_connected(&self) -> bool {
        matches!(self.connection, Connection::Up)
    }

    /// Returns `true` from CONNECT until the connection is lost or closed.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        !matches!(self.connection, Connection::Lost)
    }

    /// Own QoS 1 and 2 messages that are not fully acknowledged.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.windows.as_ref().map_or(0, |windows| windows.sent.len())
    }

    /// Appends CONNECT; to be called once on every new network connection `[MQTT-3.1.0-1]`.
    ///
    /// A clean session drops what an earlier one kept `[MQTT-3.1.2-6]`; returns how many messages
    /// in flight that were.
    ///
    /// # Errors
    /// [`codec::EncodeError`] of [`Connect::encode`]; the session and `out` are then as they were.
    pub fn connect(
        &mut self,
        version: Version,
        connect: &Connect<'_>,
        out: &mut Vec<u8>,
    ) -> Result<usize, codec::EncodeError> {
        connect.encode(version, out)?;
        let dropped = self.connection_lost(!connect.clean_session);
        self.connection = Connection::AwaitingConnAck;
        self.clean_session = connect.clean_session;
        Ok(dropped)
    }

    /// Appends one SUBSCRIBE with all `filters` and returns its packet id, which comes back in
    /// [`Event::Subscribed`]. The filters are not checked, see [`crate::topic::validate_filter`].
    ///
    /// # Errors
    /// [`RequestError`]; nothing is then appended.
    pub fn subscribe<'s>(
        &mut self,
        version: Version,
        filters: impl Iterator<Item = (&'s str, QoS)>,
        out: &mut Vec<u8>,
    ) -> Result<PacketId, RequestError> {
        let packet_id = self.free_packet_id().ok_or(RequestError::NoPacketId)?;
        let mut count = 0;
        codec::encode_subscribe(version, packet_id, filters.inspect(|_| count += 1), out)?;
        Ok(self.note_request(Request { packet_id, filters: count }))
    }

    /// Appends one UNSUBSCRIBE with all `filters` and returns its packet id, which comes back in
    /// [`Event::Unsubscribed`].
    ///
    /// # Errors
    /// [`RequestError`]; nothing is then appended.
    pub fn unsubscribe<'s>(
        &mut self,
        version: Version,
        filters: impl Iterator<Item = &'s str>,
        out: &mut Vec<u8>,
    ) -> Result<PacketId, RequestError> {
        let packet_id = self.free_packet_id().ok_or(RequestError::NoPacketId)?;
        codec::encode_unsubscribe(version, packet_id, filters, out)?;
        Ok(self.note_request(Request { packet_id, filters: 0 }))
    }

    /// Takes a message into flight and returns its packet id: 0 for QoS 0, which is not recorded.
    /// The caller then writes the PUBLISH. `None` if all packet ids are in use.
    ///
    /// Only while connected, and after [`Session::retransmit`] where that is due: otherwise the
    /// message would be sent twice, or before older ones `[MQTT-4.6.0-1]`.
    #[inline]
    pub fn publish(&mut self, qos: QoS, token: T) -> Option<PacketId> {
        debug_assert!(self.is_connected(), "publish before CONNACK");
        let awaits = match qos {
            QoS::AtMostOnce => return Some(0),
            QoS::AtLeastOnce => Awaits::Ack,
            QoS::ExactlyOnce => Awaits::Rec,
        };
        let packet_id = self.free_packet_id()?;
        self.last_packet_id = packet_id;
        self.windows_mut().sent.push(packet_id, Outgoing { token, awaits });
        Some(packet_id)
    }

    /// The network connection is gone. What the server owes for SUBSCRIBE and UNSUBSCRIBE is
    /// forgotten; messages in flight are kept for a persistent session (`keep`), otherwise dropped.
    /// Returns how many were dropped.
    pub fn connection_lost(&mut self, keep: bool) -> usize {
        self.connection = Connection::Lost;
        self.awaiting_pong = false;
        if keep {
            if let Some(windows) = &mut self.windows {
                windows.requests.clear();
            }
            return 0;
        }
        self.windows.take().map_or(0, |windows| windows.sent.len())
    }

    /// Sends again what is in flight, in the order of publishing `[MQTT-4.4.0-1]`,
    /// `[MQTT-4.6.0-1]`: to be called once after [`Event::Connected`] on a persistent session,
    /// before anything is published. Returns how many messages that were.
    ///
    /// `publish` appends the PUBLISH of a token, with the packet id given and DUP set
    /// `[MQTT-3.3.1-1]`; where the server has confirmed the message, PUBREL is appended instead.
    pub fn retransmit(
        &mut self,
        version: Version,
        out: &mut Vec<u8>,
        mut publish: impl FnMut(T, PacketId, &mut Vec<u8>),
    ) -> usize {
        let Some(windows) = &self.windows else { return 0 };
        for (packet_id, message) in windows.sent.iter() {
            match message.awaits {
                Awaits::Ack | Awaits::Rec => publish(message.token, packet_id, out),
                Awaits::Comp => {
                    codec::encode_ack(version, PacketType::PubRel, packet_id, out);
                }
            }
        }
        windows.sent.len()
    }

    /// Appends DISCONNECT, after which nothing may be sent `[MQTT-3.14.4-2]`. What is in flight
    /// stays until [`Session::connection_lost`].
    pub fn disconnect(&mut self, version: Version, out: &mut Vec<u8>) {
        codec::encode_empty(version, PacketType::Disconnect, out);
        self.connection = Connection::Lost;
    }

    fn windows_mut(&mut self) -> &mut Windows<T> {
        self.windows.get_or_insert_default()
    }

    /// The next packet id that nothing in flight has `[MQTT-2.3.1-2]`, `[MQTT-2.3.1-4]`.
    #[inline]
    fn free_packet_id(&self) -> Option<PacketId> {
        let following = |packet_id: PacketId| packet_id.checked_add(1).unwrap_or(1);
        let mut packet_id = following(self.last_packet_id);
        let Some(windows) = &self.windows else { return Some(packet_id) };
        if windows.sent.len() + windows.requests.len() >= PACKET_IDS {
            return None;
        }
        let is_requested = |id| windows.requests.iter().any(|request| request.packet_id == id);
        while windows.sent.contains(packet_id) || is_requested(packet_id) {
            packet_id = following(packet_id);
        }
        Some(packet_id)
    }

    fn note_request(&mut self, request: Request) -> PacketId {
        self.last_packet_id = request.packet_id;
        self.windows_mut().requests.push(request);
        request.packet_id
    }
}
