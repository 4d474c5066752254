//! TLS of the baseline: the engine's settings, and a peer that accepts every client.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use openssl::asn1::Asn1Time;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{
    Ssl, SslContext, SslContextBuilder, SslMethod, SslMode, SslOptions, SslSessionCacheMode,
    SslStream, SslVerifyMode, SslVersion,
};
use openssl::x509::X509;
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};

use crate::wire::FIRST_CLIENT;

/// The key of every identity; the bench gives the engine the same.
const KEY: [u8; 16] = [0x5a; 16];

/// Options of modes that can use TLS.
#[derive(Args)]
pub struct TlsOptions {
    /// TLS of the connections, the same as the sink's [default: none]
    #[arg(long, value_name = "WORD")]
    tls: Option<StreamSecurity>,
    /// File where the sink writes its certificate, and connect reads it
    #[arg(long, value_name = "FILE", default_value = "sink.pem")]
    pem: PathBuf,
}

/// TLS of a connection.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StreamSecurity {
    /// Pre-shared keys, TLS 1.2
    #[value(name = "psk-1.2")]
    Psk12,
    /// Pre-shared keys, TLS 1.3
    #[value(name = "psk-1.3")]
    Psk13,
    /// The sink's certificate, verified; TLS 1.3
    Certificate,
}

impl TlsOptions {
    /// Returns the context of clients; `None`: without TLS.
    ///
    /// # Errors
    /// OpenSSL's, and a certificate that cannot be read.
    pub fn client(&self) -> Result<Option<SslContext>> {
        self.tls.map(|tls| tls.client(&self.pem)).transpose()
    }

    /// Returns the context of the sink, whose certificate it writes; `None`: without TLS.
    ///
    /// # Errors
    /// OpenSSL's, and a certificate that cannot be written.
    pub fn server(&self) -> Result<Option<SslContext>> {
        self.tls.map(|tls| tls.server(&self.pem)).transpose()
    }
}

/// A connection.
pub enum SecureStream {
    /// As it is.
    Plain(TcpStream),
    /// Under TLS.
    Tls(Box<SslStream<TcpStream>>),
}

impl StreamSecurity {
    /// Context of clients; `pem` holds the sink's certificate.
    fn client(self, pem: &Path) -> Result<SslContext> {
        let mut builder = self.builder(SslMethod::tls_client())?;
        builder.set_groups_list("X25519:P-256:P-384:P-521")?;
        builder.set_verify(SslVerifyMode::PEER);
        builder.set_options(SslOptions::NO_TICKET | SslOptions::NO_RENEGOTIATION);
        builder.set_read_ahead(true);
        if self == Self::Certificate {
            let certificate = X509::from_pem(&fs::read(pem).context("cannot read --pem")?)?;
            builder.cert_store_mut().add_cert(certificate)?;
            return Ok(builder.build());
        }
        builder.set_cipher_list("aPSK:!eNULL:!kDHEPSK")?;
        let client = Ssl::new_ex_index::<usize>()?;
        CLIENT.get_or_init(|| client);
        builder.set_psk_client_callback(move |ssl, _, identity, key| {
            let number = FIRST_CLIENT + ssl.ex_data(client).copied().unwrap_or_default();
            let text = format!("bench-{number}\0");
            identity[..text.len()].copy_from_slice(text.as_bytes());
            key[..KEY.len()].copy_from_slice(&KEY);
            Ok(KEY.len())
        });
        Ok(builder.build())
    }

    /// Context of the sink; a certificate is made and written to `pem`.
    fn server(self, pem: &Path) -> Result<SslContext> {
        let mut builder = self.builder(SslMethod::tls_server())?;
        if self == Self::Certificate {
            let (certificate, key) = certificate()?;
            fs::write(pem, certificate.to_pem()?).context("cannot write --pem")?;
            builder.set_certificate(&certificate)?;
            builder.set_private_key(&key)?;
        } else {
            builder.set_psk_server_callback(|_, _, key| {
                key[..KEY.len()].copy_from_slice(&KEY);
                Ok(KEY.len())
            });
        }
        Ok(builder.build())
    }

    fn builder(self, method: SslMethod) -> Result<SslContextBuilder> {
        let version = if self == Self::Psk12 { SslVersion::TLS1_2 } else { SslVersion::TLS1_3 };
        let mut builder = SslContext::builder(method)?;
        builder.set_min_proto_version(Some(version))?;
        builder.set_max_proto_version(Some(version))?;
        builder.set_mode(
            SslMode::RELEASE_BUFFERS
                | SslMode::ENABLE_PARTIAL_WRITE
                | SslMode::ACCEPT_MOVING_WRITE_BUFFER,
        );
        builder.set_session_cache_mode(SslSessionCacheMode::OFF);
        Ok(builder)
    }
}

/// Index of the client's number in a connection with pre-shared keys.
static CLIENT: std::sync::OnceLock<openssl::ex_data::Index<Ssl, usize>> =
    std::sync::OnceLock::new();

impl SecureStream {
    /// A client's side of TLS on a socket that stands; nothing is sent yet.
    pub fn connect(socket: TcpStream, context: &SslContext, client: usize) -> Result<Self> {
        let mut ssl = Ssl::new(context)?;
        ssl.set_connect_state();
        ssl.param_mut().set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST))?;
        if let Some(&index) = CLIENT.get() {
            ssl.set_ex_data(index, client);
        }
        Ok(Self::Tls(Box::new(SslStream::new(ssl, socket)?)))
    }

    /// Returns the sink's side; the handshake goes with the first reads.
    ///
    /// # Errors
    /// OpenSSL's.
    pub fn accept(socket: TcpStream, context: &SslContext) -> io::Result<Self> {
        let mut ssl = Ssl::new(context)?;
        ssl.set_accept_state();
        Ok(Self::Tls(Box::new(SslStream::new(ssl, socket)?)))
    }

    /// Continues the handshake; returns `true` if the handshake has ended.
    pub fn handshake(&mut self) -> Result<bool> {
        let Self::Tls(stream) = self else { return Ok(true) };
        match stream.do_handshake() {
            Ok(()) => Ok(true),
            Err(error) if would_block(&error) => Ok(false),
            Err(error) => Err(error).context("the handshake failed"),
        }
    }
}

impl Read for SecureStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for SecureStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for SecureStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(stream) => stream.as_fd(),
            Self::Tls(stream) => stream.get_ref().as_fd(),
        }
    }
}

fn would_block(error: &openssl::ssl::Error) -> bool {
    error.io_error().is_some_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// A certificate for 127.0.0.1 that vouches for itself, and its key.
fn certificate() -> Result<(X509, PKey<Private>)> {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?;
    let key = PKey::from_ec_key(EcKey::generate(&group)?)?;
    let mut builder = X509::builder()?;
    builder.set_version(2)?;
    let (from, to) = (Asn1Time::days_from_now(0)?, Asn1Time::days_from_now(1)?);
    builder.set_not_before(&from)?;
    builder.set_not_after(&to)?;
    builder.set_pubkey(&key)?;
    builder.append_extension(BasicConstraints::new().critical().ca().build()?)?;
    let names =
        SubjectAlternativeName::new().ip("127.0.0.1").build(&builder.x509v3_context(None, None))?;
    builder.append_extension(names)?;
    builder.sign(&key, MessageDigest::sha256())?;
    Ok((builder.build(), key))
}
