//! A server of QUIC without input and output, in virtual time: takes datagrams, and has one stream
//! of bytes for each connection. Its owner says which connections it accepts, and reads, writes
//! and ends them.

#![expect(clippy::disallowed_types, reason = "quinn-proto has instants; their clock is virtual")]

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use openssl::asn1::Asn1Time;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::x509::{X509Builder, X509Name};
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::{
    Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig,
    EndpointEvent, Event, ServerConfig, StreamEvent, StreamId, TransportConfig, VarInt,
};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::Rng;

/// Answer to a client that wants a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuicAnswer {
    /// The server accepts the connection, which has this number from then on.
    Accept(usize),
    /// The server refuses the connection.
    Refuse,
    /// The server does not answer.
    Ignore,
}

/// A server of QUIC.
pub struct ScriptedQuicServer {
    endpoint: Endpoint,
    origin: Instant,
    /// By number.
    connections: BTreeMap<usize, ServedConnection>,
    /// Numbers by handle.
    numbers: BTreeMap<ConnectionHandle, usize>,
    /// Datagrams to send, each with its destination.
    pub outgoing: VecDeque<(SocketAddr, Vec<u8>)>,
    /// Numbers of connections to look at: their streams are open, have bytes or room, or have
    /// ended.
    pub moved: VecDeque<usize>,
    /// Connections that clients have moved to another address.
    pub migrations_total: u64,
    /// Connections with data of the client before the end of the handshake.
    pub early_total: u64,
    /// Connections whose data before the end of the handshake the server rejects, in percent.
    pub rejects_early: usize,
    rng: Rng,
    /// Settings that reject them, with the sessions of the others.
    rejecting: Arc<ServerConfig>,
}

struct ServedConnection {
    handle: ConnectionHandle,
    connection: Connection,
    remote: SocketAddr,
    /// `None`: the client has opened none, or the server has closed the connection.
    stream: Option<StreamId>,
    end: Option<ConnectionError>,
    /// The endpoint has forgotten the connection.
    is_drained: bool,
}

