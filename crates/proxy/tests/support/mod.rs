//! A proxy process, and sockets on both sides.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);

/// The program as a child process.
pub struct Proxy {
    process: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Proxy {
    /// Starts a proxy with all descriptors.
    pub fn start() -> Self {
        Self::spawn(Command::new(env!("CARGO_BIN_EXE_pubstorm-proxy")))
    }

    /// Starts a proxy with `count` descriptors.
    pub fn with_descriptors(count: usize) -> Self {
        let mut command = Command::new("sh");
        let program = env!("CARGO_BIN_EXE_pubstorm-proxy");
        command.arg("-c").arg(format!("ulimit -n {count}; exec {program}"));
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Self {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = process.stdin.take();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        Self { process, stdin, stdout }
    }

    /// Sends a command; returns the answer.
    pub fn ask(&mut self, command: &Value) -> Value {
        writeln!(self.stdin.as_mut().unwrap(), "{command}").unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Ports of links of the name `up`.
    pub fn open(&mut self, target: &TcpListener, count: usize) -> Vec<u16> {
        let opened = self.ask(&open_command(target, count));
        assert_eq!(opened["kind"], "opened", "{opened}");
        serde_json::from_value(opened["ports"].clone()).unwrap()
    }

    /// Both ends of a connection over a link of its own.
    pub fn connect(&mut self, target: &TcpListener) -> (TcpStream, TcpStream) {
        connect(self.open(target, 1)[0], target)
    }

    /// Puts links into a state.
    pub fn set(&mut self, links: &[usize], state: &str, delay: Duration) {
        let delay_ns = u64::try_from(delay.as_nanos()).unwrap();
        let set = json!({"command": "set", "name": "up", "links": links, "state": state,
            "delay_ns": delay_ns});
        assert_eq!(self.ask(&set), json!({"kind": "set", "name": "up"}));
    }

    /// Returns the counts of the first links.
    pub fn counts(&mut self) -> Value {
        self.ask(&json!({"command": "count"}))["links"][0].clone()
    }

    /// Returns the counts once `is_so` accepts them.
    pub fn counts_once(&mut self, is_so: impl Fn(&Value) -> bool) -> Value {
        let mut counts = self.counts();
        for _ in 0..PATIENCE.as_millis() / PAUSE.as_millis() {
            if is_so(&counts) {
                break;
            }
            thread::sleep(PAUSE);
            counts = self.counts();
        }
        assert!(is_so(&counts), "{counts}");
        counts
    }

    /// Closes its stdin; whether it then ends well.
    pub fn end(&mut self) -> bool {
        drop(self.stdin.take());
        self.process.wait().unwrap().success()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the command that opens links of the name `up`.
pub fn open_command(target: &TcpListener, count: usize) -> Value {
    let to = target.local_addr().unwrap().to_string();
    json!({"command": "open", "name": "up", "to": to, "count": count, "listen": "127.0.0.1"})
}

/// Returns a target on a free port.
pub fn listen() -> TcpListener {
    TcpListener::bind(("127.0.0.1", 0)).unwrap()
}

/// Both ends of a connection over the link at a port.
pub fn connect(port: u16, target: &TcpListener) -> (TcpStream, TcpStream) {
    let near = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (far, _) = target.accept().unwrap();
    for end in [&near, &far] {
        end.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    (near, far)
}

/// Bytes of which none can be missed or doubled unseen.
pub fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|n| (n % 251) as u8).collect()
}

/// Reads `count` bytes.
pub fn read(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

/// Returns `true` if neither bytes nor an end arrive for 50 ms.
pub fn waits(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let waited = stream.read(&mut [0; 1]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    waited
}

/// Takes all descriptors that this process may have.
pub fn raise_descriptors() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
}
