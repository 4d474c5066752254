//! Messages that programs beside the brokers carry: each arrives at a further target too, with the
//! name that the plan declares for the publication.

use crate::fan_out::MessageOrigin;
use crate::model::Plan;
use crate::model::flows::PlannedFlow;
use crate::model::names::Names;
use crate::text::template::Template;

/// A message of a flow: what its further names depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowMessage {
    /// Index of the publishing population.
    population: usize,
    /// Index of the publication in its population.
    publication: usize,
    /// Number of the publishing client.
    number: u64,
    /// Value of the topic.
    variant: u32,
}

/// Programs that carry messages on: one for each flow of the plan.
#[derive(Clone, Debug)]
pub struct FlowRoutes(Vec<FlowRoute>);

#[derive(Clone, Debug)]
struct FlowRoute {
    population: usize,
    publication: usize,
    to: Template,
    names: Names,
    target: usize,
}

impl FlowMessage {
    /// A message of a client, which has this index over all agents; `None` if no program carries
    /// the messages of the publication.
    pub fn new(
        plan: &Plan,
        (population, client): (usize, u32),
        publication: usize,
        variant: u32,
    ) -> Option<Self> {
        let is_own =
            |flow: &PlannedFlow| (flow.population, flow.publication) == (population, publication);
        let number = plan.populations[population].first + u64::from(client);
        let carried = Self { population, publication, number, variant };
        plan.flows.iter().any(is_own).then_some(carried)
    }
}

impl FlowRoutes {
    /// The flows of a plan that has been checked.
    pub fn new(plan: &Plan) -> Self {
        let carrier = |flow: &PlannedFlow| {
            let at = &plan.populations[flow.at];
            FlowRoute {
                population: flow.population,
                publication: flow.publication,
                to: flow.to.clone(),
                names: at.capabilities().names,
                target: at.at.first,
            }
        };
        Self(plan.flows.iter().map(carrier).collect())
    }

    /// Names and targets with which a message arrives elsewhere.
    pub fn arrivals(
        &self,
        carried: Option<FlowMessage>,
    ) -> impl Iterator<Item = (String, Names, usize)> + '_ {
        carried.into_iter().flat_map(|message| {
            let is_own = move |carrier: &&FlowRoute| {
                (carrier.population, carrier.publication)
                    == (message.population, message.publication)
            };
            self.0.iter().filter(is_own).map(move |carrier| {
                let name = carrier.to.text(message.number, message.variant);
                (name, carrier.names, carrier.target)
            })
        })
    }
}

impl Plan {
    /// Returns `true` if a flow of the plan leads to this name at a target, in the rule of the
    /// receiver or in that of a twin.
    #[must_use]
    pub fn is_carried_to(&self, names: Names, target: usize, name: &str) -> bool {
        self.carries(|flow, name| flow.to.renders(name), (names, target), name)
    }

    /// Returns `true` if a flow gives a message from this origin the name at the target.
    #[must_use]
    pub fn is_carried_as(&self, origin: MessageOrigin, place: (Names, usize), name: &str) -> bool {
        origin.carried.is_some_and(|message| {
            let is_own = |flow: &PlannedFlow, name: &str| {
                (flow.population, flow.publication) == (message.population, message.publication)
                    && (flow.to.variants() == 1 || message.variant < flow.to.variants())
                    && flow.to.text(message.number, message.variant) == name
            };
            self.carries(is_own, place, name)
        })
    }

