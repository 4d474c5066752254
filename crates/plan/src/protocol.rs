//! The protocol that a population speaks, with the options of each protocol, and the program that
//! plays the population. Engines play MQTT clients and SUB sockets; other programs play the rest.

use mqtt::Property as Name;
use serde::{Deserialize, Serialize};

use crate::SECOND_NS;
use crate::check::{PlanError, require};
use crate::flows::{Pace, Payload, Process, Publication, Subscription};
use crate::model::{Choice, Plan, Population};
use crate::property::Property;
use crate::template::Template;

/// Method of enhanced authentication that the engine plays.
pub const SCRAM_SHA_256: &str = "SCRAM-SHA-256";

/// Protocol of a population, with its options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Protocol {
    /// Clients of an MQTT broker.
    Mqtt(Mqtt),
    /// PUB or SUB sockets of ZeroMQ, which speak ZMTP 3.1.
    Zmtp(Zmtp),
}

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
    pub will: Option<Box<Will>>,
    /// Properties of CONNECT.
    #[serde(default)]
    pub properties: Vec<Property>,
    /// Enhanced authentication.
    #[serde(default)]
    pub authentication: Option<Authentication>,
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

impl From<MqttVersion> for mqtt::Version {
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
pub struct Will {
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

/// Options of ZeroMQ sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zmtp {
    /// Program that plays the sockets.
    #[serde(default)]
    pub player: Player,
    /// Most messages that a publisher queues for one subscriber, and a subscriber of libzmq for
    /// itself, before it drops the next; 0: no limit.
    pub high_water_mark: u32,
    /// Threads of libzmq for input and output.
    pub io_threads: u32,
    /// Authentication of peers.
    pub security: Security,
}

/// Program that plays the clients of a population.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Player {
    /// The engines, each its share.
    #[default]
    Engine,
    /// Sockets of libzmq, in `pubstorm-zmq`.
    Libzmq,
    /// Sockets of pyzmq, in a Python program.
    Pyzmq,
    /// Any other program that speaks this contract.
    Command,
}

/// Security mechanism of a ZeroMQ connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Security {
    /// None.
    Null,
    /// The population's user name and password, in clear.
    Plain,
    /// Keys that the run makes. The engine does not speak this mechanism.
    Curve,
}

impl Plan {
    /// For each population, the one with the same client identifiers, whose clients take
    /// connections over from those of the population, or have them taken over.
    #[must_use]
    pub fn rivals(&self) -> Vec<Option<usize>> {
        let mut rivals: Vec<_> = self.populations.iter().map(|own| own.takes_over).collect();
        for (taker, population) in self.populations.iter().enumerate() {
            let victim = population.takes_over.and_then(|victim| rivals.get_mut(victim));
            if let Some(rival @ None) = victim {
                *rival = Some(taker);
            }
        }
        rivals
    }

    /// Checks which populations take connections over.
    pub(crate) fn check_takeovers(&self) -> Result<(), PlanError> {
        let rivals = self.rivals();
        for (p, population) in self.populations.iter().enumerate() {
            let Some(victim) = population.takes_over else { continue };
            let plain = |victim: &Population| victim.takes_over.is_none();
            let is_possible = victim != p && self.populations.get(victim).is_some_and(plain);
            let is_only = rivals.get(victim) == Some(&Some(p));
            require(is_possible && is_only, &format!("populations[{p}].takes_over"), || {
                format!("found {victim}, allowed is a population that no other one takes over")
            })?;
        }
        Ok(())
    }
}

impl Population {
    /// Options of its MQTT clients; `None` for ZeroMQ sockets.
    #[must_use]
    pub const fn mqtt(&self) -> Option<&Mqtt> {
        match &self.protocol {
            Protocol::Mqtt(mqtt) => Some(mqtt),
            Protocol::Zmtp(_) => None,
        }
    }

    /// Options of its ZeroMQ sockets; `None` for MQTT clients.
    #[must_use]
    pub const fn zmtp(&self) -> Option<&Zmtp> {
        match &self.protocol {
            Protocol::Mqtt(_) => None,
            Protocol::Zmtp(zmtp) => Some(zmtp),
        }
    }

    /// Returns `true` if its clients are ZeroMQ sockets.
    #[must_use]
    pub const fn speaks_zmtp(&self) -> bool {
        self.zmtp().is_some()
    }

