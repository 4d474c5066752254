//! TLS 1.3 of a population's connections over QUIC, by rustls: trusted authorities, identities of
//! clients and windows, prepared once.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plan::{Plan, PlannedTls, Population, Random, Shard, Template, TlsVersion};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{ClientConfig, NoneTokenStore, TransportConfig, VarInt};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::tickets::ClientTicket;
use crate::transport::tls::{HandshakeEnd, Who, wants_to_resume};

/// Name of MQTT in the handshake.
const ALPN: &[u8] = b"mqtt";
/// Bytes that a client sends without an acknowledgement, and receives without reading them.
const WINDOW: u32 = 256 * 1024;

/// Failure to prepare QUIC for a population.
#[derive(Debug, thiserror::Error)]
pub enum QuicError {
    /// A file cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// A file has the wrong content.
    #[error("{}: found no {wanted}, allowed is PEM", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Expected content.
        wanted: &'static str,
    },
    /// A certificate and a key that rustls cannot use.
    #[error("{}: found a certificate that does not fit its key: {error}", path.display())]
    Pair {
        /// The file of the certificate.
        path: PathBuf,
        /// Error of rustls.
        error: rustls::Error,
    },
    /// A setting that QUIC does not have.
    #[error("found {0} over QUIC, allowed are certificates and TLS 1.3")]
    Setting(&'static str),
    /// The system has no certificates of authorities where they are looked for.
    #[error("found no certificates of authorities on this system")]
    NoRoots,
    /// rustls cannot do what every rustls does.
    #[error("rustls: {0}")]
    Rustls(String),
}

/// QUIC of a population.
pub struct Quic {
    /// Settings of all clients; with certificates of their own without one.
    settings: rustls::ClientConfig,
    verifier: Arc<dyn ServerCertVerifier>,
    shared: ClientConfig,
    transport: Arc<TransportConfig>,
    /// Index of the first of its targets.
    first_target: usize,
    /// Host of each target, from the first target on.
    hosts: Vec<String>,
    /// Name that the certificate must have; `None`: the host.
    server_name: Option<Template>,
    /// Settings of each client; `None`: all clients have the same.
    own: Option<OwnSettings>,
}

/// Identity of a client, and the name that it expects.
pub struct QuicIdentity<'a> {
    /// Settings of its connection.
    pub config: ClientConfig,
    /// Name in the certificate of the broker.
    pub name: Cow<'a, str>,
}

/// Settings of clients that have certificates or sessions of their own, made at the first
/// connection of each.
struct OwnSettings {
    certificates: Option<OwnCertificates>,
    /// Share of the connections that offer a session.
    resume: f64,
    /// Connections that offer a session send their first bytes in 0-RTT.
    early_data: bool,
    /// By local index of the client.
    clients: Vec<OnceCell<ClientSettings>>,
}

struct ClientSettings {
    config: ClientConfig,
    /// `None`: the client resumes no sessions.
    ticket: Option<Arc<ClientTicket>>,
}

/// Files of certificates of clients that have one each.
struct OwnCertificates {
    certificate: Template,
    key: Template,
    /// A failure to load a client's file has been logged.
    logged: Cell<bool>,
}

/// A certificate with its chain, and its key.
type Credential = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl QuicError {
    /// Advice for the user.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::NoRoots => "name a file of authorities under tls: ca:, or set SSL_CERT_FILE",
            Self::Setting(_) => "leave the setting out, or use mqtts://",
            Self::Rustls(_) => "this is a fault of Pubstorm: please report it to its developers",
            _ => "`pubstorm keys` makes authorities, certificates and keys that fit together",
        }
    }
}

impl Quic {
    /// QUIC of the clients of a population that `shard` plays; `None` where no target has it.
    ///
    /// # Errors
    /// [`QuicError`]: the first file or setting that cannot be used.
    pub fn new(plan: &Plan, population: usize, shard: Shard) -> Result<Option<Self>, QuicError> {
        let population = &plan.populations[population];
        let targets = &plan.targets[population.at.first..][..population.at.count];
        let (Some(tls), true) = (&population.tls, targets.iter().any(|target| target.quic)) else {
            return Ok(None);
        };
        let verifier = verifier(tls)?;
        let mut settings = unauthenticated(tls, verifier.clone())?;
        let transport = Arc::new(windows(population));
        let share = shard.share(population.clients);
        let numbers = (0..share).map(|local| population.first + u64::from(shard.global(local)));
        let certificates = match (&tls.certificate, &tls.key) {
            (None, None) => None,
            (None, Some(_)) => return Err(QuicError::Setting("a key without a certificate")),
            (Some(certificate), key) => {
                let key = key.as_ref().unwrap_or(certificate).clone();
                OwnCertificates::of(certificate.clone(), key, numbers, &mut settings)?
            }
        };
        let own = (certificates.is_some() || tls.resume > 0.0).then(|| {
            let clients = (0..share).map(|_| OnceCell::new()).collect();
            OwnSettings { certificates, resume: tls.resume, early_data: tls.early_data, clients }
        });
        Ok(Some(Self {
            shared: config(settings.clone(), &transport)?,
            settings,
            verifier,
            transport,
            first_target: population.at.first,
            hosts: targets.iter().map(|target| target.peer_name().to_owned()).collect(),
            server_name: tls.server_name.clone(),
            own,
        }))
    }

