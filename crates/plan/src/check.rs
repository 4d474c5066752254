//! Checks of a plan at the start of an agent.

mod flows;
mod protocol;
mod round_trips;

use std::iter::once;

use crate::error::{PlanError, require};
use crate::model::bounds::NUMBER_MAX;
use crate::model::flows::{Order, Pace, Payload, Phase, Process, Publication};
use crate::model::names::Names;
use crate::model::protocol::check_shared;
use crate::model::{Action, Bridges, Change, Flapping, Lifetime, Plan, PlannedStage, Population};
use crate::record::stamp::{PUBLICATIONS_MAX, STAMP_BYTES};
use crate::schedule::order::ROUND_MAX;
use crate::schedule::rate_profile::{POINTS_MAX, RatePoint};
use crate::schedule::sessions::SessionsRecording;
use crate::schedule::tempo::Tempo;
use crate::text::template::{Place, TemplateError};

impl Plan {
    /// Reads a plan from one line of JSON and makes the checks on which the engine relies.
    ///
    /// # Errors
    /// [`PlanError`] with the field, the value found and the values allowed.
    pub fn from_json(json: &str) -> Result<Self, PlanError> {
        let plan: Self = serde_json::from_str(json)?;
        plan.check()?;
        Ok(plan)
    }

    pub(crate) fn check(&self) -> Result<(), PlanError> {
        if self.format != Self::FORMAT {
            return Err(PlanError::Format { found: self.format });
        }
        require(!self.targets.is_empty(), "targets", || "at least one is needed".into())?;
        require(self.snapshot_interval_ns > 0, "snapshot_interval_ns", || "must be > 0".into())?;
        require(self.stall_ns != Some(0), "stall_ns", || "must be > 0".into())?;
        require(self.max_packet_bytes > 0, "max_packet_bytes", || "must be > 0".into())?;
        // Clients hold the index of a population in 16 bits, stamps that of a publication in 15.
        let publications = self.populations.iter().map(|p| p.publications.len()).sum::<usize>();
        for (path, found, most) in [
            ("populations", self.populations.len(), usize::from(u16::MAX)),
            ("publications", publications, PUBLICATIONS_MAX),
        ] {
            require(found <= most, path, || format!("found {found}, allowed are {most}"))?;
        }
        for (p, population) in self.populations.iter().enumerate() {
            population.check(&format!("populations[{p}]"), self.targets.len())?;
        }
        self.check_takeovers()?;
        check_shared(self)?;
        let apart = self.bridges.is_empty() || !self.targets_joined;
        require(apart, "targets_joined", || {
            "found true with bridges, allowed is false: what bridges join is known".into()
        })?;
        for (b, bridges) in self.bridges.iter().enumerate() {
            bridges.check(&format!("bridges[{b}]"), self.targets.len())?;
        }
        for (f, flow) in self.flows.iter().enumerate() {
            flow.check(&format!("flows[{f}]"), self)?;
        }
        for (s, stage) in self.stages.iter().enumerate() {
            let known = stage.populations.iter().all(|&p| p < self.populations.len());
            require(known, &format!("stages[{s}].populations"), || {
                format!(
                    "found {:?}, allowed are indices below {}",
                    stage.populations,
                    self.populations.len()
                )
            })?;
            stage.check(&format!("stages[{s}].action"), &self.populations)?;
        }
        Ok(())
    }
}

impl PlannedStage {
    fn check(&self, path: &str, populations: &[Population]) -> Result<(), PlanError> {
        match &self.action {
            Action::Publish { duration_ns, changes, rate_profile, messages } => {
                self.check_rates(&format!("{path}.rate_profile"), rate_profile, populations)?;
                if let Some(messages) = messages {
                    self.check_messages(&format!("{path}.messages"), messages, populations)?;
                }
                check_changes(path, changes, *duration_ns, populations.len())?;
            }
            Action::Hold { duration_ns, changes } => {
                let is_fit = changes.iter().all(|change| !change.action.is_rate());
                require(is_fit, &format!("{path}.changes"), || {
                    "found a rate, allowed in a hold stage are clients that join, leave or migrate"
                        .into()
                })?;
                check_changes(path, changes, *duration_ns, populations.len())?;
            }
            Action::Connect { clients: Some(clients), .. } => {
                let path = format!("{path}.clients");
                self.check_numbers(&path, clients.len())?;
                for (&clients, &population) in clients.iter().zip(&self.populations) {
                    let all = populations[population].clients;
                    require(clients <= all, &path, || {
                        let name = &populations[population].name;
                        format!("found {clients} of {name}, allowed are up to {all}")
                    })?;
                }
            }
            Action::Connect { .. } | Action::Disconnect { .. } => {}
        }
        Ok(())
    }
}

