//! Consumers of Kafka, which a program with librdkafka plays. Engines compute their expected
//! deliveries.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Player, ProtocolOptions};
use crate::error::{PlanError, require};
use crate::model::Population;
use crate::model::capabilities::{Capabilities, Publications, Secures};
use crate::model::names::Names;
use crate::text::template::Template;

const CAPABILITIES: Capabilities = Capabilities {
    names: Names::Words,
    joins_targets: false,
    publications: Publications::None,
    qos_max: 0,
    retains: false,
    varies_pace: false,
    flaps: false,
    shares: true,
    answers: false,
    has_properties: false,
    secures: Secures::Never,
};

/// Options of Kafka's consumers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kafka {
    /// Settings of librdkafka, by name.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

impl ProtocolOptions for Kafka {
    fn name(&self) -> &'static str {
        "kafka"
    }

    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn player(&self) -> Player {
        Player::Librdkafka
    }

    fn templates(&self) -> Vec<(String, &Template)> {
        Vec::new()
    }

    /// Checks that all subscriptions are to groups, or none is.
    fn check(&self, population: &Population, path: &str) -> Result<(), PlanError> {
        let all = population.subscriptions.len();
        let shared = population.subscriptions.iter().filter(|own| population.is_shared(own));
        let shared = shared.count();
        require(shared == 0 || shared == all, &format!("{path}.subscriptions"), || {
            format!("found a group at {shared} of {all}, allowed is all or none")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fan_out::tests::{plan, population};
    use crate::fan_out::{FanOut, MessageOrigin};
    use crate::model::protocol::PlannedProtocol;

    fn consumers(clients: u32, filters: &[&str]) -> Population {
        let protocol = PlannedProtocol::Kafka(Kafka::default());
        Population { protocol, ..population(clients, 0, filters) }
    }

    #[test]
    fn a_topic_is_one_word_and_a_group_has_one_delivery() {
        for (filter, topic, expected) in [
            ("device.state", "device.state", 4),
            ("device.state", "device.state.x", 0),
            ("device", "device.state", 0),
            ("device-{n}", "device-3", 1),
            ("device.*", "device.state", 0),
            ("#", "device", 0),
            ("$share/g/device.state", "device.state", 1),
        ] {
            let plan = plan(vec![consumers(4, &[filter])], 1, false);
            assert!(plan.check().is_ok());
            let names = Names::Words;
            let origin = MessageOrigin { names, target: 0, excluded: None, carried: None };
            let mut counts = Vec::new();
            FanOut::new(&plan).deliveries(topic, origin, &mut counts);
            assert_eq!(counts, [expected], "{filter} for {topic}");
        }
    }

    #[test]
    fn consumers_in_and_outside_of_groups_are_two_populations() {
        let check = |filters| consumers(1, filters).check("p", 1).err().map(|e| e.to_string());
        assert_eq!(check(&["$share/g/a", "$share/g/b"]), None);
        let found = check(&["$share/g/a", "b"]).unwrap();
        assert_eq!(found, "p.subscriptions: found a group at 1 of 2, allowed is all or none");
    }
}