    /// Identity for a new connection of a client; `None` if its certificate cannot be loaded,
    /// which is logged the first time. `chance` decides if the client offers a session.
    pub fn begin(&self, who: Who, chance: Random) -> Option<QuicIdentity<'_>> {
        let config = match &self.own {
            None => self.shared.clone(),
            Some(own) => own.begin(self, who, chance)?,
        };
        let host = &self.hosts[who.target - self.first_target];
        let own = self.server_name.as_ref().map(|name| Cow::from(name.text(who.n, 0)));
        Some(QuicIdentity { config, name: own.unwrap_or(Cow::from(host)) })
    }

    /// End of the handshake of a client's last connection, which has ended well. `early_accepted`:
    /// what the broker has done with data in 0-RTT.
    pub fn handshake_end(&self, local: u32, early_accepted: Option<bool>) -> HandshakeEnd {
        let client = self.own.as_ref().and_then(|own| own.clients[local as usize].get());
        let ticket = client.and_then(|client| client.ticket.as_ref());
        match ticket.map_or(HandshakeEnd::Full, |ticket| ticket.end()) {
            HandshakeEnd::Resumed if early_accepted == Some(true) => HandshakeEnd::Early,
            end => end,
        }
    }
}

impl OwnSettings {
    fn begin(&self, quic: &Quic, who: Who, chance: Random) -> Option<ClientConfig> {
        let place = &self.clients[who.local as usize];
        let client = match place.get() {
            Some(client) => client,
            None => match self.client(quic, who.n) {
                Ok(client) => place.get_or_init(|| client),
                Err(error) => {
                    self.certificates.as_ref().inspect(|own| own.log(&error));
                    return None;
                }
            },
        };
        if let Some(ticket) = &client.ticket {
            ticket.begin(wants_to_resume(chance, who.n, self.resume));
        }
        Some(client.config.clone())
    }

    fn client(&self, quic: &Quic, n: u64) -> Result<ClientSettings, QuicError> {
        let mut settings = quic.settings.clone();
        if let Some(OwnCertificates { certificate, key, .. }) = &self.certificates {
            let path = certificate.text(n, 0);
            let pair = credential(path.as_ref(), key.text(n, 0).as_ref())?;
            authenticate(&mut settings, path.as_ref(), pair)?;
        }
        let ticket =
            (self.resume > 0.0).then(|| Arc::new(ClientTicket::new(quic.verifier.clone())));
        if let Some(ticket) = &ticket {
            settings.dangerous().set_certificate_verifier(ticket.clone());
            settings.resumption = Resumption::store(ticket.clone());
            settings.enable_early_data = self.early_data;
        }
        Ok(ClientSettings { config: config(settings, &quic.transport)?, ticket })
    }
}

impl OwnCertificates {
    /// Gives `settings` the certificate that all clients have; if each has its own, checks that all
    /// files exist.
    fn of(
        certificate: Template,
        key: Template,
        numbers: impl Iterator<Item = u64>,
        settings: &mut rustls::ClientConfig,
    ) -> Result<Option<Self>, QuicError> {
        if certificate.is_fixed() && key.is_fixed() {
            let path = certificate.text(0, 0);
            let pair = credential(path.as_ref(), key.text(0, 0).as_ref())?;
            authenticate(settings, path.as_ref(), pair)?;
            return Ok(None);
        }
        for n in numbers {
            for path in [certificate.text(n, 0), key.text(n, 0)] {
                fs::metadata(&path)
                    .map_err(|error| QuicError::Read { path: path.into(), error })?;
            }
        }
        Ok(Some(Self { certificate, key, logged: Cell::new(false) }))
    }

    fn log(&self, error: &QuicError) {
        if !self.logged.replace(true) {
            // Nothing is left to be done if stderr is gone.
            let _ = writeln!(io::stderr(), "a client cannot use its certificate: {error}");
        }
    }
}