impl PlannedStage {
    fn check_numbers(&self, path: &str, found: usize) -> Result<(), PlanError> {
        let allowed = self.populations.len();
        require(found == allowed, path, || {
            format!("found {found} numbers, allowed is one for each population: {allowed}")
        })
    }

    fn check_messages(
        &self,
        path: &str,
        messages: &[u64],
        populations: &[Population],
    ) -> Result<(), PlanError> {
        self.check_numbers(path, messages.len())?;
        let sum = messages.iter().fold(0, |sum: u64, each| sum.saturating_add(*each));
        require(sum <= NUMBER_MAX, path, || format!("found {sum}, allowed are {NUMBER_MAX}"))?;
        let external = self.populations.iter().find(|&&p| populations[p].is_externally_published());
        require(external.is_none(), path, || {
            "found a population under test that publishes, allowed are clients of the engine".into()
        })
    }

    fn check_rates(
        &self,
        path: &str,
        profile: &[RatePoint],
        populations: &[Population],
    ) -> Result<(), PlanError> {
        require(profile.len() <= POINTS_MAX, path, || {
            format!("found {} points, allowed are {POINTS_MAX}", profile.len())
        })?;
        let possible = |point: &RatePoint| (0.0..=Tempo::FACTOR_MAX).contains(&point.factor);
        require(profile.iter().all(possible), path, || {
            format!("allowed are factors of 0 to {}", Tempo::FACTOR_MAX)
        })?;
        require(profile.is_sorted_by_key(|point| point.after_ns), path, || {
            "allowed are points in the order of time".into()
        })?;
        let follows = |population: &Population| {
            let open = population.publications.iter().all(|p| p.pace != Pace::Closed);
            let varies = population.capabilities().varies_pace;
            population.publications.is_empty() || (open && varies)
        };
        let all = self.populations.iter().all(|&p| follows(&populations[p]));
        require(profile.is_empty() || all, path, || {
            "found closed loops, or a protocol whose rates do not vary: allowed are publications \
             with a rate"
                .into()
        })
    }
}

fn check_changes(
    path: &str,
    changes: &[Change],
    duration_ns: u64,
    populations: usize,
) -> Result<(), PlanError> {
    for (c, change) in changes.iter().enumerate() {
        change.check(&format!("{path}.changes[{c}]"), duration_ns, populations)?;
    }
    Ok(())
}

impl Change {
    fn check(&self, path: &str, duration_ns: u64, populations: usize) -> Result<(), PlanError> {
        require(self.population < populations, &format!("{path}.population"), || {
            format!("found {}, allowed are indices below {populations}", self.population)
        })?;
        let end_ns = self.after_ns.saturating_add(self.action.over_ns());
        require(end_ns <= duration_ns, path, || {
            format!("found a change until {end_ns} ns, allowed is the stage's {duration_ns} ns")
        })?;
        require(self.action.is_possible(), &format!("{path}.action.factor"), || {
            format!("allowed is 0 to {}", Tempo::FACTOR_MAX)
        })
    }
}

impl Bridges {
    fn check(&self, path: &str, targets: usize) -> Result<(), PlanError> {
        check_targets(self.first, self.count, targets, path)?;
        require(self.main < targets, &format!("{path}.main"), || {
            format!("found {}, allowed are indices below {targets}", self.main)
        })?;
        require(!self.small().contains(&self.main), &format!("{path}.main"), || {
            format!("found {}, which is one of the small brokers, allowed are others", self.main)
        })?;
        for (r, route) in self.routes.iter().enumerate() {
            for (name, prefix) in
                [("local_prefix", &route.local_prefix), ("remote_prefix", &route.remote_prefix)]
            {
                let path = format!("{path}.routes[{r}].{name}");
                let plain = prefix.variants() == 1 && !prefix.source().contains(['+', '#']);
                require(plain, &path, || {
                    let found = prefix.source();
                    format!("found '{found}', allowed is a prefix without ranges and wildcards")
                })?;
                let whole = prefix.followed_by(&route.filter).and_then(|whole| {
                    let column = whole.columns().next().map(ToOwned::to_owned);
                    column.map_or(Ok(()), |name| Err(TemplateError::Column(name)))?;
                    whole.check(Place::Filter(Names::Topics))
                });
                whole.map_err(|source| PlanError::Template { path, source })?;
            }
        }
        Ok(())
    }
}

