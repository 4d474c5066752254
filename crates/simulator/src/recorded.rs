//! Files of recorded messages and sessions, which a case has since agents read recordings from
//! files.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use testkit::Rng;

use crate::weather::S;

/// Files of a case, removed with its last clone.
pub struct RecordedFiles {
    pub messages: PathBuf,
    pub sessions: PathBuf,
    /// Index of the population that plays them.
    pub population: usize,
    /// Topic and size of each message of each recorded client, in the order of time.
    pub rows: Vec<Vec<(String, u32)>>,
    /// QoS of all messages.
    pub qos: u8,
    /// Sessions that end.
    pub ends: u64,
}

impl Drop for RecordedFiles {
    fn drop(&mut self) {
        for path in [&self.messages, &self.sessions] {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl RecordedFiles {
    /// Writes the files of a recording of some clients. Tests play at once, perhaps the same seed.
    pub fn drawn(rng: &mut Rng, p: usize, clients: u32) -> Self {
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
        Self {
            messages: of_messages,
            sessions: of_sessions,
            population: p,
            rows: of_client,
            qos,
            ends,
        }
    }
}
