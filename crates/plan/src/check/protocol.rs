//! Checks of the protocol of a population: options, players and messages that go together.

use mqtt::Property as Name;

use crate::error::{PlanError, require};
use crate::model::capabilities::{Capabilities, Publications};
use crate::model::flows::{Pace, Process, Publication};
use crate::model::property::Property;
use crate::model::protocol::{
    Authentication, Mqtt, MqttVersion, Nats, Protocol, SCRAM_SHA_256, Security,
};
use crate::model::{Choice, Plan, Population};

impl Plan {
    /// Checks which populations take connections over.
    pub(super) fn check_takeovers(&self) -> Result<(), PlanError> {
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
    /// Checks that a program can play it: `path` is its place in the plan.
    pub(super) fn check_protocol(&self, path: &str) -> Result<(), PlanError> {
        match &self.protocol {
            Protocol::Mqtt(mqtt) => self.check_mqtt(path, mqtt)?,
            Protocol::Zmtp(zmtp) => self.check_security(path, zmtp.security)?,
            Protocol::Nats(nats) => self.check_nats(path, nats)?,
        }
        let Capabilities { secures, publications, .. } = *self.capabilities();
        require(secures || self.tls.is_none(), &format!("{path}.tls"), || {
            "found settings of TLS, allowed with this protocol is null".into()
        })?;
        match publications {
            Publications::Any => Ok(()),
            Publications::Alone => self.check_alone(path),
            Publications::None => {
                let none = self.publications.is_empty();
                require(none, &format!("{path}.publications"), || {
                    let found = self.publications.len();
                    format!("found {found}, allowed are 0 with this protocol and this player")
                })
            }
        }
    }

    /// Checks the QoS of a subscription, of a publication or of answers.
    pub(super) fn check_qos(&self, qos: u8, path: &str) -> Result<(), PlanError> {
        let most = self.capabilities().qos_max;
        require(qos <= most, &format!("{path}.qos"), || {
            format!("found {qos}, allowed are 0 to {most}")
        })
    }

    /// Checks that clients can retain and schedule the messages of a publication.
    pub(super) fn check_publication(
        &self,
        publication: &Publication,
        path: &str,
    ) -> Result<(), PlanError> {
        let Capabilities { retains, varies_pace, .. } = *self.capabilities();
        require(retains || !publication.retain, &format!("{path}.retain"), || {
            "found true, allowed with this protocol is false".into()
        })?;
        let is_even = match publication.pace {
            Pace::Open { spread, jitter, arrivals, .. } => {
                spread == 0.0 && jitter == 0.0 && arrivals == Process::Even
            }
            Pace::Closed => true,
        };
        require(varies_pace || is_even, &format!("{path}.pace"), || {
            "found spread, jitter or Poisson arrivals, allowed with this protocol is none".into()
        })
    }

    /// Checks the security mechanism of sockets.
    fn check_security(&self, path: &str, security: Security) -> Result<(), PlanError> {
        let path = format!("{path}.protocol.security");
        let named = self.username.is_some() && self.password.is_some();
        require(security != Security::Plain || named, &path, || {
            "found plain, which needs a user name and a password".into()
        })?;
        let known = security != Security::Curve || !self.is_played_by_engines();
        require(known, &path, || {
            "found curve, allowed at the engine are null and plain: another player has keys".into()
        })
    }

    /// Checks the login of NATS clients, and that subjects fit a control line.
    fn check_nats(&self, path: &str, nats: &Nats) -> Result<(), PlanError> {
        require(
            nats.jwt.is_none() || nats.seed.is_some(),
            &format!("{path}.protocol.jwt"),
            || "found one without a seed, needed is the nkey with which the client signs".into(),
        )?;
        let consumers = nats.consumers.len();
        let is_whole = consumers == 0 || consumers == self.subscriptions.len();
        let path_of_consumers = format!("{path}.protocol.consumers");
        require(is_whole, &path_of_consumers, || {
            format!("found {consumers}, allowed are none, or one for each subscription")
        })?;
        require(consumers == 0 || self.flapping.is_none(), &path_of_consumers, || {
            "found some of clients that unsubscribe, allowed are none".into()
        })?;
        let mut headers = self.publications.iter().flat_map(|own| &own.properties);
        require(headers.all(|header| header.key.is_some()), path, || {
            "found a header without a name, needed is a key".into()
        })?;
        let subjects = self.publications.iter().map(|own| &own.topic);
        for subject in self.subscriptions.iter().map(|own| &own.filter).chain(subjects) {
            let source = subject.source();
            let is_word = !source.is_empty() && !source.contains(char::is_whitespace);
            require(is_word, path, || {
                format!("found the subject '{source}', allowed is a text without spaces")
            })?;
        }
        Ok(())
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

    /// Checks the one publication of clients that have a target each.
    fn check_alone(&self, path: &str) -> Result<(), PlanError> {
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

impl Property {
    fn check(&self, path: &str) -> Result<(), PlanError> {
        let kind = self.kind();
        require(kind.is_some(), path, || {
            format!("found the property '{}', allowed are those of MQTT 5", self.name)
        })?;
        let is_pair = kind == Some(Name::UserProperty);
        require(is_pair == self.key.is_some(), path, || {
            format!("found {} with key {:?}, only user properties have one", self.name, self.key)
        })
    }
}

#[cfg(test)]
mod tests;
