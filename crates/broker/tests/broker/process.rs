//! The broker's process: start, ready line, signals, end. It knows no MQTT.

use std::io::{BufRead, BufReader, Read};
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
        let mut child = spawn(&[&["--port", "0"], arguments].concat());
        let mut ready = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
        let port = ready.split("\"port\":").nth(1).and_then(|rest| rest.split(',').next());
        let port = port.expect(&ready).parse().unwrap();
        Self { child, port, ready }
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
    Command::new(env!("CARGO_BIN_EXE_pubstorm-broker"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What a process that succeeds wrote to stdout.
pub fn finish(mut child: Child) -> String {
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    assert!(child.wait().unwrap().success());
    output
}
