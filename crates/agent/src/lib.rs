//! Parts of programs. All of them share process set-up, standard streams and the wait of an event
//! loop. Agents share the lease, the clock, publications, the ledger of received messages and the
//! counts that become snapshots.

pub mod address;
pub mod changes;
pub mod clock;
pub mod error;
pub mod hint;
pub mod lease;
pub mod ledger;
pub mod pipes;
pub mod process;
pub mod program;
pub mod publication;
pub mod recordings;
pub mod rows;
pub mod snapshots;
pub mod stages;
pub mod tally;
pub mod wait;
