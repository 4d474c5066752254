//! Checks of the protocol of a population: options, players and messages that go together.

use crate::error::{PlanError, require};
use crate::model::capabilities::{Capabilities, Publications, Secures};
use crate::model::flows::{Late, Pace, Payload, Process, Publication};
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
        self.protocol.options().check(self, path)?;
        let Capabilities { secures, publications, .. } = *self.capabilities();
        let is_plain = secures != Secures::Never || self.tls.is_none();
        require(is_plain, &format!("{path}.tls"), || {
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
        self.check_recorded(publication, path)?;
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

    /// Checks that a recorded topic has recorded messages, and the other way round.
    fn check_recorded(&self, publication: &Publication, path: &str) -> Result<(), PlanError> {
        let is_recorded = matches!(publication.payload, Payload::Recorded(_));
        let same = publication.topic.is_recorded() == is_recorded;
        require(same, &format!("{path}.topic"), || {
            "needed is {recorded} with recorded messages, and only there".into()
        })?;
        let Payload::Recorded(recording) = &publication.payload else { return Ok(()) };
        let is_plain = publication.topic.variants() == 1
            && !(publication.topic_alias || publication.request)
            && matches!(publication.pace, Pace::Open { burst: 1, late: Late::Send, .. });
        require(is_plain && self.mqtt().is_some(), path, || {
            "allowed with recorded messages is MQTT with a schedule that sends late messages, \
             without further topics, bursts, topic aliases and requests"
                .into()
        })?;
        let possible = recording.clients > 0 && recording.first <= self.first;
        require(possible, &format!("{path}.payload"), || {
            "needed are recorded clients, the first of them not after the first client".into()
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
