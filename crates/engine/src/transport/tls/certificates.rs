//! Certificates of clients: loaded at the start if all clients have the same one, otherwise at each
//! client's first connection, and again when the files have changed, if the plan asks for it.

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use openssl::error::ErrorStack;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{SslContextBuilder, SslRef};
use openssl::x509::X509;
use plan::Template;

use super::{TlsError, Who, read};

/// Certificates that connections get one by one.
pub struct Certificates {
    files: CertificateFiles,
    /// By local index of the client; one for all clients if their files are the same.
    loaded: RefCell<Vec<Option<Rc<Certificate>>>>,
    /// Versions of the files of `loaded`; `None` if files are read once.
    versions: Option<RefCell<Vec<PairVersions>>>,
    /// A failure to load a client's file has been logged.
    logged: Cell<bool>,
}

/// Paths of certificates and keys.
pub struct CertificateFiles {
    /// Template of a certificate's path.
    pub certificate: Template,
    /// Template of a key's path.
    pub key: Template,
    /// Template of a key's passphrase; `None`: the key is not encrypted.
    pub passphrase: Option<Template>,
}

/// A client's certificate with its chain, and its key.
pub struct Certificate {
    chain: Vec<X509>,
    key: PKey<Private>,
}

/// Versions of the files of a certificate and of a key.
type PairVersions = [Option<FileVersion>; 2];

/// A file as it was: inode, size, and time of the last change with its nanoseconds.
type FileVersion = (u64, u64, i64, i64);

impl Certificates {
    /// Certificates of the clients with these numbers, whose files must exist. If all clients have
    /// one certificate for all the run, gives it to the builder and returns `None`.
    pub fn new(
        builder: &mut SslContextBuilder,
        files: CertificateFiles,
        mut numbers: impl Iterator<Item = u64>,
        reread: bool,
    ) -> Result<Option<Self>, TlsError> {
        let mut loaded = Vec::new();
        let mut versions = Vec::new();
        if files.are_shared() {
            versions.push(files.versions(0));
            let certificate = files.load(0)?;
            if !reread {
                certificate.give_to_all(builder)?;
                return Ok(None);
            }
            loaded.push(Some(Rc::new(certificate)));
        } else {
            numbers.try_for_each(|n| {
                let (certificate, key) = files.paths(n);
                loaded.push(None);
                versions.push([None; 2]);
                found(&certificate).and_then(|()| found(&key))
            })?;
        }
        let versions = reread.then(|| RefCell::new(versions));
        let loaded = RefCell::new(loaded);
        Ok(Some(Self { files, loaded, versions, logged: Cell::new(false) }))
    }

    /// The certificate of a client, and `true` if it has been read again. `None` if the client's
    /// files cannot be used, which is logged the first time. A certificate that cannot be read
    /// again stays.
    pub fn of(&self, who: Who) -> Option<(Rc<Certificate>, bool)> {
        let place = if self.files.are_shared() { 0 } else { who.local as usize };
        let known = self.loaded.borrow()[place].clone();
        let watched = self.versions.as_ref().map(|known| (known, self.files.versions(who.n)));
        let has_changed = watched.is_some_and(|(known, found)| known.borrow()[place] != found);
        if let (Some(known), false) = (&known, has_changed) {
            return Some((Rc::clone(known), false));
        }
        match self.files.load(who.n) {
            Ok(certificate) => {
                let certificate = Rc::new(certificate);
                self.loaded.borrow_mut()[place] = Some(Rc::clone(&certificate));
                if let Some((versions, found)) = watched {
                    versions.borrow_mut()[place] = found;
                }
                Some((certificate, known.is_some()))
            }
            Err(error) => {
                self.log(&error);
                known.map(|known| (known, false))
            }
        }
    }

    /// Returns `true` if all clients have the same certificate.
    pub fn are_shared(&self) -> bool {
        self.files.are_shared()
    }

    fn log(&self, error: &TlsError) {
        if !self.logged.replace(true) {
            // Nothing is left to be done if stderr is gone.
            let _ = writeln!(io::stderr(), "a client cannot use its certificate: {error}");
        }
    }
}

impl CertificateFiles {
    /// Returns `true` if all clients have the same files.
    fn are_shared(&self) -> bool {
        self.certificate.is_fixed() && self.key.is_fixed()
    }

    /// Paths of the certificate and the key of client number `n`.
    fn paths(&self, n: u64) -> (PathBuf, PathBuf) {
        (self.certificate.text(n, 0).into(), self.key.text(n, 0).into())
    }

    fn versions(&self, n: u64) -> PairVersions {
        let (certificate, key) = self.paths(n);
        [certificate, key].map(|path| {
            let file = path.metadata().ok()?;
            Some((file.ino(), file.size(), file.mtime(), file.mtime_nsec()))
        })
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
        let passphrase = self.passphrase.as_ref().map(|template| template.text(n, 0));
        let wanted = match passphrase {
            None => "private key without a passphrase",
            Some(_) => "private key that the passphrase opens",
        };
        // Without the callback OpenSSL would ask for a passphrase on the terminal.
        let answer = |place: &mut [u8]| {
            let bytes = passphrase.as_ref().map_or(&b""[..], String::as_bytes);
            let Some(place) = place.get_mut(..bytes.len()) else { return Ok(0) };
            place.copy_from_slice(bytes);
            Ok(bytes.len())
        };
        let private = PKey::private_key_from_pem_callback(&read(&key)?, answer)
            .map_err(content(&key, wanted))?;
        if !chain[0].public_key()?.public_eq(&private) {
            return Err(TlsError::Pair { certificate, key });
        }
        Ok(Certificate { chain, key: private })
    }
}

impl Certificate {
    /// Gives a connection the certificate.
    pub fn give_to(&self, ssl: &mut SslRef) -> Result<(), ErrorStack> {
        ssl.set_certificate(&self.chain[0])?;
        ssl.set_private_key(&self.key)?;
        self.chain[1..].iter().try_for_each(|issuer| ssl.add_chain_cert(issuer.clone()))
    }

    /// Gives all connections the certificate.
    fn give_to_all(&self, builder: &mut SslContextBuilder) -> Result<(), ErrorStack> {
        builder.set_certificate(&self.chain[0])?;
        builder.set_private_key(&self.key)?;
        let mut issuers = self.chain[1..].iter();
        issuers.try_for_each(|issuer| builder.add_extra_chain_cert(issuer.clone()))
    }
}

fn found(path: &Path) -> Result<(), TlsError> {
    let read = |error| TlsError::Read { path: path.into(), error };
    path.metadata().map(drop).map_err(read)
}
