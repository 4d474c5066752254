//! Bytes of the packets of MQTT that a client sends and receives: of its connection, and of its
//! messages. The last client of a population counts, which has the longest number. Properties of
//! MQTT 5 are left out.

use std::iter::once;

use serde::{Deserialize, Serialize};

use crate::model::Population;
use crate::model::flows::{Payload, Publication, SizeBin};
use crate::model::protocol::MqttVersion;
use crate::record::stamp::STAMP_BYTES;
use crate::text::template::Template;

/// Bytes of the packets of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opening {
    /// Bytes of CONNECT.
    pub connect_bytes: u64,
    /// Bytes of SUBSCRIBE with all filters; 0 without filters.
    pub subscribe_bytes: u64,
    /// Bytes of SUBACK; 0 without filters.
    pub suback_bytes: u64,
}

impl Opening {
    /// The packets of a client of a population; `None` without MQTT.
    pub(super) fn of(population: &Population) -> Option<Self> {
        let mqtt = population.mqtt()?;
        let n = last(population);
        let name = if mqtt.version == MqttVersion::V31 { "MQIsdp" } else { "MQTT" }.len();
        let field = |template: &Template| 2 + template.rendered_bytes(n, 0);
        let will = mqtt.will.as_ref().map_or(0, |will| field(&will.topic) + field(&will.payload));
        let login =
            population.username.iter().chain(&population.password).map(field).sum::<usize>();
        let properties = properties_bytes(population);
        let connect = 2 + name + 4 + properties + field(&mqtt.client_id) + will + login;
        let (mut filters, mut bytes) = (0, 0);
        for filter in population.subscriptions.iter().map(|each| &each.filter) {
            filters += filter.variants() as usize;
            bytes += (0..filter.variants()).map(|v| 3 + filter.rendered_bytes(n, v)).sum::<usize>();
        }
        let packet_with = |rest| if filters == 0 { 0 } else { packet(2 + properties + rest) };
        Some(Self {
            connect_bytes: packet(connect),
            subscribe_bytes: packet_with(bytes),
            suback_bytes: packet_with(filters),
        })
    }
}

/// Bytes of a PUBLISH at most; without MQTT, of topic and payload.
pub(super) fn message_bytes(population: &Population, publication: &Publication) -> u64 {
    let n = last(population);
    let payload = match &publication.payload {
        Payload::Fixed { bytes } => *bytes as usize,
        Payload::Gaussian { mean_bytes, .. } => *mean_bytes as usize,
        Payload::Histogram { bins } => mean_bytes(bins),
        Payload::Records { records, stamped, .. } => {
            records.mean_bytes() + if *stamped { STAMP_BYTES } else { 0 }
        }
        Payload::Text { template, .. } => template.message_bytes_max(n, 0),
        Payload::Sparkplug { max_bytes, .. } => *max_bytes as usize,
        Payload::Recorded(recording) => recording.mean_bytes as usize,
    };
    let topic = publication.topic.rendered_bytes(n, 0);
    if population.mqtt().is_none() {
        return (topic + payload) as u64;
    }
    let id = if publication.qos > 0 { 2 } else { 0 };
    packet(2 + topic + id + properties_bytes(population) + payload)
}

/// Mean of the sizes of a histogram.
fn mean_bytes(bins: &[SizeBin]) -> usize {
    let starts = once(0).chain(bins.iter().map(|bin| bin.end));
    let parts = bins.iter().zip(starts).map(|(bin, start)| (bin.bytes, bin.end - start));
    let sum: f64 = parts.map(|(bytes, weight)| f64::from(bytes) * weight as f64).sum();
    let all = bins.last().map_or(1, |bin| bin.end);
    (sum / all as f64).round() as usize
}

/// Number of the last client.
fn last(population: &Population) -> u64 {
    population.first + u64::from(population.clients.saturating_sub(1))
}

/// Bytes of the length of no properties.
fn properties_bytes(population: &Population) -> usize {
    usize::from(population.capabilities().has_properties)
}

/// Bytes of a packet with its fixed header.
fn packet(rest: usize) -> u64 {
    let length = (1..4).find(|&bytes| rest < 1 << (7 * bytes)).unwrap_or(4);
    (1 + length + rest) as u64
}
