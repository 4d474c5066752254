//! The receiving side of a session: applies a packet from the server and appends the answer.

use super::{
    Awaits, Connection, FilterRequest, Lapse, MqttEvent, MqttSession, PacketsInFlight,
    ProtocolError, SentMessage, Server,
};
use crate::codec::{
    self, Ack, Packet, PacketId, PacketType, Properties, Property, Publish, QoS, ReasonCode,
    SubAck, Version,
};

impl<T: Copy> MqttSession<T> {
    /// Applies one packet from the server and appends the answer that the protocol requires.
    ///
    /// # Errors
    /// [`ProtocolError`] if the protocol forbids the packet. The caller must then close the
    /// connection `[MQTT-4.8.0-1]`.
    #[inline]
    pub fn handle<'a>(
        &mut self,
        version: Version,
        packet: &Packet<'a>,
        out: &mut Vec<u8>,
    ) -> Result<MqttEvent<'a, T>, ProtocolError> {
        if self.connection != Connection::Up {
            return self.handle_first(version, packet);
        }
        let mut reply = |packet_type, packet_id| {
            codec::encode_ack(packet_type, packet_id, out);
        };
        Ok(match *packet {
            Packet::Publish(publish) => {
                if !publish.properties.is_empty() {
                    self.note_alias(&publish)?;
                }
                self.handle_publish(publish, reply)
            }
            Packet::PubAck(ack) => self.settle(&ack, Awaits::Ack),
            Packet::PubComp(ack) => {
                let event = self.settle(&Ack::of(ack.packet_id), Awaits::Comp);
                if ack.code.is_error() && matches!(event, MqttEvent::Acknowledged(_)) {
                    self.note_refused_release();
                }
                event
            }
            Packet::PubRec(ack) if ack.code.is_error() => self.settle(&ack, Awaits::Rec),
            Packet::PubRec(Ack { packet_id, .. }) => {
                reply(PacketType::PubRel, packet_id);
                self.handle_pubrec(packet_id)
            }
            Packet::PubRel(Ack { packet_id, .. }) => {
                if let Some(windows) = &mut self.windows {
                    windows.received.remove(packet_id);
                }
                reply(PacketType::PubComp, packet_id);
                MqttEvent::Released
            }
            Packet::SubAck(suback) => self.handle_suback(suback)?,
            Packet::UnsubAck(unsuback) => self.handle_unsuback(version, unsuback)?,
            Packet::PingResp => MqttEvent::Pong,
            Packet::Disconnect(reasoned) if version == Version::V5 => {
                if reasoned.code == ReasonCode::DISCONNECT_WITH_WILL {
                    return Err(ProtocolError::WillFromServer);
                }
                self.connection = Connection::Lost;
                MqttEvent::Disconnected(reasoned)
            }
            Packet::ConnAck(_) => return Err(ProtocolError::SecondConnAck),
            Packet::Auth(_) => return Err(ProtocolError::UnexpectedAuth),
            Packet::Connect(_)
            | Packet::Subscribe(_)
            | Packet::Unsubscribe(_)
            | Packet::PingReq
            | Packet::Disconnect(_) => return Err(ProtocolError::FromClient(packet.packet_type())),
        })
    }

    /// Applies the first packet of a server, which must be CONNACK `[MQTT-3.2.0-1]`.
    #[cold]
    fn handle_first<'a>(
        &mut self,
        version: Version,
        packet: &Packet<'a>,
    ) -> Result<MqttEvent<'a, T>, ProtocolError> {
        let connack = match *packet {
            Packet::ConnAck(connack) => connack,
            Packet::Auth(auth) if self.connection == Connection::Authenticating => {
                self.check_method(auth.properties);
                let continues = auth.code == ReasonCode::CONTINUE_AUTHENTICATION;
                let challenged = MqttEvent::Challenged(auth.properties);
                return continues.then_some(challenged).ok_or(ProtocolError::UnexpectedAuth);
            }
            _ => return Err(ProtocolError::BeforeConnAck(packet.packet_type())),
        };
        if self.connection == Connection::Lost {
            return Err(ProtocolError::ConnAckWithoutConnect);
        }
        if connack.code != 0 {
            self.connection = Connection::Lost;
            return Ok(MqttEvent::Refused { code: connack.code, properties: connack.properties });
        }
        let session_present = connack.session_present;
        if session_present && self.clean_session {
            return Err(ProtocolError::SessionPresentOnCleanSession);
        }
        let mut dropped = 0;
        if !session_present && let Some(windows) = &mut self.windows {
            // The server numbers its messages anew: an old id would hide a new message.
            windows.received.clear();
            if version == Version::V5 {
                dropped = windows.in_flight();
                windows.aside = None;
            }
        }
        if self.connection == Connection::Authenticating {
            self.check_method(connack.properties);
        }
        Server::note_limits(&mut self.server, connack.properties);
        let assigned = self.server.as_ref().and_then(|server| server.assigned_client_id());
        if version == Version::V5 && self.is_unnamed && assigned.is_none() {
            self.lapses.note(Lapse::NoClientId);
        }
        self.connection = Connection::Up;
        Ok(MqttEvent::Connected { session_present, dropped, properties: connack.properties })
    }

    /// Checks that AUTH or CONNACK repeats the method of CONNECT `[MQTT5-4.12.0-5]`.
    fn check_method(&mut self, properties: Properties<'_>) {
        let method = properties.text(Property::AuthenticationMethod);
        let expected = self.server.as_ref().and_then(|server| server.expected_method());
        if method != expected {
            self.lapses.note(Lapse::OtherMethod);
        }
    }

    /// Notes a PUBCOMP with an error. After a reconnect the server need not know the message.
    #[cold]
    fn note_refused_release(&mut self) {
        if !self.windows.as_ref().is_some_and(|windows| windows.has_resent) {
            self.lapses.note(Lapse::PubCompError);
        }
    }

    /// Stores the topic of an alias, or checks that the topic is known.
    fn note_alias(&mut self, publish: &Publish<'_>) -> Result<(), ProtocolError> {
        let Some(alias) = publish.alias() else { return Ok(()) };
        if alias > self.aliases_max {
            return Err(ProtocolError::TopicAlias(alias.into()));
        }
        if publish.topic.is_empty() {
            return match self.topic(publish) {
                Some(_) => Ok(()),
                None => Err(ProtocolError::TopicAlias(alias.into())),
            };
        }
        self.server.get_or_insert_default().note_topic(alias, publish.topic);
        Ok(())
    }

    #[inline]
    fn handle_publish<'a>(
        &mut self,
        publish: Publish<'a>,
        mut reply: impl FnMut(PacketType, PacketId),
    ) -> MqttEvent<'a, T> {
        let packet_id = publish.packet_id;
        match publish.qos {
            QoS::AtMostOnce => {}
            QoS::AtLeastOnce => reply(PacketType::PubAck, packet_id),
            QoS::ExactlyOnce => {
                reply(PacketType::PubRec, packet_id);
                let received = &mut self.windows_mut().received;
                if received.contains(packet_id) {
                    return MqttEvent::Redelivered; // [MQTT-4.3.3-2]
                }
                received.push(packet_id, ());
            }
        }
        MqttEvent::Delivered(publish)
    }

    #[inline]
    fn settle<'a>(&mut self, ack: &Ack<'a>, awaits: Awaits) -> MqttEvent<'a, T> {
        let removed = self.windows.as_mut().and_then(|windows| {
            let message = windows.sent.remove_if(ack.packet_id, |message| message.awaits == awaits);
            message.or_else(|| windows.settle_early(ack.packet_id, awaits))
        });
        match removed {
            None => MqttEvent::UnknownAck,
            Some(message) if ack.code.is_error() => {
                let Ack { code, properties, .. } = *ack;
                MqttEvent::Rejected { token: message.token, code, properties }
            }
            Some(message) => MqttEvent::Acknowledged(message.token),
        }
    }

    /// Answers PUBREC with PUBREL in every case. An unknown id belongs to a message of an earlier
    /// run of the same client. Without PUBREL the server would keep that message for ever.
    fn handle_pubrec<'a>(&mut self, packet_id: PacketId) -> MqttEvent<'a, T> {
        let message = self.windows.as_mut().and_then(|windows| {
            let again = windows.aside.as_mut().and_then(|aside| aside.again.find_mut(packet_id));
            again.or_else(|| windows.sent.find_mut(packet_id))
        });
        match message {
            Some(message) if message.awaits != Awaits::Ack => {
                message.awaits = Awaits::Comp;
                MqttEvent::Received
            }
            _ => MqttEvent::UnknownAck,
        }
    }

    /// Checks that a SUBACK has one code for each filter of its SUBSCRIBE `[MQTT-3.9.3-1]`.
    fn handle_suback<'a>(&mut self, suback: SubAck<'a>) -> Result<MqttEvent<'a, T>, ProtocolError> {
        let SubAck { packet_id, codes, properties } = suback;
        let Some(FilterRequest { filters, unavailable, .. }) = self.end_request(packet_id, true)
        else {
            return Ok(MqttEvent::UnknownAck);
        };
        if filters as usize != codes.len() {
            return Err(ProtocolError::SubAckCodes { codes: codes.len(), filters });
        }
        let granted = codes.iter().filter(|&&code| code < SubAck::FAILURE).count();
        if granted > (filters - unavailable) as usize {
            self.lapses.note(Lapse::Unavailable);
        }
        Ok(MqttEvent::Subscribed { packet_id, codes, properties })
    }

    /// Checks that an UNSUBACK of MQTT 5 has one code for each filter of its UNSUBSCRIBE (3.11.3).
    fn handle_unsuback<'a>(
        &mut self,
        version: Version,
        unsuback: SubAck<'a>,
    ) -> Result<MqttEvent<'a, T>, ProtocolError> {
        let SubAck { packet_id, codes, properties } = unsuback;
        let Some(FilterRequest { filters, .. }) = self.end_request(packet_id, false) else {
            return Ok(MqttEvent::UnknownAck);
        };
        if version == Version::V5 && filters as usize != codes.len() {
            return Err(ProtocolError::UnsubAckCodes { codes: codes.len(), filters });
        }
        Ok(MqttEvent::Unsubscribed { packet_id, filters, codes, properties })
    }

    /// Forgets a request: the caller has not sent its SUBSCRIBE or UNSUBSCRIBE.
    #[cold]
    pub fn withdraw_request(&mut self, packet_id: PacketId) {
        for subscribes in [true, false] {
            self.end_request(packet_id, subscribes);
        }
    }

    /// Removes an answered SUBSCRIBE or UNSUBSCRIBE and returns it; `None` if no such request is
    /// outstanding. Frees the heap memory if only requests were stored there.
    fn end_request(&mut self, packet_id: PacketId, subscribes: bool) -> Option<FilterRequest> {
        let windows = self.windows.as_mut()?;
        let requests = &mut windows.aside.as_mut()?.requests;
        let request = requests.remove_if(packet_id, |request| request.subscribes == subscribes)?;
        windows.tidy();
        if windows.aside.is_none() && windows.sent.is_unused() && windows.received.is_unused() {
            self.windows = None;
        }
        Some(request)
    }
}

impl<T: Copy> PacketsInFlight<T> {
    /// Ends the flight of a message that is not sent again yet: the server acknowledges it as sent
    /// on an earlier connection.
    #[cold]
    fn settle_early(&mut self, packet_id: PacketId, awaits: Awaits) -> Option<SentMessage<T>> {
        let again = &mut self.aside.as_mut()?.again;
        let message = again.remove_if(packet_id, |message| message.awaits == awaits);
        self.tidy();
        message
    }
}
