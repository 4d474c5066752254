//! The real engine under TLS against a scripted broker that speaks OpenSSL.

#![expect(clippy::needless_pass_by_value, reason = "JSON values are written where they are used")]

mod options;

use std::io::{Read, Write};
use std::net::TcpListener;

use crate::support::{
    Agent, Authority, CLOSED_PORT, Folder, Issued, Scripted, Server, population, publication,
};
use openssl::ssl::{SslContext, SslContextBuilder, SslMethod, SslMode, SslVerifyMode, SslVersion};
use plan::Reason;
use serde_json::{Value, json};
use testkit::Script;

const VERSIONS: [&str; 2] = ["1.2", "1.3"];

/// TLS settings of a population; `fields` replaces default fields.
fn tls(fields: Value) -> Value {
    let mut tls = json!({
        "ca": null, "verify": true, "server_name": null, "certificate": null, "key": null,
        "psk": null, "min_version": "1.2", "max_version": "1.3", "ciphers": null,
    });
    let Value::Object(fields) = fields else { panic!("fields are an object") };
    tls.as_object_mut().unwrap().extend(fields);
    tls
}

/// A plan of one population under TLS: connects, and publishes for a time if the population has
/// publications.
fn plan(port: u16, population: Value) -> Value {
    let stages = [connect(), publish(200)];
    let mut plan = crate::support::plan(port, &[population], &stages);
    plan["targets"][0]["tls"] = json!(true);
    plan
}

fn connect() -> Value {
    let action = json!({"kind": "connect", "rate_per_s": null, "parallelism": 50, "timeout_ns": 1});
    json!({"name": "connect", "action": action, "populations": [0]})
}

fn publish(ms: u64) -> Value {
    let action = json!({"kind": "publish", "duration_ns": ms * 1_000_000, "changes": []});
    json!({"name": "publish", "action": action, "populations": [0]})
}

/// A server that may retry a write from another buffer, as the scripted broker does.
fn builder() -> SslContextBuilder {
    let mut builder = SslContext::builder(SslMethod::tls_server()).unwrap();
    builder.set_mode(SslMode::ENABLE_PARTIAL_WRITE | SslMode::ACCEPT_MOVING_WRITE_BUFFER);
    builder
}

/// A server with this certificate.
fn server(issued: &Issued) -> SslContextBuilder {
    let mut builder = builder();
    builder.set_certificate(&issued.certificate).unwrap();
    builder.set_private_key(&issued.key).unwrap();
    builder
}

/// A server with the key `0a0b` of `device-0`, `0c0d` of `device-1` and so on.
fn psk_server() -> SslContext {
    let mut builder = builder();
    builder.set_psk_server_callback(|_, identity, key| {
        let number = identity.and_then(|i| i.strip_prefix(b"device-")).map(|n| n[0] - b'0');
        let Some(number) = number.filter(|&n| n < 4) else { return Ok(0) };
        key[..16].copy_from_slice(&[number + 1; 16]);
        Ok(16)
    });
    builder.build()
}

fn psk_line(identity: &str, byte: u8) -> String {
    format!("{identity}:{}\n", format!("{byte:02x}").repeat(16))
}

fn lone(fields: Value, tls: Value) -> Value {
    let mut population = population("device", 4, json!({"reconnect": null, "tls": tls}));
    let Value::Object(fields) = fields else { panic!("fields are an object") };
    population.as_object_mut().unwrap().extend(fields);
    population
}

/// Result of one connection attempt of each client: number of connected clients, and problems of
/// the others.
fn outcome(port: u16, population: Value) -> (u64, Vec<(Reason, u64)>) {
    let mut agent = Agent::start(&plan(port, population), "0/1");
    agent.stage(0);
    agent.read_until(|_, totals| {
        let (counters, _) = &totals.populations[0];
        counters.connected_total + counters.connect_failed_total >= counters.connect_attempts_total
    });
    let (counters, outcomes) = agent.stop().populations[0].clone();
    (counters.connected_total, outcomes.into_iter().collect())
}

