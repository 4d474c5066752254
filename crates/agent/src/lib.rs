//! What every program that plays a part of a plan is made of: its ends of stdin and stdout, its
//! lease, its clock, what its publications need to know, the ledger of what it receives, and the
//! counts that become snapshots. It knows no socket and no protocol.

pub mod clock;
pub mod deliveries;
pub mod lease;
pub mod ledger;
pub mod pipes;
pub mod process;
pub mod publication;
pub mod rows;
pub mod tally;
