//! Populations of ZeroMQ sockets: what sets them apart for whoever plays or counts them, and what
//! can be played of them. The engines play SUB sockets; PUB sockets are what is under test, and
//! programs of their own play them. It knows no socket.

use crate::check::{PlanError, require};
use crate::model::{Choice, Pace, Player, Population, Publication, Security, Version};

impl Population {
    /// Whether its clients are ZeroMQ sockets.
    #[must_use]
    pub const fn speaks_zmtp(&self) -> bool {
        matches!(self.version, Version::Zmtp31)
    }

    /// Whether the engines play its clients, each its share.
    #[must_use]
    pub const fn is_engines(&self) -> bool {
        matches!(self.player, Player::Engine)
    }

    /// Whether programs other than the engines publish for it: what they have sent is told to the
    /// engines when a stage closes.
    #[must_use]
    pub const fn is_told(&self) -> bool {
        !self.is_engines() && !self.publications.is_empty()
    }

    /// Checks that somebody can play it: `path` is its place in the plan.
    pub(crate) fn check_player(&self, path: &str) -> Result<(), PlanError> {
        let at = |name: &str| format!("{path}.{name}");
        if !self.speaks_zmtp() {
            require(self.is_engines(), &at("player"), || {
                "found a program for clients of MQTT, allowed is engine".into()
            })?;
            return require(self.zmq.is_none(), &at("zmq"), || {
                "found options of ZeroMQ for clients of MQTT, allowed is null".into()
            });
        }
        let zmq = self.zmq.as_ref();
        require(zmq.is_some(), &at("zmq"), || {
            "found null, needed are the options of its ZeroMQ sockets".into()
        })?;
        let security = zmq.map(|zmq| zmq.security);
        let named = self.username.is_some() && self.password.is_some();
        require(security != Some(Security::Plain) || named, &at("zmq.security"), || {
            "found plain, which needs a user name and a password".into()
        })?;
        require(self.tls.is_none() && self.will.is_none() && !self.bridge, path, || {
            "found tls, a will or the bridge bit, allowed with zmtp-3.1 is none of them".into()
        })?;
        require(self.clean_session, &at("clean_session"), || {
            "found false, allowed is true: a ZeroMQ socket keeps nothing for one that is gone"
                .into()
        })?;
        for (s, subscription) in self.subscriptions.iter().enumerate() {
            require(subscription.qos == 0, &at(&format!("subscriptions[{s}].qos")), || {
                format!("found {}, allowed with zmtp-3.1 is 0", subscription.qos)
            })?;
        }
        for (p, publication) in self.publications.iter().enumerate() {
            publication.check_frames(&at(&format!("publications[{p}]")))?;
        }
        if self.is_engines() { self.check_simulated(path) } else { self.check_told(path) }
    }

    /// Checks what the engines play.
    fn check_simulated(&self, path: &str) -> Result<(), PlanError> {
        require(self.publications.is_empty(), &format!("{path}.publications"), || {
            "found some at the engine, which plays subscribers of ZeroMQ only: allowed is another \
             player"
                .into()
        })?;
        let curve = self.zmq.as_ref().is_some_and(|zmq| zmq.security == Security::Curve);
        require(!curve, &format!("{path}.zmq.security"), || {
            "found curve, allowed at the engine are null and plain: pyzmq plays it".into()
        })
    }

    /// Checks what other programs play.
    fn check_told(&self, path: &str) -> Result<(), PlanError> {
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
                "found QoS {} and retain {}, allowed with zmtp-3.1 are 0 and false",
                self.qos, self.retain
            )
        })?;
        let smooth = match self.pace {
            Pace::Open { spread, jitter, .. } => spread == 0.0 && jitter == 0.0,
            Pace::Closed => true,
        };
        require(smooth, &format!("{path}.pace"), || {
            "found spread or jitter, allowed for a publisher of ZeroMQ is neither".into()
        })
    }
}

#[cfg(test)]
mod tests;
