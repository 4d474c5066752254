//! The receiving side of a session: what a packet from the server changes, and the answer to it.

use super::{Awaits, Connection, Event, ProtocolError, Request, Session};
use crate::codec::{self, Packet, PacketId, PacketType, Publish, QoS, SubAck, Version};

impl<T: Copy> Session<T> {
    /// Takes in one packet from the server and appends the answer that the protocol asks for.
    ///
    /// # Errors
    /// [`ProtocolError`] if the server must not send this; the connection is then to be closed
    /// `[MQTT-4.8.0-1]`.
    #[inline]
    pub fn handle<'a>(
        &mut self,
        version: Version,
        packet: &Packet<'a>,
        out: &mut Vec<u8>,
    ) -> Result<Event<'a, T>, ProtocolError> {
        if self.connection != Connection::Up {
            return self.handle_first(packet);
        }
        let mut reply = |packet_type, packet_id| {
            codec::encode_ack(version, packet_type, packet_id, out);
        };
        Ok(match *packet {
            Packet::Publish(publish) => self.handle_publish(publish, reply),
            Packet::PubAck { packet_id } => self.settle(packet_id, Awaits::Ack),
            Packet::PubComp { packet_id } => self.settle(packet_id, Awaits::Comp),
            Packet::PubRec { packet_id } => {
                reply(PacketType::PubRel, packet_id);
                self.handle_pubrec(packet_id)
            }
            Packet::PubRel { packet_id } => {
                if let Some(windows) = &mut self.windows {
                    windows.received.remove(packet_id);
                }
                reply(PacketType::PubComp, packet_id);
                Event::Released
            }
            Packet::SubAck(suback) => self.handle_suback(suback)?,
            Packet::UnsubAck { packet_id } => match self.end_request(packet_id, false) {
                Some(_) => Event::Unsubscribed { packet_id },
                None => Event::UnknownAck,
            },
            Packet::PingResp => {
                self.awaiting_pong = false;
                Event::Pong
            }
            Packet::ConnAck(_) => return Err(ProtocolError::SecondConnAck),
            Packet::Connect(_)
            | Packet::Subscribe(_)
            | Packet::Unsubscribe(_)
            | Packet::PingReq
            | Packet::Disconnect => return Err(ProtocolError::FromClient(packet.packet_type())),
        })
    }

    /// The first packet from a server is CONNACK `[MQTT-3.2.0-1]`.
    #[cold]
    fn handle_first<'a>(&mut self, packet: &Packet<'a>) -> Result<Event<'a, T>, ProtocolError> {
        let Packet::ConnAck(connack) = *packet else {
            return Err(ProtocolError::BeforeConnAck(packet.packet_type()));
        };
        if self.connection == Connection::Lost {
            return Err(ProtocolError::ConnAckWithoutConnect);
        }
        if connack.code != 0 {
            self.connection = Connection::Lost;
            return Ok(Event::Refused { code: connack.code });
        }
        let session_present = connack.session_present;
        if session_present && self.clean_session {
            return Err(ProtocolError::SessionPresentOnCleanSession);
        }
        if !session_present && let Some(windows) = &mut self.windows {
            // The server starts its packet ids anew: an old id would hide a new message.
            windows.received.clear();
        }
        self.connection = Connection::Up;
        Ok(Event::Connected { session_present })
    }

    #[inline]
    fn handle_publish<'a>(
        &mut self,
        publish: Publish<'a>,
        mut reply: impl FnMut(PacketType, PacketId),
    ) -> Event<'a, T> {
        let packet_id = publish.packet_id;
        match publish.qos {
            QoS::AtMostOnce => {}
            QoS::AtLeastOnce => reply(PacketType::PubAck, packet_id),
            QoS::ExactlyOnce => {
                reply(PacketType::PubRec, packet_id);
                let received = &mut self.windows_mut().received;
                if received.contains(packet_id) {
                    return Event::Redelivered; // [MQTT-4.3.3-2]
                }
                received.push(packet_id, ());
            }
        }
        Event::Delivered(publish)
    }

    #[inline]
    fn settle<'a>(&mut self, packet_id: PacketId, awaits: Awaits) -> Event<'a, T> {
        let removed = self.windows.as_mut().and_then(|windows| {
            windows.sent.remove_if(packet_id, |message| message.awaits == awaits)
        });
        removed.map_or(Event::UnknownAck, |message| Event::Acknowledged(message.token))
    }

    /// PUBREL is the answer in every case: for an id that is not known here it ends a message of
    /// an earlier run of the same client, which the server would otherwise hold for ever.
    fn handle_pubrec<'a>(&mut self, packet_id: PacketId) -> Event<'a, T> {
        let message = self.windows.as_mut().and_then(|windows| windows.sent.find_mut(packet_id));
        match message {
            Some(message) if message.awaits != Awaits::Ack => {
                message.awaits = Awaits::Comp;
                Event::Received
            }
            _ => Event::UnknownAck,
        }
    }

    /// A SUBACK has one code for each filter of its SUBSCRIBE `[MQTT-3.9.3-1]`.
    fn handle_suback<'a>(&mut self, suback: SubAck<'a>) -> Result<Event<'a, T>, ProtocolError> {
        let SubAck { packet_id, codes } = suback;
        match self.end_request(packet_id, true) {
            None => Ok(Event::UnknownAck),
            Some(filters) if filters as usize == codes.len() => {
                Ok(Event::Subscribed { packet_id, codes })
            }
            Some(filters) => Err(ProtocolError::SubAckCodes { codes: codes.len(), filters }),
        }
    }

    /// The filters of the SUBSCRIBE or UNSUBSCRIBE that is answered; `None` if it is not
    /// outstanding. The heap is given back if only requests were on it.
    fn end_request(&mut self, packet_id: PacketId, subscribes: bool) -> Option<u32> {
        let windows = self.windows.as_mut()?;
        let is_answered = |request: &Request| {
            request.packet_id == packet_id && (request.filters > 0) == subscribes
        };
        let index = windows.requests.iter().position(is_answered)?;
        let request = windows.requests.swap_remove(index);
        if windows.requests.is_empty() {
            windows.requests = Vec::new();
            if windows.sent.is_unused() && windows.received.is_unused() {
                self.windows = None;
            }
        }
        Some(request.filters)
    }
}
