//! Compares the crate with the files in `contract/golden`. The tests in `tests/contract` compare
//! the Python code with the same files.

use std::path::Path;
use std::sync::Arc;

use plan::{
    Attachment, Beat, Bye, Column, Columns, Command, Delays, Failure, Hello, Histogram,
    MessageFacts, Names, OfferedLoad, Pacer, Payload, Place, Plan, Played, Publication,
    RecordedBuilder, RecordedRow, ReferenceHello, Rows, STAMP_BYTES, SentAt, Shard, Snapshot,
    Stamp, Template, Variants, WaitCause,
};
use serde::Deserialize;
use serde_json::Value;

fn golden(file: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contract/golden");
    let text = std::fs::read_to_string(folder.join(file)).expect("the golden file exists");
    serde_json::from_str(&text).expect("a golden file is JSON")
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().expect("the value is a list")
}

fn unsigned(value: &Value) -> u64 {
    value.as_u64().expect("the value is an unsigned integer")
}

fn small(value: &Value) -> u32 {
    unsigned(value).try_into().expect("the value has 32 bits")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("the value is a text")
}

#[test]
fn durations_lie_in_the_agreed_buckets() {
    for case in list(&golden("histogram.json"), "buckets") {
        let index = Histogram::index(unsigned(&case["ns"]));
        assert_eq!(index as u64, unsigned(&case["index"]), "{case}");
        assert_eq!(Histogram::upper_ns(index), unsigned(&case["upper_ns"]), "{case}");
    }
}

#[test]
fn histograms_are_stored_summed_and_read_as_agreed() {
    let golden = golden("histogram.json");
    let mut sum = Histogram::default();
    for case in list(&golden, "histograms") {
        let mut histogram = Histogram::default();
        for duration in list(case, "durations_ns") {
            histogram.record(duration.as_i64().expect("a duration is a signed integer"));
        }
        assert_eq!(serde_json::to_value(&histogram).unwrap(), case["stored"]);
        let stored: Histogram = serde_json::from_value(case["stored"].clone()).unwrap();
        assert_eq!(stored, histogram);
        for pair in list(case, "quantiles") {
            let quantile = pair[0].as_f64().expect("a quantile is a number");
            assert_eq!(histogram.quantile_ns(quantile), unsigned(&pair[1]), "{quantile} of {case}");
        }
        sum.add(&histogram);
    }
    assert_eq!(serde_json::to_value(&sum).unwrap(), golden["sum"]);
}

#[test]
fn delays_are_recorded_and_stored_as_agreed() {
    for case in list(&golden("histogram.json"), "delays") {
        let mut delays = Delays::default();
        let intended_ns = 1_000;
        for message in list(case, "messages") {
            let actual_ns = intended_ns + unsigned(&message["lateness_ns"]);
            let wait = match message.get("wait").map(text) {
                Some("window") => Some(WaitCause::Window),
                Some("socket") => Some(WaitCause::Socket),
                Some("connection") => Some(WaitCause::Connection),
                _ => None,
            };
            let sent = wait.map_or(SentAt::plain(actual_ns), |wait| {
                let until_ns = intended_ns + unsigned(&message["waited_ns"]);
                SentAt::after(wait, actual_ns, intended_ns, until_ns)
            });
            delays.record(unsigned(&message["latency_ns"]).cast_signed(), intended_ns, sent);
        }
        assert_eq!(serde_json::to_value(&delays).unwrap(), case["stored"]);
    }
}

/// Paths of the numbers with this end of their names, in any depth.
fn named(value: &Value, end: &str) -> Vec<String> {
    let under = |(key, inner): (String, &Value)| {
        let own = key.ends_with(end) && inner.is_number();
        let deeper = named(inner, end).into_iter().map(|path| format!("/{key}{path}"));
        own.then(|| format!("/{key}")).into_iter().chain(deeper).collect::<Vec<_>>()
    };
    match value {
        Value::Object(fields) => {
            fields.iter().map(|(k, v)| (k.clone(), v)).flat_map(under).collect()
        }
        Value::Array(items) => {
            items.iter().enumerate().map(|(n, v)| (n.to_string(), v)).flat_map(under).collect()
        }
        _ => Vec::new(),
    }
}

