//! Authorities, certificates and keys made for one test, in a folder that is removed on drop.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use openssl::asn1::{Asn1Integer, Asn1Time};
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509Builder, X509Name};

static FOLDERS: AtomicU32 = AtomicU32::new(0);

/// A folder for files of one test.
pub struct Folder(PathBuf);

/// A certificate and its key.
pub struct Issued {
    pub certificate: X509,
    pub key: PKey<Private>,
}

/// An authority that signs.
pub struct Authority(pub Issued);

impl Folder {
    pub fn new() -> Self {
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("pubstorm-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Writes a file and returns its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.0.join(name), content).unwrap();
        self.path(name)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let key = key();
        let mut builder = builder(name, &key, (0, 365));
        builder.set_issuer_name(&subject(name)).unwrap();
        builder.append_extension(BasicConstraints::new().critical().ca().build().unwrap()).unwrap();
        builder.sign(&key, MessageDigest::sha256()).unwrap();
        Self(Issued { certificate: builder.build(), key })
    }

    /// A certificate for a DNS name or an address, valid from and to days from now.
    pub fn issue(&self, name: &str, days: (i64, i64)) -> Issued {
        let key = key();
        let mut builder = builder(name, &key, days);
        builder.set_issuer_name(self.0.certificate.subject_name()).unwrap();
        let mut names = SubjectAlternativeName::new();
        match name.parse::<std::net::IpAddr>() {
            Ok(_) => names.ip(name),
            Err(_) => names.dns(name),
        };
        let context = builder.x509v3_context(Some(&self.0.certificate), None);
        let names = names.build(&context).unwrap();
        builder.append_extension(names).unwrap();
        builder.sign(&self.0.key, MessageDigest::sha256()).unwrap();
        Issued { certificate: builder.build(), key }
    }
}

impl Issued {
    pub fn certificate_pem(&self) -> Vec<u8> {
        self.certificate.to_pem().unwrap()
    }

    pub fn key_pem(&self) -> Vec<u8> {
        self.key.private_key_to_pem_pkcs8().unwrap()
    }
}

fn key() -> PKey<Private> {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
}

fn builder(name: &str, key: &PKey<Private>, (from, to): (i64, i64)) -> X509Builder {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let day = |days: i64| Asn1Time::from_unix(now.as_secs() as i64 + days * 86_400 - 60).unwrap();
    let serial = u32::from(key.public_key_to_der().unwrap()[40]) + 1;
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    let serial = Asn1Integer::from_bn(&BigNum::from_u32(serial).unwrap()).unwrap();
    builder.set_serial_number(&serial).unwrap();
    builder.set_subject_name(&subject(name)).unwrap();
    builder.set_pubkey(key).unwrap();
    builder.set_not_before(&day(from)).unwrap();
    builder.set_not_after(&day(to)).unwrap();
    builder
}

fn subject(name: &str) -> X509Name {
    let mut builder = X509Name::builder().unwrap();
    builder.append_entry_by_text("CN", name).unwrap();
    builder.build()
}