fn failure(population: Value) -> plan::Failure {
    let (output, status) = Agent::output(&format!("{}\n", plan(1, population)), "0/1");
    assert!(!status.success());
    serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}: {output}"))
}

#[test]
fn a_verified_broker_is_spoken_to_in_either_version() {
    let (folder, authority) = (Folder::new(), Authority::new("test"));
    let ca = folder.write("ca.crt", authority.0.certificate_pem());
    for name in ["127.0.0.1", "broker.test"] {
        for version in VERSIONS {
            let issued = authority.issue(name, (0, 1));
            let broker = Scripted::start_under(Some(server(&issued).build()), Script::reliable);
            let tls = tls(json!({
                "ca": ca, "min_version": version, "max_version": version,
                "server_name": if name == "broker.test" { json!(name) } else { json!(null) },
            }));
            assert_eq!(outcome(broker.port, lone(json!({}), tls)), (4, vec![]), "{version}");
        }
    }
}

#[test]
fn a_broker_that_cannot_be_trusted_is_left_with_its_reason() {
    let (folder, authority) = (Folder::new(), Authority::new("test"));
    let ca = folder.write("ca.crt", authority.0.certificate_pem());
    let other = Authority::new("other");
    let cases = [
        (other.issue("127.0.0.1", (0, 1)), Reason::CertificateUntrusted),
        (authority.issue("127.0.0.1", (-2, -1)), Reason::CertificateExpired),
        (authority.issue("127.0.0.1", (1, 2)), Reason::CertificateExpired),
        (authority.issue("127.0.0.2", (0, 1)), Reason::CertificateName),
        (authority.issue("broker.test", (0, 1)), Reason::CertificateName),
    ];
    for (issued, reason) in cases {
        for version in VERSIONS {
            let broker = Scripted::start_under(Some(server(&issued).build()), Script::reliable);
            let range = json!({"ca": ca, "min_version": version, "max_version": version});
            let population = lone(json!({}), tls(range));
            assert_eq!(outcome(broker.port, population), (0, vec![(reason, 4)]), "{version}");
            let blind = lone(json!({}), tls(json!({"verify": false, "min_version": version})));
            assert_eq!(outcome(broker.port, blind), (4, vec![]), "{reason:?} {version}");
        }
    }
}

#[test]
fn a_broker_that_wants_certificates_takes_those_it_trusts() {
    let (folder, authority) = (Folder::new(), Authority::new("test"));
    let ca = folder.write("ca.crt", authority.0.certificate_pem());
    let issued = authority.issue("127.0.0.1", (0, 1));
    for n in 0..4 {
        let client = authority.issue(&format!("device-{n}"), (0, 1));
        folder.write(&format!("{n}.crt"), client.certificate_pem());
        folder.write(&format!("{n}.key"), client.key_pem());
    }
    let stranger = Authority::new("other").issue("device-1", (0, 1));
    folder.write("bad.crt", [stranger.certificate_pem(), stranger.key_pem()].concat());
    let (each, shared, bad) = (
        (folder.path("{n}.crt"), folder.path("{n}.key")),
        (folder.path("0.crt"), folder.path("0.key")),
        folder.path("bad.crt"),
    );
    let cases = [
        (json!({"certificate": each.0, "key": each.1}), (4, vec![])),
        (json!({"certificate": shared.0, "key": shared.1}), (4, vec![])),
        (json!({"certificate": bad}), (0, vec![(Reason::TlsRefused, 4)])),
        (json!({}), (0, vec![(Reason::TlsRefused, 4)])),
    ];
    for version in VERSIONS {
        let mut builder = server(&issued);
        builder.set_verify(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT);
        builder.cert_store_mut().add_cert(authority.0.certificate.clone()).unwrap();
        let broker = Scripted::start_under(Some(builder.build()), Script::reliable);
        for (fields, expected) in &cases {
            let mut tls = tls(json!({"ca": ca, "min_version": version, "max_version": version}));
            tls.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            assert_eq!(&outcome(broker.port, lone(json!({}), tls)), expected, "{version} {fields}");
        }
    }
}