    fn carries(
        &self,
        is_meant: impl Fn(&PlannedFlow, &str) -> bool,
        (names, target): (Names, usize),
        name: &str,
    ) -> bool {
        let twins: Vec<_> = names.twins_of(name).collect();
        self.flows.iter().any(|flow| {
            let at = &self.populations[flow.at];
            let arrives =
                |names: Names, name: &str| at.capabilities().names == names && is_meant(flow, name);
            (self.targets_joined || at.at.first == target)
                && (arrives(names, name) || twins.iter().any(|(names, name)| arrives(*names, name)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::publication;
    use crate::fan_out::FanOut;
    use crate::fan_out::tests::{nats, plan, population};
    use crate::model::flows::Payload;
    use crate::model::{Attachment, Population};

    /// Clients of NATS at the target 1.
    fn service(clients: u32, filters: &[&str]) -> Population {
        let at = Attachment { first: 1, ..population(1, 0, &[]).at };
        Population { at, protocol: nats(), ..population(clients, 0, filters) }
    }

    /// Devices that publish to `topic` at the target 0, and the flow of their messages to `to`.
    fn carried(topic: &str, to: &str, others: Vec<Population>) -> Plan {
        let publications = vec![publication(topic, Payload::Fixed { bytes: 32 })];
        let device = Population { publications, ..population(10, 5, &[]) };
        let flow =
            PlannedFlow { population: 0, publication: 0, to: Template::new(to).unwrap(), at: 1 };
        let populations = [vec![device], others].concat();
        Plan { flows: vec![flow], ..plan(populations, 2, false) }
    }

    fn counts(plan: &Plan, client: u32, variant: u32) -> Vec<u64> {
        let publication = &plan.populations[0].publications[0];
        let number = plan.populations[0].first + u64::from(client);
        let topic = publication.topic.text(number, variant);
        let mut counts = Vec::new();
        let origin = plan.origin((0, client), 0, variant);
        FanOut::new(plan).deliveries(&topic, origin, &mut counts);
        counts
    }

    #[test]
    fn a_message_arrives_under_its_further_name_at_the_target_of_the_flow() {
        let others = vec![
            service(3, &["device.*.state"]),
            service(20, &["device.{n}.state"]),
            service(2, &["device/7/state"]),
            population(4, 0, &["device/+/state"]),
            population(4, 0, &["device.7.state"]),
        ];
        let plan = carried("device/{n}/state", "device.{n}.state", others);
        assert_eq!(counts(&plan, 2, 0), [0, 3, 1, 0, 4, 0]);
        assert!(plan.check().is_ok());
    }

    #[test]
    fn a_range_keeps_its_value_and_may_be_left_out() {
        for (to, variant, expected) in
            [("all.{red|green}", 0, [0, 1]), ("all.{red|green}", 1, [0, 0]), ("all.red", 1, [0, 1])]
        {
            let plan = carried("t/{n}/{red|green}", to, vec![service(1, &["all.red"])]);
            assert_eq!(counts(&plan, 0, variant), expected, "{to}");
            assert!(plan.check().is_ok());
        }
    }

    #[test]
    fn a_message_has_the_names_that_its_flow_gives_it_and_no_other() {
        let plan = carried("t/{n}/{red|green}", "x.{n}.{red|green}", vec![service(1, &["x.>"])]);
        let is_carried = |(client, variant), names, target, name| {
            plan.is_carried_as(plan.origin((0, client), 0, variant), (names, target), name)
        };
        assert!(is_carried((2, 1), Names::Subjects, 1, "x.7.green"));
        assert!(is_carried((2, 1), Names::Topics, 1, "x/7/green"));
        for (message, target, name) in [
            ((2, 1), 1, "x.7.red"),
            ((3, 1), 1, "x.7.green"),
            ((2, 1), 0, "x.7.green"),
            ((2, 1), 1, "t.7.green"),
            ((2, 2), 1, "x.7.green"),
            ((u32::MAX, u32::MAX), 1, "x.7.green"),
        ] {
            assert!(!is_carried(message, Names::Subjects, target, name), "{message:?} {name}");
        }
    }

    #[test]
    fn messages_of_the_server_at_the_end_of_a_flow_have_their_twins() {
        let at_nats = Attachment { first: 1, ..population(1, 0, &[]).at };
        let reader = Population { at: at_nats, ..population(2, 0, &["x/+"]) };
        let plan = carried("t/{n}", "x.{n}", vec![service(1, &["x.>"]), reader]);
        assert_eq!(counts(&plan, 0, 0), [0, 1, 2]);
        assert!(plan.is_carried_to(Names::Subjects, 1, "x.7"));
        assert!(plan.is_carried_to(Names::Topics, 1, "x/7"));
        assert!(!plan.is_carried_to(Names::Subjects, 0, "x.7"));
        assert!(!plan.is_carried_to(Names::Subjects, 1, "x.y"));
    }

    #[test]
    fn flows_that_no_agent_can_follow_are_refused() {
        let valid = carried("t/{n}/{1..3}", "t.{n}.{1..3}", vec![service(1, &["t.>"])]);
        assert!(valid.check().is_ok());
        let change = |change: &dyn Fn(&mut Plan)| {
            let mut plan = valid.clone();
            change(&mut plan);
            plan.check().unwrap_err().to_string()
        };
        let to = |text| change(&move |p: &mut Plan| p.flows[0].to = Template::new(text).unwrap());
        for (found, wrong) in [
            (change(&|p| p.flows[0].population = 2), "flows[0].population: found 2, allowed are"),
            (change(&|p| p.flows[0].publication = 1), "flows[0].publication: found 1, allowed are"),
            (change(&|p| p.flows[0].at = 2), "flows[0].at: found 2, allowed are"),
            (
                change(&|p| {
                    p.populations[1].at = Attachment { count: 2, first: 0, ..p.populations[1].at }
                }),
                "flows[0].at: found a population at 2 targets, allowed is one",
            ),
            (to("t.{n}.{1..4}"), "flows[0].to: found 4 values, allowed are 3 as in the topic"),
            (to("t.{row.x}"), "flows[0].to: found a column, allowed are"),
            (to("t.{stamp}"), "flows[0].to: "),
        ] {
            assert!(found.starts_with(wrong), "{found}");
        }
    }
}
