//! Plans for simulated runs, and parts of plans.

use std::collections::BTreeMap;

use plan::{
    Action, Attachment, Choice, Late, Mqtt, MqttVersion, Order, Pace, Payload, Plan,
    PlannedProtocol, PlannedRetainHandling, PlannedStage, PlannedTls, Population, Property,
    PropertyValue, Publication, Reconnect, Subscription, Target, Template, TlsVersion,
};

const S: u64 = plan::SECOND_NS;
const MS: u64 = S / 1_000;

/// A plan without populations and stages.
pub fn empty(seed: u64) -> Plan {
    Plan {
        format: Plan::FORMAT,
        name: "simulation".into(),
        run_tag: 0x5eed,
        seed,
        targets: vec![target(1883)],
        targets_joined: false,
        bridges: Vec::new(),
        flows: Vec::new(),
        sources: Vec::new(),
        addresses: None,
        snapshot_interval_ns: S,
        drain_ns: S,
        coalescing_ns: 1_000_000,
        stall_ns: None,
        max_packet_bytes: Plan::MAX_PACKET_BYTES,
        populations: Vec::new(),
        stages: Vec::new(),
    }
}

/// A broker without TLS and WebSocket.
pub fn target(port: u16) -> Target {
    Target {
        host: "127.0.0.1".into(),
        port,
        tls: false,
        websocket: None,
        quic: false,
        ports: BTreeMap::new(),
        addresses: Vec::new(),
    }
}

/// Clients that only connect.
pub fn population(name: &str, clients: u32) -> Population {
    Population {
        name: name.into(),
        whole: None,
        protocol: PlannedProtocol::Mqtt(Mqtt {
            version: MqttVersion::V311,
            client_id: template(&format!("{name}-{{n}}")),
            clean_session: true,
            bridge: false,
            will: None,
            properties: Vec::new(),
            authentication: None,
            sparkplug: None,
        }),
        clients,
        first: 0,
        at: Attachment { first: 0, count: 1, choice: Choice::Turn, shift: 0 },
        username: None,
        password: None,
        tls: None,
        proxy_protocol: None,
        headers: Vec::new(),
        keep_alive_s: 0,
        end: plan::End::Disconnect,
        connect_timeout_ns: S,
        reconnect: Some(Reconnect { min_ns: 10 * MS, max_ns: S }),
        read_rate_per_s: None,
        delayed_acks: true,
        link: Vec::new(),
        lifetime: None,
        flapping: None,
        takes_over: None,
        rows: None,
        subscriptions: Vec::new(),
        publications: Vec::new(),
        responds: None,
    }
}

/// One message of 64 bytes in each period.
pub fn publication(topic: &str, qos: u8, period_ns: u64) -> Publication {
    Publication {
        topic: template(topic),
        order: Order::Turn,
        weights: Vec::new(),
        qos,
        retain: false,
        pace: even(period_ns),
        window: 100,
        payload: Payload::Fixed { bytes: 64 },
        properties: Vec::new(),
        topic_alias: false,
        request: false,
    }
}

/// One message in each period, with the clients spread over it.
pub fn even(period_ns: u64) -> Pace {
    Pace::Open {
        period_ns,
        spread: 0.0,
        jitter: 0.0,
        phase: plan::Phase::Spread,
        late: Late::Send,
        burst: 1,
        arrivals: plan::Process::Even,
    }
}

/// Settings of TLS that take every certificate.
pub fn unverified() -> PlannedTls {
    PlannedTls {
        ca: None,
        verify: false,
        server_name: None,
        certificate: None,
        key: None,
        passphrase: None,
        reread: false,
        psk: None,
        min_version: TlsVersion::Tls12,
        max_version: TlsVersion::Tls13,
        ciphers: None,
        suites: Vec::new(),
        groups: Vec::new(),
        alpn: Vec::new(),
        resume: 0.0,
        early_data: false,
        key_log: None,
    }
}

/// A subscription.
pub fn subscription(filter: &str, qos: u8) -> Subscription {
    Subscription {
        filter: template(filter),
        qos,
        no_local: false,
        retain_as_published: false,
        retain_handling: PlannedRetainHandling::default(),
        identifier: None,
    }
}

/// A valid template.
pub fn template(source: &str) -> Template {
    Template::new(source).expect("the tests write templates right")
}

/// A stage of the populations with these indices.
pub fn stage(action: Action, populations: &[usize]) -> PlannedStage {
    PlannedStage { name: "stage".into(), action, populations: populations.to_vec() }
}

/// Stages of a device, population 0, and of its receivers, population 1: it publishes for 2 s while
/// they are connected, and for 4 s while all but `staying` of them are away. After `wait_ns` more
/// the receivers return, and it publishes for 1 s.
pub fn receivers_away(staying: u32, wait_ns: u64) -> Vec<PlannedStage> {
    let connect = |clients: Option<Vec<u32>>| Action::Connect {
        rate_per_s: None,
        parallelism: None,
        timeout_ns: S,
        clients,
    };
    let publish = |seconds| Action::Publish {
        duration_ns: seconds * S,
        changes: Vec::new(),
        rate_profile: Vec::new(),
        messages: None,
    };
    let mut stages = vec![
        stage(connect(None), &[0, 1]),
        stage(publish(2), &[0]),
        stage(Action::Disconnect { rate_per_s: None }, &[1]),
        stage(publish(4), &[0]),
        stage(Action::Hold { duration_ns: wait_ns, changes: Vec::new() }, &[0]),
        stage(connect(None), &[1]),
        stage(publish(1), &[0]),
    ];
    if staying > 0 {
        stages.insert(3, stage(connect(Some(vec![staying])), &[1]));
    }
    stages
}

/// Clients of a version.
pub fn speaking(version: MqttVersion, name: &str, clients: u32) -> Population {
    let mut population = population(name, clients);
    if let PlannedProtocol::Mqtt(mqtt) = &mut population.protocol {
        mqtt.version = version;
    }
    population
}

/// A property with a number.
pub fn number(name: &str, value: u32) -> Property {
    Property { name: name.into(), key: None, value: PropertyValue::Number(value) }
}
