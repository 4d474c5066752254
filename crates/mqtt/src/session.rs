//! The protocol state of one simulated client: connection, packet ids, messages in flight in both
//! directions. The session stores no payloads: the token of a message in flight lets
//! the caller build the same message again.

mod event;
mod handle;
mod in_flight;
mod lapses;
mod server;

#[cfg(test)]
mod tests;

use crate::codec::{
    self, Connect, PacketId, PacketType, Properties, Property, QoS, ReasonCode, Reasoned,
    SubscriptionOptions, Version,
};
use in_flight::InFlight;
use server::Server;

pub use event::{Blocked, MqttEvent, ProtocolError, RequestError};
pub use lapses::{Lapse, Lapses};
pub use server::{Alias, Limits, Unsupported};

/// Number of packet identifiers: 1 to 65 535.
const PACKET_IDS: usize = 65_535;

const _: () = assert!(
    size_of::<MqttSession<[u64; 4]>>() <= 24,
    "windows 8, server 8, id 2, aliases 2, states 4"
);

/// The protocol state of one client. `T` is the token of a message in flight.
///
/// An idle client, or a client that uses QoS 0 only, has nothing on the heap. If a server of MQTT 5
/// has set limits, the session has 24 bytes there.
#[derive(Debug)]
pub struct MqttSession<T> {
    windows: Option<Box<PacketsInFlight<T>>>,
    /// Limits of a server of MQTT 5, and topic aliases.
    server: Option<Box<Server>>,
    last_packet_id: PacketId,
    /// Largest topic alias that the server may use.
    aliases_max: u16,
    connection: Connection,
    clean_session: bool,
    /// CONNECT had no client identifier.
    is_unnamed: bool,
    /// Breaches since the last [`MqttSession::take_lapses`].
    lapses: Lapses,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connection {
    Lost,
    AwaitingConnAck,
    /// CONNECT has named an authentication method: AUTH may come before CONNACK.
    Authenticating,
    Up,
}

/// State that only clients with unanswered packets need.
#[derive(Debug)]
struct PacketsInFlight<T> {
    /// Own QoS 1 and 2 messages that are not fully acknowledged, in the order of publishing.
    sent: InFlight<SentMessage<T>>,
    /// QoS 2 messages received but not released.
    received: InFlight<()>,
    /// `None` almost always.
    aside: Option<Box<Aside<T>>>,
    /// Messages were sent again on this connection: the server may not know their identifiers.
    has_resent: bool,
}

/// Packets that take identifiers beside the messages sent on this connection.
#[derive(Debug)]
struct Aside<T> {
    /// Own messages of an earlier connection that are not sent again yet, in the order of
    /// publishing.
    again: InFlight<SentMessage<T>>,
    /// Unanswered SUBSCRIBE and UNSUBSCRIBE packets, rarely more than one.
    requests: InFlight<FilterRequest>,
}

/// An unanswered SUBSCRIBE or UNSUBSCRIBE.
#[derive(Clone, Copy, Debug)]
struct FilterRequest {
    filters: u32,
    /// Number of filters that need what the server has not.
    unavailable: u32,
    /// `true` for SUBSCRIBE, `false` for UNSUBSCRIBE.
    subscribes: bool,
}

#[derive(Clone, Copy, Debug)]
struct SentMessage<T> {
    token: T,
    awaits: Awaits,
}

/// Acknowledgement that an own message waits for: PUBACK, PUBREC or PUBCOMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaits {
    Ack,
    Rec,
    Comp,
}

impl<T> Default for PacketsInFlight<T> {
    fn default() -> Self {
        let (sent, received) = (InFlight::new(), InFlight::new());
        Self { sent, received, aside: None, has_resent: false }
    }
}

impl<T> Default for Aside<T> {
    fn default() -> Self {
        Self { again: InFlight::new(), requests: InFlight::new() }
    }
}

impl<T> PacketsInFlight<T> {
    /// Number of own messages that are not fully acknowledged.
    fn in_flight(&self) -> usize {
        self.sent.len() + self.aside.as_ref().map_or(0, |aside| aside.again.len())
    }

