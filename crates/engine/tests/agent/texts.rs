//! Texts with values of rows, chance and stamps.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use plan::Reason;
use serde_json::{Value, json};
use testkit::{Fate, Script};

use super::{connect, publish, received_all};
use crate::support::{Agent, Scripted, plan, population, publication};

/// A temporary file of one test, removed on drop.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("{}-{name}.csv", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn rows(&self, repeat: bool) -> Value {
        json!({"file": self.0, "first": 10, "repeat": repeat})
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn text(topic: &str, template: &str) -> Value {
    let mut publication = publication(topic, 1, 10);
    publication["payload"] = json!({"kind": "text", "template": template, "is_json": true});
    publication
}

const DEVICES: &str = "\u{feff}serial,site,note\ns-1,north,plain\ns-2,south,\"a \"\"b\"\", c\"\n\
                       \ns-3,north,line\n";
const JSON: &str = "{{\"id\":\"{row.serial}\",\"note\":\"{row.note}\",\"v\":{1..3},\"k\":{seq},\
                    \"t\":{random 20.0..30.0},\"c\":\"{red|green}\",\"at\":{time},\
                    \"stamp\":\"{stamp}\"}}";

#[test]
fn json_with_rows_and_a_stamp_is_valid_and_followed() {
    let file = File::new("followed", DEVICES);
    let broker = Scripted::start(Script::reliable);
    let devices = json!({
        "first": 10, "rows": file.rows(true), "protocol": {"client_id": "{row.serial}-{n}"},
        "publications": [text("up/{row.serial}/{1..3}", JSON)],
        "subscriptions": [{"filter": "up/{row.serial}/#", "qos": 1}],
    });
    let populations = [
        population("device", 7, devices),
        population("all", 1, json!({"subscriptions": [{"filter": "up/+/+", "qos": 1}]})),
    ];
    let stages = [connect(&[0, 1]), publish(&[0], 300)];
    let since_ms = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let begin_ms = since_ms();
    let mut agent = Agent::start(&plan(broker.port, &populations, &stages), "0/1");
    agent.stage(0);
    agent.stage_until(1, |snapshot, totals| snapshot.settled && received_all(totals));
    let totals = agent.stop();
    assert_eq!(totals.populations[0].0.sent_total, 210);
    // Numbers 10 to 16 have the rows 1, 2, 3, 1, 2, 3, 1: all clients of a serial receive its
    // messages.
    let deliveries = 30 * (3 * 3 + 2 * 2 + 2 * 2);
    for (to, received) in [(0, deliveries), (1, 210)] {
        let flow = totals.flow(0, to);
        assert_eq!((flow.expected_total, flow.received_total), (received, received), "{to}");
        assert_eq!((flow.duplicate_total, flow.reordered_total, flow.missing_total), (0, 0, 0));
    }
    let messages = broker.order(|server| server.broker.accepted().to_vec());
    let mut numbers: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for message in &messages {
        let said: Value = serde_json::from_slice(&message.payload).unwrap();
        let serial = said["id"].as_str().unwrap();
        assert_eq!(message.topic, format!("up/{serial}/{}", said["v"]));
        let notes = BTreeMap::from([("s-1", "plain"), ("s-2", "a \"b\", c"), ("s-3", "line")]);
        assert_eq!(said["note"], notes[serial]);
        assert!((20.0..=30.0).contains(&said["t"].as_f64().unwrap()), "{said}");
        assert!(["red", "green"].contains(&said["c"].as_str().unwrap()), "{said}");
        assert!((begin_ms - 1000..=since_ms()).contains(&said["at"].as_u64().unwrap()), "{said}");
        numbers.entry(serial.to_owned()).or_default().push(said["k"].as_u64().unwrap());
    }
    for (serial, mut numbers) in numbers {
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers, (0..30).collect::<Vec<u64>>(), "{serial}");
    }
}

#[test]
fn a_message_that_is_sent_again_has_the_same_bytes() {
    let broker = Scripted::start(|| Script::with_fates(|_| Fate::Drop));
    let template = "{hex 20} {random 1..1000000} {a|b|c|d} {time} {seq} {stamp}";
    let fields =
        json!({"protocol": {"clean_session": false}, "publications": [text("t", template)]});
    let stages = [connect(&[0]), publish(&[0], 200)];
    let plan = plan(broker.port, &[population("p", 1, fields)], &stages);
    let mut agent = Agent::start(&plan, "0/1");
    agent.stage(0);
    agent.stage_until(1, |s, _| s.settled && s.populations[0].gauges.in_flight == 20);
    broker.order(|server| {
        server.broker.set_script(Script::reliable());
        server.cut_all();
    });
    agent.read_until(|snapshot, _| snapshot.populations[0].gauges.in_flight == 0);
    let totals = agent.stop();
    assert_eq!(totals.populations[0].1.get(&Reason::ClosedByBroker), Some(&1));
    let messages = broker.order(|server| server.broker.accepted().to_vec());
    let payloads: Vec<&[u8]> = messages.iter().map(|message| &*message.payload).collect();
    assert_eq!(payloads.len(), 40);
    assert_eq!(payloads[..20], payloads[20..]);
    assert!(payloads[..20].windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn rows_that_do_not_do_are_named() {
    let file = File::new("named", DEVICES);
    let ragged = File::new("ragged", "serial\na\nb,c\n");
    let empty = File::new("empty", "serial\n");
    let missing = json!({"file": "/nowhere/devices.csv", "first": 10, "repeat": false});
    let cases = [
        (3, file.rows(false), "{row.serial}", None),
        (4, file.rows(false), "{row.serial}", Some("found 3 rows for clients with numbers up to")),
        (3, file.rows(false), "{row.colour}", Some("found no column colour")),
        (3, file.rows(false), "{row.note}/{n}", None),
        (3, ragged.rows(true), "{row.serial}", Some("CSV error: record 2")),
        (1, empty.rows(true), "{row.serial}", Some("found 0 rows")),
        (1, missing, "{row.serial}", Some("/nowhere/devices.csv: No such file")),
        (
            1,
            Value::Null,
            "{row.serial}",
            Some("populations[0].protocol.client_id: found '{row.serial}'"),
        ),
        (
            1,
            Value::Null,
            "{seq}",
            Some("populations[0].protocol.client_id: found '{seq}', allowed in"),
        ),
    ];
    for (clients, rows, client_id, wrong) in cases {
        let fields = json!({"first": 10, "rows": rows, "protocol": {"client_id": client_id}});
        let plan = plan(1, &[population("p", clients, fields)], &[]);
        let (output, status) = Agent::output(&format!("{plan}\n"), "0/1");
        assert_eq!(status.success(), wrong.is_none(), "{output}");
        assert!(wrong.is_none_or(|wrong| output.contains(wrong)), "{output}");
    }
}
