//! Topics of Sparkplug B: `spBv1.0/GROUP/TYPE/NODE[/DEVICE]` and `spBv1.0/STATE/HOST`.

/// First level of all topics (tck-id-topic-structure-namespace-a).
pub const NAMESPACE: &str = "spBv1.0";
/// Second level of the topics of hosts.
const STATE: &str = "STATE";

/// Type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SparkplugKind {
    /// Birth of an edge node.
    NodeBirth,
    /// Death of an edge node.
    NodeDeath,
    /// Data of an edge node.
    NodeData,
    /// Command to an edge node.
    NodeCommand,
    /// Birth of a device.
    DeviceBirth,
    /// Death of a device.
    DeviceDeath,
    /// Data of a device.
    DeviceData,
    /// Command to a device.
    DeviceCommand,
}

/// A topic of Sparkplug B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SparkplugTopic<'a> {
    /// Topic of an edge node or one of its devices.
    Node {
        /// Type of the messages.
        kind: SparkplugKind,
        /// Identifier of the group.
        group: &'a str,
        /// Identifier of the edge node.
        node: &'a str,
        /// Identifier of the device; `None` for the edge node itself.
        device: Option<&'a str>,
    },
    /// Topic of the state of a host with this identifier.
    State(&'a str),
}

impl SparkplugKind {
    const ALL: [Self; 8] = [
        Self::NodeBirth,
        Self::NodeDeath,
        Self::NodeData,
        Self::NodeCommand,
        Self::DeviceBirth,
        Self::DeviceDeath,
        Self::DeviceData,
        Self::DeviceCommand,
    ];

    /// Level of the topic.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::NodeBirth => "NBIRTH",
            Self::NodeDeath => "NDEATH",
            Self::NodeData => "NDATA",
            Self::NodeCommand => "NCMD",
            Self::DeviceBirth => "DBIRTH",
            Self::DeviceDeath => "DDEATH",
            Self::DeviceData => "DDATA",
            Self::DeviceCommand => "DCMD",
        }
    }

    /// Returns `true` if the topic has the identifier of a device.
    const fn has_device(self) -> bool {
        matches!(
            self,
            Self::DeviceBirth | Self::DeviceDeath | Self::DeviceData | Self::DeviceCommand
        )
    }
}

impl<'a> SparkplugTopic<'a> {
    /// Reads a topic; `None` if it is none of Sparkplug B.
    #[must_use]
    pub fn parse(topic: &'a str) -> Option<Self> {
        let mut levels = topic.strip_prefix(NAMESPACE)?.strip_prefix('/')?.split('/');
        let (group, second) = (levels.next()?, levels.next()?);
        let (third, fourth) = (levels.next(), levels.next());
        if levels.next().is_some() {
            return None;
        }
        if group == STATE {
            return (third.is_none() && !second.is_empty()).then_some(Self::State(second));
        }
        let kind = SparkplugKind::ALL.into_iter().find(|kind| kind.word() == second)?;
        let is_whole = kind.has_device() == fourth.is_some();
        let node = third.filter(|node| is_whole && !node.is_empty() && !group.is_empty())?;
        Some(Self::Node { kind, group, node, device: fourth })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_have_the_levels_of_their_type() {
        let node = |kind, device| SparkplugTopic::Node { kind, group: "g", node: "n", device };
        for (topic, read) in [
            ("spBv1.0/g/NBIRTH/n", Some(node(SparkplugKind::NodeBirth, None))),
            ("spBv1.0/g/NDEATH/n", Some(node(SparkplugKind::NodeDeath, None))),
            ("spBv1.0/g/NCMD/n", Some(node(SparkplugKind::NodeCommand, None))),
            ("spBv1.0/g/DDATA/n/d", Some(node(SparkplugKind::DeviceData, Some("d")))),
            ("spBv1.0/g/DBIRTH/n/d", Some(node(SparkplugKind::DeviceBirth, Some("d")))),
            ("spBv1.0/STATE/scada", Some(SparkplugTopic::State("scada"))),
            ("spBv1.0/STATE", None),
            ("spBv1.0/STATE/a/b", None),
            ("spBv1.0/g/NDATA/n/d", None),
            ("spBv1.0/g/DDATA/n", None),
            ("spBv1.0/g/DDATA/n/d/e", None),
            ("spBv1.0/g/NOTHING/n", None),
            ("spBv1.0//NDATA/n", None),
            ("spBv1.0/g/NDATA/", None),
            ("spBv1.0", None),
            ("spAv1.0/g/NDATA/n", None),
            ("", None),
        ] {
            assert_eq!(SparkplugTopic::parse(topic), read, "{topic}");
        }
    }
}