#[test]
fn a_certificate_that_breaks_after_the_start_is_counted() {
    let (folder, authority) = (Folder::new(), Authority::new("test"));
    for n in 0..4 {
        let client = authority.issue("device", (0, 1));
        let pem = if n == 2 { b"broken".to_vec() } else { client.certificate_pem() };
        folder.write(&format!("{n}.crt"), [pem, client.key_pem()].concat());
    }
    let issued = authority.issue("127.0.0.1", (0, 1));
    let broker = Scripted::start_under(Some(server(&issued).build()), Script::reliable);
    let tls = tls(json!({"verify": false, "certificate": folder.path("{n}.crt")}));
    let expected = (3, vec![(Reason::TlsFailed, 1)]);
    assert_eq!(outcome(broker.port, lone(json!({}), tls)), expected);
}

#[test]
fn pre_shared_keys_are_accepted_and_wrong_ones_refused_in_either_version() {
    let folder = Folder::new();
    let right = (0..4).map(|n| psk_line(&format!("device-{n}"), n + 1)).collect::<String>();
    let wrong = right.replace("0303", "0304");
    let stranger = right.replace("device-2", "device-9");
    let refused = (3, vec![(Reason::TlsRefused, 1)]);
    for version in VERSIONS {
        let broker = Scripted::start_under(Some(psk_server()), Script::reliable);
        let cases = [
            (&right, "device-{n}", (4, vec![])),
            (&wrong, "device-{n}", refused.clone()),
            (&stranger, "device-{n}", refused.clone()),
        ];
        for (text, identity, expected) in cases {
            let strange = text.contains("device-9");
            let text = if strange { text.replace("device-9", "device-2x") } else { text.clone() };
            let text = if strange { text + &psk_line("device-2", 9) } else { text };
            let psk = json!({"file": folder.write("keys.psk", text), "identity": identity});
            let range = json!({"psk": psk, "min_version": version, "max_version": version});
            let found = outcome(broker.port, lone(json!({}), tls(range)));
            assert_eq!(found, expected, "{version}");
        }
        let unknown = (4..8).map(|n| psk_line(&format!("device-{n}"), n + 1)).collect::<String>();
        let psk = json!({"file": folder.write("keys.psk", unknown), "identity": "device-{n}"});
        let range = json!({"psk": psk, "min_version": version, "max_version": version});
        let found = outcome(broker.port, lone(json!({"first": 4}), tls(range)));
        assert_eq!(found, (0, vec![(Reason::TlsRefused, 4)]), "{version}");
    }
}

#[test]
fn a_version_or_cipher_that_the_broker_does_not_have_is_refused() {
    let issued = Authority::new("test").issue("127.0.0.1", (0, 1));
    let mut builder = server(&issued);
    builder.set_max_proto_version(Some(SslVersion::TLS1_2)).unwrap();
    builder.set_cipher_list("ECDHE-ECDSA-AES256-GCM-SHA384").unwrap();
    let broker = Scripted::start_under(Some(builder.build()), Script::reliable);
    let cases = [
        json!({"min_version": "1.3"}),
        json!({"max_version": "1.2", "ciphers": "ECDHE-ECDSA-AES128-GCM-SHA256"}),
    ];
    for mut fields in cases {
        fields["verify"] = json!(false);
        let found = outcome(broker.port, lone(json!({}), tls(fields)));
        assert_eq!(found, (0, vec![(Reason::TlsRefused, 4)]));
    }
}

