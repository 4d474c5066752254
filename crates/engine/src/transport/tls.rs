//! TLS of a population: trusted authorities and identities of clients, prepared once.

mod certificates;
mod handshake;
mod key_log;
mod psk;

use std::cell::RefCell;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::{fs, io, iter};

use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::ssl::{
    Ssl, SslContext, SslContextBuilder, SslMethod, SslMode, SslOptions, SslSessionCacheMode,
    SslVerifyMode, SslVersion,
};
use openssl::x509::X509;
use plan::{Counters, Plan, Psk, Random, Shard, Template, TlsVersion};
use resumption::TlsSessions;

use certificates::{CertificateFiles, Certificates};
pub use handshake::HandshakeEnd;
pub use psk::PskError;

/// Separates the draws of offered sessions from others of the plan's seed.
const RESUMPTION: u64 = 0x71c4_e700;
/// Key exchanges offered: what devices speak. OpenSSL's own list begins with a post-quantum one,
/// whose keys cost a kilobyte and more CPU than the rest of a handshake with a pre-shared key.
const GROUPS: &str = "X25519:P-256:P-384:P-521";
/// Ciphers of TLS 1.2 of clients with pre-shared keys: no certificate, none without encryption, and
/// no finite-field Diffie-Hellman, which costs ten times the others and which OpenSSL's brokers
/// would prefer. A population's own list replaces it.
const PSK_CIPHERS: &str = "aPSK:!eNULL:!kDHEPSK";

/// Failure to prepare TLS for a population.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// A file has the wrong content.
    #[error("{}: found no {wanted}, allowed is PEM{}", path.display(), words(error))]
    Content {
        /// The file.
        path: PathBuf,
        /// Expected content.
        wanted: &'static str,
        /// Error of OpenSSL.
        error: ErrorStack,
    },
    /// A private key is not that of the certificate.
    #[error(
        "{}: found a key that is not that of the certificate in {}",
        key.display(),
        certificate.display()
    )]
    Pair {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// A key without its certificate.
    #[error("found a private key without a certificate, allowed are both or none")]
    KeyAlone,
    /// The system has no certificates of authorities where they are looked for.
    #[error("found no certificates of authorities on this system")]
    NoRoots,
    /// A list of ciphers that OpenSSL does not understand.
    #[error("found the ciphers '{found}', allowed is a list in OpenSSL's words{}", words(error))]
    Ciphers {
        /// The list.
        found: String,
        /// Error of OpenSSL.
        error: ErrorStack,
    },
    /// A list of suites or groups that OpenSSL does not know.
    #[error("found the {wanted} '{found}', allowed are those of OpenSSL{}", words(error))]
    Names {
        /// Kind of the names.
        wanted: &'static str,
        /// The list.
        found: String,
        /// Error of OpenSSL.
        error: ErrorStack,
    },
    /// A protocol that ALPN cannot offer.
    #[error("found the protocol '{0}' for ALPN, allowed are names of 1 to 255 bytes")]
    Alpn(String),
    /// A file that is no private file for keys.
    #[error("{}: found {found}, allowed is a new file or a file with mode 0600", path.display())]
    KeyLog {
        /// The file.
        path: PathBuf,
        /// Kind and mode of the file.
        found: String,
    },
    /// Pre-shared keys.
    #[error(transparent)]
    Psk(#[from] PskError),
    /// OpenSSL cannot do what every OpenSSL does.
    #[error("OpenSSL: {0}")]
    OpenSsl(#[from] ErrorStack),
}

/// TLS of a population.
pub struct Tls {
    context: SslContext,
    verify: bool,
    /// Index of the first of its targets.
    first_target: usize,
    /// Host of each target, from the first target on.
    hosts: Vec<String>,
    /// Name that a client asks for, and that the certificate must have; `None`: the host.
    server_name: Option<Template>,
    identity: Identity,
    offers_protocols: bool,
    resumption: Option<Resumption>,
}

/// A client at the beginning of a connection.
#[derive(Clone, Copy)]
pub struct Who {
    /// Index in its population in this agent.
    pub local: u32,
    /// Number of the client.
    pub n: u64,
    /// Index of its target.
    pub target: usize,
}

/// Identity of the clients.
enum Identity {
    /// All clients share the identity of the context, or have none.
    Shared,
    /// Each has a certificate of its own, or all have one that may change.
    Certificates(Box<Certificates>),
    /// Each has a key of its own; its number is at this index.
    Psk(Index<Ssl, u64>),
}

/// TlsSessions that clients offer when they connect again.
struct Resumption {
    share: f64,
    sessions: RefCell<TlsSessions>,
}

impl TlsError {
    /// Advice for the user.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Psk(PskError::Missing { .. }) => {
                "`pubstorm keys` makes a file with the identity of every client"
            }
            Self::Psk(_) => "a line is identity:key, for example device-1:0a1b2c3d",
            Self::NoRoots => "name a file of authorities under tls: ca:, or set SSL_CERT_FILE",
            Self::Ciphers { .. } => "`openssl ciphers -v LIST` shows what a list means",
            Self::Names { .. } | Self::Alpn(_) => "pubstorm check looks at them before the run",
            Self::KeyLog { .. } => "delete the file, or name another one under tls: key_log:",
            Self::Read { .. } | Self::Content { .. } | Self::Pair { .. } | Self::KeyAlone => {
                "`pubstorm keys` makes authorities, certificates and keys that fit together"
            }
            Self::OpenSsl(_) => "this is a fault of Pubstorm: please report it to its developers",
        }
    }
}

