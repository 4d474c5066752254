//! Options of TLS: sessions that clients resume, ALPN, names, suites and groups, encrypted keys,
//! certificates that change, and the file of keys.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::{Arc, Mutex};

use openssl::hash::MessageDigest;
use openssl::ssl::{AlpnError, NameType, SslOptions, SslRef, select_next_proto};
use openssl::symm::Cipher;
use plan::Counters;

use super::*;
use crate::support::Totals;

/// Clients that connect again after a loss at once.
fn returning(clients: u32, tls: Value) -> Value {
    let fields = json!({
        "clients": clients, "reconnect": {"min_ns": 5_000_000, "max_ns": 10_000_000},
    });
    lone(fields, tls)
}

/// Plays the connect stage. Cuts all connections `rounds` times, and waits for the clients each
/// time. Before each cut, the round's number goes to `before`.
fn rounds(
    broker: &Scripted,
    population: Value,
    rounds: u64,
    mut before: impl FnMut(u64),
) -> Totals {
    let clients = population["clients"].as_u64().unwrap();
    let mut agent = Agent::start(&plan(broker.port, population), "0/1");
    agent.stage(0);
    for round in 0..rounds {
        before(round);
        broker.order(Server::cut_all);
        agent.read_until(|snapshot, totals| {
            totals.populations[0].0.connected_total >= clients * (round + 2)
                && snapshot.populations[0].gauges.ready == clients
        });
    }
    agent.stop()
}

fn handshakes(counters: &Counters) -> (u64, u64, u64) {
    let Counters { tls_full_total, tls_resumed_total, tls_resume_refused_total, .. } = counters;
    (*tls_full_total, *tls_resumed_total, *tls_resume_refused_total)
}

/// A server under TLS with a certificate for 127.0.0.1.
fn plain_server() -> SslContextBuilder {
    server(&Authority::new("test").issue("127.0.0.1", (0, 1)))
}

fn options(fields: Value) -> Value {
    let mut all = tls(json!({"verify": false}));
    let Value::Object(fields) = fields else { panic!("fields are an object") };
    all.as_object_mut().unwrap().extend(fields);
    all
}

#[test]
fn sessions_are_resumed_as_often_as_the_server_says() {
    for version in VERSIONS {
        let broker = Scripted::start_under(Some(plain_server().build()), Script::reliable);
        let tls = options(json!({"resume": 1.0, "max_version": version, "min_version": version}));
        let mut reused = Vec::new();
        let totals = rounds(&broker, returning(4, tls), 3, |_| {
            let facts = broker.order(|server| server.secured(SslRef::session_reused));
            reused.push(facts.into_iter().filter(|reused| *reused).count());
        });
        assert_eq!(reused, [0, 4, 4], "{version}");
        let (counters, _) = &totals.populations[0];
        assert_eq!(handshakes(counters), (4, 12, 0), "{version}");
    }
}

#[test]
fn a_share_of_the_returns_offers_a_session_and_without_a_share_none_does() {
    for (share, least, most) in [(0.0, 0, 0), (0.5, 60, 140)] {
        let broker = Scripted::start_under(Some(plain_server().build()), Script::reliable);
        let population = returning(40, options(json!({"resume": share})));
        let mut reused = 0;
        let totals = rounds(&broker, population, 6, |_| {
            let facts = broker.order(|server| server.secured(SslRef::session_reused));
            reused += facts.into_iter().filter(|reused| *reused).count() as u64;
        });
        let (full, resumed, refused) = handshakes(&totals.populations[0].0);
        assert_eq!((full + resumed, refused), (7 * 40, 0));
        // The last round is counted by the client alone.
        assert!((least..=most).contains(&reused) && reused <= resumed, "{reused} of {resumed}");
        assert_eq!(share == 0.0, resumed == 0);
    }
}

#[test]
fn sessions_that_the_server_has_forgotten_are_refused_and_counted() {
    for version in VERSIONS {
        let broker = Scripted::start_under(Some(plain_server().build()), Script::reliable);
        let tls = options(json!({"resume": 1.0, "max_version": version, "min_version": version}));
        let totals = rounds(&broker, returning(4, tls), 3, |round| {
            if round == 1 {
                // Another context has other keys for tickets.
                broker.order(|server| server.tls = Some(plain_server().build()));
            }
        });
        assert_eq!(handshakes(&totals.populations[0].0), (8, 8, 4), "{version}");
    }
}

