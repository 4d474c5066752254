//! TLS of a population: trusted authorities and identities of clients, prepared once.

mod psk;

use std::cell::{Cell, OnceCell};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::{fs, iter};

use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{
    Ssl, SslContext, SslContextBuilder, SslMethod, SslMode, SslOptions, SslRef,
    SslSessionCacheMode, SslVerifyMode, SslVersion,
};
use openssl::x509::X509;
use plan::{Plan, Psk, Shard, Template, TlsVersion};

pub use psk::PskError;

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
    /// Name in the certificate of each target, from the first target on.
    names: Vec<String>,
    identity: Identity,
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
    /// Each has a certificate of its own, loaded at its first connection.
    Certificates(Certificates),
    /// Each has a key of its own; its number is at this index.
    Psk(Index<Ssl, u64>),
}

struct Certificates {
    files: Files,
    /// By local index of the client.
    loaded: Vec<OnceCell<Certificate>>,
    /// A failure to load a client's file has been logged.
    logged: Cell<bool>,
}

/// Paths of certificates and keys.
struct Files {
    certificate: Template,
    key: Template,
}

/// A client's certificate with its chain, and its key.
struct Certificate {
    chain: Vec<X509>,
    key: PKey<Private>,
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
        let (Some(tls), true) = (&population.tls, targets.iter().any(|target| target.tls)) else {
            return Ok(None);
        };
        let share = shard.share(population.clients);
        let numbers = (0..share).map(|local| population.first + u64::from(shard.global(local)));
        let mut builder = context(tls)?;
        let identity = match (&tls.psk, &tls.certificate, &tls.key) {
            (Some(psk), _, _) => Identity::Psk(pre_shared(&mut builder, psk, numbers)?),
            (None, Some(certificate), key) => {
                let key = key.as_ref().unwrap_or(certificate).clone();
                let files = Files { certificate: certificate.clone(), key };
                certified(&mut builder, files, numbers)?
            }
            (None, None, Some(_)) => return Err(TlsError::KeyAlone),
            (None, None, None) => Identity::Shared,
        };
        let name = |target: &plan::Target| tls.server_name.as_ref().unwrap_or(&target.host).clone();
        let names = targets.iter().map(name).collect();
        let first_target = population.at.first;
        let verify = tls.verify;
        Ok(Some(Self { context: builder.build(), verify, first_target, names, identity }))
    }

    /// State of OpenSSL for a new connection of a client; `None` if its certificate cannot be
    /// loaded, which is logged the first time.
    pub fn begin(&self, who: Who) -> Option<Ssl> {
        let ssl = match &self.identity {
            Identity::Certificates(certificates) => match certificates.of(who) {
                Ok(certificate) => self.ssl(who, Some(certificate)),
                Err(error) => {
                    certificates.log(&error);
                    return None;
                }
            },
            Identity::Shared | Identity::Psk(_) => self.ssl(who, None),
        };
        ssl.ok()
    }

    fn ssl(&self, who: Who, certificate: Option<&Certificate>) -> Result<Ssl, ErrorStack> {
        let mut ssl = Ssl::new(&self.context)?;
        let name = &self.names[who.target - self.first_target];
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
        if let Some(certificate) = certificate {
            certificate.give_to(&mut ssl)?;
        }
        Ok(ssl)
    }
}

impl Certificates {
    fn of(&self, who: Who) -> Result<&Certificate, TlsError> {
        let place = &self.loaded[who.local as usize];
        if let Some(certificate) = place.get() {
            return Ok(certificate);
        }
        let certificate = self.files.load(who.n)?;
        Ok(place.get_or_init(|| certificate))
    }

    fn log(&self, error: &TlsError) {
        if !self.logged.replace(true) {
            // Nothing is left to be done if stderr is gone.
            let _ = writeln!(io::stderr(), "a client cannot use its certificate: {error}");
        }
    }
}

impl Files {
    /// Paths of the certificate and the key of client number `n`.
    fn paths(&self, n: u64) -> (PathBuf, PathBuf) {
        (self.certificate.text(n, 0).into(), self.key.text(n, 0).into())
    }