    /// The will of its clients, if they have one.
    #[must_use]
    pub fn will(&self) -> Option<&Will> {
        self.mqtt()?.will.as_deref()
    }

    /// Time from the end of a connection to the publication of its will, in nanoseconds: the Will
    /// Delay Interval, or the rest of the session if that is shorter (3.1.3.2.2 of MQTT 5).
    #[must_use]
    pub fn will_delay_ns(&self) -> u64 {
        let Some((mqtt, will)) = self.mqtt().and_then(|mqtt| Some((mqtt, mqtt.will.as_ref()?)))
        else {
            return 0;
        };
        let seconds = |properties: &[Property], name| {
            let found = properties.iter().find(|property| property.kind() == Some(name));
            found.map_or(0, Property::number)
        };
        let delay_s = seconds(&will.properties, Name::WillDelayInterval);
        let session_s = seconds(&mqtt.properties, Name::SessionExpiryInterval);
        u64::from(delay_s.min(session_s)) * SECOND_NS
    }

    /// Returns `true` if the messages of one of its publications carry their stamp in a user
    /// property: texts of the user's own with MQTT 5. Requests have it in the correlation data.
    #[must_use]
    pub fn stamps_property(&self, publication: &Publication) -> bool {
        let is_stampless =
            matches!(&publication.payload, Payload::Text { template, .. } if !template.has_stamp());
        self.speaks_mqtt5() && is_stampless && !publication.request
    }

    /// Returns `true` if its clients receive nothing that they have published themselves: they set
    /// the bridge bit of MQTT, or all their subscriptions say so.
    #[must_use]
    pub fn skips_own_messages(&self) -> bool {
        let refuses_own = |subscription: &Subscription| subscription.no_local;
        matches!(&self.protocol, Protocol::Mqtt(Mqtt { bridge: true, .. }))
            || (!self.subscriptions.is_empty() && self.subscriptions.iter().all(refuses_own))
    }

    /// Returns `true` if the RETAIN flag of a message may be that of its publisher.
    #[must_use]
    pub fn retains_as_published(&self) -> bool {
        self.subscriptions.iter().any(|subscription| subscription.retain_as_published)
    }

    /// Returns `true` if the broker keeps the session of a client that is offline.
    #[must_use]
    pub const fn keeps_session(&self) -> bool {
        matches!(&self.protocol, Protocol::Mqtt(Mqtt { clean_session: false, .. }))
    }

    /// Returns `true` if each client expects the same messages: all have the same filters, at the
    /// same target.
    #[must_use]
    pub fn receives_alike(&self) -> bool {
        let is_same = |subscription: &Subscription| {
            subscription.filter.is_fixed() && !subscription.filter.source().starts_with("$share/")
        };
        self.at.count == 1
            && !self.skips_own_messages()
            && !self.subscriptions.is_empty()
            && self.subscriptions.iter().all(is_same)
    }

    /// Returns `true` if its clients are members of one shared group and have no other filter.
    #[must_use]
    pub fn is_one_group(&self) -> bool {
        let [subscription] = self.subscriptions.as_slice() else { return false };
        let filter = &subscription.filter;
        self.at.count == 1 && filter.is_fixed() && filter.source().starts_with("$share/")
    }

    /// Returns `true` if the deliveries of its clients can be compared with each other.
    #[must_use]
    pub fn compares_clients(&self) -> bool {
        self.receives_alike() || self.is_one_group()
    }

    /// Returns `true` if engines play its clients, each engine its share.
    #[must_use]
    pub const fn is_played_by_engines(&self) -> bool {
        !matches!(
            &self.protocol,
            Protocol::Zmtp(Zmtp { player: Player::Libzmq | Player::Pyzmq | Player::Command, .. })
        )
    }

    /// Returns `true` if its messages are externally published: by programs other than engines.
    /// The controller reports the number of these messages when a stage closes.
    #[must_use]
    pub const fn is_externally_published(&self) -> bool {
        !self.is_played_by_engines() && !self.publications.is_empty()
    }

