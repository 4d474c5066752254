//! The engine as a library: the loop and its clients on a [`Host`]. The program `pubstorm-engine`
//! gives it the kernel, the simulator a machine in virtual time.

mod addresses;
mod client;
mod context;
mod event_loop;
mod expectations;
mod host;
mod ledger;
mod outboxes;
mod rounds;
mod seam;
mod setup;
mod sparkplug;
mod transport;

mod schedule {
    //! Instants at which clients act: stages and their changes, session lifetimes, flapping
    //! subscriptions, timers.

    pub mod agenda;
    pub mod coalescing;
    pub mod flaps;
    pub mod lifetimes;
    pub mod publishing;
    pub mod quotas;
    pub mod read_rate;
    pub mod stage;
    pub mod unfinished;
    pub mod wheel;
}

pub use client::{Client, LEAVE_NS, UNSENT_MAX};
pub use event_loop::EventLoop;
pub use host::{Host, SimulatedMachine};
pub use setup::{Assignment, Setup, SetupError, bind_rows};
pub use transport::link::{ClientLink, LinkedWire, TimedSocket};
pub use transport::quic::hub::Hub;
pub use transport::quic::security::QuicIdentity;
pub use transport::quic::sockets::{Datagram, DatagramSockets, SocketIndex};
pub use transport::quic::{QuicConnection, SharedHub};
pub use transport::tcp::{Ready, TcpRoute, reason as reason_of_socket_error};
pub use transport::{Halt, SimulatedConnection, Wire};
