//! The load of flapping subscriptions: UNSUBSCRIBE and SUBSCRIBE of ready clients, and the answers.

use mqtt::{
    Packet, Properties, Property, PropertyList, SubAck, SubscriptionOptions, Value, Version,
    encode_subscribe, encode_unsubscribe,
};
use serde::{Deserialize, Serialize};

use super::{SAMPLES, sampled};
use crate::SECOND_NS;
use crate::model::{Flapping, Population};

/// The load of the flapping clients of one population, if the broker answers at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlapLoad {
    /// Index of the population.
    pub population: usize,
    /// UNSUBSCRIBEs and SUBSCRIBEs a second, each with an answer.
    pub requests_per_s: f64,
    /// Bytes of these requests a second, in MQTT.
    pub sent_bytes_per_s: f64,
    /// Bytes of the answers a second, in MQTT.
    pub received_bytes_per_s: f64,
}

/// Requests of one client from one UNSUBSCRIBE to the next.
#[derive(Default)]
struct FlapCycle {
    requests: u64,
    sent_bytes: u64,
    received_bytes: u64,
}

impl FlapLoad {
    /// The load of `clients` active clients, of which `present` are connected in the mean. `None`
    /// if no client flaps.
    pub(super) fn of(
        index: usize,
        population: &Population,
        clients: u32,
        present: f64,
    ) -> Option<Self> {
        let Flapping { min_ns, max_ns, unsubscribed_ns } = population.flapping?;
        let version = population.mqtt()?.version.into();
        let filters: u32 = population.subscriptions.iter().map(|s| s.filter.variants()).sum();
        // Bounds the number of filters that are rendered.
        let step = (u64::from(filters) / SAMPLES).max(1) as usize;
        let mut sum = FlapCycle::default();
        let mut turns = 0u32;
        for (client, _) in sampled(clients, 1).step_by(step) {
            sum.add(population, version, population.first + u64::from(client));
            turns += 1;
        }
        if turns == 0 {
            return None;
        }
        let turn_ns = (min_ns as f64 + max_ns as f64) / 2.0 + unsubscribed_ns as f64;
        let turns_per_s = present * SECOND_NS as f64 / turn_ns.max(1.0);
        let per_s = |sum: u64| turns_per_s * sum as f64 / f64::from(turns);
        Some(Self {
            population: index,
            requests_per_s: per_s(sum.requests),
            sent_bytes_per_s: per_s(sum.sent_bytes),
            received_bytes_per_s: per_s(sum.received_bytes),
        })
    }
}

impl FlapCycle {
    /// Adds the requests of the client with number `n`: one UNSUBSCRIBE with all filters; and one
    /// SUBSCRIBE for the filters without an identifier, and one for each identifier.
    fn add(&mut self, population: &Population, version: Version, n: u64) {
        let mut identifiers: Vec<_> =
            population.subscriptions.iter().map(|s| s.identifier).collect();
        identifiers.sort_unstable();
        identifiers.dedup();
        let texts = |identifier: Option<Option<u32>>| -> Vec<String> {
            let subscriptions = population.subscriptions.iter();
            let own = subscriptions.filter(|s| identifier.is_none_or(|own| own == s.identifier));
            own.flat_map(|s| (0..s.filter.variants()).map(move |v| s.filter.text(n, v))).collect()
        };
        let (all, mut out) = (texts(None), Vec::new());
        let filters = all.iter().map(|text| &**text);
        // No client sends a request that no packet can hold: nothing is written then.
        encode_unsubscribe(version, (1, Properties::NONE), filters, &mut out).unwrap_or_default();
        self.note(&out, version, &Packet::UnsubAck(answer(&vec![0; all.len()])));
        for identifier in identifiers {
            let mut properties = PropertyList::new();
            if let Some(number) = identifier {
                let value = Value::Number(number);
                // A plan with another identifier is refused.
                properties.push(Property::SubscriptionIdentifier, value).unwrap_or_default();
            }
            let own = texts(Some(identifier));
            let filters = own.iter().map(|text| (&**text, SubscriptionOptions::default()));
            out.clear();
            encode_subscribe(version, (1, properties.properties()), filters, &mut out)
                .unwrap_or_default();
            self.note(&out, version, &Packet::SubAck(answer(&vec![0; own.len()])));
        }
    }

    /// Notes a request and its answer.
    fn note(&mut self, request: &[u8], version: Version, answer: &Packet<'_>) {
        let mut received = Vec::new();
        if !request.is_empty() && answer.encode(version, &mut received).is_ok() {
            self.requests += 1;
            self.sent_bytes += request.len() as u64;
            self.received_bytes += received.len() as u64;
        }
    }
}

/// An answer with these codes.
fn answer(codes: &[u8]) -> SubAck<'_> {
    SubAck { packet_id: 1, codes, ..SubAck::default() }
}
