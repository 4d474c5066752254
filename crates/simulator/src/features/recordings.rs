//! Recorded messages and sessions in simulated runs: how a case draws them, and what reaches the
//! broker. Agents read recordings from files, so a case has some.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use plan::{Action, Lifetime, Payload, Publication, Recording, SessionsRecording, Shard, Stamp};
use testkit::Rng;
use testkit::plans;

use crate::case::Case;
use crate::course::Run;
use crate::totals::Totals;
use crate::weather::S;

/// Files of a case, removed with its last clone.
pub struct RecordedFiles {
    messages: PathBuf,
    sessions: PathBuf,
    /// Index of the population that plays them.
    population: usize,
    /// Topic and size of each message of each recorded client, in the order of time.
    rows: Vec<Vec<(String, u32)>>,
    /// QoS of all messages.
    qos: u8,
    /// Sessions that end.
    ends: u64,
}

impl Drop for RecordedFiles {
    fn drop(&mut self) {
        for path in [&self.messages, &self.sessions] {
            let _ = std::fs::remove_file(path);
        }
    }
}

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
    let files = recorded(&mut rng, p, clients);
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

/// Writes the files of a recording of some clients. Tests play at once, perhaps the same seed.
fn recorded(rng: &mut Rng, p: usize, clients: u32) -> RecordedFiles {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let (folder, process) = (std::env::temp_dir(), std::process::id());
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let name =
        |kind: &str| folder.join(format!("pubstorm-simulator-{process}-{number}-{kind}.csv"));
    let (mut rows, qos) = (Vec::new(), rng.below(3) as u8);
    for client in 0..clients {
        for _ in 0..1 + rng.below(12) {
            let after_ns = rng.bits() % (3 * S);
            let topic = rng.pick(&["0", "0/{n}", "0/{n}/1", "1/{n}", "1/fixed"]);
            rows.push((after_ns, client, format!("p{p}/{topic}"), rng.below(300) as u32));
        }
    }
    rows.sort();
    let mut messages = "after_ns,client,topic,bytes,qos,retain\n".to_owned();
    let mut of_client = vec![Vec::new(); clients as usize];
    for (after_ns, client, topic, bytes) in rows {
        let _ = writeln!(messages, "{after_ns},{client},{topic},{bytes},{qos},false");
        of_client[client as usize].push((topic, bytes));
    }
    let (mut sessions, mut ends) = ("client,from_ns,until_ns\n".to_owned(), 0);
    for client in 0..clients {
        let mut at_ns = if rng.chance(50) { 0 } else { rng.bits() % S };
        loop {
            let until_ns = at_ns + 1 + rng.bits() % S;
            if rng.chance(30) {
                let _ = writeln!(sessions, "{client},{at_ns},");
                break;
            }
            let _ = writeln!(sessions, "{client},{at_ns},{until_ns}");
            ends += 1;
            at_ns = until_ns + rng.pick(&[0, 1, S / 3]);
            if rng.chance(30) {
                break;
            }
        }
    }
    let (of_messages, of_sessions) = (name("messages"), name("sessions"));
    std::fs::write(&of_messages, messages).expect("the folder of temporary files takes one");
    std::fs::write(&of_sessions, sessions).expect("the folder of temporary files takes one");
    RecordedFiles {
        messages: of_messages,
        sessions: of_sessions,
        population: p,
        rows: of_client,
        qos,
        ends,
    }
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
