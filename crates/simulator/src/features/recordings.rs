//! Recorded messages and sessions in simulated runs: how a case draws them, and what reaches the
//! broker.

use std::sync::Arc;

use plan::{Action, Lifetime, Payload, Publication, Recording, SessionsRecording, Shard, Stamp};
use testkit::Rng;
use testkit::plans;

use crate::case::Case;
use crate::course::Run;
use crate::recorded::RecordedFiles;
use crate::totals::Totals;
use crate::weather::S;

/// Draws a population of MQTT that plays a recording, apart from the other draws.
pub fn draw(case: &mut Case, seed: u64) {
    let mut rng = Rng::new(seed ^ 0x4ec0_4d5e);
    let p = rng.below(case.plan.populations.len());
    let population = &case.plan.populations[p];
    let speaks_first =
        population.responds.is_some() || population.publications.iter().any(|each| each.request);
    let can = population.mqtt().is_some() && !population.publications.is_empty();
    if rng.chance(75) || !can || speaks_first || case.is_contested(p) {
        return;
    }
    let plays_sessions = population.flapping.is_none() && rng.chance(60);
    let clients = 1 + rng.below(population.clients as usize) as u32;
    let files = RecordedFiles::drawn(&mut rng, p, clients);
    let population = &mut case.plan.populations[p];
    let shift_ns = rng.pick(&[0, S / 5, S]);
    let first = population.first;
    let recording = serde_json::from_value(serde_json::json!({
        "file": files.messages, "first": first, "clients": clients, "mean_bytes": 100,
        "max_bytes": 1000, "shift_ns": shift_ns,
    }));
    let recording: Recording = recording.expect("it is one");
    population.publications = vec![publication(Payload::Recorded(recording), files.qos)];
    if plays_sessions {
        let file = files.sessions.display().to_string();
        let sessions = plan::ReadOnce::default();
        let recorded = Some(SessionsRecording { file, first, clients, shift_ns, sessions });
        let offline_ns = Some(S / 2);
        population.lifetime = Some(Lifetime { min_ns: S, max_ns: S, offline_ns, recorded });
    }
    for stage in &mut case.plan.stages {
        if let Action::Publish { messages, .. } = &mut stage.action {
            *messages = None;
        }
    }
    // The checks of all runs ask the plan for the schedule. Agents read the files again.
    agent::recordings::bind(&case.plan, Shard::WHOLE).expect("the files were written");
    case.files = Some(Arc::new(files));
}

fn publication(payload: Payload, qos: u8) -> Publication {
    Publication { payload, ..plans::publication("{recorded}", qos, S / 5) }
}

/// Each message at the broker has the topic and the size of the recorded message that it plays, by
/// its place in the stream of its topic. No client leaves more often than it was recorded.
pub fn check(run: &Run, totals: &Totals) {
    let Some(files) = run.case.files.as_ref() else { return };
    let plan = run.plan();
    let population = &plan.populations[files.population];
    let before = plan.populations[..files.population].iter();
    let index: usize = before.map(|each| each.publications.len()).sum();
    let recorded = files.rows.len() as u32;
    let network = run.network();
    for message in network.peer.broker.accepted() {
        let Some(stamp) = Stamp::read(&message.payload) else { continue };
        if stamp.run_tag != plan.run_tag || usize::from(stamp.stream.publication) != index {
            continue;
        }
        let client = stamp.stream.client;
        let n = (population.first + u64::from(client)).to_string();
        let own = &files.rows[(client % recorded) as usize];
        let topics = own.iter().map(|(topic, bytes)| (topic.replace("{n}", &n), *bytes));
        let sizes: Vec<u32> =
            topics.filter(|(topic, _)| *topic == message.topic).map(|(_, bytes)| bytes).collect();
        let what = format!("client {client}, {}, {}", message.topic, stamp.sequence);
        assert!(!sizes.is_empty(), "{what}: the client has no such topic");
        let bytes = sizes[stamp.sequence as usize % sizes.len()].max(plan::STAMP_BYTES as u32);
        assert_eq!(message.payload.len(), bytes as usize, "{what}");
    }
    let plays_sessions = population.lifetime.as_ref().is_some_and(|of| of.recorded.is_some());
    if plays_sessions {
        let publishes = |stage: &&plan::PlannedStage| {
            let is_part = stage.populations.contains(&files.population);
            is_part && matches!(stage.action, Action::Publish { .. })
        };
        let stages = plan.stages.iter().filter(publishes).count() as u64;
        let rounds = u64::from(population.clients.div_ceil(recorded));
        // A client that comes outside a session leaves at once: through a stage, or a change.
        let beyond = u64::from(population.clients) * (stages + run.case.changes.len() as u64 + 9);
        let left = totals.counters[files.population].left_total;
        assert!(left <= files.ends * rounds * stages + beyond, "{left} of {} ends", files.ends);
    }
}
