//! Clients of an MQTT broker.

use mqtt::Property as Name;
use serde::{Deserialize, Serialize};

use super::ProtocolOptions;
use crate::error::{PlanError, require};
use crate::model::Population;
use crate::model::capabilities::{Capabilities, Publications, Secures};
use crate::model::names::Names;
use crate::model::property::{Property, templates};
use crate::model::sparkplug::{self, Sparkplug};
use crate::text::template::Template;

/// Method of enhanced authentication that the engine plays.
pub const SCRAM_SHA_256: &str = "SCRAM-SHA-256";

/// MQTT 3.1 and 3.1.1.
const MQTT3: Capabilities = Capabilities {
    names: Names::Topics,
    joins_targets: true,
    publications: Publications::Any,
    qos_max: 2,
    retains: true,
    varies_pace: true,
    flaps: true,
    shares: true,
    answers: false,
    has_properties: false,
    secures: Secures::AtOnce,
};

const MQTT5: Capabilities = Capabilities { answers: true, has_properties: true, ..MQTT3 };

/// Options of MQTT clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mqtt {
    /// Version of the protocol.
    pub version: MqttVersion,
    /// Template of the client identifier.
    pub client_id: Template,
    /// `true` if each connection starts without session state.
    pub clean_session: bool,
    /// `true` if clients set the bridge bit in the protocol level. The broker does not send such a
    /// client its own messages.
    #[serde(default)]
    pub bridge: bool,
    /// Message that the broker sends when the client dies.
    #[serde(default)]
    pub will: Option<Box<PlannedWill>>,
    /// Properties of CONNECT.
    #[serde(default)]
    pub properties: Vec<Property>,
    /// Enhanced authentication.
    #[serde(default)]
    pub authentication: Option<Authentication>,
    /// Part of the clients in Sparkplug B; `None`: they have none.
    #[serde(default)]
    pub sparkplug: Option<Box<Sparkplug>>,
}

/// Enhanced authentication of MQTT 5.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Authentication {
    /// Name of the method.
    pub method: String,
    /// Template of the data in CONNECT. `None`: the method is SCRAM-SHA-256, with user name and
    /// password of the population, which CONNECT then does not have.
    #[serde(default)]
    pub data: Option<Template>,
}

/// Version of MQTT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MqttVersion {
    /// MQTT 3.1.
    #[serde(rename = "3.1")]
    V31,
    /// MQTT 3.1.1.
    #[serde(rename = "3.1.1")]
    V311,
    /// MQTT 5.
    #[serde(rename = "5")]
    V5,
}

impl From<MqttVersion> for ::mqtt::Version {
    #[inline]
    fn from(version: MqttVersion) -> Self {
        match version {
            MqttVersion::V31 => Self::V31,
            MqttVersion::V311 => Self::V311,
            MqttVersion::V5 => Self::V5,
        }
    }
}

/// The will of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedWill {
    /// Template of the topic.
    pub topic: Template,
    /// Template of the payload.
    pub payload: Template,
    /// QoS 0, 1 or 2.
    pub qos: u8,
    /// `true` if the broker keeps the message.
    pub retain: bool,
    /// Properties of the message.
    #[serde(default)]
    pub properties: Vec<Property>,
}