/// The plan, in which a publication plays the agreed recording.
fn with_recording(mut plan: Value) -> Value {
    let backend = &mut plan["populations"][1];
    let publication = &mut backend["publications"][0];
    publication["topic"] = "{recorded}".into();
    publication["payload"] = golden("recorded.json")["payload"].clone();
    backend["first"] = 5.into();
    assert!(Plan::from_json(&plan.to_string()).is_ok());
    plan
}

#[test]
fn every_duration_number_and_rate_of_a_plan_has_bounds() {
    let agreed = with_recording(golden("plan.json"));
    let beyond = serde_json::json!((1u64 << 62) + 1);
    let rates = [serde_json::json!(9e-8), serde_json::json!(1.1e9), serde_json::json!(-1.0)];
    let bits = [serde_json::json!(7_999), serde_json::json!(100_000_000_001_u64)];
    let mut names = std::collections::BTreeSet::new();
    for (end, wrong) in [
        ("_ns", std::slice::from_ref(&beyond)),
        ("first", std::slice::from_ref(&beyond)),
        ("_per_s", &rates),
        ("bits_per_s", &bits),
    ] {
        let is_here = |path: &&String| {
            let is_bits = path.ends_with("bits_per_s");
            !path.contains("/at/") && is_bits == (end == "bits_per_s")
        };
        for path in named(&agreed, end).iter().filter(is_here) {
            names.insert(path.rsplit('/').next().unwrap_or_default().to_owned());
            for wrong in wrong {
                let mut plan = agreed.clone();
                *plan.pointer_mut(path).expect("the path is of this plan") = wrong.clone();
                let error = Plan::from_json(&plan.to_string()).expect_err(path).to_string();
                assert!(error.contains(", allowed are "), "{path}: {error}");
            }
        }
    }
    let schema = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contract/plan.schema.json"),
    );
    let schema = schema.expect("the schema exists");
    let known = schema.split('"').filter(|word| word.ends_with("_ns") || word.ends_with("_per_s"));
    let missing: Vec<&str> = known.filter(|&word| !names.contains(word)).collect();
    assert_eq!(missing, Vec::<&str>::new(), "the agreed plan has each of them");
}

#[test]
fn the_agreed_plan_offers_the_agreed_load() {
    let plan = Plan::from_json(&golden("plan.json").to_string()).unwrap();
    let agreed = golden("offered_load.json");
    let read: OfferedLoad = serde_json::from_value(agreed.clone()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), agreed);
    // Read again, since the last digit of a number may change when it is read.
    let line = serde_json::to_string(&OfferedLoad::of(&plan)).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), agreed);
}

#[test]
fn shards_hold_the_agreed_clients() {
    for case in list(&golden("shard.json"), "cases") {
        let (total, count) = (small(&case["total"]), small(&case["count"]));
        for (index, clients) in list(case, "clients").iter().enumerate() {
            let shard = Shard::new(index as u32, count).expect("the index is below the count");
            let ours: Vec<u32> = (0..shard.share(total)).map(|c| shard.global(c)).collect();
            let agreed: Vec<u32> = clients.as_array().unwrap().iter().map(small).collect();
            assert_eq!(ours, agreed, "shard {shard} of {total} clients");
        }
    }
}

#[test]
fn templates_are_rendered_and_refused_as_agreed() {
    let golden = golden("template.json");
    for case in list(&golden, "rendered") {
        let template = Template::new(text(&case["template"])).unwrap();
        let rendered = template.text(unsigned(&case["n"]), small(&case["variant"]));
        assert_eq!(rendered, text(&case["text"]), "{case}");
    }
    for source in list(&golden, "refused") {
        assert!(Template::new(text(source)).is_err(), "{source}");
    }
    for (key, place) in [
        ("filters_refused", Place::Filter(Names::Topics)),
        ("topics_refused", Place::Topic(Names::Topics)),
        ("client_texts_refused", Place::Client),
    ] {
        for source in list(&golden, key) {
            assert!(Template::new(text(source)).unwrap().check(place).is_err(), "{source}");
        }
    }
}

