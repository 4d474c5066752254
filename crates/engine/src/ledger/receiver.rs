//! The client whose deliveries the books take.

use crate::seam::received::Marks;

/// A client that receives.
#[derive(Clone, Copy)]
pub struct Receiver {
    /// Index of its population.
    pub population: usize,
    /// Its index in this agent.
    pub index: u32,
    /// Its index in the share of its population.
    pub local: u32,
    /// Marks of messages that are not plain.
    pub watched: Marks,
}