/// Settings of the handshake without an identity of the client.
fn unauthenticated(
    tls: &PlannedTls,
    verifier: Arc<dyn ServerCertVerifier>,
) -> Result<rustls::ClientConfig, QuicError> {
    let wrong = [
        (tls.psk.is_some(), "pre-shared keys"),
        (tls.max_version < TlsVersion::Tls13, "TLS 1.2 as the highest version"),
        (tls.ciphers.is_some(), "ciphers of TLS 1.2"),
        (!tls.suites.is_empty(), "suites"),
        (!tls.groups.is_empty(), "groups"),
        (!tls.alpn.is_empty(), "protocols for ALPN"),
        (tls.passphrase.is_some(), "encrypted keys"),
        (tls.reread, "certificates that are read again"),
        (tls.key_log.is_some(), "a log of keys"),
    ];
    if let Some((_, setting)) = wrong.into_iter().find(|(is_wrong, _)| *is_wrong) {
        return Err(QuicError::Setting(setting));
    }
    let provider = Arc::new(ring::default_provider());
    let mut settings = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(fault)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    settings.alpn_protocols = vec![ALPN.to_vec()];
    settings.resumption = Resumption::disabled();
    Ok(settings)
}

/// Verifier of the broker's certificate for all clients.
fn verifier(tls: &PlannedTls) -> Result<Arc<dyn ServerCertVerifier>, QuicError> {
    let provider = Arc::new(ring::default_provider());
    if !tls.verify {
        return Ok(Arc::new(Unverified(provider)));
    }
    let roots = Arc::new(roots(tls)?);
    let builder = WebPkiServerVerifier::builder_with_provider(roots, provider);
    Ok(builder.build().map_err(fault)?)
}

/// Gives settings the identity of a client.
fn authenticate(
    settings: &mut rustls::ClientConfig,
    path: &Path,
    (chain, key): Credential,
) -> Result<(), QuicError> {
    let provider = settings.crypto_provider();
    let pair = rustls::sign::CertifiedKey::from_der(chain, key, provider);
    let pair = pair.map_err(|error| QuicError::Pair { path: path.into(), error })?;
    settings.client_auth_cert_resolver = Arc::new(rustls::sign::SingleCertAndKey::from(pair));
    Ok(())
}

/// Settings of connections.
fn config(
    settings: rustls::ClientConfig,
    transport: &Arc<TransportConfig>,
) -> Result<ClientConfig, QuicError> {
    let crypto = QuicClientConfig::try_from(settings).map_err(fault)?;
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(transport.clone()).token_store(Arc::new(NoneTokenStore));
    Ok(config)
}

/// Windows for many connections that are mostly idle. The client has no idle timeout of its own,
/// and sends nothing to keep a connection open: MQTT has its keep-alive.
fn windows(population: &Population) -> TransportConfig {
    let rate = population.read_rate_per_s;
    let receive = VarInt::from_u32(rate.map_or(WINDOW, slow_window));
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .max_idle_timeout(None)
        .stream_receive_window(receive)
        .receive_window(receive)
        .send_window(u64::from(WINDOW))
        .datagram_receive_buffer_size(None)
        // Datagrams of 1,200 bytes fit every path [9000, 14.1].
        .mtu_discovery_config(None);
    transport
}

/// Receive window of a client that reads slowly, in bytes: so small that the peer feels it.
const fn slow_window(rate_per_s: f64) -> u32 {
    let bytes = rate_per_s as u32;
    if bytes < 4096 {
        4096
    } else if bytes > WINDOW {
        WINDOW
    } else {
        bytes
    }
}

/// The configured authorities, else those of the system.
fn roots(tls: &PlannedTls) -> Result<RootCertStore, QuicError> {
    let path = match &tls.ca {
        Some(path) => path.into(),
        None => openssl_probe::probe().cert_file.ok_or(QuicError::NoRoots)?,
    };
    let mut roots = RootCertStore::empty();
    // A bundle of the system may have an authority that rustls does not understand.
    let (added, _) = roots.add_parsable_certificates(certificates(&path)?);
    if added == 0 {
        return Err(QuicError::Content { path, wanted: "certificate" });
    }
    Ok(roots)
}

fn credential(certificate: &Path, key: &Path) -> Result<Credential, QuicError> {
    let chain = certificates(certificate)?;
    let wanted = "private key without a passphrase";
    let private = PrivateKeyDer::from_pem_slice(&read(key)?);
    let private = private.map_err(|_| QuicError::Content { path: key.into(), wanted })?;
    Ok((chain, private))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, QuicError> {
    let bytes = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.ok().filter(|found| !found.is_empty());
    found.ok_or_else(|| QuicError::Content { path: path.into(), wanted: "certificate" })
}

fn read(path: &Path) -> Result<Vec<u8>, QuicError> {
    fs::read(path).map_err(|error| QuicError::Read { path: path.into(), error })
}

fn fault(error: impl std::fmt::Display) -> QuicError {
    QuicError::Rustls(error.to_string())
}

/// Takes every certificate, as `verify: false` says, and checks that the broker has its key.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
