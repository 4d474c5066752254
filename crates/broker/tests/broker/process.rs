//! The broker's process: start, ready line, signals, end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A running broker; killed when dropped.
pub struct Broker {
    child: Child,
    /// Port from the ready line.
    pub port: u16,
    /// The whole ready line.
    pub ready: String,
}

impl Broker {
    /// Starts on a free port and waits for the ready line.
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, &[])
    }

    /// Starts with variables, and waits for the ready line.
    pub fn start_with(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut child = spawn_with(&[&["--port", "0"], arguments].concat(), variables);
        let mut ready = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
        let port = number_in(&ready, "\"port\":").expect(&ready);
        Self { child, port, ready }
    }

    /// Returns the current value of `pubstorm_broker_NAME`.
    pub fn metric(&self, name: &str) -> u64 {
        let page = self.page("/metrics");
        let line = format!("\npubstorm_broker_{name} ");
        let value = page.split(&line).nth(1).and_then(|rest| rest.lines().next()).expect(&page);
        value.parse().unwrap()
    }

    /// Returns the answer over HTTP, with its head.
    pub fn page(&self, path: &str) -> String {
        let port: u16 = number_in(&self.ready, "\"metrics_port\":").expect(&self.ready);
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    }

    /// Ends it, and gives all that it wrote to stderr.
    pub fn end_of_log(&mut self) -> String {
        self.signal("TERM");
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        log
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn close_stdin(&mut self) {
        drop(self.child.stdin.take());
    }

    pub fn signal(&self, name: &str) {
        let signal = if name == "INT" { Signal::SIGINT } else { Signal::SIGTERM };
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Waits for the end; to be called once its connections are seen to be cut off.
    pub fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the binary with all three streams held by the test.
pub fn spawn(arguments: &[&str]) -> Child {
    spawn_with(arguments, &[])
}

/// Starts the binary with variables.
pub fn spawn_with(arguments: &[&str], variables: &[(&str, &str)]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_pubstorm-broker"))
        .args(arguments)
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Returns the stdout of a process that succeeds.
pub fn finish(mut child: Child) -> String {
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    assert!(child.wait().unwrap().success());
    output
}

/// Returns the number after a key of the ready line.
fn number_in(ready: &str, key: &str) -> Option<u16> {
    let rest = ready.split(key).nth(1)?;
    rest.split(|each: char| !each.is_ascii_digit()).next()?.parse().ok()
}