#[test]
fn a_broker_that_closes_or_talks_nonsense_in_the_handshake_is_counted() {
    // Nothing; the front of a record; an alert; another protocol.
    let cases: [(&'static [u8], Reason); 4] = [
        (b"", Reason::TlsRefused),
        (&[0x16, 3, 3, 0, 90, 2, 0, 0], Reason::TlsRefused),
        (&[0x15, 3, 3, 0, 2, 2, 40], Reason::TlsRefused),
        (b"SSH-2.0-OpenSSH_9.2\r\n", Reason::TlsFailed),
    ];
    for (answer, reason) in cases {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let serve = move || {
            for _ in 0..4 {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 4096]).unwrap();
                stream.write_all(answer).unwrap();
            }
        };
        let thread = std::thread::spawn(serve);
        let population = lone(json!({}), tls(json!({"verify": false})));
        assert_eq!(outcome(port, population), (0, vec![(reason, 4)]), "{answer:?}");
        thread.join().unwrap();
    }
}

#[test]
fn a_target_where_nothing_listens_is_refused_as_without_tls() {
    let population = lone(json!({}), tls(json!({"verify": false})));
    assert_eq!(outcome(CLOSED_PORT, population), (0, vec![(Reason::ConnectRefused, 4)]));
}

#[test]
fn large_messages_pass_both_ways_at_every_qos() {
    let issued = Authority::new("test").issue("127.0.0.1", (0, 1));
    for version in VERSIONS {
        let broker = Scripted::start_under(Some(server(&issued).build()), Script::reliable);
        let of_qos = |qos: u8| {
            let mut publication = publication(&format!("t/{{n}}/{qos}"), qos, 20);
            publication["payload"]["bytes"] = json!(300_000);
            publication
        };
        let population = lone(
            json!({
                "publications": [of_qos(0), of_qos(1), of_qos(2)],
                "subscriptions": [{"filter": "t/{n}/#", "qos": 2}],
            }),
            tls(json!({"verify": false, "max_version": version})),
        );
        let mut agent = Agent::start(&plan(broker.port, population), "0/1");
        agent.stage(0);
        agent.stage_until(1, |snapshot, totals| {
            let flow = totals.flow(0, 0);
            let all_came = flow.expected_total == flow.received_total;
            // The last message is acknowledged after it has been handed on.
            snapshot.settled && all_came && snapshot.populations[0].gauges.in_flight == 0
        });
        let totals = agent.stop();
        let (counters, outcomes) = &totals.populations[0];
        let flow = totals.flow(0, 0);
        assert_eq!((counters.sent_total, counters.acked_total), (120, 80));
        assert_eq!((flow.received_total, flow.duplicate_total, flow.reordered_total), (120, 0, 0));
        assert!(outcomes.is_empty(), "{outcomes:?}");
    }
}

#[test]
fn a_slow_reader_gets_everything_in_the_end() {
    let issued = Authority::new("test").issue("127.0.0.1", (0, 1));
    let broker = Scripted::start_under(Some(server(&issued).build()), Script::reliable);
    let mut slow = lone(
        json!({"read_rate_per_s": 100.0, "subscriptions": [{"filter": "t", "qos": 1}]}),
        tls(json!({"verify": false})),
    );
    slow["clients"] = json!(1);
    let mut agent = Agent::start(&plan(broker.port, slow), "0/1");
    agent.stage(0);
    broker.order(|server| {
        for _ in 0..30 {
            let (topic, payload) = ("t".to_owned(), vec![1; 5000]);
            server.broker.publish(&testkit::BrokerMessage { topic, payload, ..Default::default() });
        }
    });
    agent.read_until(|_, totals| totals.populations[0].0.foreign_total == 30);
    assert!(agent.stop().populations[0].1.is_empty());
}

