//! Sparkplug B: a population of edge nodes with their devices, or of host applications.

use serde::{Deserialize, Serialize};

use crate::error::{PlanError, require};
use crate::model::Population;
use crate::model::bounds;
use crate::model::flows::Payload;
use crate::model::protocol::Mqtt;
use crate::text::template::Template;

/// Largest number of metrics of an edge node or a device.
pub const METRICS_MAX: u32 = 100_000;

/// Part of the clients of a population in Sparkplug B.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Sparkplug {
    /// Edge nodes.
    Node(SparkplugNode),
    /// Host applications.
    Host(SparkplugHost),
}

/// Edge nodes, each with the same devices. The will is the death of a node; the engine makes its
/// payload anew for each connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SparkplugNode {
    /// Template of the group's identifier.
    pub group: Template,
    /// Template of a node's identifier.
    pub node: Template,
    /// Template of the devices' identifiers: a device for each value of its range; `None`: no
    /// devices, and the metrics are the node's own.
    pub devices: Option<Template>,
    /// Metrics in the birth of each device, or of the node.
    pub metrics: u32,
}

/// Host applications, which follow the sequence of every node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SparkplugHost {
    /// Template of a host's identifier.
    pub host: Template,
    /// Time after which a host asks a node again for its births, in nanoseconds.
    #[serde(deserialize_with = "bounds::number")]
    pub ask_again_ns: u64,
}

impl SparkplugNode {
    /// Number of devices of each node.
    #[must_use]
    pub fn devices(&self) -> u32 {
        self.devices.as_ref().map_or(0, Template::variants)
    }
}

impl Sparkplug {
    /// Its templates of one text for each client, each with its path.
    pub(crate) fn templates(&self) -> Vec<(String, &Template)> {
        let named = match self {
            Self::Node(own) => vec![("group", &own.group), ("node", &own.node)],
            Self::Host(own) => vec![("host", &own.host)],
        };
        named.into_iter().map(|(name, own)| (format!("sparkplug.{name}"), own)).collect()
    }

    /// Options of edge nodes; `None` for hosts.
    #[must_use]
    pub const fn node(&self) -> Option<&SparkplugNode> {
        let Self::Node(node) = self else { return None };
        Some(node)
    }

    /// Options of hosts; `None` for edge nodes.
    #[must_use]
    pub const fn host(&self) -> Option<&SparkplugHost> {
        let Self::Host(host) = self else { return None };
        Some(host)
    }
}

impl Population {
    /// Its part in Sparkplug B; `None` if it has none.
    #[must_use]
    pub fn sparkplug(&self) -> Option<&Sparkplug> {
        self.mqtt()?.sparkplug.as_deref()
    }
}

/// Checks what Sparkplug demands of a session, and that edge nodes alone send its data, with QoS 0.
pub(crate) fn check(options: &Mqtt, population: &Population, path: &str) -> Result<(), PlanError> {
    let node = options.sparkplug.as_deref().and_then(Sparkplug::node);
    for (index, publication) in population.publications.iter().enumerate() {
        let path = format!("{path}.publications[{index}]");
        let Payload::Sparkplug { metrics, changed, .. } = publication.payload else {
            require(node.is_none(), &format!("{path}.payload"), || {
                "found another payload of an edge node, allowed is sparkplug".into()
            })?;
            continue;
        };
        require(node.is_some_and(|node| node.metrics == metrics), &path, || {
            format!("found {metrics} metrics of Sparkplug, allowed are those of an edge node")
        })?;
        let is_plain = publication.qos == 0 && !publication.retain && !publication.request;
        require(is_plain, &path, || {
            "found data of Sparkplug with QoS, retain or request, allowed is QoS 0 alone".into()
        })?;
        require((1..=metrics).contains(&changed), &format!("{path}.payload.changed"), || {
            format!("found {changed}, allowed are 1 to {metrics}")
        })?;
    }
    let Some(sparkplug) = &options.sparkplug else { return Ok(()) };
    let path = format!("{path}.protocol.sparkplug");
    require(options.clean_session, &path, || {
        "found a persistent session, allowed is a clean one".into()
    })?;
    let metrics = sparkplug.node().map_or(1, |node| node.metrics);
    require((1..=METRICS_MAX).contains(&metrics), &format!("{path}.metrics"), || {
        format!("found {metrics}, allowed are 1 to {METRICS_MAX}")
    })?;
    require(population.flapping.is_none(), &path, || {
        "found flapping subscriptions, allowed is none".into()
    })
}
