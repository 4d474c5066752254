//! WebSocket of clients over a channel: the upgrade from HTTP, then one frame and one write for
//! each batch. The framing itself is in the crate `websocket`.

use plan::{Family, Population, Reason, Target};
use websocket::upgrade::{self, RequestKey, UpgradeRequest};
use websocket::{FrameSession, MaskingKeys, ReadEnd, UpgradeError};

use super::{Channel, Halt};

/// Memory of an idle client under WebSocket beyond TCP: this box, with the 8 bytes of the allocator
/// 48 bytes. (As in `client.rs`.)
#[cfg(not(any(debug_assertions, test)))]
const _: () = assert!(size_of::<WebSocket>() <= 40);

/// Bytes of an answer to an upgrade that are read at once.
const ANSWER_BYTES: usize = 2048;

/// A connection under WebSocket.
pub struct WebSocket {
    channel: Channel,
    state: WebSocketState,
}

enum WebSocketState {
    Opening(Box<Upgrade>),
    Open(FrameSession<false>),
}

/// An upgrade that is under way.
struct Upgrade {
    key: RequestKey,
    /// Bytes of the request that have not gone.
    request: Vec<u8>,
    /// The front of the answer.
    answer: Vec<u8>,
}

/// State that all connections under WebSocket use, one after the other.
pub struct Framing {
    keys: MaskingKeys,
    /// The frame that is written.
    frame: Vec<u8>,
    /// Pings that have arrived since they were last counted.
    pub pings: u64,
    /// Pongs that have arrived since they were last counted.
    pub pongs: u64,
}

impl Framing {
    /// For the connections of an agent; the seed makes the masking keys.
    pub const fn new(seed: u64) -> Self {
        Self { keys: MaskingKeys::new(seed), frame: Vec::new(), pings: 0, pongs: 0 }
    }

    /// Moves the payload in received bytes to their front, and returns its length.
    #[inline]
    fn receive(&mut self, session: &mut FrameSession<false>, bytes: &mut [u8]) -> usize {
        let received = session.receive(bytes, &mut self.keys);
        self.pings += u64::from(received.pings);
        self.pongs += u64::from(received.pongs);
        received.payload
    }
}

impl WebSocket {
    /// A WebSocket to a path of a target over a connected channel, of client `n` of a population.
    /// Nothing is sent yet.
    pub fn new(
        channel: Channel,
        (target, path): (&Target, &str),
        (population, n): (&Population, u64),
        framing: &mut Framing,
    ) -> Self {
        let headers = population.headers.iter();
        let headers: Vec<_> = headers.map(|h| (&*h.name, h.value.text(n, 0))).collect();
        let key = RequestKey::new(framing.keys.nonce());
        let mut request = Vec::new();
        UpgradeRequest { host: &authority(target), path, headers: &headers }
            .write(&key, &mut request);
        let opening = Upgrade { key, request, answer: Vec::new() };
        Self { channel, state: WebSocketState::Opening(opening.into()) }
    }

    /// Continues the handshake of TLS, then the upgrade.
    pub fn handshake(&mut self, framing: &mut Framing) -> Result<(), Halt> {
        let WebSocketState::Opening(opening) = &mut self.state else { return Ok(()) };
        self.channel.handshake()?;
        while !opening.request.is_empty() {
            let count = self.channel.write(&opening.request, true)?;
            opening.request.drain(..count);
        }
        let mut session = FrameSession::default();
        let mut rest = opening.read_answer(&mut self.channel)?;
        let payload = framing.receive(&mut session, &mut rest);
        // A broker of MQTT sends nothing of its own before CONNECT.
        if payload > 0 {
            return Err(Halt::Lost(Reason::ProtocolError));
        }
        self.state = WebSocketState::Open(session);
        self.write_own();
        Ok(())
    }

    /// Notes that the socket has bytes again. `ended`: the peer has closed its side.
    pub fn wake(&mut self, ended: bool) {
        self.channel.wake(ended);
    }

    /// Reads once, and returns the number of bytes that were in frames of data.
    #[inline]
    pub fn read(
        &mut self,
        buffer: &mut [u8],
        connecting: bool,
        framing: &mut Framing,
    ) -> Result<usize, Halt> {
        let WebSocketState::Open(session) = &mut self.state else { return Err(Halt::Later) };
        if let Some(end) = session.end() {
            // Not before: answers to the last packets are frames of data.
            self.close(framing);
            return Err(Halt::Lost(reason(end)));
        }
        let count = self.channel.read(buffer, connecting)?;
        let payload = framing.receive(session, &mut buffer[..count]);
        self.write_own();
        Ok(payload)
    }

