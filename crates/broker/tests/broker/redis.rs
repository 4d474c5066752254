//! A Redis for one test, and the part of its protocol that the tests need.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use crate::ports::free_port;

/// A running Redis in memory; killed when dropped.
pub struct Redis {
    child: Child,
    /// Port.
    pub port: u16,
}

impl Redis {
    /// Starts on a free port. Returns `None` if `redis-server` is not installed; panics then in CI.
    pub fn start() -> Option<Self> {
        Self::start_on(free_port())
    }

    /// Starts on this port.
    pub fn start_on(port: u16) -> Option<Self> {
        let port_text = port.to_string();
        let words =
            ["--port", &port_text, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
        let mut command = Command::new("redis-server");
        let mut child = match command.args(words).stdout(Stdio::piped()).spawn() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                assert!(std::env::var_os("CI").is_none(), "redis-server is not installed");
                eprintln!("skipped: redis-server is not installed");
                return None;
            }
            started => started.unwrap(),
        };
        let said = BufReader::new(child.stdout.as_mut().unwrap()).lines().map(Result::unwrap);
        let mut read = Vec::new();
        for line in said {
            if line.contains("Ready to accept connections") {
                return Some(Self { child, port });
            }
            read.push(line);
        }
        panic!("redis-server does not start: {read:#?}");
    }

    /// Returns the address for the broker.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// Adds a user with a password and rows of a topic filter and an access.
    pub fn add_user(&self, name: &str, password: &str, rows: &[(&str, &str)]) {
        self.send(&["HSET", &format!("mqtt_user:{name}"), "password", password]);
        for (filter, access) in rows {
            self.send(&["HSET", &format!("mqtt_acl:{name}"), filter, access]);
        }
    }

    /// Sends one command, which succeeds.
    pub fn send(&self, words: &[&str]) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let mut command = format!("*{}\r\n", words.len());
        for word in words {
            command += &format!("${}\r\n{word}\r\n", word.len());
        }
        stream.write_all(command.as_bytes()).unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        assert!(!answer.starts_with('-'), "{words:?}: {answer}");
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
