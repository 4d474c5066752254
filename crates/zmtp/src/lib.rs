//! The ZeroMQ message transport protocol without input or output: bytes in, bytes out, time as an
//! argument.
//!
//! The codec turns bytes into [`frame`]s, the [`greeting`] and [`command`]s, and back, borrowing
//! every body. The [`ZmtpSession`] is the connection of one simulated SUB socket: handshake,
//! subscriptions, heartbeats, messages. The [`publisher`] is the opposite side, with the features
//! that tests and benches need. In production the publishers are programs that use libzmq.
//!
//! The protocol is ZMTP 3.1 (RFC 37/ZMTP) with the mechanisms NULL (defined there) and PLAIN (RFC
//! 24/ZMTP-PLAIN). The crate also supports peers of version 3.0 (RFC 23/ZMTP). Subscriptions to
//! such a peer are messages, and the session sends no PING. Headings such as [37/ZMTP, Framing]
//! cite the RFC.
//!
//! ```
//! use zmtp::{Mechanism, ZmtpEvent, ZmtpSession, publisher::{PublisherSession, encode_message}};
//!
//! let (mut session, mut publisher) = (ZmtpSession::new(), PublisherSession::new());
//! let (mut up, mut down) = (Vec::new(), Vec::new());
//! session.connect(&Mechanism::Null, &mut up);
//! publisher.accept(&Mechanism::Null, &mut down);
//!
//! // Each side reads the greeting of the other side and answers with READY.
//! let greeted = session.handle(&down, &Mechanism::Null, &mut up).unwrap();
//! assert_eq!((greeted.len, greeted.event), (64, ZmtpEvent::Greeted));
//! let done = publisher.handle(&up, &Mechanism::Null, &mut down).unwrap().len;
//! publisher.handle(&up[done..], &Mechanism::Null, &mut down).unwrap();
//! encode_message(b"price", b"42", &mut down);
//!
//! let ready = session.handle(&down[64..], &Mechanism::Null, &mut up).unwrap();
//! assert_eq!(ready.event, ZmtpEvent::Connected);
//! let rest = &down[64 + ready.len..];
//! let arrived = session.handle(rest, &Mechanism::Null, &mut up).unwrap();
//! let ZmtpEvent::Message(message) = arrived.event else { unreachable!() };
//! assert_eq!((message.topic(), message.payload()), (&b"price"[..], &b"42"[..]));
//! ```

pub mod command;
mod error;
pub mod frame;
pub mod greeting;
mod limits;
mod name;
pub mod publisher;
mod session;

pub use error::ZmtpError;
pub use limits::{BODY_MAX, FRAMES_MAX, MESSAGE_MAX};
pub use name::Name;
pub use session::{Handled, ZmtpEvent, ZmtpMessage, ZmtpSession};

/// Security mechanism of a connection, with the credentials that a subscriber sends or a publisher
/// requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism<'a> {
    /// No authentication [37/ZMTP, The NULL Security Mechanism].
    Null,
    /// A user name and a password in clear text [24/ZMTP-PLAIN], each of at most 255 bytes.
    Plain {
        /// User name of the client.
        username: &'a [u8],
        /// Password of the client.
        password: &'a [u8],
    },
}

impl Mechanism<'_> {
    /// Name of the mechanism in a greeting.
    #[must_use]
    pub const fn name(&self) -> Name {
        match self {
            Self::Null => Name::Null,
            Self::Plain { .. } => Name::Plain,
        }
    }
}
