//! TlsSessions between a client and a server of OpenSSL in one thread.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::os::unix::net::UnixStream;

use openssl::asn1::Asn1Time;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::PKey;
use openssl::ssl::{Ssl, SslContext, SslMethod, SslStream, SslVerifyMode, SslVersion};
use openssl::x509::X509;
use resumption::TlsSessions;

/// Largest memory of a kept session in bytes: 5 kB, as docs/how-to/tls.md states, and what varies.
const SESSION_BYTES_MAX: usize = 8_000;
const VERSIONS: [SslVersion; 2] = [SslVersion::TLS1_2, SslVersion::TLS1_3];

fn client_context(version: SslVersion) -> SslContext {
    let mut builder = SslContext::builder(SslMethod::tls_client()).unwrap();
    builder.set_verify(SslVerifyMode::NONE);
    builder.set_max_proto_version(Some(version)).unwrap();
    builder.build()
}

fn server_context() -> SslContext {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    let key = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
    let mut certificate = X509::builder().unwrap();
    certificate.set_pubkey(&key).unwrap();
    certificate.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
    certificate.set_not_after(&Asn1Time::days_from_now(1).unwrap()).unwrap();
    certificate.sign(&key, MessageDigest::sha256()).unwrap();
    let mut builder = SslContext::builder(SslMethod::tls_server()).unwrap();
    builder.set_certificate(&certificate.build()).unwrap();
    builder.set_private_key(&key).unwrap();
    builder.build()
}

/// A connection of a client: its handshake, and its tickets.
fn connected(ssl: Ssl, server: &SslContext) -> SslStream<UnixStream> {
    let (near, far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    far.set_nonblocking(true).unwrap();
    let mut client = SslStream::new(ssl, near).unwrap();
    let mut server = SslStream::new(Ssl::new(server).unwrap(), far).unwrap();
    while !(client.ssl().is_init_finished() && server.ssl().is_init_finished()) {
        let _ = client.connect();
        let _ = server.accept();
    }
    assert!(client.ssl_read(&mut [0]).is_err(), "tickets are no data");
    client
}

#[test]
fn a_session_is_offered_once_and_by_its_own_client() {
    for version in VERSIONS {
        let (context, server) = (client_context(version), server_context());
        let mut sessions = TlsSessions::new(context.clone(), 2);
        let mut expected = [false, true, false, true];
        for (turn, expected) in expected.iter_mut().enumerate() {
            let mut ssl = Ssl::new(&context).unwrap();
            let wants = turn != 2;
            sessions.offer(&mut ssl, 0, || wants).unwrap();
            assert_eq!(sessions.has_offered(0), *expected);
            let mut other = Ssl::new(&context).unwrap();
            sessions.offer(&mut other, 1, || true).unwrap();
            assert!(!sessions.has_offered(1));
            let mut again = Ssl::new(&context).unwrap();
            let mut client = connected(ssl, &server);
            assert_eq!(client.ssl().session_reused(), *expected, "{version:?} {turn}");
            if wants {
                sessions.offer(&mut again, 0, || true).unwrap();
                assert!(!sessions.has_offered(0), "the session has left its place");
            }
            sessions.keep(&mut client, 0);
        }
        sessions.forget(0);
        let mut ssl = Ssl::new(&context).unwrap();
        sessions.offer(&mut ssl, 0, || true).unwrap();
        assert!(!sessions.has_offered(0));
    }
}

#[test]
fn connections_of_other_contexts_neither_give_nor_get_sessions() {
    let (own, foreign) = (client_context(VERSIONS[1]), client_context(VERSIONS[1]));
    let server = server_context();
    let mut sessions = TlsSessions::new(own.clone(), 1);
    let mut client = connected(Ssl::new(&foreign).unwrap(), &server);
    sessions.keep(&mut client, 0);
    let mut ssl = Ssl::new(&own).unwrap();
    sessions.offer(&mut ssl, 0, || true).unwrap();
    assert!(!sessions.has_offered(0), "the session of another context was not kept");
    let mut client = connected(ssl, &server);
    sessions.keep(&mut client, 0);
    let mut ssl = Ssl::new(&foreign).unwrap();
    sessions.offer(&mut ssl, 0, || true).unwrap();
    assert!(!sessions.has_offered(0), "a connection of another context offers nothing");
}

#[test]
fn a_kept_session_takes_at_most_the_memory_that_the_documentation_states() {
    const CLIENTS: usize = 4000;
    // Memory that one version gave back would hide that of the next one.
    let mut kept = Vec::new();
    for version in VERSIONS {
        let (context, server) = (client_context(version), server_context());
        let mut sessions = TlsSessions::new(context.clone(), 2 * CLIENTS);
        let mut keep = |clients: std::ops::Range<usize>| {
            for client in clients {
                let mut stream = connected(Ssl::new(&context).unwrap(), &server);
                sessions.keep(&mut stream, client);
            }
            resident_bytes()
        };
        let before = keep(0..CLIENTS / 10);
        let after = keep(CLIENTS / 10..CLIENTS + CLIENTS / 10);
        let each = after.saturating_sub(before) / CLIENTS;
        eprintln!("{version:?}: {each} bytes a session");
        kept.push(sessions);
        assert!((1000..=SESSION_BYTES_MAX).contains(&each), "{version:?}: {each}");
    }
}

/// Resident memory of this process in bytes.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    1024 * line.trim().trim_end_matches(" kB").parse::<usize>().unwrap()
}