impl Population {
    pub(crate) fn check(&self, path: &str, targets: usize) -> Result<(), PlanError> {
        check_targets(self.at.first, self.at.count, targets, &format!("{path}.at"))?;
        self.check_protocol(path)?;
        self.check_templates(path)?;
        self.check_round_trips(path)?;
        self.check_link(path)?;
        if let Some(Lifetime { min_ns, max_ns, recorded, .. }) = &self.lifetime {
            let path = format!("{path}.lifetime");
            require(0 < *min_ns && min_ns <= max_ns, &path, || {
                format!("found {min_ns} to {max_ns} ns, allowed is from > 0 to as much or more")
            })?;
            let is_possible = |of: &SessionsRecording| of.clients > 0 && of.first <= self.first;
            require(recorded.as_ref().is_none_or(is_possible), &path, || {
                "needed are recorded clients, the first of them not after the first client".into()
            })?;
        }
        if let Some(Flapping { min_ns, max_ns, .. }) = self.flapping {
            let path = format!("{path}.flapping");
            require(0 < min_ns && min_ns <= max_ns, &path, || {
                format!("found {min_ns} to {max_ns} ns, allowed is from > 0 to as much or more")
            })?;
            let can_flap = self.capabilities().flaps && !self.subscriptions.is_empty();
            require(can_flap, &path, || {
                "allowed are clients with subscriptions whose protocol ends a subscription".into()
            })?;
        }
        for (s, subscription) in self.subscriptions.iter().enumerate() {
            self.check_qos(subscription.qos, &format!("{path}.subscriptions[{s}]"))?;
        }
        for (p, publication) in self.publications.iter().enumerate() {
            let path = format!("{path}.publications[{p}]");
            self.check_qos(publication.qos, &path)?;
            self.check_publication(publication, &path)?;
            publication.check_weights(&path)?;
            require(publication.window > 0, &format!("{path}.window"), || "must be > 0".into())?;
            if let Pace::Open { period_ns, spread, jitter, phase, arrivals, .. } = publication.pace
            {
                require(period_ns > 0, &format!("{path}.pace.period_ns"), || "must be > 0".into())?;
                require((0.0..1.0).contains(&spread), &format!("{path}.pace.spread"), || {
                    format!("found {spread}, allowed is 0 to below 1")
                })?;
                require((0.0..=1.0).contains(&jitter), &format!("{path}.pace.jitter"), || {
                    format!("found {jitter}, allowed is 0 to 1")
                })?;
                let is_plain = jitter == 0.0 && phase == Phase::Spread;
                let possible = arrivals == Process::Even || is_plain;
                require(possible, &format!("{path}.pace"), || {
                    "found jitter or a phase with Poisson arrivals, allowed is neither".into()
                })?;
            }
        }
        Ok(())
    }
}

impl Publication {
    /// Longest payload that MQTT allows, with room for the other fields [MQTT-2.2.3].
    pub(crate) const PAYLOAD_BYTES_MAX: u64 = 256_000_000;

    /// Checks that each value of the topic has a weight, or none has.
    fn check_weights(&self, path: &str) -> Result<(), PlanError> {
        let (weights, variants) = (&self.weights, self.topic.variants());
        let round = weights.iter().copied().map(u64::from).sum::<u64>();
        let fits = weights.len() == variants as usize && !weights.contains(&0);
        let fits = fits && round <= u64::from(ROUND_MAX) && self.order == Order::Turn;
        require(weights.is_empty() || fits, &format!("{path}.weights"), || {
            format!(
                "found {} weights with a sum of {round} for {variants} values, allowed is one from \
                 1 on for each, up to {ROUND_MAX} in all, with the order turn",
                weights.len()
            )
        })
    }

