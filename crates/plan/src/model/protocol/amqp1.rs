//! Receivers of AMQP 1.0, which a program with Qpid Proton plays. Engines compute their expected
//! deliveries.

use serde::{Deserialize, Serialize};

use super::{Player, ProtocolOptions};
use crate::error::{PlanError, require};
use crate::model::Population;
use crate::model::capabilities::{Capabilities, Publications, Secures};
use crate::model::names::Names;
use crate::text::template::Template;

const CAPABILITIES: Capabilities = Capabilities {
    names: Names::Addresses,
    joins_targets: false,
    publications: Publications::None,
    qos_max: 0,
    retains: false,
    varies_pace: false,
    flaps: false,
    shares: true,
    answers: false,
    has_properties: false,
    secures: Secures::AtOnce,
};

/// Options of receivers of AMQP 1.0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amqp1 {
    /// Template of the container id, under which the broker lists a connection.
    pub container_id: Template,
    /// Template of the hostname in Open; `None`: the host of the target.
    #[serde(default)]
    pub hostname: Option<Template>,
    /// Login of the clients.
    pub mechanism: Amqp1Mechanism,
    /// Sources of the links, one for each subscription in their order.
    pub sources: Vec<Amqp1Source>,
}

/// Mechanism of a login (SASL).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Amqp1Mechanism {
    /// No login.
    Anonymous,
    /// User name and password.
    Plain,
    /// The certificate of the client.
    External,
}

/// The source of a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amqp1Source {
    /// Template of the address.
    pub address: Template,
    /// Kind of node that the client asks for; `None`: the broker chooses.
    #[serde(default)]
    pub capability: Option<SourceCapability>,
    /// `true` if the broker settles deliveries as it sends them: at most once.
    #[serde(default)]
    pub settled: bool,
    /// Messages that the broker may send before the client has taken them.
    pub credit: u32,
}

/// Kind of node at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceCapability {
    /// Receivers share its messages.
    Queue,
    /// Each receiver gets all messages.
    Topic,
}

impl ProtocolOptions for Amqp1 {
    fn name(&self) -> &'static str {
        "amqp1"
    }

    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn player(&self) -> Player {
        Player::Proton
    }

    fn templates(&self) -> Vec<(String, &Template)> {
        let sources = self.sources.iter().enumerate();
        let addresses = sources.map(|(n, own)| (format!("sources[{n}].address"), &own.address));
        let hostname = self.hostname.iter().map(|own| ("hostname".to_owned(), own));
        let container_id = ("container_id".to_owned(), &self.container_id);
        addresses.chain(hostname).chain([container_id]).collect()
    }

    /// Checks that each subscription has a source with credit, and that all subscriptions share
    /// their messages, or none does.
    fn check(&self, population: &Population, path: &str) -> Result<(), PlanError> {
        let all = population.subscriptions.len();
        let sources = self.sources.len();
        require(sources == all, &format!("{path}.protocol.sources"), || {
            format!("found {sources}, allowed is one for each of {all} subscriptions")
        })?;
        for (n, source) in self.sources.iter().enumerate() {
            require(source.credit > 0, &format!("{path}.protocol.sources[{n}].credit"), || {
                "found 0, allowed is 1 or more".to_owned()
            })?;
        }
        let shared = population.subscriptions.iter().filter(|own| population.is_shared(own));
        let shared = shared.count();
        require(shared == 0 || shared == all, &format!("{path}.subscriptions"), || {
            format!("found a shared one at {shared} of {all}, allowed is all or none")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fan_out::tests::{plan, population};
    use crate::fan_out::{FanOut, MessageOrigin};
    use crate::model::protocol::PlannedProtocol;

    fn source(credit: u32) -> Amqp1Source {
        let address = serde_json::from_value("a".into()).unwrap();
        Amqp1Source { address, capability: None, settled: false, credit }
    }

    fn receivers(clients: u32, filters: &[&str], sources: &[u32]) -> Population {
        let options = Amqp1 {
            container_id: serde_json::from_value("p-{n}".into()).unwrap(),
            hostname: None,
            mechanism: Amqp1Mechanism::Anonymous,
            sources: sources.iter().copied().map(source).collect(),
        };
        let protocol = PlannedProtocol::Amqp1(options);
        Population { protocol, ..population(clients, 0, filters) }
    }

    #[test]
    fn an_address_is_words_with_wildcards_and_a_queue_has_one_delivery() {
        for (filter, address, expected) in [
            ("device.state", "device.state", 4),
            ("device.state", "device.state.x", 0),
            ("device-{n}", "device-3", 1),
            ("device.*.state", "device.7.state", 4),
            ("device.*", "device.7.state", 0),
            ("device.#", "device.7.state", 4),
            ("#", "device", 4),
            ("/topic/device.*", "/topic/device.7", 4),
            ("$share/jobs/device.*", "device.7", 1),
        ] {
            let plan = plan(vec![receivers(4, &[filter], &[10])], 1, false);
            assert!(plan.check().is_ok(), "{filter}");
            let names = Names::Addresses;
            let origin = MessageOrigin { names, target: 0, excluded: None, carried: None };
            let mut counts = Vec::new();
            FanOut::new(&plan).deliveries(address, origin, &mut counts);
            assert_eq!(counts, [expected], "{filter} for {address}");
        }
    }

    #[test]
    fn each_subscription_has_a_source_with_credit_and_all_are_shared_or_none() {
        let check = |filters: &[&str], sources: &[u32]| {
            receivers(1, filters, sources).check("p", 1).err().map(|e| e.to_string())
        };
        assert_eq!(check(&["$share/g/a", "$share/h/b"], &[1, 1]), None);
        let found = check(&["$share/g/a", "b"], &[1, 1]).unwrap();
        assert_eq!(found, "p.subscriptions: found a shared one at 1 of 2, allowed is all or none");
        let found = check(&["a", "b"], &[1]).unwrap();
        assert!(found.starts_with("p.protocol.sources: found 1"), "{found}");
        let found = check(&["a"], &[0]).unwrap();
        assert!(found.starts_with("p.protocol.sources[0].credit: found 0"), "{found}");
    }
}