impl Tls {
    /// TLS of the clients of a population that `shard` plays; `None` where it has none.
    ///
    /// # Errors
    /// [`TlsError`]: the first file that cannot be used.
    pub fn new(plan: &Plan, population: usize, shard: Shard) -> Result<Option<Self>, TlsError> {
        let population = &plan.populations[population];
        let targets = &plan.targets[population.at.first..][..population.at.count];
        let (Some(tls), true) =
            (&population.tls, targets.iter().any(|target| target.tls && !target.quic))
        else {
            return Ok(None);
        };
        let share = shard.share(population.clients);
        let numbers = (0..share).map(|local| population.first + u64::from(shard.global(local)));
        let mut builder = context(tls)?;
        let identity = match (&tls.psk, &tls.certificate, &tls.key) {
            (Some(psk), _, _) => Identity::Psk(pre_shared(&mut builder, psk, numbers)?),
            (None, Some(certificate), key) => {
                let key = key.as_ref().unwrap_or(certificate).clone();
                let (certificate, passphrase) = (certificate.clone(), tls.passphrase.clone());
                let files = CertificateFiles { certificate, key, passphrase };
                match Certificates::new(&mut builder, files, numbers, tls.reread)? {
                    Some(certificates) => Identity::Certificates(Box::new(certificates)),
                    None => Identity::Shared,
                }
            }
            (None, None, Some(_)) => return Err(TlsError::KeyAlone),
            (None, None, None) => Identity::Shared,
        };
        let context = builder.build();
        let resumption = (tls.resume > 0.0).then(|| {
            let sessions = RefCell::new(TlsSessions::new(context.clone(), share as usize));
            Resumption { share: tls.resume, sessions }
        });
        Ok(Some(Self {
            context,
            verify: tls.verify,
            first_target: population.at.first,
            hosts: targets.iter().map(|target| target.peer_name().to_owned()).collect(),
            server_name: tls.server_name.clone(),
            identity,
            offers_protocols: !tls.alpn.is_empty(),
            resumption,
        }))
    }

    /// State of OpenSSL for a new connection of a client; `None` if its certificate cannot be
    /// loaded, which is logged the first time. `chance` decides if the client offers a session.
    pub fn begin(&self, who: Who, chance: Random, counters: &mut Counters) -> Option<Ssl> {
        let mut ssl = self.ssl(who).ok()?;
        if let Identity::Certificates(certificates) = &self.identity {
            let (certificate, is_reread) = certificates.of(who)?;
            certificate.give_to(&mut ssl).ok()?;
            if is_reread {
                counters.tls_certificates_reread_total += 1;
                self.forget(certificates, who);
            }
        }
        if let Some(Resumption { share, sessions }) = &self.resumption {
            let wants = || wants_to_resume(chance, who.n, *share);
            sessions.borrow_mut().offer(&mut ssl, who.local as usize, wants).ok()?;
        }
        Some(ssl)
    }

    fn ssl(&self, who: Who) -> Result<Ssl, ErrorStack> {
        let mut ssl = Ssl::new(&self.context)?;
        let own = self.server_name.as_ref().map(|name| name.text(who.n, 0));
        let name = own.as_deref().unwrap_or(&self.hosts[who.target - self.first_target]);
        match name.parse::<IpAddr>() {
            Ok(address) if self.verify => ssl.param_mut().set_ip(address)?,
            Ok(_) => {}
            Err(_) => {
                ssl.set_hostname(name)?;
                if self.verify {
                    ssl.param_mut().set_host(name)?;
                }
            }
        }
        if let Identity::Psk(index) = self.identity {
            ssl.set_ex_data(index, who.n);
        }
        Ok(ssl)
    }
}

/// Draws if a connection of client `n` offers a session, which a share of them does.
pub fn wants_to_resume(chance: Random, n: u64, share: f64) -> bool {
    chance.of(RESUMPTION).of(n).unit() < share
}

