//! The NATS client protocol and JetStream without input or output: bytes in, bytes out, time as an
//! argument.
//!
//! The codecs turn bytes into the operations of a [`server`] and of a [`client`], and back,
//! borrowing every payload. The [`NatsSession`] is the connection of one simulated client: INFO,
//! CONNECT, subscriptions, heartbeats, messages, and publications that [`jetstream`] acknowledges.
//! The module [`nkey`] has the texts of keys.
//!
//! ```
//! use nats::{NatsEvent, NatsSession, client::{ConnectOptions, NatsSubscribe}};
//!
//! let (mut session, mut out) = (NatsSession::<()>::new(), Vec::new());
//! session.open();
//! let greeted = session.handle(b"INFO {\"max_payload\":1048576}\r\n", &mut out).unwrap();
//! assert!(matches!(greeted.event, NatsEvent::Greeted(info) if info.max_payload == 1 << 20));
//! session.connect(&ConnectOptions { name: "reader", ..ConnectOptions::default() }, &mut out);
//!
//! let connected = session.handle(b"PONG\r\n", &mut out).unwrap();
//! assert_eq!(connected.event, NatsEvent::Connected);
//! session.subscribe(&NatsSubscribe { subject: b"price.*", group: None, sid: 2 }, &mut out);
//! session.confirm(false, &mut out);
//! assert!(out.ends_with(b"SUB price.* 2\r\nPING\r\n"));
//!
//! let arrived = session.handle(b"MSG price.ore 2 2\r\n42\r\n", &mut out).unwrap();
//! let NatsEvent::Message(message) = arrived.event else { unreachable!() };
//! assert_eq!((message.subject, message.payload), (&b"price.ore"[..], &b"42"[..]));
//! ```

pub mod client;
mod error;
pub mod headers;
pub mod jetstream;
mod limits;
mod line;
pub mod nkey;
mod refusal;
pub mod server;
mod session;
pub mod subject;

pub use error::NatsError;
pub use headers::Headers;
pub use limits::{LINE_MAX, MESSAGE_MAX};
pub use line::DecodedOperation;
pub use refusal::ServerError;
pub use session::{FIRST_SID, HandledOperation, NatsEvent, NatsSession};
