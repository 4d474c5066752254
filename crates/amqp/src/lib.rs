//! AMQP 0-9-1 without input or output: bytes in, bytes out, time as an argument of the caller.
//!
//! The codecs turn bytes into [`frame`]s, [`method`]s and headers of messages ([`content`]), and
//! back. The [`AmqpSession`] is the connection of one simulated client: login, channels, queues and
//! consumers, messages, and publications that the broker confirms.
//!
//! ```
//! use amqp::{AmqpEvent, AmqpLogin, AmqpMethod, AmqpSession, Table};
//!
//! let (mut session, mut out) = (AmqpSession::<()>::new(), Vec::new());
//! session.open(&mut out);
//! assert_eq!(out, b"AMQP\0\0\x09\x01");
//!
//! let mut start = Vec::new();
//! let (properties, mechanisms) = (Table::default(), &b"PLAIN EXTERNAL"[..]);
//! AmqpMethod::ConnectionStart { major: 0, minor: 9, properties, mechanisms, locales: b"en_US" }
//!     .push(0, &mut start);
//! let started = session.handle(&start, &mut out).unwrap();
//! assert!(matches!(started.event, AmqpEvent::Started("PLAIN EXTERNAL")));
//! let login = AmqpLogin { mechanism: b"PLAIN", response: b"\0guest\0guest", name: b"reader" };
//! session.log_in(&login, &mut out);
//! assert!(out.windows(13).any(|part| part == b"\0\0\0\x0c\0guest\0gu"));
//! ```

pub mod content;
mod error;
pub mod field;
pub mod frame;
mod limits;
pub mod method;
pub mod packet;
mod session;

pub use error::AmqpError;
pub use field::Table;
pub use limits::{BODY_MAX, DEPTH_MAX, FRAME_MAX, FRAME_MIN};
pub use method::AmqpMethod;
pub use session::{
    AmqpEvent, AmqpLimits, AmqpLogin, AmqpMessage, AmqpSession, AmqpStep, RequiredLimits,
};
pub use session::{push_ack, push_heartbeat, push_publish, push_requeue};
