//! A PUB socket of real libzmq with which the test sends, and the populations of a plan for the
//! socket.

use std::thread;
use std::time::Duration;

use plan::{Sent, SentAt, Stamp, StreamId};
use serde_json::{Value, json};

use super::agent::{Agent, population_of};

/// A publisher on a free port of loopback.
pub struct Feed {
    socket: zmq::Socket,
    pub port: u16,
    /// Messages passed to libzmq, by topic.
    sent: Vec<u32>,
}

impl Feed {
    /// A publisher with a high-water mark; 0: none.
    pub fn start(context: &zmq::Context, high_water_mark: i32) -> Self {
        let socket = Self::socket(context, high_water_mark);
        Self::bind(socket, "*")
    }

    /// A socket that is not bound yet.
    pub fn socket(context: &zmq::Context, high_water_mark: i32) -> zmq::Socket {
        let socket = context.socket(zmq::PUB).unwrap();
        socket.set_sndhwm(high_water_mark).unwrap();
        // With its own backlog of 100, 500 connections at once get SYN cookies, and the kernel now
        // and then resets one of them.
        socket.set_backlog(1000).unwrap();
        socket.set_linger(0).unwrap();
        socket
    }

    /// A publisher on a port. Of one that has ended, a process that another test is starting may
    /// have the closed socket until its exec.
    pub fn start_on(context: &zmq::Context, port: u16) -> Self {
        let socket = Self::socket(context, 0);
        let address = format!("tcp://127.0.0.1:{port}");
        while let Err(error) = socket.bind(&address) {
            assert_eq!(error, zmq::Error::EADDRINUSE);
            thread::sleep(Duration::from_millis(1));
        }
        Self { socket, port, sent: vec![0] }
    }

    pub fn bind(socket: zmq::Socket, port: &str) -> Self {
        socket.bind(&format!("tcp://127.0.0.1:{port}")).unwrap();
        let endpoint = socket.get_last_endpoint().unwrap().unwrap();
        let port = endpoint.rsplit(':').next().unwrap().parse().unwrap();
        Self { socket, port, sent: vec![0] }
    }

    /// Sends `messages` stamped messages of one frame.
    pub fn send(&mut self, messages: u32) {
        self.send_to(&[""], messages);
    }

    /// Sends `messages` stamped messages, to these topics in turn.
    pub fn send_to(&mut self, topics: &[&str], messages: u32) {
        self.sent.resize(topics.len(), 0);
        // libzmq processes subscriptions during a call on the socket.
        self.socket.get_events().unwrap();
        for number in 0..messages as usize {
            let variant = number % topics.len();
            let now_ns = Agent::now_ns();
            let stamp = Stamp {
                run_tag: 77,
                stream: StreamId { publication: 0, variant: variant as u16, client: 0 },
                sequence: self.sent[variant],
                intended_ns: now_ns,
                sent: SentAt::plain(now_ns),
            };
            self.sent[variant] += 1;
            if !topics[variant].is_empty() {
                self.socket.send(topics[variant], zmq::SNDMORE).unwrap();
            }
            self.socket.send(&stamp.to_bytes()[..], 0).unwrap();
        }
    }

    /// Sends one frame.
    pub fn send_frame(&self, bytes: &[u8]) {
        self.socket.get_events().unwrap();
        self.socket.send(bytes, 0).unwrap();
    }

    /// Number of messages as the controller reports them.
    pub fn totals(&self) -> Vec<Sent> {
        let total = self.sent.iter().map(|&sent| u64::from(sent)).sum();
        vec![Sent { population: 0, client: 0, total }]
    }
}

/// The population of the publisher.
pub fn feed(topic: &str, bytes: u32) -> Value {
    let publication = json!({
        "topic": topic, "order": "turn", "qos": 0, "retain": false, "window": 1,
        "pace": {"kind": "closed"}, "payload": {"kind": "fixed", "bytes": bytes},
    });
    sockets("feed", 1, json!({"protocol": {"player": "libzmq"}, "publications": [publication]}))
}

/// A population of ZeroMQ sockets; `fields` replaces default fields.
pub fn sockets(name: &str, clients: u32, fields: Value) -> Value {
    let protocol = json!({
        "kind": "zmtp", "high_water_mark": 1000, "io_threads": 1, "security": "null",
    });
    population_of(name, clients, protocol, fields)
}

/// Subscribers to all messages.
pub fn subscribers(clients: u32) -> Value {
    sockets("sub", clients, json!({"subscriptions": [{"filter": "", "qos": 0}]}))
}
