//! The broker with users in a real Redis: who gets in, who may subscribe and publish, what is
//! counted, and what happens while Redis is away. Without `redis-server` these tests say so and
//! pass, but fail in CI.

use std::io::{BufRead, BufReader};
use std::process::Child;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::process::{Broker, finish, spawn_with};
use crate::redis::Redis;
use crate::wire::{Client, Version};

const ACCEPTED: u8 = 0;
const UNAVAILABLE: u8 = 3;
const BAD_CREDENTIALS: u8 = 4;
const NOT_AUTHORIZED: u8 = 5;
const REFUSED: u8 = 0x80;
const OBSERVER: (&str, &str) = ("PUBSTORM_BROKER_TRUSTED", "observer:secret");

fn login(port: u16, user: Option<(&str, &str)>, will: Option<&str>) -> (u8, Client) {
    let mut client = Client::dial(port, Version::V311);
    (client.offer_as("client", user, will), client)
}

fn admitted(port: u16, id: &str, name: &str, password: &str) -> Client {
    let mut client = Client::dial(port, Version::V311);
    assert_eq!(client.offer_as(id, Some((name, password)), None), ACCEPTED);
    client
}

#[test]
fn only_users_of_redis_are_admitted() {
    let Some(redis) = Redis::start() else { return };
    redis.add_user("device", "pass", &[]);
    redis.send(&["HSET", "mqtt_user:half", "salt", "x"]);
    let broker = Broker::start(&["--auth", &redis.url(), "--metrics-port", "0"]);
    let cases = [
        (Some(("device", "pass")), ACCEPTED),
        (Some(("device", "wrong")), BAD_CREDENTIALS),
        (Some(("device", "")), BAD_CREDENTIALS),
        (Some(("stranger", "pass")), BAD_CREDENTIALS),
        (Some(("half", "")), BAD_CREDENTIALS),
        (Some(("observer", "secret")), BAD_CREDENTIALS),
        (None, BAD_CREDENTIALS),
    ];
    for (user, expected) in cases {
        assert_eq!(login(broker.port, user, None).0, expected, "{user:?}");
    }
    assert_eq!(broker.metric("auth_refused_total"), 6);
    assert_eq!(broker.metric("connected_total"), 1);
}

#[test]
fn mqtt_5_gets_its_own_codes() {
    let Some(redis) = Redis::start() else { return };
    redis.add_user("device", "pass", &[]);
    let broker = Broker::start(&["--auth", &redis.url()]);
    let offer = |user| Client::dial(broker.port, Version::V5).offer_as("client", user, None);
    assert_eq!(offer(Some(("device", "pass"))), 0);
    assert_eq!(offer(Some(("device", "wrong"))), 0x86);
    drop(redis);
    assert_eq!(offer(Some(("device", "pass"))), 0x88);
}

#[test]
fn rows_grant_subscriptions_and_messages() {
    let Some(redis) = Redis::start() else { return };
    redis.add_user("device", "pass", &[("up/#", "2"), ("down/+/x", "1"), ("both", "3")]);
    redis.add_user("backend", "pass", &[("#", "1")]);
    let broker = Broker::start(&["--auth", &redis.url(), "--metrics-port", "0"]);
    let mut backend = admitted(broker.port, "backend", "backend", "pass");
    backend.subscribe("#", 1);
    let mut device = admitted(broker.port, "device", "device", "pass");
    let filters = ["down/1/x", "both", "down/#", "up/a", "#", "other", "down/+/x"];
    let expected = [1, 1, REFUSED, REFUSED, REFUSED, REFUSED, 1];
    assert_eq!(filters.map(|filter| device.subscribed(filter, 1)), expected);
    for topic in ["up/a/b", "other", "down/1/x", "up"] {
        device.publish_qos_1(topic, topic.as_bytes(), false);
    }
    for topic in ["up/a/b", "up"] {
        assert_eq!(backend.delivery_of_qos_1().1, topic, "and nothing that is forbidden between");
    }
    assert_eq!(broker.metric("subscribe_denied_total"), 4);
    assert_eq!(broker.metric("publish_denied_total"), 2);
    assert_eq!(broker.metric("subscriptions"), 4);
    assert_eq!(broker.metric("connections"), 2);
    assert_eq!(broker.metric("messages_received_total"), 2);
    assert_eq!(broker.metric("messages_sent_total"), 2);
}

#[test]
fn a_will_without_rights_is_refused_at_the_login() {
    let Some(redis) = Redis::start() else { return };
    redis.add_user("device", "pass", &[("state/device", "2"), ("other", "1")]);
    let broker = Broker::start(&["--auth", &redis.url()]);
    let user = Some(("device", "pass"));
    for (topic, expected) in [("state/device", ACCEPTED), ("other", NOT_AUTHORIZED)] {
        assert_eq!(login(broker.port, user, Some(topic)).0, expected, "{topic}");
    }
}

