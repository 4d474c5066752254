//! Handling of each packet of a client.

use mqtt::topic;
use mqtt::{
    Ack, ConnAck, Connect, Packet, PacketId, PacketType, Properties, Property, PropertyList,
    Publish, QoS, ReasonCode, Reasoned, SubAck, Subscribe, Unsubscribe, Value, Version,
};

use super::session::ClientState;
use super::{Announced, Broker, BrokerError, BrokerMessage, LinkId};

/// Reason code of a DISCONNECT because another link uses the client identifier.
const SESSION_TAKEN_OVER: u8 = 0x8e;

/// Reason code of a refused UNSUBSCRIBE.
const NOT_AUTHORIZED: u8 = 0x87;

/// User property of kept messages, by which tests distinguish them from others with RETAIN.
pub const KEPT: Value<'_> = Value::Pair("kept", "yes");

impl Broker {
    pub(super) fn handle(&mut self, id: LinkId, packet: &Packet<'_>) -> Result<(), BrokerError> {
        let Some(link) = self.links.get(&id) else { return Ok(()) };
        let is_allowed = match (packet, &link.exchange) {
            (Packet::Connect(_), exchange) => link.client_id.is_none() && exchange.is_none(),
            (Packet::Auth(_) | Packet::Disconnect(_), Some(_)) => true,
            (_, exchange) => link.client_id.is_some() && exchange.is_none(),
        };
        if !is_allowed {
            return Err(BrokerError::Unexpected(packet.packet_type())); // [MQTT-3.1.0-1], -2
        }
        match *packet {
            Packet::Connect(connect) => {
                match connect.properties.text(Property::AuthenticationMethod) {
                    Some(method) => self.begin_exchange(id, &connect, method),
                    None => self.accept_client(id, &connect, &PropertyList::new()),
                }
            }
            Packet::Auth(auth) if link.exchange.is_some() => self.continue_exchange(id, &auth),
            Packet::Publish(publish) => self.handle_publish(id, &publish),
            Packet::PubAck(ack) => self.handle_settled(id, ack.packet_id, QoS::AtLeastOnce),
            Packet::PubComp(ack) => self.handle_settled(id, ack.packet_id, QoS::ExactlyOnce),
            Packet::PubRec(Ack { packet_id, .. }) => {
                if let Some(client) = self.client(id) {
                    client.note_received(packet_id);
                }
                self.send_ack(id, &Packet::PubRel(Ack::of(packet_id)));
            }
            Packet::PubRel(Ack { packet_id, .. }) => {
                if let Some(client) = self.client(id) {
                    client.received.remove(&packet_id);
                }
                self.send_ack(id, &Packet::PubComp(Ack::of(packet_id)));
            }
            Packet::Subscribe(subscribe) => self.handle_subscribe(id, &subscribe),
            Packet::Unsubscribe(unsubscribe) => self.handle_unsubscribe(id, &unsubscribe),
            Packet::PingReq => self.send(id, &Packet::PingResp),
            Packet::Disconnect(reasoned) => {
                if let Some(link) = self.links.get_mut(&id)
                    && reasoned.code != ReasonCode::DISCONNECT_WITH_WILL
                {
                    link.discards_will = true; // [MQTT-3.14.4-3]
                }
                self.close(id);
            }
            Packet::ConnAck(_)
            | Packet::SubAck(_)
            | Packet::UnsubAck(_)
            | Packet::PingResp
            | Packet::Auth(_) => {
                return Err(BrokerError::Unexpected(packet.packet_type()));
            }
        }
        Ok(())
    }

