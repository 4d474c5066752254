//! A recording with sessions in virtual time: instants, topics and sizes are those of its files.

use plan::{Lifetime, Payload, Recording, SessionsRecording};

use crate::course::played;
use crate::totals::Totals;
use crate::weather::{MS, S, Weather};
use testkit::plans::{self, publication, subscription, template};

const MESSAGES: &str = "after_ns,client,topic,bytes,qos,retain
200000000,0,t/{n},40,1,false
600000000,1,t/{n},50,1,false
1400000000,1,u,60,1,false
2500000000,0,t/{n},70,1,false
";
const SESSIONS: &str = "client,from_ns,until_ns
0,0,1000000000
1,500000000,1500000001
0,2000000000,
";

#[test]
fn recorded_sessions_begin_and_end_at_their_instants_and_lose_no_message() {
    let folder = std::env::temp_dir().join(format!("pubstorm-replay-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let [messages, sessions] = ["messages.csv", "sessions.csv"].map(|name| folder.join(name));
    std::fs::write(&messages, MESSAGES).unwrap();
    std::fs::write(&sessions, SESSIONS).unwrap();
    let recording = serde_json::json!({
        "file": messages, "first": 0, "clients": 2, "mean_bytes": 55, "max_bytes": 70,
        "shift_ns": 100 * MS,
    });
    let recording: Recording = serde_json::from_value(recording).unwrap();
    let mut devices = plans::population("device", 4);
    let topic = template("{recorded}");
    let payload = Payload::Recorded(recording);
    devices.publications = vec![plan::Publication { topic, payload, ..publication("t", 1, S) }];
    devices.lifetime = Some(Lifetime {
        min_ns: S,
        max_ns: S,
        offline_ns: Some(S),
        recorded: Some(SessionsRecording {
            file: sessions.display().to_string(),
            first: 0,
            clients: 2,
            shift_ns: 100 * MS,
            sessions: plan::ReadOnce::default(),
        }),
    });
    let mut reader = plans::population("reader", 1);
    reader.subscriptions = vec![subscription("#", 1)];
    let run = played(vec![devices, reader], 4 * S, Weather::fair());
    std::fs::remove_dir_all(&folder).unwrap();
    let totals = Totals::of(&run);
    let counters = &totals.counters[0];
    assert_eq!((counters.sent_total, counters.skipped_total), (8, 0));
    // Two sessions of client 0 and of its clone, one of client 1 and of its clone.
    assert_eq!((counters.connected_total, counters.left_total), (6, 4));
    assert_eq!(totals.flow(0, 1).received_total, 8);
    let network = run.network();
    let mut topics: Vec<(&str, usize)> = network
        .peer
        .broker
        .accepted()
        .iter()
        .map(|message| (message.topic.as_str(), message.payload.len()))
        .collect();
    topics.sort_unstable();
    assert_eq!(topics[..3], [("t/0", 40), ("t/0", 70), ("t/1", 50)]);
    assert_eq!(topics[3..], [("t/2", 40), ("t/2", 70), ("t/3", 50), ("u", 60), ("u", 60)]);
    assert_eq!(totals.latency.count(), 8);
}