#[test]
fn a_server_without_tickets_leaves_nothing_to_offer() {
    for version in VERSIONS {
        let mut builder = plain_server();
        builder.set_options(SslOptions::NO_TICKET);
        builder.set_session_cache_mode(openssl::ssl::SslSessionCacheMode::OFF);
        builder.set_num_tickets(0).unwrap();
        let broker = Scripted::start_under(Some(builder.build()), Script::reliable);
        let tls = options(json!({"resume": 1.0, "max_version": version, "min_version": version}));
        let totals = rounds(&broker, returning(4, tls), 1, |_| {});
        assert_eq!(handshakes(&totals.populations[0].0), (8, 0, 0), "{version}");
    }
}

#[test]
fn pre_shared_keys_count_as_full_handshakes() {
    let folder = Folder::new();
    let text = (0..4).map(|n| psk_line(&format!("device-{n}"), n + 1)).collect::<String>();
    let psk = json!({"file": folder.write("keys.psk", text), "identity": "device-{n}"});
    for version in VERSIONS {
        let broker = Scripted::start_under(Some(psk_server()), Script::reliable);
        let range = json!({"psk": psk, "min_version": version, "max_version": version});
        let totals = rounds(&broker, returning(4, options(range)), 1, |_| {});
        assert_eq!(handshakes(&totals.populations[0].0), (8, 0, 0), "{version}");
    }
}

#[test]
fn a_server_chooses_ignores_or_refuses_the_protocols_of_alpn() {
    let chooses = || {
        let mut builder = plain_server();
        builder.set_alpn_select_callback(|_, offered| {
            select_next_proto(b"\x04mqtt", offered).ok_or(AlpnError::ALERT_FATAL)
        });
        builder.build()
    };
    let ignores = || plain_server().build();
    let cases: [(&str, &dyn Fn() -> SslContext, _, _); 4] = [
        ("mqtt", &chooses, 0, (4, vec![])),
        ("x-amzn-mqtt-ca", &chooses, 0, (0, vec![(Reason::AlpnRefused, 4)])),
        ("mqtt", &ignores, 4, (4, vec![])),
        ("", &chooses, 0, (4, vec![])),
    ];
    for (protocol, context, ignored, expected) in cases {
        for version in VERSIONS {
            let broker = Scripted::start_under(Some(context()), Script::reliable);
            let alpn = if protocol.is_empty() { vec![] } else { vec![protocol] };
            let range = json!({"alpn": alpn, "min_version": version, "max_version": version});
            let mut agent =
                Agent::start(&plan(broker.port, lone(json!({}), options(range))), "0/1");
            agent.stage(0);
            let chosen = broker.order(|server| {
                server.secured(|ssl| ssl.selected_alpn_protocol().map(<[u8]>::to_vec))
            });
            agent.read_until(|_, totals| {
                let (counters, _) = &totals.populations[0];
                counters.connected_total + counters.connect_failed_total >= 4
            });
            let (counters, outcomes) = agent.stop().populations[0].clone();
            assert_eq!((counters.connected_total, outcomes.into_iter().collect()), expected);
            assert_eq!(counters.tls_alpn_ignored_total, ignored, "{protocol} {version}");
            let is_chosen = protocol == "mqtt" && ignored == 0;
            let expected = is_chosen.then(|| b"mqtt".to_vec());
            assert!(chosen.into_iter().all(|chosen| chosen == expected), "{protocol} {version}");
        }
    }
}

#[test]
fn each_client_asks_for_its_own_name_and_verifies_it() {
    let (folder, authority) = (Folder::new(), Authority::new("test"));
    let ca = folder.write("ca.crt", authority.0.certificate_pem());
    let names = Arc::new(Mutex::new(BTreeSet::new()));
    let mut builder = server(&authority.issue("*.broker.test", (0, 1)));
    let seen = Arc::clone(&names);
    builder.set_servername_callback(move |ssl, _| {
        let name = ssl.servername(NameType::HOST_NAME).unwrap_or_default().to_owned();
        seen.lock().unwrap().insert(name);
        Ok(())
    });
    let broker = Scripted::start_under(Some(builder.build()), Script::reliable);
    let named = |name: &str| tls(json!({"ca": ca, "server_name": name}));
    assert_eq!(outcome(broker.port, lone(json!({}), named("t{n%2}.broker.test"))), (4, vec![]));
    let expected = ["t0.broker.test", "t1.broker.test"];
    assert_eq!(names.lock().unwrap().iter().collect::<Vec<_>>(), expected);
    let foreign = outcome(broker.port, lone(json!({}), named("t{n}.other.test")));
    assert_eq!(foreign, (0, vec![(Reason::CertificateName, 4)]));
}

