//! Enhanced authentication between CONNECT and CONNACK (4.12 of MQTT 5). The script chooses each
//! answer of the broker.

use mqtt::{
    Connect, DecodedPacket, Packet, Properties, Property, PropertyList, Reasoned, Value, Version,
    decode, encode_auth,
};

use super::script::StepAnswer;
use super::{Broker, LinkId};

/// An authentication under way.
#[derive(Debug)]
pub(super) struct BrokerExchange {
    /// CONNECT, which counts once the broker accepts the client.
    connect: Vec<u8>,
    method: String,
    /// Data that the client has sent, in order.
    steps: Vec<Vec<u8>>,
}

impl Broker {
    /// Handles a CONNECT that names a method.
    pub(super) fn begin_exchange(&mut self, id: LinkId, connect: &Connect<'_>, method: &str) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let mut bytes = Vec::new();
        Packet::Connect(*connect).encode(Version::V5, &mut bytes).expect("it was decoded");
        let steps = vec![data_of(connect.properties)];
        link.exchange = Some(BrokerExchange { connect: bytes, method: method.to_owned(), steps });
        self.answer_step(id);
    }

    /// Handles AUTH.
    pub(super) fn continue_exchange(&mut self, id: LinkId, auth: &Reasoned<'_>) {
        let exchange = self.links.get_mut(&id).and_then(|link| link.exchange.as_mut());
        if let Some(exchange) = exchange {
            exchange.steps.push(data_of(auth.properties));
            self.answer_step(id);
        }
    }

    fn answer_step(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let Some(exchange) = &link.exchange else { return };
        match (self.script.authenticate)(&exchange.steps) {
            StepAnswer::Continue(data) => {
                let list = step(&exchange.method, &data);
                encode_auth(list.properties(), &mut link.output).expect("the data is short");
            }
            StepAnswer::Accept(data) => {
                let list = step(&exchange.method, &data);
                let exchange = link.exchange.take();
                let bytes = exchange.map(|exchange| exchange.connect).unwrap_or_default();
                let Ok(DecodedPacket::Packet { packet: Packet::Connect(connect), .. }) =
                    decode(Version::V5, &bytes)
                else {
                    return;
                };
                self.accept_client(id, &connect, &list);
            }
            StepAnswer::Refuse(code) => self.refuse(id, code),
            StepAnswer::Silence => {}
        }
    }
}

/// The properties of a step of the broker.
fn step(method: &str, data: &[u8]) -> PropertyList {
    let mut list = PropertyList::new();
    let method = (Property::AuthenticationMethod, Value::Text(method));
    let data = (Property::AuthenticationData, Value::Binary(data));
    for (property, value) in [method, data] {
        list.push(property, value).expect("the texts are short");
    }
    list
}

/// The data of a step of the client.
fn data_of(properties: Properties<'_>) -> Vec<u8> {
    properties.binary(Property::AuthenticationData).unwrap_or_default().to_vec()
}