#[test]
fn rows_are_rendered_as_agreed() {
    for file in list(&golden("template.json"), "rows") {
        let rows: Rows = serde_json::from_value(file["rows"].clone()).unwrap();
        let mut column = Column::new(&rows);
        list(file, "values").iter().for_each(|value| column.push(text(value)));
        let columns = Columns::from([(text(&file["column"]).to_owned(), Arc::new(column))]);
        for case in list(file, "rendered") {
            let template = Template::new(text(&case["template"])).unwrap();
            template.bind(&columns).unwrap();
            assert_eq!(template.text(unsigned(&case["n"]), 0), text(&case["text"]), "{case}");
        }
    }
}

#[test]
fn payloads_are_rendered_as_agreed() {
    for case in list(&golden("template.json"), "messages") {
        let (n, number) = (unsigned(&case["n"]), small(&case["number"]));
        let (client, publication) = (small(&case["client"]), unsigned(&case["publication"]));
        let stream = MessageFacts::stream(unsigned(&case["seed"]), publication as usize);
        let facts = MessageFacts {
            number,
            topic_variants: small(&case["topic_variants"]),
            chance: stream.of(u64::from(client)).of(u64::from(number)),
            time_ms: unsigned(&case["time_ms"]),
            stamp: stamp(&case["stamp"]),
        };
        let (template, mut out) = (Template::new(text(&case["template"])).unwrap(), Vec::new());
        template.render_message(n, small(&case["variant"]), &facts, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), text(&case["text"]), "{case}");
    }
}

/// Reads the stamp of these 32 bytes in hexadecimal.
fn stamp(hex: &Value) -> Stamp {
    let byte = |at: usize| {
        u8::from_str_radix(&text(hex)[2 * at..2 * at + 2], 16).expect("it is hexadecimal")
    };
    let bytes: Vec<u8> = (0..STAMP_BYTES).map(byte).collect();
    Stamp::read(&bytes).expect("a stamp has 32 bytes")
}

#[test]
fn messages_are_scheduled_at_the_agreed_instants() {
    for case in list(&golden("pacer.json"), "cases") {
        let pace = serde_json::from_value(case["pace"].clone()).unwrap();
        let pacer = Pacer::new(&pace, unsigned(&case["seed"]), unsigned(&case["purpose"]));
        let pacer = pacer.expect("the pace is open");
        for due in list(case, "due") {
            let (client, k) = (small(&due["client"]), unsigned(&due["k"]));
            assert_eq!(pacer.due_ns(client, k), unsigned(&due["due_ns"]), "{due} of {case}");
        }
    }
}

#[test]
fn clients_are_at_the_agreed_targets() {
    for case in list(&golden("attachment.json"), "cases") {
        let at: Attachment = serde_json::from_value(case["at"].clone()).unwrap();
        let population = unsigned(&case["population"]) as usize;
        for (client, target) in list(case, "targets").iter().enumerate() {
            let found = at.target(unsigned(&case["seed"]), population, client as u32);
            assert_eq!(found as u64, unsigned(target), "client {client} of {case}");
        }
    }
}

#[test]
fn topics_have_the_agreed_order() {
    for case in list(&golden("order.json"), "cases") {
        let publication: Publication = serde_json::from_value(case["publication"].clone()).unwrap();
        let (seed, index) = (unsigned(&case["seed"]), unsigned(&case["index"]) as usize);
        let variants = Variants::new(&publication, seed, index);
        let client = small(&case["client"]);
        for (number, variant) in list(case, "variants").iter().enumerate() {
            let found = variants.of(client, number as u64);
            assert_eq!(found, small(variant), "message {number} of {case}");
        }
    }
}

#[test]
fn a_plan_with_everything_is_read_and_written_unchanged() {
    let golden = golden("plan.json");
    let plan = Plan::from_json(&golden.to_string()).unwrap();
    assert_eq!(serde_json::to_value(&plan).unwrap(), golden);
}

