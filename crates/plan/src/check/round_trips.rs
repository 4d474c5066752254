//! Checks of round trips: populations that answer requests, and publications whose messages are
//! requests.

use mqtt::Property as Name;

use crate::error::{PlanError, require};
use crate::model::Population;
use crate::model::flows::{Publication, Responds};
use crate::model::property::Property;

impl Population {
    /// Checks requests and answers: `path` is its place in the plan.
    pub(super) fn check_round_trips(&self, path: &str) -> Result<(), PlanError> {
        if let Some(Responds { qos, bytes }) = self.responds {
            let path = format!("{path}.responds");
            require(self.capabilities().answers, &path, || {
                "found answers, allowed with this protocol or version are none".into()
            })?;
            self.check_qos(qos, &path)?;
            let most = Publication::PAYLOAD_BYTES_MAX;
            require(u64::from(bytes) <= most, &format!("{path}.bytes"), || {
                format!("found {bytes}, allowed are {most}")
            })?;
        }
        for (p, publication) in self.publications.iter().enumerate() {
            let path = format!("{path}.publications[{p}].request");
            let kinds = || publication.properties.iter().filter_map(Property::kind);
            let fits = self.capabilities().answers
                && kinds().any(|kind| kind == Name::ResponseTopic)
                && !kinds().any(|kind| kind == Name::CorrelationData);
            require(!publication.request || fits, &path, || {
                "found true, needed are a protocol with answers and a response topic, without \
                 correlation data"
                    .into()
            })?;
        }
        Ok(())
    }
}