    /// Accepts a client, with these properties in CONNACK, unless the broker refuses all clients.
    pub(super) fn accept_client(
        &mut self,
        id: LinkId,
        connect: &Connect<'_>,
        properties: &PropertyList,
    ) {
        let limits = self.script.limits(self.now_ns);
        let unnamed = connect.client_id.is_empty();
        let code = match self.script.connack_code {
            0 if unnamed && !connect.clean_session => 2, // [MQTT-3.1.3-8]
            code => code,
        };
        if code != 0 {
            return self.refuse(id, code);
        }
        let client_id = match connect.client_id {
            "" => format!("unnamed-{}", self.links_total),
            name => name.to_owned(),
        };
        self.publish_delayed_wills();
        if let Some(old) = self.clients.get(&client_id).and_then(|client| client.link) {
            self.take_over(old); // [MQTT-3.1.4-2]
        }
        if connect.clean_session {
            self.publish_delayed_will(&client_id);
        }
        self.delayed_wills.remove(&client_id); // [MQTT5-3.1.3-9]
        if connect.clean_session {
            self.clients.remove(&client_id); // [MQTT-3.1.2-6]
        }
        let session_present = self.clients.contains_key(&client_id);
        let Some(link) = self.links.get_mut(&id) else { return };
        link.will = connect.will.map(|will| BrokerMessage {
            topic: will.topic.to_owned(),
            payload: will.payload.to_owned(),
            qos: will.qos,
            retain: will.retain,
            properties: PropertyList::new(),
        });
        let seconds = |properties: Properties<'_>, property| {
            u64::from(properties.number(property).unwrap_or(0))
        };
        let session_s = seconds(connect.properties, Property::SessionExpiryInterval);
        let delay_s =
            connect.will.map_or(0, |will| seconds(will.properties, Property::WillDelayInterval));
        link.will_delay_ns = delay_s.min(session_s) * 1_000_000_000;
        link.client_id = Some(client_id.clone());
        link.keep_alive_s = connect.keep_alive_s;
        if link.version == Version::V5 {
            link.announced = (self.script.announce)();
        }
        let mut maxima = maxima(&link.announced);
        maxima.extend(properties);
        let connack = ConnAck { session_present, code: 0, properties: maxima.properties() };
        super::write(&Packet::ConnAck(connack), link.version, &mut link.output);
        let client = self.clients.entry(client_id).or_default();
        client.link = Some(id);
        client.version = link.version;
        client.persistent = match link.version {
            Version::V5 => connect.properties.number(Property::SessionExpiryInterval) > Some(0),
            Version::V31 | Version::V311 => !connect.clean_session,
        };
        client.resend(&mut link.output);
        client.fill_window(limits, &mut link.output);
    }

    /// Ends the link of a client whose identifier another link uses.
    fn take_over(&mut self, id: LinkId) {
        if self.version(id) == Version::V5 {
            let code = ReasonCode::of(PacketType::Disconnect, SESSION_TAKEN_OVER);
            let code = code.expect("the packet may have the code");
            self.send(id, &Packet::Disconnect(Reasoned { code, ..Reasoned::default() }));
        }
        self.close(id);
    }

    fn handle_publish(&mut self, id: LinkId, publish: &Publish<'_>) {
        let packet_id = publish.packet_id;
        let topic = self.topic_of(id, publish);
        self.check_limits(id, publish);
        let is_exact = publish.qos == QoS::ExactlyOnce;
        let is_again =
            is_exact && self.client(id).is_some_and(|client| client.received.contains(&packet_id));
        let code = match self.version(id) {
            Version::V5 if publish.qos != QoS::AtMostOnce && !is_again => (self.script.code)(),
            _ => 0,
        };
        let code = ReasonCode::of(PacketType::PubAck, code).expect("the packet may have the code");
        let ack = Ack { code, ..Ack::of(packet_id) };
        let is_new = !is_again && !code.is_error();
        let is_other_success = is_new && code != ReasonCode::SUCCESS;
        self.note_deviation("other code of success", usize::from(is_other_success));
        if let Some(client) = self.client(id).filter(|_| is_new && is_exact) {
            client.received.insert(packet_id);
        }
        if is_new {
            self.accept(BrokerMessage {
                topic,
                payload: publish.payload.to_owned(),
                qos: publish.qos,
                retain: publish.retain,
                properties: forwarded(publish.properties),
            });
        }
        match publish.qos {
            QoS::AtMostOnce => {}
            QoS::AtLeastOnce => self.send_ack(id, &Packet::PubAck(ack)),
            QoS::ExactlyOnce => self.send_ack(id, &Packet::PubRec(ack)),
        }
    }

    /// Fails if a message exceeds the limits of its connection.
    fn check_limits(&mut self, id: LinkId, publish: &Publish<'_>) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let Announced { receive_maximum, qos_max, retains, .. } = link.announced;
        assert!(publish.qos <= qos_max, "[MQTT5-3.2.2-11]");
        assert!(retains || !publish.retain, "[MQTT5-3.2.2-14]");
        if publish.qos != QoS::AtMostOnce {
            link.unacknowledged.insert(publish.packet_id);
        }
        let in_flight = link.unacknowledged.len();
        assert!(in_flight <= receive_maximum.into(), "[MQTT5-3.3.4-7]: {in_flight} in flight");
    }

    /// Topic of a message: its own, which may belong to an alias from now on, or that of its alias
    /// (3.3.2.3.4 of MQTT 5).
    fn topic_of(&mut self, id: LinkId, publish: &Publish<'_>) -> String {
        let alias = publish.properties.number(Property::TopicAlias);
        let (Some(alias), Some(link)) = (alias, self.links.get_mut(&id)) else {
            return publish.topic.to_owned();
        };
        let most = link.announced.topic_alias_maximum;
        assert!(alias <= most.into(), "an alias beyond the maximum: {alias}");
        if publish.topic.is_empty() {
            return link.topics.get(&alias).expect("an alias has had a topic").clone();
        }
        link.topics.insert(alias, publish.topic.to_owned());
        publish.topic.to_owned()
    }

    fn handle_settled(&mut self, id: LinkId, packet_id: PacketId, qos: QoS) {
        let limits = self.script.limits(self.now_ns);
        let client_id = self.links.get(&id).and_then(|link| link.client_id.as_ref());
        let client = client_id.and_then(|client_id| self.clients.get_mut(client_id));
        if let (Some(client), Some(link)) = (client, self.links.get_mut(&id))
            && client.settle(packet_id, qos)
        {
            client.fill_window(limits, &mut link.output);
        }
    }

    fn handle_subscribe(&mut self, id: LinkId, subscribe: &Subscribe<'_>) {
        let packet_id = subscribe.packet_id;
        let codes: Vec<u8> = subscribe.filters().map(|(_, options)| options.qos as u8).collect();
        self.send_ack(
            id,
            &Packet::SubAck(SubAck { packet_id, codes: &codes, ..SubAck::default() }),
        );
        for (filter, options) in subscribe.filters() {
            let granted = options.qos;
            if let Some(client) = self.client(id) {
                client.subscribe(filter, options);
            }
            self.deliver_retained(id, filter, granted);
        }
    }

    /// Delivers retained messages with RETAIN set `[MQTT-3.3.1-8]`; shared subscriptions receive
    /// none.
    fn deliver_retained(&mut self, id: LinkId, filter: &str, granted: QoS) {
        let matching = |name: &str| topic::shared(filter).is_none() && topic::matches(filter, name);
        let (limits, links) = (self.script.limits(self.now_ns), &mut self.links);
        let Some(link) = links.get_mut(&id) else { return };
        let client_id = link.client_id.as_ref();
        let Some(client) = client_id.and_then(|id| self.clients.get_mut(id)) else { return };
        for (arrived_ns, message) in self.retained.values() {
            let waited_ns = limits.now_ns.saturating_sub(*arrived_ns);
            if !matching(&message.topic) || message.life_ns() <= waited_ns {
                continue; // [MQTT5-3.3.2-5]
            }
            let mut copy = BrokerMessage { qos: granted.min(message.qos), ..message.clone() };
            copy.reduce_expiry(message.life_ns() - waited_ns);
            copy.properties.push(Property::UserProperty, KEPT).expect("the texts are short");
            client.deliver(copy, limits, &mut link.output);
        }
    }

    fn handle_unsubscribe(&mut self, id: LinkId, unsubscribe: &Unsubscribe<'_>) {
        let is_refused = self.script.refuses_unsubscribe && self.version(id) == Version::V5;
        if let Some(client) = self.client(id).filter(|_| !is_refused) {
            unsubscribe.filters().for_each(|filter| client.unsubscribe(filter));
        }
        let packet_id = unsubscribe.packet_id;
        let code = if is_refused { NOT_AUTHORIZED } else { 0 };
        let codes = vec![code; unsubscribe.filters().count()];
        self.send_ack(
            id,
            &Packet::UnsubAck(SubAck { packet_id, codes: &codes, ..SubAck::default() }),
        );
    }

    fn client(&mut self, id: LinkId) -> Option<&mut ClientState> {
        let client_id = self.links.get(&id)?.client_id.as_ref()?;
        self.clients.get_mut(client_id)
    }
}

/// Properties of a message without its topic alias.
fn forwarded(properties: Properties<'_>) -> PropertyList {
    let mut list = PropertyList::new();
    for (property, value) in properties.iter().filter(|(p, _)| *p != Property::TopicAlias) {
        list.push(property, value).expect("the packet had it");
    }
    list
}

/// Limits in CONNACK, which has none before MQTT 5.
fn maxima(announced: &Announced) -> PropertyList {
    let mut list = PropertyList::new();
    let Announced { receive_maximum, packet_bytes_max, topic_alias_maximum, qos_max, retains } =
        *announced;
    let numbers = [
        (Property::MaximumPacketSize, packet_bytes_max),
        (Property::ReceiveMaximum, Some(receive_maximum.into())),
        (Property::TopicAliasMaximum, Some(topic_alias_maximum.into())),
        (Property::MaximumQoS, (qos_max < QoS::ExactlyOnce).then_some(qos_max as u32)),
        (Property::RetainAvailable, (!retains).then_some(0)),
    ];
    for (property, number) in numbers {
        if let Some(number) = number {
            list.push(property, Value::Number(number)).expect("the numbers are allowed");
        }
    }
    list
}