impl ScriptedQuicServer {
    /// A server without connections. `idle_s`: idle timeout in seconds; 0: none. `window`: bytes
    /// of a stream that the server receives without reading them.
    ///
    /// # Panics
    /// The settings of TLS are not for QUIC.
    #[must_use]
    pub fn new(seed: u64, tls: &rustls::ServerConfig, idle_s: u32, window: u32) -> Self {
        let mut transport = TransportConfig::default();
        let idle = VarInt::from_u32(idle_s * 1000);
        transport
            .max_concurrent_bidi_streams(VarInt::from_u32(1))
            .mtu_discovery_config(None)
            .stream_receive_window(VarInt::from_u32(window))
            .max_idle_timeout((idle_s > 0).then(|| idle.into()));
        let transport = Arc::new(transport);
        let with = |max_early_data_size| {
            let mut tls = tls.clone();
            tls.max_early_data_size = max_early_data_size;
            let crypto = QuicServerConfig::try_from(tls).expect("it has TLS 1.3");
            let mut config = ServerConfig::with_crypto(Arc::new(crypto));
            config.transport_config(Arc::clone(&transport));
            Arc::new(config)
        };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&(!seed).to_le_bytes());
        let endpoint = Endpoint::new(
            EndpointConfig::default().into(),
            Some(with(u32::MAX)),
            false,
            Some(bytes),
        );
        Self {
            endpoint,
            origin: Instant::now(),
            connections: BTreeMap::new(),
            numbers: BTreeMap::new(),
            outgoing: VecDeque::new(),
            moved: VecDeque::new(),
            migrations_total: 0,
            early_total: 0,
            rejects_early: 0,
            rng: Rng::new(seed ^ 0x0e_a417),
            rejecting: with(0),
        }
    }

    /// Next instant at which a connection has a timer, in nanoseconds.
    pub fn next_ns(&mut self) -> u64 {
        let timeouts = self.connections.values_mut().filter_map(|s| s.connection.poll_timeout());
        let next = timeouts.min().map(|at| at.saturating_duration_since(self.origin));
        next.map_or(u64::MAX, |since| since.as_nanos() as u64)
    }

    /// Takes a datagram. `answer` is asked about new connections, by the first identifier that the
    /// client has chosen for the server.
    pub fn receive(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        bytes: &[u8],
        answer: impl FnOnce(&[u8]) -> QuicAnswer,
    ) {
        let now = self.instant(now_ns);
        let mut buffer = Vec::new();
        let event = self.endpoint.handle(now, from, None, None, BytesMut::from(bytes), &mut buffer);
        let transmit = match event {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                let served = self.numbers.get(&handle).and_then(|n| self.connections.get_mut(n));
                if let Some(served) = served {
                    served.connection.handle_event(event);
                }
                None
            }
            Some(DatagramEvent::NewConnection(incoming)) => match answer(incoming.orig_dst_cid()) {
                QuicAnswer::Ignore => {
                    self.endpoint.ignore(incoming);
                    None
                }
                QuicAnswer::Refuse => Some(self.endpoint.refuse(incoming, &mut buffer)),
                QuicAnswer::Accept(number) => {
                    let rejects = self.rng.chance(self.rejects_early);
                    let other = rejects.then(|| Arc::clone(&self.rejecting));
                    match self.endpoint.accept(incoming, now, &mut buffer, other) {
                        Ok((handle, connection)) => {
                            self.numbers.insert(handle, number);
                            let served = ServedConnection::new(handle, connection);
                            self.connections.insert(number, served);
                            None
                        }
                        Err(error) => error.response,
                    }
                }
            },
            Some(DatagramEvent::Response(transmit)) => Some(transmit),
            None => None,
        };
        if let Some(transmit) = transmit {
            let bytes = buffer[..transmit.size].to_vec();
            self.outgoing.push_back((transmit.destination, bytes));
        }
    }

    /// Handles timers and events of all connections, and fills `outgoing` and `moved`.
    pub fn drive(&mut self, now_ns: u64) {
        let now = self.instant(now_ns);
        let Self { endpoint, connections, numbers, outgoing, moved, early_total, .. } = self;
        let mut migrations = 0;
        connections.retain(|&number, served| {
            if served.connection.poll_timeout().is_some_and(|at| at <= now) {
                served.connection.handle_timeout(now);
            }
            if served.take_events(early_total) {
                moved.push_back(number);
            }
            served.transmit(now, outgoing);
            served.answer(endpoint);
            let remote = served.connection.remote_address();
            migrations += u64::from(std::mem::replace(&mut served.remote, remote) != remote);
            if served.is_drained {
                numbers.remove(&served.handle);
            }
            // Bytes that a client has sent before its end are still read.
            !served.is_drained || served.stream.is_some()
        });
        self.migrations_total += migrations;
    }

    /// Returns `true` if a connection has a stream.
    #[must_use]
    pub fn is_open(&self, number: usize) -> bool {
        self.connections.get(&number).is_some_and(|served| served.stream.is_some())
    }

    /// Returns `true` while a connection has not ended its handshake.
    #[must_use]
    pub fn is_handshaking(&self, number: usize) -> bool {
        self.connections.get(&number).is_some_and(|served| served.connection.is_handshaking())
    }

    /// Reads up to `most` bytes that have arrived. Returns `true` behind the last byte of the
    /// client.
    pub fn read(&mut self, number: usize, most: usize) -> (Vec<u8>, bool) {
        let Some(served) = self.connections.get_mut(&number) else { return (Vec::new(), true) };
        let Some(id) = served.stream else { return (Vec::new(), served.end.is_some()) };
        let mut bytes = Vec::new();
        let mut stream = served.connection.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return (bytes, true) };
        let has_ended = loop {
            if bytes.len() == most {
                break false;
            }
            match chunks.next(most - bytes.len()) {
                Ok(Some(chunk)) => bytes.extend_from_slice(&chunk.bytes),
                Ok(None) => break true,
                Err(quinn_proto::ReadError::Blocked) => break served.end.is_some(),
                Err(quinn_proto::ReadError::Reset(_)) => break true,
            }
        };
        let _ = chunks.finalize();
        (bytes, has_ended)
    }

    /// Writes bytes as far as the windows of the client have room. Returns their number.
    pub fn write(&mut self, number: usize, bytes: &[u8]) -> usize {
        let Some((served, id)) = self.open(number) else { return 0 };
        served.connection.send_stream(id).write(bytes).unwrap_or(0)
    }

    /// Ends the server's side of a stream.
    pub fn finish(&mut self, number: usize) {
        if let Some((served, id)) = self.open(number) {
            let _ = served.connection.send_stream(id).finish();
        }
    }

    /// Resets the server's side of a stream.
    pub fn reset(&mut self, number: usize, code: u32) {
        if let Some((served, id)) = self.open(number) {
            let _ = served.connection.send_stream(id).reset(VarInt::from_u32(code));
        }
    }

    /// Closes a connection with a code.
    pub fn close(&mut self, now_ns: u64, number: usize, code: u32) {
        let now = self.instant(now_ns);
        if let Some(served) = self.connections.get_mut(&number) {
            served.stream = None;
            served.connection.close(now, VarInt::from_u32(code), "enough".into());
        }
    }

    /// Forgets a connection: the client finds out when its next packet is answered with a reset.
    pub fn forget(&mut self, number: usize) {
        if let Some(served) = self.connections.remove(&number)
            && !served.is_drained
        {
            self.numbers.remove(&served.handle);
            self.endpoint.handle_event(served.handle, EndpointEvent::drained());
        }
    }

    /// The end of a connection that a client or time has brought.
    #[must_use]
    pub fn end(&self, number: usize) -> Option<&ConnectionError> {
        self.connections.get(&number)?.end.as_ref()
    }

    fn open(&mut self, number: usize) -> Option<(&mut ServedConnection, StreamId)> {
        let served = self.connections.get_mut(&number).filter(|served| served.end.is_none())?;
        served.stream.map(|id| (served, id))
    }

    fn instant(&self, now_ns: u64) -> Instant {
        self.origin + Duration::from_nanos(now_ns)
    }
}