    pub(crate) fn check_sizes(&self, path: &str) -> Result<(), PlanError> {
        let payload = match &self.payload {
            Payload::Fixed { bytes } => u64::from(*bytes),
            Payload::Gaussian { mean_bytes, sd_bytes } => {
                u64::from(*mean_bytes) + 4 * u64::from(*sd_bytes)
            }
            Payload::Histogram { bins } => {
                let starts = once(0).chain(bins.iter().map(|bin| bin.end));
                let rises = !bins.is_empty() && bins.iter().zip(starts).all(|(b, s)| s < b.end);
                require(rises, &format!("{path}.payload.bins"), || {
                    "needed are bins whose ends rise from above 0 on".into()
                })?;
                bins.iter().map(|bin| u64::from(bin.bytes)).max().unwrap_or(0)
            }
            Payload::Records { records, stamped, .. } => {
                (records.bytes_max() + if *stamped { STAMP_BYTES } else { 0 }) as u64
            }
            Payload::Text { template, .. } => template.bytes_max() as u64,
            Payload::Sparkplug { max_bytes, .. } => u64::from(*max_bytes),
            Payload::Recorded(recording) => u64::from(recording.max_bytes),
        };
        require(payload <= Self::PAYLOAD_BYTES_MAX, &format!("{path}.payload"), || {
            format!("found up to {payload} bytes, allowed are {}", Self::PAYLOAD_BYTES_MAX)
        })
    }
}