    /// Checks that a program can play it: `path` is its place in the plan.
    pub(crate) fn check_protocol(&self, path: &str) -> Result<(), PlanError> {
        let at = |name: &str| format!("{path}.{name}");
        let zmtp = match &self.protocol {
            Protocol::Mqtt(mqtt) => return self.check_mqtt(path, mqtt),
            Protocol::Zmtp(zmtp) => zmtp,
        };
        let named = self.username.is_some() && self.password.is_some();
        require(zmtp.security != Security::Plain || named, &at("protocol.security"), || {
            "found plain, which needs a user name and a password".into()
        })?;
        require(self.tls.is_none(), &at("tls"), || {
            "found settings of TLS, allowed with zmtp is null".into()
        })?;
        for (s, subscription) in self.subscriptions.iter().enumerate() {
            require(subscription.qos == 0, &at(&format!("subscriptions[{s}].qos")), || {
                format!("found {}, allowed with zmtp is 0", subscription.qos)
            })?;
        }
        for (p, publication) in self.publications.iter().enumerate() {
            publication.check_frames(&at(&format!("publications[{p}]")))?;
        }
        if self.is_played_by_engines() {
            self.check_simulated(path, zmtp)
        } else {
            self.check_external(path)
        }
    }

    /// Checks what only MQTT 5 has, and that `no_local` is in all subscriptions or in none.
    fn check_mqtt(&self, path: &str, mqtt: &Mqtt) -> Result<(), PlanError> {
        let will = mqtt.will.iter().flat_map(|will| &will.properties);
        let messages = self.publications.iter().flat_map(|publication| &publication.properties);
        let mut properties = mqtt.properties.iter().chain(will).chain(messages);
        properties.try_for_each(|property| property.check(path))?;
        if let Some(authentication) = &mqtt.authentication {
            self.check_authentication(&format!("{path}.protocol"), mqtt.version, authentication)?;
        }
        let own = self.subscriptions.iter().filter(|subscription| subscription.no_local).count();
        require(
            own == 0 || own == self.subscriptions.len(),
            &format!("{path}.subscriptions"),
            || {
                format!(
                    "found no_local in {own} of {}, allowed is all or none",
                    self.subscriptions.len()
                )
            },
        )
    }

    fn check_authentication(
        &self,
        path: &str,
        version: MqttVersion,
        authentication: &Authentication,
    ) -> Result<(), PlanError> {
        let path = format!("{path}.authentication");
        require(version == MqttVersion::V5, &path, || {
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
        let named = self.username.is_some() && self.password.is_some();
        require(!is_scram || named, &path, || {
            format!("found {SCRAM_SHA_256}, which needs a user name and a password")
        })
    }

    /// Checks sockets that engines play.
    fn check_simulated(&self, path: &str, zmtp: &Zmtp) -> Result<(), PlanError> {
        require(self.publications.is_empty(), &format!("{path}.publications"), || {
            "found some at the engine, which plays subscribers of ZeroMQ only: allowed is another \
             player"
                .into()
        })?;
        let curve = zmtp.security == Security::Curve;
        require(!curve, &format!("{path}.protocol.security"), || {
            "found curve, allowed at the engine are null and plain: pyzmq plays it".into()
        })
    }

    /// Checks sockets that other programs play.
    fn check_external(&self, path: &str) -> Result<(), PlanError> {
        if self.publications.is_empty() {
            return Ok(());
        }
        let one = self.publications.len() == 1 && self.subscriptions.is_empty();
        require(one, path, || {
            let (publications, subscriptions) = (self.publications.len(), self.subscriptions.len());
            format!(
                "found {publications} publications and {subscriptions} subscriptions, allowed \
                 for a publisher is one publication alone"
            )
        })?;
        let own = self.at.count == self.clients as usize
            && self.at.choice == Choice::Turn
            && self.at.shift == 0;
        require(own, &format!("{path}.at"), || {
            format!("found {:?}, needed is one target for each publisher, in turn", self.at)
        })
    }
}

impl Publication {
    /// Checks that a PUB socket can send it.
    fn check_frames(&self, path: &str) -> Result<(), PlanError> {
        require(self.qos == 0 && !self.retain, path, || {
            format!(
                "found QoS {} and retain {}, allowed with zmtp are 0 and false",
                self.qos, self.retain
            )
        })?;
        let smooth = match self.pace {
            Pace::Open { spread, jitter, arrivals, .. } => {
                spread == 0.0 && jitter == 0.0 && arrivals == Process::Even
            }
            Pace::Closed => true,
        };
        require(smooth, &format!("{path}.pace"), || {
            "found spread, jitter or Poisson arrivals, allowed for a publisher of ZeroMQ is none"
                .into()
        })
    }
}

#[cfg(test)]
mod tests;