#[test]
fn suites_and_groups_are_those_of_the_plan() {
    let mut builder = plain_server();
    builder.set_min_proto_version(Some(SslVersion::TLS1_3)).unwrap();
    builder.set_ciphersuites("TLS_CHACHA20_POLY1305_SHA256").unwrap();
    builder.set_groups_list("P-384").unwrap();
    let broker = Scripted::start_under(Some(builder.build()), Script::reliable);
    let refused = (0, vec![(Reason::TlsRefused, 4)]);
    let cases = [
        (json!({}), (4, vec![])),
        (json!({"suites": ["TLS_CHACHA20_POLY1305_SHA256"], "groups": ["P-384"]}), (4, vec![])),
        (json!({"suites": ["TLS_AES_128_GCM_SHA256"]}), refused.clone()),
        (json!({"groups": ["X25519", "P-256"]}), refused),
    ];
    for (fields, expected) in cases {
        let found = outcome(broker.port, lone(json!({}), options(fields.clone())));
        assert_eq!(found, expected, "{fields}");
    }
}

#[test]
fn every_suite_and_group_of_a_scenario_is_one_of_openssl() {
    let schema = include_str!("../../../../contract/scenario.schema.json");
    let schema: Value = serde_json::from_str(schema).unwrap();
    let names = |key: &str| schema["$defs"]["Tls"]["properties"][key]["items"]["enum"].clone();
    let (suites, groups) = (names("suites"), names("groups"));
    assert!(suites.as_array().unwrap().len() > 3 && groups.as_array().unwrap().len() > 3);
    let broker = Scripted::start_under(Some(plain_server().build()), Script::reliable);
    let tls = options(json!({"suites": suites, "groups": groups}));
    assert_eq!(outcome(broker.port, lone(json!({}), tls)), (4, vec![]));
}

#[test]
fn encrypted_keys_are_opened_with_the_passphrase_of_each_client() {
    let (folder, authority) = (Folder::new(), Authority::new("test"));
    let mut builder = server(&authority.issue("127.0.0.1", (0, 1)));
    builder.set_verify(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT);
    builder.cert_store_mut().add_cert(authority.0.certificate.clone()).unwrap();
    let broker = Scripted::start_under(Some(builder.build()), Script::reliable);
    for n in 0..4 {
        let client = authority.issue("device", (0, 1));
        let (cipher, passphrase) = (Cipher::aes_256_cbc(), format!("word-{n}"));
        let key = client.key.private_key_to_pem_pkcs8_passphrase(cipher, passphrase.as_bytes());
        folder.write(&format!("{n}.crt"), client.certificate_pem());
        folder.write(&format!("{n}.key"), key.unwrap());
    }
    let keys = |name: &str, passphrase: Value| {
        let (crt, key) = (folder.path(&format!("{name}.crt")), folder.path(&format!("{name}.key")));
        options(json!({"certificate": crt, "key": key, "passphrase": passphrase}))
    };
    let of_each = lone(json!({}), keys("{n}", json!("word-{n}")));
    assert_eq!(outcome(broker.port, of_each), (4, vec![]));
    let wrong = outcome(broker.port, lone(json!({}), keys("{n}", json!("word-0"))));
    assert_eq!(wrong, (1, vec![(Reason::TlsFailed, 3)]));
    let shared = outcome(broker.port, lone(json!({}), keys("1", json!("word-1"))));
    assert_eq!(shared, (4, vec![]));
    let long = "long".repeat(500);
    for (passphrase, expected) in [
        (json!("wr0ng"), "found no private key that the passphrase opens"),
        (json!(long), "found no private key that the passphrase opens"),
        (json!(null), "found no private key without a passphrase"),
    ] {
        let failure = failure(lone(json!({}), keys("1", passphrase)));
        assert!(failure.message.contains(expected), "{}", failure.message);
        assert!(!failure.message.contains("wr0ng"), "a passphrase is a secret");
    }
}