#[test]
fn a_trusted_user_may_do_everything() {
    let Some(redis) = Redis::start() else { return };
    let broker = Broker::start_with(&["--auth", &redis.url()], &[OBSERVER]);
    let mut observer = admitted(broker.port, "o", "observer", "secret");
    observer.subscribe("a/#", 1);
    observer.publish_qos_1("a/b", b"seen", false);
    assert_eq!(observer.delivery_of_qos_1().1, "a/b");
    assert_eq!(login(broker.port, Some(("observer", "else")), None).0, BAD_CREDENTIALS);
}

#[test]
fn without_redis_logins_are_refused_and_sessions_continue() {
    let Some(redis) = Redis::start() else { return };
    let port = redis.port;
    redis.add_user("device", "pass", &[("a", "3")]);
    let mut broker = Broker::start(&["--auth", &redis.url(), "--metrics-port", "0"]);
    let mut before = admitted(broker.port, "before", "device", "pass");
    drop(redis);
    for _ in 0..3 {
        assert_eq!(login(broker.port, Some(("device", "pass")), None).0, UNAVAILABLE);
    }
    assert_eq!(broker.metric("auth_unavailable_total"), 3);
    before.subscribe("a", 1);
    before.publish_qos_1("a", b"still", false);
    assert_eq!(before.delivery_of_qos_1().2, b"still");
    let redis = Redis::start_on(port).unwrap();
    redis.add_user("device", "pass", &[("a", "3")]);
    admitted(broker.port, "after", "device", "pass").ping();
    let log = broker.end_of_log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("Redis")).collect();
    assert_eq!(lines.len(), 2, "away once, back once: {log}");
    assert!(lines[0].contains("does not answer") && lines[1].contains("answers again"), "{log}");
}

#[test]
fn a_hanging_redis_delays_logins_only() {
    let Some(redis) = Redis::start() else { return };
    redis.add_user("device", "pass", &[]);
    let broker = Broker::start(&["--auth", &redis.url()]);
    let mut before = admitted(broker.port, "before", "device", "pass");
    let pid = Pid::from_raw(redis.pid().cast_signed());
    kill(pid, Signal::SIGSTOP).unwrap();
    for _ in 0..2 {
        assert_eq!(login(broker.port, Some(("device", "pass")), None).0, UNAVAILABLE);
        before.ping();
    }
    kill(pid, Signal::SIGCONT).unwrap();
    admitted(broker.port, "after", "device", "pass").ping();
}

#[test]
fn it_starts_without_redis_and_finds_it_later() {
    let Some(redis) = Redis::start() else { return };
    let (port, url) = (redis.port, redis.url());
    drop(redis);
    let broker = Broker::start(&["--auth", &url]);
    assert_eq!(login(broker.port, Some(("device", "pass")), None).0, UNAVAILABLE);
    let redis = Redis::start_on(port).unwrap();
    redis.add_user("device", "pass", &[]);
    admitted(broker.port, "after", "device", "pass").ping();
}

#[test]
fn a_key_of_another_type_is_no_user() {
    let Some(redis) = Redis::start() else { return };
    redis.send(&["SET", "mqtt_user:device", "pass"]);
    redis.add_user("other", "pass", &[]);
    let broker = Broker::start(&["--auth", &redis.url()]);
    assert_eq!(login(broker.port, Some(("device", "pass")), None).0, UNAVAILABLE);
    admitted(broker.port, "after", "other", "pass").ping();
}

#[test]
fn a_variable_can_hold_the_password_of_redis() {
    let Some(redis) = Redis::start() else { return };
    redis.add_user("device", "pass", &[]);
    redis.send(&["CONFIG", "SET", "requirepass", "hidden"]);
    let with = format!("redis://:hidden@127.0.0.1:{}/0", redis.port);
    for (url, expected) in [(with, ACCEPTED), (redis.url(), UNAVAILABLE)] {
        let broker = Broker::start_with(&[], &[("PUBSTORM_BROKER_AUTH", &url)]);
        assert_eq!(login(broker.port, Some(("device", "pass")), None).0, expected);
    }
}

#[test]
fn a_user_without_a_password_in_the_variable_is_bad_usage() {
    let child: Child = spawn_with(&[], &[("PUBSTORM_BROKER_TRUSTED", "observer")]);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let lines: Vec<_> = BufReader::new(&output.stderr[..]).lines().map(Result::unwrap).collect();
    assert!(lines[0].contains("NAME:PASSWORD"), "{lines:?}");
    assert!(finish(spawn_with(&["--help"], &[])).contains("--auth <URL>"));
}