impl ServedConnection {
    fn new(handle: ConnectionHandle, connection: Connection) -> Self {
        let remote = connection.remote_address();
        Self { handle, connection, remote, stream: None, end: None, is_drained: false }
    }

    /// Takes the events of the connection. Returns `true` if there were some.
    fn take_events(&mut self, early_total: &mut u64) -> bool {
        let mut has_moved = false;
        while let Some(event) = self.connection.poll() {
            has_moved = true;
            match event {
                Event::ConnectionLost { reason } => self.end = Some(reason),
                Event::Stream(StreamEvent::Opened { dir: Dir::Bi }) => {
                    self.stream = self.connection.streams().accept(Dir::Bi);
                    *early_total += u64::from(self.connection.is_handshaking());
                }
                _ => {}
            }
        }
        has_moved
    }

    fn transmit(&mut self, now: Instant, outgoing: &mut VecDeque<(SocketAddr, Vec<u8>)>) {
        let mut buffer = Vec::new();
        while let Some(transmit) = self.connection.poll_transmit(now, 1, &mut buffer) {
            outgoing.push_back((transmit.destination, buffer[..transmit.size].to_vec()));
            buffer.clear();
        }
    }

    /// Exchanges events with the endpoint.
    fn answer(&mut self, endpoint: &mut Endpoint) {
        while let Some(event) = self.connection.poll_endpoint_events() {
            self.is_drained |= event.is_drained();
            if let Some(answer) = endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(answer);
            }
        }
    }
}

/// A server's side of TLS with a certificate of its own, which clients cannot verify. Its
/// signatures have one size, so that a run of a seed is the same each time.
///
/// # Panics
/// OpenSSL cannot make a key.
#[must_use]
pub fn unverified_tls() -> rustls::ServerConfig {
    static ISSUED: LazyLock<(Vec<u8>, Vec<u8>)> = LazyLock::new(|| {
        let key = PKey::generate_ed25519().expect("OpenSSL has Ed25519");
        let issued = certificate(&key).expect("OpenSSL makes certificates");
        (issued, key.private_key_to_pkcs8().expect("a key has this form"))
    });
    let (certificate, key) = &*ISSUED;
    let chain = vec![CertificateDer::from(certificate.clone())];
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.clone()));
    let mut tls = rustls::ServerConfig::builder_with_provider(ring::default_provider().into())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .expect("the certificate fits the key");
    tls.alpn_protocols = vec![b"mqtt".to_vec()];
    tls
}

fn certificate(key: &PKey<Private>) -> Result<Vec<u8>, ErrorStack> {
    let mut name = X509Name::builder()?;
    name.append_entry_by_text("CN", "simulated")?;
    let name = name.build();
    let mut builder = X509Builder::new()?;
    builder.set_version(2)?;
    builder.set_subject_name(&name)?;
    builder.set_issuer_name(&name)?;
    let (from, to) = (Asn1Time::days_from_now(0)?, Asn1Time::days_from_now(365)?);
    builder.set_not_before(&from)?;
    builder.set_not_after(&to)?;
    builder.set_pubkey(key)?;
    builder.sign(key, MessageDigest::null())?;
    builder.build().to_der()
}
