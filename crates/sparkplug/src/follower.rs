//! A host's view of one edge node: its births and deaths, the sequence of its messages, and the
//! rebirths that the host asks for.

use crate::read::SparkplugPayload;
use crate::topic::SparkplugKind;

/// State of the view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FollowedState {
    /// The host has received nothing of the node, or its death.
    #[default]
    Unborn,
    /// The births and all messages since have been received.
    Online,
    /// A message is missing: only births end this state.
    Stale,
}

/// A host's view of an edge node.
#[derive(Clone, Copy, Debug, Default)]
pub struct SparkplugFollower {
    state: FollowedState,
    /// Sequence number of the next message.
    next_seq: u8,
    /// Number of the node's connection; `None` before a birth.
    bd_seq: Option<u64>,
    /// Number of the next message since the birth, for nodes that send such numbers.
    next_number: Option<u64>,
    /// Instant of the last message in order, in nanoseconds.
    last_ns: u64,
    /// Instant at which the host has asked for births that have not come, in nanoseconds.
    asked_ns: Option<u64>,
}

/// A message of an edge node.
#[derive(Clone, Copy, Debug)]
pub struct Followed<'a> {
    /// Type of the message.
    pub kind: SparkplugKind,
    /// Its payload.
    pub payload: &'a SparkplugPayload<'a>,
    /// Number of the message since the node's birth, for nodes that send such numbers.
    pub number: Option<u64>,
    /// `true` for data of a device that has died and was not born again.
    pub is_of_dead: bool,
    /// Instant at which the message was scheduled, in nanoseconds; that of its arrival if it is not
    /// known.
    pub sent_ns: u64,
    /// Instant of the arrival, in nanoseconds.
    pub now_ns: u64,
}

/// A gap that the host has noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SparkplugGap {
    /// Messages that are missing.
    pub missing: u64,
    /// Time from the first missing message to the notice, in nanoseconds. The missing messages are
    /// taken to be spread evenly between the messages around them.
    pub noticed_ns: i64,
}

/// Meaning of a message for the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SparkplugReport {
    /// Messages before this one are missing.
    pub gap: Option<SparkplugGap>,
    /// Messages before this one are missing, and its sequence number does not show it: their number
    /// is a multiple of 256.
    pub is_hidden_gap: bool,
    /// The node or its device has sent data without a birth that the host has received.
    pub is_unborn: bool,
    /// The death is that of an earlier connection.
    pub is_old_death: bool,
    /// Time from the host's request to this birth, in nanoseconds; `None` for other messages.
    pub reborn_ns: Option<u64>,
    /// The host asks the node for its births.
    pub asks: bool,
}

impl SparkplugFollower {
    /// Takes the next message of the node. A host asks again if births have not come within
    /// `ask_again_ns`.
    pub fn take(&mut self, message: &Followed<'_>, ask_again_ns: u64) -> SparkplugReport {
        match message.kind {
            SparkplugKind::NodeBirth => self.born(message),
            SparkplugKind::NodeDeath => self.died(message),
            SparkplugKind::NodeCommand | SparkplugKind::DeviceCommand => SparkplugReport::default(),
            SparkplugKind::NodeData
            | SparkplugKind::DeviceBirth
            | SparkplugKind::DeviceDeath
            | SparkplugKind::DeviceData => match self.state {
                FollowedState::Online => {
                    let report = self.follow(message);
                    // A gap before it may have been the birth of the device.
                    if !message.is_of_dead || report.asks {
                        return report;
                    }
                    SparkplugReport {
                        is_hidden_gap: report.is_hidden_gap,
                        is_unborn: true,
                        ..self.ask(message.now_ns)
                    }
                }
                FollowedState::Unborn => {
                    SparkplugReport { is_unborn: true, ..self.ask(message.now_ns) }
                }
                FollowedState::Stale => {
                    let asked_ns = self.asked_ns.unwrap_or(0);
                    if message.now_ns.saturating_sub(asked_ns) < ask_again_ns {
                        return SparkplugReport::default();
                    }
                    self.ask(message.now_ns)
                }
            },
        }
    }