    /// Forgets the requests of a connection. Its messages are to be sent again, before those of
    /// earlier connections that are not sent again yet.
    fn connection_lost(&mut self) {
        self.has_resent = false;
        let mut again = std::mem::replace(&mut self.sent, InFlight::new());
        if let Some(mut later) = self.aside.take().map(|aside| aside.again) {
            while let Some((packet_id, message)) = later.pop_front() {
                again.push(packet_id, message);
            }
        }
        if again.len() > 0 {
            self.aside = Some(Box::new(Aside { again, ..Aside::default() }));
        }
    }

    /// Gives memory back that is not needed any more.
    fn tidy(&mut self) {
        let is_empty = |aside: &Aside<T>| aside.again.len() + aside.requests.len() == 0;
        self.aside.take_if(|aside| is_empty(aside));
    }
}

impl<T: Copy> Default for MqttSession<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy> MqttSession<T> {
    /// A session that was never connected.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            windows: None,
            server: None,
            last_packet_id: 0,
            aliases_max: 0,
            connection: Connection::Lost,
            clean_session: true,
            is_unnamed: false,
            lapses: Lapses::NONE,
        }
    }

    /// Returns `true` from an accepting CONNACK until the connection is lost or closed.
    #[must_use]
    pub const fn is_connected(&self) -> bool {
        matches!(self.connection, Connection::Up)
    }

    /// Returns `true` from CONNECT until the connection is lost or closed.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        !matches!(self.connection, Connection::Lost)
    }

    /// Number of own QoS 1 and 2 messages that are not fully acknowledged.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.windows.as_ref().map_or(0, |windows| windows.in_flight())
    }

    /// Returns true while a SUBSCRIBE or UNSUBSCRIBE is unanswered.
    #[must_use]
    pub fn awaits_requests(&self) -> bool {
        self.aside().is_some_and(|aside| aside.requests.len() > 0)
    }

    /// Returns `true` while messages of an earlier connection are not sent again.
    #[must_use]
    #[inline]
    pub fn holds_back(&self) -> bool {
        self.aside().is_some_and(|aside| aside.again.len() > 0)
    }

    /// Appends CONNECT. Call this function once on every new network connection `[MQTT-3.1.0-1]`.
    ///
    /// A clean session drops the messages in flight of an earlier session `[MQTT-3.1.2-6]`. Returns
    /// the number of messages dropped. A client without an identifier continues with the one that
    /// the server has assigned (3.2.2.3.7 of MQTT 5).
    ///
    /// # Errors
    /// [`codec::EncodeError`] of [`Connect::encode`]; the session and `out` are then unchanged.
    pub fn connect(
        &mut self,
        version: Version,
        connect: &Connect<'_>,
        out: &mut Vec<u8>,
    ) -> Result<usize, codec::EncodeError> {
        let assigned = self.server.as_ref().and_then(|server| server.assigned_client_id());
        let assigned = assigned.filter(|_| connect.client_id.is_empty());
        let is_unnamed = assigned.is_none() && connect.client_id.is_empty();
        match assigned {
            Some(client_id) => Connect { client_id, ..*connect }.encode(version, out)?,
            None => connect.encode(version, out)?,
        }
        let dropped = self.connection_lost(!connect.clean_session);
        let aliases_max = connect.properties.number(Property::TopicAliasMaximum);
        self.aliases_max = aliases_max.unwrap_or(0) as u16;
        let method = connect.properties.text(Property::AuthenticationMethod);
        self.connection = match method {
            Some(method) => {
                self.server.get_or_insert_default().expect_method(method);
                Connection::Authenticating
            }
            None => Connection::AwaitingConnAck,
        };
        self.is_unnamed = is_unnamed;
        self.clean_session = connect.clean_session;
        Ok(dropped)
    }

    /// Appends one SUBSCRIBE with all `filters` and returns its packet id, which
    /// [`MqttEvent::Subscribed`] repeats. [`crate::topic::validate_filter`] checks filters; this
    /// function does not.
    ///
    /// # Errors
    /// [`RequestError`]; the function then appends nothing.
    pub fn subscribe<'s>(
        &mut self,
        version: Version,
        properties: Properties<'_>,
        filters: impl Iterator<Item = (&'s str, SubscriptionOptions)>,
        out: &mut Vec<u8>,
    ) -> Result<PacketId, RequestError> {
        let packet_id = self.free_packet_id().ok_or(RequestError::NoPacketId)?;
        let identified = properties.number(Property::SubscriptionIdentifier).is_some();
        let (limits, mut count, mut unavailable) = (self.limits(), 0, 0);
        let filters = filters.inspect(|(filter, _)| {
            count += 1;
            unavailable += u32::from(limits.lacks(filter, identified));
        });
        codec::encode_subscribe(version, (packet_id, properties), filters, out)?;
        let request = FilterRequest { filters: count, unavailable, subscribes: true };
        Ok(self.note_request(packet_id, request))
    }

    /// Appends one UNSUBSCRIBE with all `filters` and returns its packet id, which
    /// [`MqttEvent::Unsubscribed`] repeats.
    ///
    /// # Errors
    /// [`RequestError`]; the function then appends nothing.
    pub fn unsubscribe<'s>(
        &mut self,
        version: Version,
        filters: impl Iterator<Item = &'s str>,
        out: &mut Vec<u8>,
    ) -> Result<PacketId, RequestError> {
        let packet_id = self.free_packet_id().ok_or(RequestError::NoPacketId)?;
        let mut count = 0;
        let filters = filters.inspect(|_| count += 1);
        codec::encode_unsubscribe(version, (packet_id, Properties::NONE), filters, out)?;
        let request = FilterRequest { filters: count, unavailable: 0, subscribes: false };
        Ok(self.note_request(packet_id, request))
    }

    /// Records a message as in flight and returns its packet id. QoS 0 messages are not recorded
    /// and have packet id 0. The caller then writes the PUBLISH.
    ///
    /// Call this function only while connected, and after [`MqttSession::retransmit`] on a
    /// persistent session. Otherwise the session would send the message twice, or before older
    /// messages `[MQTT-4.6.0-1]`.
    ///
    /// # Errors
    /// [`Blocked`] if the message must wait for an acknowledgement.
    #[inline]
    pub fn publish(&mut self, qos: QoS, token: T) -> Result<PacketId, Blocked> {
        debug_assert!(self.is_connected(), "publish before CONNACK");
        let awaits = match qos {
            QoS::AtMostOnce => return Ok(0),
            QoS::AtLeastOnce => Awaits::Ack,
            QoS::ExactlyOnce => Awaits::Rec,
        };
        if self.server.is_some() && self.in_flight() >= self.receive_maximum() {
            return Err(Blocked::ReceiveMaximum);
        }
        let packet_id = self.free_packet_id().ok_or(Blocked::NoPacketId)?;
        self.last_packet_id = packet_id;
        self.windows_mut().sent.push(packet_id, SentMessage { token, awaits });
        Ok(packet_id)
    }

    /// Records the loss of the network connection and returns the number of messages dropped. The
    /// session forgets unanswered SUBSCRIBE and UNSUBSCRIBE packets. A persistent session (`keep`)
    /// keeps its messages in flight; a clean session drops them.
    pub fn connection_lost(&mut self, keep: bool) -> usize {
        self.connection = Connection::Lost;
        self.server = self.server.take().and_then(|server| server.after_connection(keep));
        if keep {
            if let Some(windows) = &mut self.windows {
                windows.connection_lost();
            }
            return 0;
        }
        self.windows.take().map_or(0, |windows| windows.in_flight())
    }

    /// Forgets which QoS 2 messages of the server are not released: another client that has
    /// continued the session may have released them, and an old id would hide a new message.
    pub fn forget_received(&mut self) {
        if let Some(windows) = &mut self.windows {
            windows.received.clear();
        }
    }

    /// Sends messages of an earlier connection again, in the order of publishing
    /// `[MQTT-4.4.0-1]`, `[MQTT-4.6.0-1]`, as many as the server accepts in flight
    /// `[MQTT5-3.3.4-7]`. Call this function after [`MqttEvent::Connected`] on a persistent
    /// session, before publishing; and after each acknowledgement while the session [holds messages
    /// back](Session::holds_back). Returns the number of messages sent again.
    ///
    /// `publish` appends the PUBLISH of a token, with the given packet id and DUP set
    /// `[MQTT-3.3.1-1]`, or returns `false`: then the session gives the message up. If the server
    /// has confirmed the message with PUBREC, the session appends PUBREL instead.
    pub fn retransmit(
        &mut self,
        out: &mut Vec<u8>,
        mut publish: impl FnMut(T, PacketId, &mut Vec<u8>) -> bool,
    ) -> usize {
        let most = self.receive_maximum();
        let Some(windows) = &mut self.windows else { return 0 };
        let Some(aside) = &mut windows.aside else { return 0 };
        let mut sent = 0;
        while windows.sent.len() < most
            && let Some((packet_id, message)) = aside.again.pop_front()
        {
            let is_sent = match message.awaits {
                Awaits::Ack | Awaits::Rec => publish(message.token, packet_id, out),
                Awaits::Comp => {
                    codec::encode_ack(PacketType::PubRel, packet_id, out);
                    true
                }
            };
            if is_sent {
                windows.sent.push(packet_id, message);
                sent += 1;
            }
        }
        windows.has_resent |= sent > 0;
        windows.tidy();
        sent
    }

    /// Returns the breaches since the last call.
    #[inline]
    pub const fn take_lapses(&mut self) -> Lapses {
        std::mem::replace(&mut self.lapses, Lapses::NONE)
    }

    /// Keep-alive of the connection in seconds: the server of MQTT 5 may replace `keep_alive_s` of
    /// CONNECT `[MQTT5-3.2.2-21]`. The caller keeps the time of the connection.
    #[must_use]
    #[inline]
    pub fn keep_alive_s(&self, keep_alive_s: u16) -> u16 {
        let server = self.server.as_ref().and_then(|server| server.keep_alive_s());
        server.unwrap_or(keep_alive_s)
    }

    /// Appends PINGREQ, which a server answers (3.12). Call this function only while connected.
    pub fn ping(&self, out: &mut Vec<u8>) {
        debug_assert!(self.is_connected(), "PINGREQ before CONNACK");
        codec::encode_empty(PacketType::PingReq, out);
    }

    /// Appends DISCONNECT, after which the client must send nothing `[MQTT-3.14.4-2]`. Messages in
    /// flight stay until [`MqttSession::connection_lost`]. `code` is not written before MQTT 5.
    pub fn disconnect(&mut self, version: Version, code: ReasonCode, out: &mut Vec<u8>) {
        let reasoned = Reasoned { code, ..Reasoned::default() };
        let written = reasoned.encode(version, PacketType::Disconnect, out);
        written.expect("the packet has three bytes");
        self.connection = Connection::Lost;
    }

    fn windows_mut(&mut self) -> &mut PacketsInFlight<T> {
        self.windows.get_or_insert_default()
    }

    /// Next packet id that is not in flight `[MQTT-2.3.1-2]`, `[MQTT-2.3.1-4]`.
    #[inline]
    fn free_packet_id(&self) -> Option<PacketId> {
        let following = |packet_id: PacketId| packet_id.checked_add(1).unwrap_or(1);
        let mut packet_id = following(self.last_packet_id);
        let Some(windows) = &self.windows else { return Some(packet_id) };
        let aside = windows.aside.as_deref();
        let beside = aside.map_or(0, |aside| aside.again.len() + aside.requests.len());
        if windows.sent.len() + beside >= PACKET_IDS {
            return None;
        }
        let is_beside =
            |id, aside: &Aside<T>| aside.again.contains(id) || aside.requests.contains(id);
        while windows.sent.contains(packet_id)
            || aside.is_some_and(|aside| is_beside(packet_id, aside))
        {
            packet_id = following(packet_id);
        }
        Some(packet_id)
    }

    fn note_request(&mut self, packet_id: PacketId, request: FilterRequest) -> PacketId {
        self.last_packet_id = packet_id;
        self.windows_mut().aside.get_or_insert_default().requests.push(packet_id, request);
        packet_id
    }

    #[inline]
    fn aside(&self) -> Option<&Aside<T>> {
        self.windows.as_ref()?.aside.as_deref()
    }
}