fn check_targets(first: usize, count: usize, targets: usize, path: &str) -> Result<(), PlanError> {
    require(count > 0, &format!("{path}.count"), || "must be > 0".into())?;
    let within = first.checked_add(count).is_some_and(|end| end <= targets);
    require(within, path, || {
        format!("found {count} targets from {first} on, allowed are indices below {targets}")
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::fan_out;
    use crate::model::flows::Order;
    use crate::model::{ChangeAction, Direction, Route};
    use crate::text::template::Template;

    pub(crate) fn publication(topic: &str, payload: Payload) -> Publication {
        let topic = Template::new(topic).unwrap();
        Publication {
            topic,
            order: Order::Turn,
            weights: Vec::new(),
            qos: 0,
            retain: false,
            pace: Pace::Closed,
            window: 1,
            payload,
            properties: Vec::new(),
            topic_alias: false,
            request: false,
        }
    }

    #[test]
    fn changes_outside_their_stage_are_refused() {
        let change = |population, after_ns, action| {
            Change { name: "c".into(), after_ns, population, action }
                .check("c", 100, 2)
                .map_err(|error| error.to_string())
        };
        let add = ChangeAction::Add { clients: 5, over_ns: 40 };
        assert_eq!(change(1, 60, add), Ok(()));
        assert_eq!(
            change(2, 60, add).unwrap_err(),
            "c.population: found 2, allowed are indices below 2"
        );
        assert_eq!(
            change(1, 61, add).unwrap_err(),
            "c: found a change until 101 ns, allowed is the stage's 100 ns"
        );
        for factor in [-1.0, f64::NAN, f64::INFINITY, 2e6] {
            let wrong = change(0, 0, ChangeAction::Rate { factor }).unwrap_err();
            assert_eq!(wrong, "c.action.factor: allowed is 0 to 1000000");
        }
    }

    #[test]
    fn connect_stages_for_more_clients_than_there_are_are_refused() {
        let population = |name: &str, clients| Population {
            name: name.into(),
            ..fan_out::tests::population(clients, 0, &[])
        };
        let populations = [population("a", 5), population("b", 7)];
        let check = |clients: &[u32]| {
            let clients = Some(clients.to_vec());
            let action =
                Action::Connect { rate_per_s: None, parallelism: None, timeout_ns: 1, clients };
            let stage = PlannedStage { name: "s".into(), action, populations: vec![1, 0] };
            stage.check("s.action", &populations).err().map(|error| error.to_string())
        };
        assert_eq!(check(&[7, 0]), None);
        let found = check(&[7]).unwrap();
        assert!(found.starts_with("s.action.clients: found 1 numbers"), "{found}");
        let found = check(&[5, 6]).unwrap();
        assert_eq!(found, "s.action.clients: found 6 of a, allowed are up to 5");
    }

    #[test]
    fn more_populations_and_publications_than_their_indices_can_name_are_refused() {
        let most = usize::from(u16::MAX);
        let publication = publication("t", Payload::Fixed { bytes: 1 });
        for (populations, publications, wrong) in [
            (2, most / 4, None),
            (2, most / 4 + 1, Some("publications: found 32768, allowed are 32767")),
            (most, 0, None),
            (most + 1, 0, Some("populations: found 65536, allowed are 65535")),
        ] {
            let population = Population {
                publications: vec![publication.clone(); publications],
                ..fan_out::tests::population(1, 0, &[])
            };
            let plan = fan_out::tests::plan(vec![population; populations], 1, true);
            let found = plan.check().err().map(|error| error.to_string());
            assert_eq!(found.as_deref(), wrong);
        }
    }

    #[test]
    fn lives_that_cannot_be_drawn_are_refused() {
        for (min_ns, max_ns, allowed) in [(1, 1, true), (1, 9, true), (0, 9, false), (9, 8, false)]
        {
            let (offline_ns, recorded) = (None, None);
            let lifetime = Some(Lifetime { min_ns, max_ns, offline_ns, recorded });
            let population = Population { lifetime, ..fan_out::tests::population(1, 0, &[]) };
            assert_eq!(population.check("p", 1).is_ok(), allowed, "{min_ns} to {max_ns}");
        }
    }

    #[test]
    fn flapping_that_cannot_be_drawn_or_has_no_filters_is_refused() {
        for (min_ns, max_ns, filters, allowed) in [
            (1, 1, &["a"][..], true),
            (1, 9, &["a"], true),
            (0, 9, &["a"], false),
            (9, 8, &["a"], false),
            (1, 9, &[], false),
        ] {
            let flapping = Some(Flapping { min_ns, max_ns, unsubscribed_ns: 0 });
            let population = Population { flapping, ..fan_out::tests::population(1, 0, filters) };
            let is_allowed = population.check("p", 1).is_ok();
            assert_eq!(is_allowed, allowed, "{min_ns} to {max_ns}, {filters:?}");
        }
    }

    #[test]
    fn texts_and_payloads_that_mqtt_cannot_write_are_refused() {
        let plain = publication("a/{n}", Payload::Fixed { bytes: 1 });
        let long = Template::new(&"{n}".repeat(4000)).unwrap();
        let whole = Population {
            publications: vec![plain.clone()],
            ..fan_out::tests::population(1, 0, &[])
        };
        assert!(whole.check("p", 1).is_ok());
        let topic = Publication { topic: long.clone(), ..plain };
        let topic = Population { publications: vec![topic], ..whole.clone() };
        let username = Population { username: Some(long), ..whole };
        for (population, path) in [(topic, "p.publications[0].topic"), (username, "p.username")] {
            let found = population.check("p", 1).unwrap_err().to_string();
            assert_eq!(found, format!("{path}: found up to 80000 bytes, allowed are 65535"));
        }
        let wide = Payload::Gaussian { mean_bytes: 200_000_000, sd_bytes: 20_000_000 };
        let wide = publication("a", wide).check_sizes("p").unwrap_err();
        assert!(wide.to_string().starts_with("p.payload: found up to 280000000 bytes"), "{wide}");
    }

    #[test]
    fn targets_that_are_not_there_are_refused() {
        for (first, count, wrong) in [
            (0, 3, None),
            (2, 1, None),
            (1, 0, Some("at.count: must be > 0")),
            (1, 3, Some("at: found 3 targets from 1 on, allowed are indices below 3")),
            (
                usize::MAX,
                2,
                Some(
                    "at: found 2 targets from 18446744073709551615 on, allowed are indices below 3",
                ),
            ),
        ] {
            let found = check_targets(first, count, 3, "at").map_err(|error| error.to_string());
            assert_eq!(found.err().as_deref(), wrong);
        }
    }

    #[test]
    fn bridges_that_cannot_be_followed_are_refused() {
        let check = |main, filter, local_prefix, remote_prefix| {
            let template = |source| Template::new(source).unwrap();
            let route = Route {
                filter: template(filter),
                direction: Direction::Both,
                local_prefix: template(local_prefix),
                remote_prefix: template(remote_prefix),
            };
            let bridges = Bridges { main, first: 1, count: 4, routes: vec![route] };
            bridges.check("b", 6).err().map(|error| error.to_string())
        };
        assert_eq!(check(0, "up/{n}/#", "", "box/{n}/"), None);
        for (main, filter, local, remote, wrong) in [
            (6, "#", "", "", "b.main: found 6, allowed are indices below 6"),
            (3, "#", "", "", "b.main: found 3, which is one of the small brokers"),
            (0, "#", "{1..3}/", "", "b.routes[0].local_prefix: found '{1..3}/', allowed is"),
            (0, "#", "", "+/", "b.routes[0].remote_prefix: found '+/', allowed is"),
            (0, "{n}/#", "", "{n}", "b.routes[0].remote_prefix: found two variables in the level"),
        ] {
            let found = check(main, filter, local, remote).unwrap();
            assert!(found.starts_with(wrong), "{found}");
        }
    }
}