    /// A birth begins the sequence. It answers a request unless the node has connected again.
    fn born(&mut self, message: &Followed<'_>) -> SparkplugReport {
        let bd_seq = message.payload.bd_seq;
        let is_same = self.bd_seq.is_none_or(|own| Some(own) == bd_seq);
        let asked_ns = self.asked_ns.take().filter(|_| is_same);
        *self = Self { state: FollowedState::Online, bd_seq, ..Self::default() };
        self.expect_after(message);
        let reborn_ns = asked_ns.map(|asked_ns| message.now_ns.saturating_sub(asked_ns));
        SparkplugReport { reborn_ns, ..SparkplugReport::default() }
    }

    /// A death counts for the connection that it belongs to alone.
    fn died(&mut self, message: &Followed<'_>) -> SparkplugReport {
        let is_old_death = self.bd_seq.is_some() && self.bd_seq != message.payload.bd_seq;
        if !is_old_death {
            (self.state, self.asked_ns) = (FollowedState::Unborn, None);
        }
        SparkplugReport { is_old_death, ..SparkplugReport::default() }
    }

    fn follow(&mut self, message: &Followed<'_>) -> SparkplugReport {
        let (next_number, next_seq) = (self.next_number, u64::from(self.next_seq));
        let beyond = message.number.zip(next_number).map(|(number, next)| number.abs_diff(next));
        let is_next = message.payload.seq == Some(next_seq);
        if is_next {
            self.expect_after(message);
            let is_hidden_gap = beyond.is_some_and(|beyond| beyond > 0);
            return SparkplugReport { is_hidden_gap, ..SparkplugReport::default() };
        }
        let by_seq = message.payload.seq.unwrap_or(next_seq).wrapping_sub(next_seq) % 256;
        let missing = beyond.unwrap_or(by_seq).max(1);
        let between_ns = message.sent_ns.saturating_sub(self.last_ns) / (missing + 1);
        let first_ns = self.last_ns.min(message.sent_ns) + between_ns;
        let noticed_ns = message.now_ns.cast_signed() - first_ns.cast_signed();
        let gap = Some(SparkplugGap { missing, noticed_ns });
        SparkplugReport { gap, ..self.ask(message.now_ns) }
    }

    const fn ask(&mut self, now_ns: u64) -> SparkplugReport {
        (self.state, self.asked_ns) = (FollowedState::Stale, Some(now_ns));
        SparkplugReport {
            gap: None,
            is_hidden_gap: false,
            is_unborn: false,
            is_old_death: false,
            reborn_ns: None,
            asks: true,
        }
    }