impl ProtocolOptions for Mqtt {
    fn name(&self) -> &'static str {
        "mqtt"
    }

    fn capabilities(&self) -> &'static Capabilities {
        if self.version == MqttVersion::V5 { &MQTT5 } else { &MQTT3 }
    }

    fn keeps_session(&self) -> bool {
        !self.clean_session
    }

    /// The broker does not send a client with the bridge bit its own messages.
    fn skips_own_messages(&self) -> bool {
        self.bridge
    }

    fn templates(&self) -> Vec<(String, &Template)> {
        let authentication = self.authentication.as_ref();
        let will = self.will.as_ref();
        let own = [
            ("client_id", Some(&self.client_id)),
            ("authentication.data", authentication.and_then(|own| own.data.as_ref())),
            ("will.topic", will.map(|will| &will.topic)),
            ("will.payload", will.map(|will| &will.payload)),
        ];
        let own = own.into_iter().filter_map(|(path, own)| Some((path.to_owned(), own?)));
        let of_will =
            will.into_iter().flat_map(|will| templates("will.properties", &will.properties));
        let of_sparkplug = self.sparkplug.iter().flat_map(|own| own.templates());
        let properties = templates("properties", &self.properties);
        own.chain(properties).chain(of_will).chain(of_sparkplug).collect()
    }

    /// Checks what only MQTT 5 has, and that `no_local` is in all subscriptions or in none.
    fn check(&self, population: &Population, path: &str) -> Result<(), PlanError> {
        let will = self.will.iter().flat_map(|will| &will.properties);
        let messages = population.publications.iter().flat_map(|own| &own.properties);
        let mut properties = self.properties.iter().chain(will).chain(messages);
        properties.try_for_each(|property| check_property(property, path))?;
        if let Some(authentication) = &self.authentication {
            let named = population.username.is_some() && population.password.is_some();
            self.check_authentication(&format!("{path}.protocol"), authentication, named)?;
        }
        sparkplug::check(self.sparkplug.as_deref(), self.clean_session, population, path)?;
        let own = population.subscriptions.iter().filter(|own| own.no_local).count();
        let all = population.subscriptions.len();
        require(own == 0 || own == all, &format!("{path}.subscriptions"), || {
            format!("found no_local in {own} of {all}, allowed is all or none")
        })
    }
}

impl Mqtt {
    /// `named`: the population has a user name and a password.
    fn check_authentication(
        &self,
        path: &str,
        authentication: &Authentication,
        named: bool,
    ) -> Result<(), PlanError> {
        let path = format!("{path}.authentication");
        require(self.version == MqttVersion::V5, &path, || {
            "found one before MQTT 5, allowed is null".into()
        })?;
        let is_scram = authentication.method == SCRAM_SHA_256;
        require(is_scram == authentication.data.is_none(), &format!("{path}.data"), || {
            format!(
                "found {} with method {}, allowed is null with {SCRAM_SHA_256} alone",
                if is_scram { "some" } else { "null" },
                authentication.method
            )
        })?;
        require(!is_scram || named, &path, || {
            format!("found {SCRAM_SHA_256}, which needs a user name and a password")
        })
    }
}

fn check_property(property: &Property, path: &str) -> Result<(), PlanError> {
    let kind = property.kind();
    require(kind.is_some(), path, || {
        format!("found the property '{}', allowed are those of MQTT 5", property.name)
    })?;
    let is_pair = kind == Some(Name::UserProperty);
    require(is_pair == property.key.is_some(), path, || {
        format!(
            "found {} with key {:?}, only user properties have one",
            property.name, property.key
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fan_out::tests::population;
    use crate::model::protocol::PlannedProtocol;

    #[test]
    fn an_authentication_has_what_its_method_needs() {
        let checked = |version, method: &str, data: Option<&str>, login: Option<&str>| {
            let mut clients = population(1, 0, &[]);
            let login = login.map(|text| Template::new(text).unwrap());
            (clients.username, clients.password) = (login.clone(), login);
            let PlannedProtocol::Mqtt(mqtt) = &mut clients.protocol else { panic!("it is MQTT") };
            mqtt.version = version;
            let data = data.map(|text| Template::new(text).unwrap());
            mqtt.authentication = Some(Authentication { method: method.to_owned(), data });
            clients
                .protocol
                .options()
                .check(&clients, "populations[0]")
                .map_err(|error| error.to_string())
        };
        let allowed = [
            checked(MqttVersion::V5, SCRAM_SHA_256, None, Some("a")),
            checked(MqttVersion::V5, "TICKET", Some("t-{n}"), None),
        ];
        assert_eq!(allowed, [Ok(()), Ok(())]);
        for (refused, text) in [
            (checked(MqttVersion::V311, SCRAM_SHA_256, None, Some("a")), "before MQTT 5"),
            (checked(MqttVersion::V5, SCRAM_SHA_256, None, None), "needs a user name"),
            (checked(MqttVersion::V5, SCRAM_SHA_256, Some("d"), Some("a")), "allowed is null"),
            (checked(MqttVersion::V5, "TICKET", None, Some("a")), "allowed is null"),
        ] {
            assert!(refused.as_ref().is_err_and(|error| error.contains(text)), "{refused:?}");
        }
    }
}