#[test]
fn lost_connections_come_back_under_tls() {
    let folder = Folder::new();
    let text = (0..4).map(|n| psk_line(&format!("device-{n}"), n + 1)).collect::<String>();
    let psk = json!({"file": folder.write("keys.psk", text), "identity": "device-{n}"});
    let broker = Scripted::start_under(Some(psk_server()), Script::reliable);
    let again = json!({"reconnect": {"min_ns": 10_000_000, "max_ns": 50_000_000}});
    let mut agent = Agent::start(&plan(broker.port, lone(again, tls(json!({"psk": psk})))), "0/1");
    agent.stage(0);
    for round in 1..4 {
        broker.order(Server::cut_all);
        agent.read_until(|snapshot, totals| {
            totals.populations[0].0.connected_total == 4 * (round + 1)
                && snapshot.populations[0].gauges.ready == 4
        });
    }
    let (counters, outcomes) = agent.stop().populations[0].clone();
    assert_eq!((counters.connect_failed_total, counters.disconnected_total), (0, 12));
    assert_eq!(outcomes.into_iter().collect::<Vec<_>>(), [(Reason::ClosedByBroker, 12)]);
}

#[test]
fn a_shard_needs_only_its_own_identities() {
    let folder = Folder::new();
    let text = psk_line("device-1", 2) + &psk_line("device-3", 4);
    let psk = json!({"file": folder.write("keys.psk", text), "identity": "device-{n}"});
    let broker = Scripted::start_under(Some(psk_server()), Script::reliable);
    let plan = plan(broker.port, lone(json!({}), tls(json!({"psk": psk}))));
    let mut agent = Agent::start(&plan, "1/2");
    agent.stage(0);
    assert_eq!(agent.stop().populations[0].0.connected_total, 2);
    let (output, _) = Agent::output(&format!("{plan}\n"), "0/2");
    assert!(output.contains("no key for 2 of the identities wanted, such as 'device-0'"));
}

#[test]
fn unusable_files_are_reported_at_the_start() {
    let (folder, authority) = (Folder::new(), Authority::new("test"));
    let [one, two] = ["one", "two"].map(|name| authority.issue(name, (0, 1)));
    let certificate = folder.write("one.crt", one.certificate_pem());
    let key = folder.write("two.key", two.key_pem());
    let text = folder.write("text", "no PEM\n");
    let bad_line = folder.write("keys.psk", "# keys\ndevice-0:0a1\n");
    let gone = folder.path("gone");
    let psk = |file: &str| json!({"psk": {"file": file, "identity": "device-{n}"}});
    let cases = [
        (json!({"ca": gone}), "gone: No such file"),
        (json!({"ca": text}), "text: found no certificate, allowed is PEM"),
        (json!({"verify": false, "ciphers": "no-such"}), "found the ciphers 'no-such'"),
        (json!({"verify": false, "certificate": text}), "text: found no certificate"),
        (json!({"verify": false, "certificate": certificate, "key": text}), "no private key"),
        (json!({"verify": false, "certificate": certificate, "key": key}), "not that of the"),
        (json!({"verify": false, "certificate": folder.path("{n}.crt")}), "0.crt: No such file"),
        (json!({"verify": false, "key": key}), "a private key without a certificate"),
        (psk(&gone), "gone: No such file"),
        (psk(&bad_line), "keys.psk, line 2: found a key of 3 digits, allowed is an even"),
    ];
    for (fields, expected) in cases {
        let failure = failure(lone(json!({}), tls(fields)));
        assert!(failure.message.starts_with("population device: tls: "), "{}", failure.message);
        assert!(failure.message.contains(expected), "{}", failure.message);
        assert!(!failure.hint.is_empty());
    }
}

#[test]
fn a_plain_target_needs_nothing_of_tls() {
    let broker = Scripted::start(Script::reliable);
    let population = lone(json!({}), tls(json!({"ca": "/no/such/file"})));
    let mut plan = plan(broker.port, population);
    plan["targets"][0]["tls"] = json!(false);
    let mut agent = Agent::start(&plan, "0/1");
    agent.stage(0);
    assert_eq!(agent.stop().populations[0].0.connected_total, 4);
}