    /// Expects the message after this one.
    fn expect_after(&mut self, message: &Followed<'_>) {
        self.next_seq = (message.payload.seq.unwrap_or(0) as u8).wrapping_add(1);
        self.next_number = match message.kind {
            SparkplugKind::NodeBirth => Some(1),
            // A message without a number is one of those that have some.
            _ => message.number.or(self.next_number).map(|number| number + 1),
        };
        self.last_ns = message.sent_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ASK_AGAIN_NS: u64 = 1000;

    /// A host that receives messages, and the instant of the last one.
    #[derive(Default)]
    struct Following {
        follower: SparkplugFollower,
        now_ns: u64,
        is_of_dead: bool,
    }

    impl Following {
        /// Takes a message 10 ns after the last one, which it was sent at.
        fn take(
            &mut self,
            kind: SparkplugKind,
            bd_seq: Option<u64>,
            number: u64,
        ) -> SparkplugReport {
            self.now_ns += 10;
            let seq = (kind != SparkplugKind::NodeDeath).then_some(number % 256);
            let payload = SparkplugPayload { seq, bd_seq, ..SparkplugPayload::default() };
            let is_data = matches!(kind, SparkplugKind::NodeData | SparkplugKind::DeviceData);
            let message = Followed {
                kind,
                payload: &payload,
                number: is_data.then_some(number),
                is_of_dead: self.is_of_dead,
                sent_ns: self.now_ns,
                now_ns: self.now_ns,
            };
            self.follower.take(&message, ASK_AGAIN_NS)
        }

        fn birth(&mut self, bd_seq: u64) -> SparkplugReport {
            self.take(SparkplugKind::NodeBirth, Some(bd_seq), 0)
        }

        fn death(&mut self, bd_seq: u64) -> SparkplugReport {
            self.take(SparkplugKind::NodeDeath, Some(bd_seq), 0)
        }

        fn data(&mut self, number: u64) -> SparkplugReport {
            self.take(SparkplugKind::NodeData, None, number)
        }
    }

    const NOTHING: SparkplugReport = SparkplugReport {
        gap: None,
        is_hidden_gap: false,
        is_unborn: false,
        is_old_death: false,
        reborn_ns: None,
        asks: false,
    };

    #[test]
    fn a_gap_is_noticed_once_and_ends_with_the_birth_that_was_asked_for() {
        let mut host = Following::default();
        assert_eq!(host.birth(3), NOTHING);
        assert_eq!(host.take(SparkplugKind::DeviceBirth, None, 1), NOTHING);
        assert_eq!(host.data(2), NOTHING);
        // Messages 3, 4 and 5 are missing: they were due 2.5, 5 and 7.5 ns after message 2.
        let gap = Some(SparkplugGap { missing: 3, noticed_ns: 8 });
        assert_eq!(host.data(6), SparkplugReport { gap, asks: true, ..NOTHING });
        assert_eq!([host.data(7), host.data(9)], [NOTHING; 2]);
        assert_eq!(host.birth(3), SparkplugReport { reborn_ns: Some(30), ..NOTHING });
        assert_eq!([host.data(1), host.data(2)], [NOTHING; 2]);
    }

    #[test]
    fn a_host_asks_again_only_after_a_time_and_while_the_node_sends() {
        let mut host = Following::default();
        let unborn = SparkplugReport { is_unborn: true, asks: true, ..NOTHING };
        assert_eq!(host.data(5), unborn);
        assert_eq!(host.data(6), NOTHING);
        host.now_ns += ASK_AGAIN_NS;
        assert_eq!(host.data(7), SparkplugReport { asks: true, ..NOTHING });
        assert_eq!(host.birth(0).reborn_ns, Some(10));
    }

    #[test]
    fn the_death_of_an_earlier_connection_changes_nothing() {
        let mut host = Following::default();
        host.birth(255);
        host.birth(0);
        assert_eq!(host.death(255), SparkplugReport { is_old_death: true, ..NOTHING });
        assert_eq!(host.data(1), NOTHING);
        assert_eq!(host.death(0), NOTHING);
        let unborn = SparkplugReport { is_unborn: true, asks: true, ..NOTHING };
        assert_eq!(host.data(2), unborn);
        assert_eq!(host.death(0), NOTHING, "a node that has died is asked for nothing");
        assert_eq!(host.birth(1), NOTHING);
    }

    #[test]
    fn data_of_a_device_that_has_died_are_unborn() {
        let mut host = Following::default();
        host.birth(4);
        assert_eq!(host.take(SparkplugKind::DeviceDeath, None, 1), NOTHING);
        host.is_of_dead = true;
        let unborn = SparkplugReport { is_unborn: true, asks: true, ..NOTHING };
        assert_eq!(host.data(2), unborn);
        assert_eq!(host.data(3), NOTHING, "the host has asked");
        host.birth(5);
        let report = host.data(4);
        assert!(report.gap.is_some() && !report.is_unborn, "its birth may be in the gap");
    }

    #[test]
    fn the_birth_of_another_connection_answers_no_request() {
        let mut host = Following::default();
        host.birth(4);
        assert!(host.data(2).asks);
        assert_eq!(host.birth(5), NOTHING);
    }

    #[test]
    fn a_gap_that_is_a_multiple_of_256_is_seen_by_its_number_alone() {
        let mut host = Following::default();
        host.birth(0);
        assert_eq!(host.data(1), NOTHING);
        assert_eq!(host.data(2 + 512), SparkplugReport { is_hidden_gap: true, ..NOTHING });
        assert_eq!(host.data(3 + 512), NOTHING);
    }

    proptest! {
        #[test]
        fn each_gap_is_noticed_once_and_no_other(
            arrives in prop::collection::vec(any::<bool>(), 600),
        ) {
            let mut host = Following::default();
            host.birth(0);
            // The node answers at once: its number begins anew.
            let (mut number, mut last) = (0, 0);
            for arrives in arrives {
                number += 1;
                if !arrives {
                    continue;
                }
                let report = host.data(number);
                let missing = (number > last + 1).then(|| number - last - 1);
                prop_assert_eq!(report.gap.map(|gap| gap.missing), missing);
                prop_assert_eq!(report.asks, report.gap.is_some());
                if report.asks {
                    prop_assert!(host.birth(0).reborn_ns.is_some());
                    number = 0;
                }
                last = number;
            }
        }
    }
}
