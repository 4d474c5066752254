//! The lines that come in and go out: one command each, and one answer to each. It knows no
//! socket.

use serde::{Deserialize, Serialize};

/// A line from outside.
#[derive(Debug, Deserialize, Serialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// Open links to an address, each with a port of its own.
    Open {
        /// Name that they have together.
        name: String,
        /// Where they lead: host and port.
        to: String,
        /// How many.
        count: usize,
        /// Address that they listen on.
        listen: std::net::IpAddr,
    },
    /// Change the state of links.
    Set {
        /// Their name.
        name: String,
        /// Their numbers.
        links: Vec<usize>,
        /// Their state from now on.
        state: State,
        /// How much later everything is handed on, in nanoseconds; for `pass` only.
        #[serde(default)]
        delay_ns: u64,
    },
    /// Say what has been counted.
    Count,
}

/// What a link does with connections and bytes.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Bytes pass, after the delay.
    Pass,
    /// Connections are reset and new ones refused: a peer that is told.
    Close,
    /// Nothing is accepted, read or written: a cut cable, of which nobody is told.
    Stall,
}

/// The answer to a command.
#[derive(Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Answer {
    /// Links are open.
    Opened {
        /// Their name.
        name: String,
        /// Port of each.
        ports: Vec<u16>,
    },
    /// A state is in force.
    Set {
        /// Name of the links.
        name: String,
    },
    /// What has been counted.
    Counts {
        /// By name, in the order of their opening.
        links: Vec<Counts>,
    },
    /// A command was not carried out.
    Failure {
        /// What was found.
        message: String,
        /// What to do about it.
        hint: String,
    },
}

/// What the links of one name have seen so far.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Their name.
    pub name: String,
    /// Connections that stand now.
    pub open: u64,
    /// Connections accepted.
    pub accepted_total: u64,
    /// Accepted connections that the other end did not take.
    pub refused_total: u64,
    /// Bytes handed on from those that connect.
    pub out_bytes_total: u64,
    /// Bytes handed on to them.
    pub in_bytes_total: u64,
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{Answer, Command};

    fn golden(key: &str) -> Vec<Value> {
        let golden: Value =
            serde_json::from_str(include_str!("../../../contract/golden/proxy.json")).unwrap();
        golden[key].as_array().unwrap().clone()
    }

    #[test]
    fn commands_are_read_and_refused_as_agreed() {
        for line in golden("commands") {
            let command: Command = serde_json::from_value(line.clone()).unwrap();
            assert_eq!(serde_json::to_value(command).unwrap(), line);
        }
        for line in golden("commands_refused") {
            assert!(serde_json::from_value::<Command>(line.clone()).is_err(), "{line}");
        }
    }

    #[test]
    fn answers_are_written_as_agreed() {
        for line in golden("answers") {
            let answer: Answer = serde_json::from_value(line.clone()).unwrap();
            assert_eq!(serde_json::to_value(answer).unwrap(), line);
        }
    }
}
