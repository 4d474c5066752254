//! Checks of the protocol of a population: options, players and messages that go together.

use mqtt::Property as Name;

use crate::error::{PlanError, require};
use crate::model::flows::{Pace, Process, Publication};
use crate::model::property::Property;
use crate::model::protocol::{
    Authentication, Mqtt, MqttVersion, Protocol, SCRAM_SHA_256, Security, Zmtp,
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
