//! The listener for MQTT over QUIC: one stream for each client, handed to the listener of TCP over
//! the loopback. rmqtt's own listener accepts one client after the other, and needs a second
//! library of cryptography.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::QuicServerConfig;
use quinn::{
    Endpoint, EndpointConfig, Incoming, ServerConfig, TokioRuntime, TransportConfig, VarInt,
};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ServerSessionMemoryCache;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{copy_bidirectional, join};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Name of MQTT in the handshake.
const ALPN: &[u8] = b"mqtt";
/// Sessions that clients can resume, with data in their first flight.
const SESSIONS: usize = 100_000;
/// Buffers of the kernel for the one socket of all clients, in bytes, up to `net.core.rmem_max` and
/// `wmem_max`. Bursts of connects fill the usual 208 KiB.
const KERNEL_BUFFER: usize = 4 * 1024 * 1024;
/// Longest wait for the acknowledgement of a client's last bytes.
const LAST_BYTES: Duration = Duration::from_secs(2);

/// Settings of the listener.
#[derive(Debug)]
pub struct QuicOptions {
    /// Address and port of UDP.
    pub address: SocketAddr,
    /// File of the certificate chain (PEM).
    pub certificate: PathBuf,
    /// File of the private key (PEM).
    pub key: PathBuf,
    /// Time without a packet after which a connection ends, in seconds; 0: never.
    pub idle_timeout_s: u32,
    /// Connections may change the address of their client.
    pub migrates: bool,
}

/// Listens, and hands streams to the listener at `to`. Returns the port.
///
/// # Errors
/// The system's, or a file without a certificate or a key.
pub fn listen(options: &QuicOptions, to: SocketAddr) -> rmqtt::Result<u16> {
    let socket = socket(options.address)?;
    let settings = EndpointConfig::default();
    let endpoint = Endpoint::new(settings, Some(config(options)?), socket, Arc::new(TokioRuntime))?;
    let port = endpoint.local_addr()?.port();
    tokio::spawn(async move {
        while let Some(incoming) = endpoint.accept().await {
            tokio::spawn(async move {
                if let Err(error) = serve(incoming, to).await {
                    log::info!("a connection of QUIC has ended: {error:#}");
                }
            });
        }
    });
    Ok(port)
}

fn socket(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    // A kernel that allows less takes its limit.
    let _ = socket.set_recv_buffer_size(KERNEL_BUFFER);
    let _ = socket.set_send_buffer_size(KERNEL_BUFFER);
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Carries the bytes of one client in both directions, up to the end of one side.
async fn serve(incoming: Incoming, to: SocketAddr) -> rmqtt::Result<()> {
    let connecting = incoming.accept()?;
    // A server reads the client's first flight before the handshake has ended.
    let connection = match connecting.into_0rtt() {
        Ok((connection, _)) => connection,
        Err(connecting) => connecting.await?,
    };
    let (send, receive) = connection.accept_bi().await?;
    let mut broker = TcpStream::connect(to).await?;
    broker.set_nodelay(true)?;
    let mut client = join(receive, send);
    let first = connection.remote_address();
    let carried = copy_bidirectional(&mut client, &mut broker).await;
    let last = connection.remote_address();
    if last != first {
        log::info!("a client of QUIC has migrated from {first} to {last}");
    }
    carried?;
    let (_, send) = client.into_inner();
    let _ = timeout(LAST_BYTES, send.stopped()).await;
    connection.close(VarInt::from_u32(0), b"");
    Ok(())
}

fn config(options: &QuicOptions) -> rmqtt::Result<ServerConfig> {
    let chain = CertificateDer::pem_file_iter(&options.certificate);
    let chain = chain.and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| unfit(&options.certificate, &error))?;
    let key = PrivateKeyDer::from_pem_file(&options.key);
    let key = key.map_err(|error| unfit(&options.key, &error))?;
    let mut tls = rustls::ServerConfig::builder_with_provider(ring::default_provider().into())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| unfit(&options.certificate, &error))?;
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls.session_storage = ServerSessionMemoryCache::new(SESSIONS);
    tls.max_early_data_size = u32::MAX;
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    let idle = VarInt::from_u32(options.idle_timeout_s.saturating_mul(1000));
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .max_idle_timeout((options.idle_timeout_s > 0).then(|| idle.into()));
    config.transport_config(Arc::new(transport)).migration(options.migrates);
    Ok(config)
}

fn unfit(path: &Path, error: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {error}", path.display()))
}