#[test]
fn certificates_that_change_are_read_again_between_two_connections() {
    let (folder, authority) = (Folder::new(), Authority::new("test"));
    let write = |n: u64, certificate: bool, key: bool| {
        let client = authority.issue("device", (0, 1));
        for (is_written, ending, pem) in
            [(certificate, "crt", client.certificate_pem()), (key, "key", client.key_pem())]
        {
            if is_written {
                // As rotations do it: a new file takes the place of the old one.
                let path = folder.write("new", pem);
                fs::rename(path, folder.path(&format!("{n}.{ending}"))).unwrap();
            }
        }
    };
    for (names, rereads, expected) in [("{n}", true, 4), ("0", true, 1), ("{n}", false, 0)] {
        let mut builder = server(&authority.issue("127.0.0.1", (0, 1)));
        builder.set_verify(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT);
        builder.set_session_id_context(b"test").unwrap();
        builder.cert_store_mut().add_cert(authority.0.certificate.clone()).unwrap();
        let broker = Scripted::start_under(Some(builder.build()), Script::reliable);
        (0..4).for_each(|n| write(n, true, true));
        let (crt, key) =
            (folder.path(&format!("{names}.crt")), folder.path(&format!("{names}.key")));
        let own = json!({"certificate": crt, "key": key, "reread": rereads, "resume": 1.0});
        let mut peers = Vec::new();
        let totals = rounds(&broker, returning(4, options(own)), 4, |round| {
            let digests = broker.order(|server| {
                let digest = MessageDigest::sha256;
                server.secured(|ssl| {
                    ssl.peer_certificate().unwrap().digest(digest()).unwrap().to_vec()
                })
            });
            peers.push(digests.into_iter().collect::<BTreeSet<_>>());
            match round {
                1 => (0..4).for_each(|n| write(n, true, true)),
                // Half a rotation: the old pair stays.
                2 => (0..4).for_each(|n| write(n, true, false)),
                _ => {}
            }
        });
        let (counters, outcomes) = &totals.populations[0];
        assert!(outcomes.keys().all(|reason| *reason == Reason::ClosedByBroker), "{outcomes:?}");
        assert_eq!(counters.tls_certificates_reread_total, expected, "{names}");
        assert_eq!(peers[0], peers[1]);
        assert_eq!(peers[2], peers[3]);
        assert_eq!(rereads, peers[1].is_disjoint(&peers[2]), "{names}");
    }
}

#[test]
fn the_file_of_keys_is_private_and_has_the_secrets_of_each_connection() {
    let folder = Folder::new();
    for (version, label) in [("1.2", "CLIENT_RANDOM "), ("1.3", "CLIENT_TRAFFIC_SECRET_0 ")] {
        let broker = Scripted::start_under(Some(plain_server().build()), Script::reliable);
        let path = folder.path(&format!("keys-{version}.log"));
        let fields = json!({"key_log": path, "min_version": version, "max_version": version});
        for runs in 1..3 {
            let tls = options(fields.clone());
            assert_eq!(outcome(broker.port, lone(json!({}), tls)), (4, vec![]));
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.ends_with('\n'));
            let secrets: BTreeSet<_> = text.lines().filter(|l| l.starts_with(label)).collect();
            assert_eq!(secrets.len(), 4 * runs, "{text}");
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let open = folder.write("open.log", "");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    symlink(folder.path("keys-1.3.log"), folder.path("link.log")).unwrap();
    let cases = [
        (open, "open.log: found a file with mode 0644, allowed is a new file or"),
        (folder.path("link.log"), "link.log: "),
        (folder.path("none/keys.log"), "keys.log: No such file"),
        ("/dev/null".to_owned(), "/dev/null: found no regular file with mode 0666"),
    ];
    for (path, expected) in cases {
        let failure = failure(lone(json!({}), options(json!({"key_log": path}))));
        assert!(failure.message.contains(expected), "{}", failure.message);
    }
}

#[test]
fn names_that_openssl_does_not_know_are_refused_at_the_start() {
    let cases = [
        (json!({"suites": ["TLS_NONE"]}), "found the cipher suites 'TLS_NONE'"),
        (json!({"groups": ["P-1"]}), "found the groups 'P-1'"),
        (json!({"alpn": [""]}), "found the protocol '' for ALPN"),
        (json!({"alpn": ["a".repeat(256)]}), "allowed are names of 1 to 255 bytes"),
    ];
    for (fields, expected) in cases {
        let failure = failure(lone(json!({}), options(fields)));
        assert!(failure.message.contains(expected), "{}", failure.message);
        assert!(!failure.hint.is_empty());
    }
}
