//! Lines of stdin and stdout: one command a line, and one answer to each command.

use serde::{Deserialize, Serialize};

/// A line of stdin.
#[derive(Debug, Deserialize, Serialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum LinkCommand {
    /// Open links to an address, each with its own port.
    Open {
        /// Common name of the links.
        name: String,
        /// Target: host and port.
        to: String,
        /// Number of links.
        count: usize,
        /// Address to listen on.
        listen: std::net::IpAddr,
    },
    /// Change the state of links.
    Set {
        /// Name of the links.
        name: String,
        /// Numbers of the links.
        links: Vec<usize>,
        /// New state of the links.
        state: LinkState,
        /// Delay of all bytes, in nanoseconds; for `pass` only.
        #[serde(default)]
        delay_ns: u64,
    },
    /// Report the counts.
    Count,
}

/// Treatment of connections and bytes by a link.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    /// Bytes pass, after the delay.
    Pass,
    /// Connections are reset and new ones refused: the peer notices.
    Close,
    /// Nothing is accepted, read or written: a cut cable, which no peer notices at once.
    Stall,
}

/// The answer to a command.
#[derive(Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LinkAnswer {
    /// Links are open.
    Opened {
        /// Name of the links.
        name: String,
        /// Port of each link.
        ports: Vec<u16>,
    },
    /// A state is in force.
    Set {
        /// Name of the links.
        name: String,
    },
    /// The counts.
    Counts {
        /// By name, in the order of opening.
        links: Vec<LinkCounts>,
    },
    /// A command was not carried out.
    Failure {
        /// The problem found.
        message: String,
        /// Advice.
        hint: String,
    },
}

/// Totals of the links of one name.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct LinkCounts {
    /// Name of the links.
    pub name: String,
    /// Open connections.
    pub open: u64,
    /// Connections accepted.
    pub accepted_total: u64,
    /// Accepted connections that the target refused.
    pub refused_total: u64,
    /// Bytes forwarded from the peers that connect.
    pub out_bytes_total: u64,
    /// Bytes forwarded to the peers that connect.
    pub in_bytes_total: u64,
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{LinkAnswer, LinkCommand};

    fn golden(key: &str) -> Vec<Value> {
        let golden: Value =
            serde_json::from_str(include_str!("../../../contract/golden/proxy.json")).unwrap();
        golden[key].as_array().unwrap().clone()
    }

    #[test]
    fn commands_are_read_and_refused_as_agreed() {
        for line in golden("commands") {
            let command: LinkCommand = serde_json::from_value(line.clone()).unwrap();
            assert_eq!(serde_json::to_value(command).unwrap(), line);
        }
        for line in golden("commands_refused") {
            assert!(serde_json::from_value::<LinkCommand>(line.clone()).is_err(), "{line}");
        }
    }

    #[test]
    fn answers_are_written_as_agreed() {
        for line in golden("answers") {
            let answer: LinkAnswer = serde_json::from_value(line.clone()).unwrap();
            assert_eq!(serde_json::to_value(answer).unwrap(), line);
        }
    }
}
