//! Round trips of MQTT 5 (section 4.10): populations that answer requests, and publications whose
//! messages are requests.

use mqtt::Property as Name;
use serde::{Deserialize, Serialize};

use crate::check::{PlanError, check_qos, require};
use crate::flows::Publication;
use crate::model::Population;
use crate::property::Property;
use crate::protocol::{Mqtt, MqttVersion, Protocol};
use crate::template::Template;

/// Answers of the clients of a population.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Responds {
    /// QoS 0, 1 or 2.
    pub qos: u8,
    /// Size of the payload, in bytes.
    pub bytes: u32,
}

impl Publication {
    /// Template of the topic of answers.
    pub(crate) fn response_topic(&self) -> Option<&Template> {
        let is_it = |property: &&Property| property.kind() == Some(Name::ResponseTopic);
        self.properties.iter().find(is_it).and_then(Property::template)
    }
}

impl Population {
    /// Returns `true` if its clients send requests.
    #[must_use]
    pub fn requests(&self) -> bool {
        self.publications.iter().any(|publication| publication.request)
    }

    /// Returns `true` if its clients speak MQTT 5.
    #[must_use]
    pub const fn speaks_mqtt5(&self) -> bool {
        matches!(&self.protocol, Protocol::Mqtt(Mqtt { version: MqttVersion::V5, .. }))
    }

    /// Checks requests and answers: `path` is its place in the plan.
    pub(crate) fn check_round_trips(&self, path: &str) -> Result<(), PlanError> {
        if let Some(Responds { qos, bytes }) = self.responds {
            let path = format!("{path}.responds");
            require(self.speaks_mqtt5(), &path, || {
                "found answers, allowed are answers with version 5".into()
            })?;
            check_qos(qos, &path)?;
            let most = Publication::PAYLOAD_BYTES_MAX;
            require(u64::from(bytes) <= most, &format!("{path}.bytes"), || {
                format!("found {bytes}, allowed are {most}")
            })?;
        }
        for (p, publication) in self.publications.iter().enumerate() {
            let path = format!("{path}.publications[{p}].request");
            let kinds = || publication.properties.iter().filter_map(Property::kind);
            let fits = self.speaks_mqtt5()
                && kinds().any(|kind| kind == Name::ResponseTopic)
                && !kinds().any(|kind| kind == Name::CorrelationData);
            require(!publication.request || fits, &path, || {
                "found true, needed are version 5 and a response topic, without correlation data"
                    .into()
            })?;
        }
        Ok(())
    }
}