#[test]
fn numbers_of_messages_that_do_not_fit_are_refused() {
    let most = 1u64 << 62;
    for (wrong, words) in [
        (serde_json::json!([]), "found 0 numbers, allowed is one for each population: 1"),
        (serde_json::json!([1, 2]), "found 2 numbers, allowed is one for each population: 1"),
        (serde_json::json!([most + 1]), "allowed are 4611686018427387904"),
    ] {
        let mut plan = golden("plan.json");
        let stages = plan["stages"].as_array_mut().expect("a plan has stages");
        let counted = stages.iter_mut().find(|stage| !stage["action"]["messages"].is_null());
        counted.expect("one has a number of messages")["action"]["messages"] = wrong;
        let error = Plan::from_json(&plan.to_string()).expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_snapshot_is_read_and_written_unchanged() {
    let golden = golden("snapshot.json");
    let snapshot: Snapshot = serde_json::from_value(golden.clone()).unwrap();
    assert_eq!(serde_json::to_value(&snapshot).unwrap(), golden);
}

#[test]
fn commands_are_read_written_and_refused_as_agreed() {
    let golden = golden("control.json");
    for line in list(&golden, "commands") {
        let command: Command = serde_json::from_value(line.clone()).unwrap();
        assert_eq!(serde_json::to_value(command).unwrap(), *line);
    }
    for line in list(&golden, "commands_refused") {
        assert!(serde_json::from_value::<Command>(line.clone()).is_err(), "{line}");
    }
}

#[test]
fn the_line_of_the_reference_clock_is_written_as_agreed() {
    for line in list(&golden("control.json"), "reference_lines") {
        let hello: ReferenceHello = serde_json::from_value(line.clone()).unwrap();
        assert_eq!(serde_json::to_value(hello).unwrap(), *line);
    }
}

#[test]
fn agent_lines_are_written_as_agreed() {
    for line in list(&golden("control.json"), "agent_lines") {
        let line = line.clone();
        let written = match text(&line["kind"]) {
            "hello" => serde_json::from_value::<Hello>(line.clone()).map(serde_json::to_value),
            "beat" => serde_json::from_value::<Beat>(line.clone()).map(serde_json::to_value),
            "failure" => serde_json::from_value::<Failure>(line.clone()).map(serde_json::to_value),
            _ => serde_json::from_value::<Bye>(line.clone()).map(serde_json::to_value),
        };
        assert_eq!(written.unwrap().unwrap(), line);
    }
}

#[test]
fn recorded_messages_are_played_at_the_agreed_instants_with_the_agreed_topics_and_sizes() {
    let agreed = golden("recorded.json");
    let payload: Payload = serde_json::from_value(agreed["payload"].clone()).unwrap();
    assert_eq!(serde_json::to_value(&payload).unwrap(), agreed["payload"]);
    let Payload::Recorded(recording) = &payload else { panic!("the payload is recorded") };
    let played = Played {
        shard: Shard::WHOLE,
        first: unsigned(&agreed["first"]),
        clients: small(&agreed["clients"]),
    };
    let kind = (small(&agreed["qos"]) as u8, agreed["retain"] == true);
    let mut builder = RecordedBuilder::new(recording, kind, unsigned(&agreed["seed"]), &played);
    for row in list(&agreed, "rows") {
        builder.push(&RecordedRow::deserialize(row).unwrap()).unwrap();
    }
    let recorded = Arc::new(builder.build().unwrap());
    let topic = Template::new("{recorded}").unwrap();
    topic.bind_recorded(&recorded);
    for of_client in list(&agreed, "played") {
        let client = small(&of_client["client"]);
        let n = played.first + u64::from(client);
        let messages = list(of_client, "messages");
        assert_eq!(recorded.messages_of(client), messages.len() as u64);
        for (number, message) in messages.iter().enumerate() {
            let number = number as u64;
            let variant = recorded.variant(client, number);
            assert_eq!(recorded.due_ns(client, number), unsigned(&message["due_ns"]));
            assert_eq!(topic.text(n, variant), message["topic"].as_str().unwrap());
            assert_eq!(topic.rendered_bytes(n, variant), topic.text(n, variant).len());
            assert_eq!(recorded.bytes(client, number) as u64, unsigned(&message["bytes"]));
            assert_eq!(recorded.sequence(client, number), unsigned(&message["sequence"]));
        }
    }
}
