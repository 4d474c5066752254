//! Puts the real engine and the scripted broker together over TCP on loopback.

mod agent;
mod scripted;

pub use agent::{Agent, Totals, plan, population, publication};
pub use scripted::{Scripted, Server};