    /// Writes a frame, or the rest of one, and returns the number of bytes of data that have gone.
    #[inline]
    pub fn write(
        &mut self,
        bytes: &[u8],
        connecting: bool,
        framing: &mut Framing,
    ) -> Result<usize, Halt> {
        let WebSocketState::Open(session) = &mut self.state else { return Err(Halt::Later) };
        write_replies(session, &mut self.channel, connecting)?;
        framing.frame.clear();
        let frame = session.frame(bytes, &mut framing.keys, &mut framing.frame);
        let written = self.channel.write(&framing.frame, connecting);
        // A frame that did not go goes again as it is, key included: TLS wants the same bytes.
        let gone = session.note_written(frame, written.unwrap_or(0));
        self.write_own();
        written.map(|_| gone)
    }

    /// Writes pongs and the answer to a close, as far as there is room.
    pub fn write_own(&mut self) {
        if let WebSocketState::Open(session) = &mut self.state {
            // The next frame sends the rest first, and finds a lost connection.
            let _ = write_replies(session, &mut self.channel, false);
        }
    }

    /// Ends the connection behind everything that was sent, as far as there is room.
    pub fn close(&mut self, framing: &mut Framing) {
        if let WebSocketState::Open(session) = &mut self.state {
            session.close(&mut framing.keys);
        }
        self.write_own();
    }

    /// The channel below.
    pub const fn channel(&self) -> &Channel {
        &self.channel
    }

    /// The channel below.
    pub const fn channel_mut(&mut self) -> &mut Channel {
        &mut self.channel
    }
}

impl Upgrade {
    /// Reads the answer to its end, and returns the bytes behind it.
    fn read_answer(&mut self, channel: &mut Channel) -> Result<Vec<u8>, Halt> {
        let mut bytes = [0; ANSWER_BYTES];
        loop {
            let read = channel.read(&mut bytes, true);
            let count = read.map_err(|halt| match halt {
                // So does a listener of MQTT without WebSocket.
                Halt::Lost(Reason::ConnectReset | Reason::ConnectClosed) => {
                    Halt::Lost(Reason::UpgradeClosed)
                }
                other => other,
            })?;
            self.answer.extend_from_slice(&bytes[..count]);
            let len = upgrade::read_answer(&self.answer, &self.key);
            if let Some(len) = len.map_err(|error| Halt::Lost(refusal(error)))? {
                return Ok(self.answer.split_off(len));
            }
        }
    }
}

/// Writes control frames, unless a frame of data has gone in part.
#[inline]
fn write_replies(
    session: &mut FrameSession<false>,
    channel: &mut Channel,
    connecting: bool,
) -> Result<(), Halt> {
    while !session.replies().is_empty() {
        let count = channel.write(session.replies(), connecting)?;
        session.note_replied(count);
    }
    Ok(())
}

/// Host and port as the header `Host` has them: without the port that the scheme implies.
fn authority(target: &Target) -> String {
    let Target { port, tls, .. } = target;
    let host = target.peer_name();
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let implied = if *tls { 443 } else { 80 };
    if *port == implied { host } else { format!("{host}:{port}") }
}

/// The reason behind an answer that is no upgrade.
fn refusal(error: UpgradeError) -> Reason {
    match error {
        UpgradeError::Invalid => Reason::UpgradeInvalid,
        UpgradeError::Ignored | UpgradeError::Status(200..300) => Reason::UpgradeIgnored,
        UpgradeError::AcceptKey => Reason::WrongAcceptKey,
        UpgradeError::Subprotocol => Reason::NoSubprotocol,
        UpgradeError::Status(status) => Reason::of(Family::Http, status),
    }
}

/// The reason behind the end of a connection [6455, 7.4.1].
fn reason(end: ReadEnd) -> Reason {
    match end {
        ReadEnd::Broken(_) => Reason::WebsocketInvalid,
        ReadEnd::Closed(code) => Reason::of(Family::WebsocketClose, code.unwrap_or(1000)),
    }
}
