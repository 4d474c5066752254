//! Sparkplug B: a population of edge nodes with their devices, or of host applications.

use serde::{Deserialize, Serialize};

use crate::error::{PlanError, require};
use crate::model::Population;
use crate::model::bounds;
use crate::model::flows::Payload;
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
    /// Part of the writes of data after which the last device dies, until the next write.
    #[serde(default)]
    pub device_deaths: f64,
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
pub(crate) fn check(
    own: Option<&Sparkplug>,
    clean_session: bool,
    population: &Population,
    path: &str,
) -> Result<(), PlanError> {
    let node = own.and_then(Sparkplug::node);
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
    let Some(own) = own else { return Ok(()) };
    let path = format!("{path}.protocol.sparkplug");
    require(clean_session, &path, || "found a persistent session, allowed is a clean one".into())?;
    let metrics = own.node().map_or(1, |node| node.metrics);
    require((1..=METRICS_MAX).contains(&metrics), &format!("{path}.metrics"), || {
        format!("found {metrics}, allowed are 1 to {METRICS_MAX}")
    })?;
    let deaths = own.node().map_or(0.0, |node| node.device_deaths);
    let has_devices = deaths == 0.0 || own.node().is_some_and(|node| node.devices.is_some());
    require((0.0..=1.0).contains(&deaths) && has_devices, &path, || {
        format!("found device_deaths {deaths}, allowed are 0 to 1, and 0 without devices")
    })?;
    require(population.flapping.is_none(), &path, || {
        "found flapping subscriptions, allowed is none".into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fan_out::tests::population;
    use crate::model::flows::{Order, Pace, Publication};
    use crate::model::protocol::{Mqtt, PlannedProtocol};

    /// Edge nodes of four metrics, with one publication; `change` makes them others.
    fn checked(change: impl FnOnce(&mut Population, &mut Mqtt)) -> Result<(), String> {
        let text = |source: &str| Template::new(source).unwrap();
        let mut nodes = population(2, 1, &[]);
        let PlannedProtocol::Mqtt(mut mqtt) = nodes.protocol.clone() else { panic!("it is MQTT") };
        mqtt.sparkplug = Some(Box::new(Sparkplug::Node(SparkplugNode {
            group: text("g"),
            node: text("node-{n}"),
            devices: Some(text("device-{1..3}")),
            metrics: 4,
            device_deaths: 0.5,
        })));
        nodes.publications.push(Publication {
            topic: text("t"),
            order: Order::Turn,
            weights: Vec::new(),
            qos: 0,
            retain: false,
            pace: Pace::Closed,
            window: 1,
            payload: Payload::Sparkplug { metrics: 4, changed: 2, max_bytes: 90 },
            properties: Vec::new(),
            topic_alias: false,
            request: false,
        });
        change(&mut nodes, &mut mqtt);
        check(mqtt.sparkplug.as_deref(), mqtt.clean_session, &nodes, "populations[0]")
            .map_err(|error| error.to_string())
    }

    #[test]
    fn nodes_send_their_data_alone_with_qos_0_in_clean_sessions() {
        assert_eq!(checked(|_, _| ()), Ok(()));
        let payload = |metrics, changed| Payload::Sparkplug { metrics, changed, max_bytes: 90 };
        for (found, text) in [
            (checked(|_, mqtt| mqtt.clean_session = false), "a persistent session"),
            (checked(|_, mqtt| mqtt.sparkplug = None), "those of an edge node"),
            (checked(|nodes, _| nodes.publications[0].qos = 1), "allowed is QoS 0 alone"),
            (checked(|nodes, _| nodes.publications[0].retain = true), "allowed is QoS 0 alone"),
            (checked(|nodes, _| nodes.publications[0].payload = payload(5, 2)), "found 5 metrics"),
            (checked(|nodes, _| nodes.publications[0].payload = payload(4, 5)), "are 1 to 4"),
            (
                checked(|nodes, _| nodes.publications[0].payload = Payload::Fixed { bytes: 9 }),
                "another payload",
            ),
        ] {
            assert!(found.as_ref().is_err_and(|error| error.contains(text)), "{found:?}: {text}");
        }
    }
}