    fn load(&self, n: u64) -> Result<Certificate, TlsError> {
        let (certificate, key) = self.paths(n);
        let content = |path: &Path, wanted| {
            let path = path.into();
            move |error| TlsError::Content { path, wanted, error }
        };
        let chain = X509::stack_from_pem(&read(&certificate)?)
            .and_then(|chain| if chain.is_empty() { Err(ErrorStack::get()) } else { Ok(chain) })
            .map_err(content(&certificate, "certificate"))?;
        // Without the callback OpenSSL would ask for a passphrase on the terminal.
        let private = PKey::private_key_from_pem_callback(&read(&key)?, |_| Ok(0))
            .map_err(content(&key, "private key without a passphrase"))?;
        if !chain[0].public_key()?.public_eq(&private) {
            return Err(TlsError::Pair { certificate, key });
        }
        Ok(Certificate { chain, key: private })
    }
}

impl Certificate {
    fn give_to(&self, ssl: &mut SslRef) -> Result<(), ErrorStack> {
        ssl.set_certificate(&self.chain[0])?;
        ssl.set_private_key(&self.key)?;
        self.chain[1..].iter().try_for_each(|issuer| ssl.add_chain_cert(issuer.clone()))
    }
}

/// Settings of all clients of a population, for many connections that are mostly idle.
fn context(tls: &plan::PlannedTls) -> Result<SslContextBuilder, TlsError> {
    let mut builder = SslContext::builder(SslMethod::tls_client())?;
    builder.set_min_proto_version(Some(version(tls.min_version)))?;
    builder.set_max_proto_version(Some(version(tls.max_version)))?;
    builder.set_groups_list(GROUPS)?;
    let psk_ciphers = tls.psk.as_ref().map(|_| PSK_CIPHERS);
    if let Some(ciphers) = tls.ciphers.as_deref().or(psk_ciphers) {
        let wrong = |error| TlsError::Ciphers { found: ciphers.into(), error };
        builder.set_cipher_list(ciphers).map_err(wrong)?;
    }
    builder.set_verify(if tls.verify { SslVerifyMode::PEER } else { SslVerifyMode::NONE });
    if tls.verify {
        trust(&mut builder, tls)?;
    }
    // Buffers of 16 KiB are given back as soon as they are empty, and no session is kept.
    builder.set_mode(
        SslMode::RELEASE_BUFFERS
            | SslMode::ENABLE_PARTIAL_WRITE
            | SslMode::ACCEPT_MOVING_WRITE_BUFFER,
    );
    builder.set_options(SslOptions::NO_TICKET | SslOptions::NO_RENEGOTIATION);
    builder.set_session_cache_mode(SslSessionCacheMode::OFF);
    // All records that have come in one call.
    builder.set_read_ahead(true);
    Ok(builder)
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

/// Loads the certificate that all clients have; if each has its own, checks that all files
/// exist.
fn certified(
    builder: &mut SslContextBuilder,
    files: Files,
    mut numbers: impl Iterator<Item = u64>,
) -> Result<Identity, TlsError> {
    if files.certificate.is_fixed() && files.key.is_fixed() {
        let Certificate { chain, key } = files.load(0)?;
        builder.set_certificate(&chain[0])?;
        builder.set_private_key(&key)?;
        chain.into_iter().skip(1).try_for_each(|issuer| builder.add_extra_chain_cert(issuer))?;
        return Ok(Identity::Shared);
    }
    let mut loaded = Vec::new();
    numbers.try_for_each(|n| {
        let (certificate, key) = files.paths(n);
        loaded.push(OnceCell::new());
        found(&certificate).and_then(|()| found(&key))
    })?;
    Ok(Identity::Certificates(Certificates { files, loaded, logged: Cell::new(false) }))
}

fn found(path: &Path) -> Result<(), TlsError> {
    let read = |error| TlsError::Read { path: path.into(), error };
    fs::metadata(path).map(drop).map_err(read)
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
