//! Checks of flows that programs beside the brokers carry.

use crate::error::{PlanError, require};
use crate::model::Plan;
use crate::model::flows::PlannedFlow;
use crate::text::template::Place;

impl PlannedFlow {
    /// Checks indices and the name: `path` is the place in the plan.
    pub(super) fn check(&self, path: &str, plan: &Plan) -> Result<(), PlanError> {
        let populations = plan.populations.len();
        let publications =
            plan.populations.get(self.population).map_or(0, |p| p.publications.len());
        for (key, found, count) in [
            ("population", self.population, populations),
            ("publication", self.publication, publications),
            ("at", self.at, populations),
        ] {
            require(found < count, &format!("{path}.{key}"), || {
                format!("found {found}, allowed are indices below {count}")
            })?;
        }
        let (to, at) = (format!("{path}.to"), &plan.populations[self.at]);
        let topic = &plan.populations[self.population].publications[self.publication].topic;
        require(at.at.count == 1 || plan.targets_joined, &format!("{path}.at"), || {
            format!("found a population at {} targets, allowed is one", at.at.count)
        })?;
        let (found, allowed) = (self.to.variants(), topic.variants());
        require(found == 1 || found == allowed, &to, || {
            format!("found {found} values, allowed are {allowed} as in the topic")
        })?;
        require(self.to.columns().next().is_none(), &to, || {
            "found a column, allowed are variables of numbers, a range or a choice".into()
        })?;
        let checked = self.to.check(Place::Topic(at.capabilities().names));
        checked.map_err(|source| PlanError::Template { path: to, source })
    }
}
