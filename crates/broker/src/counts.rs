//! Counters of the broker, and their text for Prometheus.

use prometheus::{IntCounter, IntGauge, Registry, TextEncoder};

/// Counters since the start; gauges are set before they are read.
pub struct BrokerCounts {
    /// Connected clients.
    pub connections: IntGauge,
    /// Connections accepted.
    pub connected: IntCounter,
    /// Subscriptions, of offline sessions too.
    pub subscriptions: IntGauge,
    /// Messages received from clients, and wills.
    pub received: IntCounter,
    /// Messages sent to clients.
    pub sent: IntCounter,
    /// Logins refused: unknown user, wrong password, or no right to publish the will.
    pub auth_refused: IntCounter,
    /// Logins that Redis did not answer.
    pub auth_unavailable: IntCounter,
    /// Subscriptions refused.
    pub subscribe_denied: IntCounter,
    /// Messages dropped because their client has no right to publish them.
    pub publish_denied: IntCounter,
    registry: Registry,
}

impl BrokerCounts {
    /// Creates counters at 0.
    pub fn new() -> Self {
        let registry = Registry::new();
        let gauge = |name: &str, help: &str| {
            let gauge = IntGauge::new(full(name), help).expect(FITS);
            registry.register(Box::new(gauge.clone())).expect(FITS);
            gauge
        };
        let counter = |name: &str, help: &str| {
            let counter = IntCounter::new(full(name), help).expect(FITS);
            registry.register(Box::new(counter.clone())).expect(FITS);
            counter
        };
        Self {
            connections: gauge("connections", "Clients that are connected"),
            connected: counter("connected_total", "Connections accepted"),
            subscriptions: gauge("subscriptions", "Subscriptions held"),
            received: counter("messages_received_total", "Messages taken from clients, and wills"),
            sent: counter("messages_sent_total", "Messages handed to clients"),
            auth_refused: counter("auth_refused_total", "Logins refused"),
            auth_unavailable: counter("auth_unavailable_total", "Logins that Redis did not answer"),
            subscribe_denied: counter("subscribe_denied_total", "Subscriptions refused"),
            publish_denied: counter("publish_denied_total", "Messages dropped as not permitted"),
            registry,
        }
    }

    /// Returns all counters in Prometheus' text format.
    pub fn text(&self) -> String {
        TextEncoder::new().encode_to_string(&self.registry.gather()).expect(FITS)
    }
}

fn full(name: &str) -> String {
    format!("pubstorm_broker_{name}")
}

const FITS: &str = "names are valid for Prometheus and unique";

#[cfg(test)]
mod tests {
    use super::BrokerCounts;

    #[test]
    fn every_count_is_in_the_text_with_its_value() {
        let counts = BrokerCounts::new();
        counts.publish_denied.inc_by(3);
        counts.connections.set(2);
        let text = counts.text();
        let values: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "pubstorm_broker_auth_refused_total 0",
            "pubstorm_broker_auth_unavailable_total 0",
            "pubstorm_broker_connected_total 0",
            "pubstorm_broker_connections 2",
            "pubstorm_broker_messages_received_total 0",
            "pubstorm_broker_messages_sent_total 0",
            "pubstorm_broker_publish_denied_total 3",
            "pubstorm_broker_subscribe_denied_total 0",
            "pubstorm_broker_subscriptions 0",
        ];
        assert_eq!(values, expected);
    }
}
