//! PUB and SUB sockets of ZeroMQ, which speak ZMTP 3.1.

use serde::{Deserialize, Serialize};

use super::{Player, ProtocolOptions};
use crate::error::{PlanError, require};
use crate::model::Population;
use crate::model::capabilities::{Capabilities, Publications, Secures};
use crate::model::names::Names;
use crate::text::template::Template;

/// SUB sockets, as the engine plays them.
const SUB: Capabilities = Capabilities {
    names: Names::Prefixes,
    joins_targets: false,
    publications: Publications::None,
    qos_max: 0,
    retains: false,
    varies_pace: false,
    flaps: false,
    shares: false,
    answers: false,
    has_properties: false,
    secures: Secures::Never,
};

/// PUB or SUB sockets, as other programs play them.
const SOCKETS: Capabilities = Capabilities { publications: Publications::Alone, ..SUB };

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

impl ProtocolOptions for Zmtp {
    fn name(&self) -> &'static str {
        "zmtp"
    }

    fn capabilities(&self) -> &'static Capabilities {
        if self.player == Player::Engine { &SUB } else { &SOCKETS }
    }

    fn player(&self) -> Player {
        self.player
    }

    fn templates(&self) -> Vec<(String, &Template)> {
        Vec::new()
    }

    /// Checks the security mechanism.
    fn check(&self, population: &Population, path: &str) -> Result<(), PlanError> {
        let path = format!("{path}.protocol.security");
        let named = population.username.is_some() && population.password.is_some();
        require(self.security != Security::Plain || named, &path, || {
            "found plain, which needs a user name and a password".into()
        })?;
        let known = self.security != Security::Curve || self.player != Player::Engine;
        require(known, &path, || {
            "found curve, allowed at the engine are null and plain: another player has keys".into()
        })
    }
}

#[cfg(test)]
mod tests;