/// Settings of all clients of a population, for many connections that are mostly idle.
fn context(tls: &plan::PlannedTls) -> Result<SslContextBuilder, TlsError> {
    let mut builder = SslContext::builder(SslMethod::tls_client())?;
    builder.set_min_proto_version(Some(version(tls.min_version)))?;
    builder.set_max_proto_version(Some(version(tls.max_version)))?;
    names(&tls.groups, "groups", |list| builder.set_groups_list(list))?;
    if tls.groups.is_empty() {
        builder.set_groups_list(GROUPS)?;
    }
    names(&tls.suites, "cipher suites", |list| builder.set_ciphersuites(list))?;
    offer_protocols(&mut builder, &tls.alpn)?;
    let psk_ciphers = tls.psk.as_ref().map(|_| PSK_CIPHERS);
    if let Some(ciphers) = tls.ciphers.as_deref().or(psk_ciphers) {
        let wrong = |error| TlsError::Ciphers { found: ciphers.into(), error };
        builder.set_cipher_list(ciphers).map_err(wrong)?;
    }
    builder.set_verify(if tls.verify { SslVerifyMode::PEER } else { SslVerifyMode::NONE });
    if tls.verify {
        trust(&mut builder, tls)?;
    }
    if let Some(path) = &tls.key_log {
        key_log::begin(&mut builder, Path::new(path))?;
    }
    // Buffers of 16 KiB are given back as soon as they are empty, and the context keeps no session.
    builder.set_mode(
        SslMode::RELEASE_BUFFERS
            | SslMode::ENABLE_PARTIAL_WRITE
            | SslMode::ACCEPT_MOVING_WRITE_BUFFER,
    );
    let tickets = if tls.resume > 0.0 { SslOptions::empty() } else { SslOptions::NO_TICKET };
    builder.set_options(tickets | SslOptions::NO_RENEGOTIATION);
    builder.set_session_cache_mode(SslSessionCacheMode::OFF);
    // All records that have come in one call.
    builder.set_read_ahead(true);
    Ok(builder)
}

/// Sets a list of names that OpenSSL reads with colons, if the list is not empty.
fn names(
    names: &[String],
    wanted: &'static str,
    set: impl FnOnce(&str) -> Result<(), ErrorStack>,
) -> Result<(), TlsError> {
    if names.is_empty() {
        return Ok(());
    }
    let found = names.join(":");
    set(&found).map_err(|error| TlsError::Names { wanted, found, error })
}

/// Offers protocols by ALPN: each name after its length [RFC 7301, 3.1].
fn offer_protocols(builder: &mut SslContextBuilder, names: &[String]) -> Result<(), TlsError> {
    let mut list = Vec::new();
    for name in names {
        let bytes = u8::try_from(name.len()).ok().filter(|&bytes| bytes > 0);
        list.push(bytes.ok_or_else(|| TlsError::Alpn(name.clone()))?);
        list.extend(name.bytes());
    }
    if !list.is_empty() {
        builder.set_alpn_protos(&list)?;
    }
    Ok(())
}

/// Trusts the configured authorities, else the authorities of the system. Clients with pre-shared
/// keys need no authority, because their brokers have no certificate.
fn trust(builder: &mut SslContextBuilder, tls: &plan::PlannedTls) -> Result<(), TlsError> {
    let path = match &tls.ca {
        Some(path) => path.into(),
        None if tls.psk.is_some() => return Ok(()),
        None => openssl_probe::probe().cert_file.ok_or(TlsError::NoRoots)?,
    };
    let content = |error| TlsError::Content { path: path.clone(), wanted: "certificate", error };
    let authorities = X509::stack_from_pem(&read(&path)?).map_err(content)?;
    if authorities.is_empty() {
        return Err(content(ErrorStack::get()));
    }
    let store = builder.cert_store_mut();
    authorities.into_iter().try_for_each(|authority| store.add_cert(authority))?;
    Ok(())
}

/// Reads the keys of the clients with these numbers, and has OpenSSL ask for them.
fn pre_shared(
    builder: &mut SslContextBuilder,
    psk: &Psk,
    numbers: impl Iterator<Item = u64>,
) -> Result<Index<Ssl, u64>, TlsError> {
    let template = psk.identity.clone();
    let wanted = numbers.map(|n| template.text(n, 0)).collect();
    let keys = psk::read(Path::new(&psk.file), &wanted)?;
    let index = Ssl::new_ex_index()?;
    builder.set_psk_client_callback(move |ssl, _, identity, key| {
        let mine = ssl.ex_data(index).map(|&n| template.text(n, 0));
        let entry = mine.and_then(|mine| keys.get_key_value(mine.as_str()));
        let Some((mine, secret)) = entry else { return Ok(0) };
        let terminated = mine.bytes().chain(iter::once(0));
        identity.iter_mut().zip(terminated).for_each(|(place, byte)| *place = byte);
        key[..secret.len()].copy_from_slice(secret);
        Ok(secret.len())
    });
    Ok(index)
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|error| TlsError::Read { path: path.into(), error })
}

const fn version(version: TlsVersion) -> SslVersion {
    match version {
        TlsVersion::Tls12 => SslVersion::TLS1_2,
        TlsVersion::Tls13 => SslVersion::TLS1_3,
    }
}

/// OpenSSL's words for the first of its errors, after a colon.
fn words(error: &ErrorStack) -> String {
    let reason = error.errors().first().and_then(openssl::error::Error::reason);
    reason.map(|reason| format!(": {reason}")).unwrap_or_default()
}
